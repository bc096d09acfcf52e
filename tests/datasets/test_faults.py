"""Kills, failing and full disks, races, readers and read-only folders while collecting."""

from __future__ import annotations

import errno
import os
import resource
import select
import signal
import subprocess
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest

from mcat.datasets import collect as collecting
from mcat.datasets.collect import CollectConfig, collect
from mcat.datasets.episodes import EpisodeStore
from mcat.datasets.hdf5 import read_dataset, write_dataset
from mcat.envs.tasks import Task
from mcat.envs.vector import TaskVectorEnv
from mcat.errors import DataError, McatError, StorageError
from tests.datasets.stores import content_hash
from tests.file_faults import CHANGES, LOOKS, Faults, calls_of, failing

NOBODY = 65534
TASK = Task("halfcheetah", horizon=25)
CONFIG = CollectConfig(task=TASK, steps=600, seed=1, noise=(0.0, 0.3), envs=4)
SHARD = 150  # two rounds, so that a shard that a signal cut short is smaller


def policy(observations):
    return np.sin(observations[:, : TASK.spec.action_size])


@pytest.fixture(autouse=True)
def small_shards(monkeypatch):
    monkeypatch.setattr(collecting, "SHARD_TRANSITIONS", SHARD)


@pytest.fixture(scope="module")
def clean(tmp_path_factory):
    """An uninterrupted run: its content hash, its episodes and how long it took."""
    path = tmp_path_factory.mktemp("clean") / "a.h5"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(collecting, "SHARD_TRANSITIONS", SHARD)
        collect(CONFIG, policy, path, quiet=True)  # warms up MuJoCo, so that forks start at once
        path.unlink()
        began = time.monotonic()
        collect(CONFIG, policy, path, quiet=True)
    return content_hash(path), read_dataset(path)[0], time.monotonic() - began


def spawn(out, before=None, **options):
    """Starts a collection in a fork, which exits as the command line would."""
    child = os.fork()
    if child == 0:
        code = 99
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            if before is not None:
                before()
            collect(CONFIG, policy, out, quiet=True, **options)
            code = 0
        except McatError as error:
            code = error.exit_code if len(str(error).splitlines()) == 1 else 98
        finally:
            os._exit(code)
    return child


def wait(child):
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def assert_durable(out, clean_episodes):
    """Every file is readable; the shards are a prefix of the clean run."""
    folder = out.with_name(f"{out.name}.shards")
    if out.exists():
        assert len(read_dataset(out)[0]) == CONFIG.steps
    row = 0
    for shard in sorted(folder.glob("shard-*.h5")):
        episodes, _ = read_dataset(shard)
        part = slice(row, row + len(episodes))
        for name in ("observations", "actions", "rewards", "next_observations", "timeouts"):
            np.testing.assert_array_equal(
                getattr(episodes, name), getattr(clean_episodes, name)[part]
            )
        row += len(episodes)
    return row


def check_kills(tmp_path, clean, kills):
    """Random SIGKILLs, up to three per collection, then a resume to the end."""
    expected, episodes, seconds = clean
    rng = np.random.default_rng(0)
    done = runs = cut_short = 0
    while done < kills:
        out = tmp_path / f"{runs}.h5"
        runs += 1
        safe = 0
        for _ in range(3):
            if out.exists():
                break
            child = spawn(out, resume=True)
            time.sleep(rng.uniform(0, 0.7 * seconds))
            os.kill(child, signal.SIGKILL)
            cut_short += wait(child) == -signal.SIGKILL
            done += 1
            now = assert_durable(out, episodes)
            assert now >= safe or out.exists()  # nothing sealed is ever lost
            safe = now
        assert wait(spawn(out, resume=True)) == 0
        assert content_hash(out) == expected
        assert sorted(p.name for p in tmp_path.iterdir()) == [out.name]
        out.unlink()
    assert cut_short > 0.6 * kills


def test_kills_break_nothing_and_resume_gives_the_same_file(tmp_path, clean):
    check_kills(tmp_path, clean, 30)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_kills_break_nothing_and_resume_gives_the_same_file_200(tmp_path, clean):
    check_kills(tmp_path, clean, 200)


def test_a_kill_loses_at_most_one_shard(tmp_path, clean):
    """The child kills itself at known steps, so that what was finished is known exactly."""
    _, episodes, _ = clean
    rounds_of = CONFIG.envs * TASK.horizon
    for number, steps in enumerate([1, 24, 25, 26, 130, 149]):
        out = tmp_path / f"{number}.h5"
        left = [steps]

        def act(observations, left=left):
            left[0] -= 1
            if left[0] < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return policy(observations)

        child = os.fork()
        if child == 0:
            collect(CONFIG, act, out, quiet=True)
            os._exit(0)
        assert wait(child) == -signal.SIGKILL
        finished = steps // TASK.horizon * rounds_of
        assert finished - SHARD <= assert_durable(out, episodes) <= finished


@pytest.mark.parametrize(("number", "times"), [(signal.SIGINT, 50), (signal.SIGTERM, 10)])
def test_random_signals_end_with_the_right_code_and_resume_works(tmp_path, clean, number, times):
    expected, episodes, seconds = clean
    rng = np.random.default_rng(int(number))
    for i in range(times):
        out = tmp_path / f"{i}.h5"
        child = spawn(out, resume=True)
        # Not before the handlers are there: a process that has not begun just dies.
        while not list(tmp_path.glob("*.shards/shard-*")) and not out.exists():
            time.sleep(0.002)
        time.sleep(rng.uniform(0, 0.5 * seconds))
        os.kill(child, number)
        code = wait(child)
        # Once the file is there the handlers are gone: the child dies as any process does.
        assert code in (0, 130 if number == signal.SIGINT else 75) or out.exists()
        assert assert_durable(out, episodes) > 0 or out.exists()
        assert wait(spawn(out, resume=True)) == 0
        assert content_hash(out) == expected


# ---- full disks


def limit_files(size):
    def before():
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    return before


def test_a_file_size_limit_ends_with_74_and_keeps_the_shards(tmp_path, clean):
    """RLIMIT_FSIZE, at which an unprepared process dies by SIGXFSZ."""
    expected, episodes, _ = clean
    outcomes = []
    for number, size in enumerate([2_000, 15_000, 25_000, 90_000]):
        out = tmp_path / f"{number}.h5"
        assert wait(spawn(out, before=limit_files(size))) == 74
        outcomes.append(assert_durable(out, episodes))
        assert not list(tmp_path.rglob("*.part-*"))
        assert not out.exists()
        assert wait(spawn(out, resume=True)) == 0
        assert content_hash(out) == expected
    assert outcomes[0] == 0  # not even one shard fits
    assert outcomes[-1] == CONFIG.steps  # the shards fit, the merged file does not


@contextmanager
def small_disk(folder, size):
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=777", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting a tmpfs is not permitted here")
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_ends_with_74_and_keeps_the_shards(tmp_path, clean):
    expected, episodes, _ = clean
    disk = tmp_path / "disk"
    with small_disk(disk, "2M"):
        filler = disk / "filler"
        outcomes = set()
        for free in np.linspace(205_000, 330_000, 20):  # enough at first sight, then not
            filler.write_bytes(b"\0" * (2 * 2**20 - int(free) // 4096 * 4096))
            out = disk / "a.h5"
            code = wait(spawn(out))
            assert code in (0, 74)
            assert not list(disk.rglob("*.part-*"))
            outcomes.add((code, assert_durable(out, episodes)))
            filler.unlink()
            assert wait(spawn(out, resume=True)) == 0
            assert content_hash(out) == expected
            out.unlink()
    assert (0, 0) in outcomes
    assert any(code == 74 and rows > 0 for code, rows in outcomes)


def test_too_little_space_is_found_before_the_first_step(tmp_path, monkeypatch):
    def never(*args, **kwargs):
        raise AssertionError("stepped")

    monkeypatch.setattr(TaskVectorEnv, "step", never)
    huge = CollectConfig(task=TASK, steps=10**13)
    with pytest.raises(StorageError, match="MB are needed"):
        collect(huge, policy, tmp_path / "a.h5", quiet=True)
    assert os.listdir(tmp_path) == []


# ---- races


@pytest.mark.parametrize(("locking", "races"), [(True, 50), (False, 10)])
def test_one_of_four_racing_processes_wins(tmp_path, clean, locking, races):
    expected = clean[0]
    for number in range(races):
        out = tmp_path / f"{number}.h5"
        before = None if locking else lambda: os.environ.update(HDF5_USE_FILE_LOCKING="FALSE")
        codes = sorted(wait(child) for child in [spawn(out, before) for _ in range(4)])
        assert codes == [0, 73, 73, 73]
        assert content_hash(out) == expected
        assert [p.name for p in tmp_path.iterdir()] == [out.name]
        out.unlink()


@pytest.mark.parametrize("races", [3, pytest.param(50, marks=pytest.mark.slow)])
def test_of_three_resuming_processes_one_goes_on_and_none_spoils_it(tmp_path, clean, races):
    for number in range(races):
        out = tmp_path / f"{number}.h5"
        assert wait(spawn(out, before=limit_files(25_000))) == 74  # leaves some shards
        codes = sorted(wait(child) for child in [spawn(out, resume=True) for _ in range(3)])
        assert codes[0] == 0
        assert set(codes) <= {0, 73}  # 0 also for one that finds it finished
        assert content_hash(out) == clean[0]
        assert [p.name for p in tmp_path.iterdir()] == [out.name]
        out.unlink()


# ---- outputs that cannot be


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to become another user")
def test_a_read_only_folder_is_found_before_the_first_step():
    def become_nobody():
        def never(*args, **kwargs):
            os._exit(97)

        TaskVectorEnv.step = TaskVectorEnv.reset = never
        os.setgid(NOBODY)
        os.setuid(NOBODY)

    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o555)
        assert wait(spawn(Path(folder) / "a.h5", become_nobody)) == 73
        assert os.listdir(folder) == []


@pytest.mark.parametrize("kind", ["file", "folder", "link", "dangling link", "no folder"])
@pytest.mark.parametrize("resume", [False, True])
def test_existing_outputs_are_untouched(tmp_path, kind, resume):
    other = tmp_path / "other"
    out = tmp_path / "a.h5"
    if kind == "folder":
        out.mkdir()
    elif kind == "dangling link":
        out.symlink_to(other)
    elif kind == "no folder":
        out = tmp_path / "none" / "a.h5"
    else:
        other.write_text("precious")
        out.symlink_to(other) if kind == "link" else out.write_text("precious")

    def listing():
        return sorted((p.name, p.is_file() and p.read_text()) for p in tmp_path.rglob("*"))

    before = listing()
    # With --resume an existing file is taken for a finished collection, which this is not.
    code = 65 if resume and kind in ("file", "link") else 73
    assert wait(spawn(out, resume=resume)) == code
    assert listing() == before


# ---- disks that fail


def check_errors(tmp_path, clean, *, every):
    """An error at one file call, or at it and all after it: one line, and resuming completes."""
    names = (*CHANGES, *LOOKS)
    work = lambda: collect(CONFIG, policy, tmp_path / "a.h5", quiet=True, resume=True)  # noqa: E731
    calls = calls_of(tmp_path, work, names)
    (tmp_path / "a.h5").unlink()
    tried = 0
    for at in range(1, len(calls) + 1, every):
        for number, for_good in ((errno.EIO, True), (errno.EIO, False), (errno.EROFS, True)):
            act = failing(number, at, for_good=for_good)
            with Faults(tmp_path, act, names).injected(), suppress(McatError):
                work()
            work()
            assert content_hash(tmp_path / "a.h5") == clean[0]
            assert os.listdir(tmp_path) == ["a.h5"]
            (tmp_path / "a.h5").unlink()
            tried += 1
    return tried


def test_an_error_at_any_file_call_is_told_and_resume_completes(tmp_path, clean):
    assert check_errors(tmp_path, clean, every=25) > 8


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_an_error_at_every_file_call_is_told_and_resume_completes(tmp_path, clean):
    print(f"{check_errors(tmp_path, clean, every=1)} errors")


# ---- readers


def check_readers(tmp_path, files):
    """Two processes read a file while this one replaces it so many times by a longer one."""
    path = tmp_path / "a.h5"
    whole, _ = read_dataset(_written(tmp_path / "whole.h5"))
    first = EpisodeStore.concatenate([whole])
    write_dataset(path, first, {})
    over, writing = os.pipe()  # the readers go on until its writing end is closed
    readers = []
    for _ in range(2):
        reader = os.fork()
        if reader == 0:
            code, seen = 1, 0
            try:
                os.close(writing)
                while not select.select([over], [], [], 0)[0]:
                    count = read_dataset(path)[0].num_episodes
                    assert count >= seen
                    seen = count
                code = 0
            finally:
                os._exit(code)
        readers.append(reader)
    store = first
    for written in range(files):
        if written % 10 == 0 and len(store) < 50_000:
            store = EpisodeStore.concatenate([store, whole])
        write_dataset(path, store, {}, overwrite=True)
    os.close(writing)
    assert [wait(reader) for reader in readers] == [0, 0]
    os.close(over)
    assert sorted(os.listdir(tmp_path)) == ["a.h5", "whole.h5"]


def _written(path):
    collect(CONFIG, policy, path, quiet=True)
    return path


def test_a_reader_never_sees_half_a_file(tmp_path):
    check_readers(tmp_path, files=20)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_reader_never_sees_half_of_thousands_of_files(tmp_path):
    check_readers(tmp_path, files=2000)


def test_a_file_cut_anywhere_is_one_line_with_its_name_and_size(tmp_path):
    content = _written(tmp_path / "a.h5").read_bytes()
    path = tmp_path / "cut.h5"
    for size in sorted({len(content) * i // 500 for i in range(500)}):
        path.write_bytes(content[:size])
        with pytest.raises(DataError, match=rf"cut\.h5: .*\b{size} bytes") as caught:
            read_dataset(path)
        assert caught.value.exit_code == 65
        assert len(str(caught.value).splitlines()) == 1
