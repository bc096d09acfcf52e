"""Durable writing: whole or not at all, one winner, errors in one line."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import numpy as np
import pytest

from mcat.errors import CannotCreateError, DataError, MissingInputError, StorageError
from mcat.safe_io import (
    ensure_writable_output,
    new_file,
    read_json,
    remove_stale_parts,
    sha256_of,
    write_json,
)
from mcat.tensor_files import digest

NOBODY = 65534
OLD, NEW = "old content", "new content"


def as_nobody(function):
    """Runs `function` as an unprivileged user in a child; root would be allowed everything."""
    child = os.fork()
    if child == 0:
        try:
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            function()
        except AssertionError:
            os._exit(1)
        except BaseException:
            os._exit(2)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.fixture
def public_folder():
    """A folder that other users reach, unlike pytest's own."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


# ---- new_file


def test_a_file_appears_when_it_is_complete_and_leaves_nothing_else(tmp_path):
    path = tmp_path / "a.txt"
    with new_file(path) as part:
        part.write_text(NEW)
        assert part.parent == tmp_path
        assert not path.exists()
    assert path.read_text() == NEW
    assert os.listdir(tmp_path) == ["a.txt"]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_a_failed_block_leaves_what_was_there(tmp_path, error):
    path = tmp_path / "a.txt"
    path.write_text(OLD)

    def fail_half_way():
        with new_file(path, overwrite=True) as part:
            part.write_text(NEW)
            raise error

    with pytest.raises(error):
        fail_half_way()
    assert path.read_text() == OLD
    assert os.listdir(tmp_path) == ["a.txt"]


def test_existing_files_are_replaced_only_on_request(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text(OLD)
    with pytest.raises(CannotCreateError, match="--overwrite"), new_file(path) as part:
        part.write_text(NEW)
    assert path.read_text() == OLD
    with new_file(path, overwrite=True) as part:
        part.write_text(NEW)
    assert path.read_text() == NEW
    assert os.listdir(tmp_path) == ["a.txt"]


@pytest.mark.parametrize("hard_links", [True, False])
def test_one_of_several_racing_writers_wins(tmp_path, monkeypatch, hard_links):
    if not hard_links:

        def no_links(*args):
            raise OSError(errno.EOPNOTSUPP, "not supported")

        monkeypatch.setattr(os, "link", no_links)
    path = tmp_path / "a.txt"
    barrier = threading.Barrier(4)
    winners, losers = [], []

    def write(number):
        try:
            with new_file(path) as part:
                part.write_text(f"{number}" * 1000)
                barrier.wait(timeout=20)
        except CannotCreateError:
            losers.append(number)
        else:
            winners.append(number)

    for _ in range(25):
        threads = [threading.Thread(target=write, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (len(winners), len(losers)) == (1, 3)
        assert path.read_text() == f"{winners[0]}" * 1000
        path.unlink()
        winners.clear()
        losers.clear()


# Whichever operating system call fails, the file is the old one or the new one.
CALLS = ["write", "fsync file", "replace", "link", "fsync folder", "open for fsync", "close"]


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("overwrite", [True, False])
@pytest.mark.parametrize("call", CALLS)
def test_a_failure_at_any_step_leaves_a_usable_file(tmp_path, monkeypatch, call, overwrite, number):
    path = tmp_path / "a.json"
    if overwrite:
        write_json(path, OLD)

    def fail(*args, **kwargs):
        raise OSError(number, os.strerror(number))

    def fail_on_second(function):
        calls = []

        def wrapper(*args, **kwargs):
            calls.append(args)
            return fail() if len(calls) == 2 else function(*args, **kwargs)

        return wrapper

    happens = True
    if call == "write":
        monkeypatch.setattr(Path, "write_bytes", fail)
    elif call == "fsync file":
        monkeypatch.setattr(os, "fsync", fail)
    elif call == "fsync folder":
        monkeypatch.setattr(os, "fsync", fail_on_second(os.fsync))
    elif call == "open for fsync":
        monkeypatch.setattr(os, "open", fail)
    elif call == "close":
        real = os.close
        monkeypatch.setattr(os, "close", lambda descriptor: (real(descriptor), fail()))
    else:
        monkeypatch.setattr(os, call, fail)
        happens = overwrite == (call == "replace")
    if happens:
        with pytest.raises(StorageError) as caught:
            write_json(path, NEW, overwrite=overwrite)
        assert len(str(caught.value).splitlines()) == 1
        assert str(path) in str(caught.value)
    else:
        write_json(path, NEW, overwrite=overwrite)
    monkeypatch.undo()
    if path.exists() or overwrite:
        assert read_json(path) in (OLD, NEW)
    assert set(os.listdir(tmp_path)) <= {"a.json"}
    write_json(path, NEW, overwrite=path.exists())  # and the next save works
    assert read_json(path) == NEW


def test_killed_writers_never_leave_half_a_file(tmp_path):
    path = tmp_path / "a.json"
    values = [[i] * 20_000 for i in range(2)]
    write_json(path, values[0])
    rng = np.random.default_rng(0)
    for delay in rng.uniform(0, 0.02, size=20):
        child = os.fork()
        if child == 0:
            for i in range(10**6):
                write_json(path, values[i % 2], overwrite=True)
        threading.Event().wait(delay)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        assert read_json(path) in values
    keep = tmp_path / ".other.json.part-0123456789abcdef0123456789abcdef"
    keep.touch()
    remove_stale_parts(tmp_path, path.name)
    assert set(os.listdir(tmp_path)) == {"a.json", keep.name}


def test_a_file_size_limit_is_an_error_and_no_death_by_signal(tmp_path):
    program = (
        "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "from mcat.safe_io import write_json\n"
        "from mcat.errors import StorageError\n"
        "try: write_json('a.json', 'x' * 5000)\n"
        "except StorageError as error: raise SystemExit(error.exit_code)\n"
    )
    code = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=False).returncode
    assert code == 74
    assert os.listdir(tmp_path) == []


# ---- before the work


def test_outputs_are_checked_before_the_work(tmp_path):
    file = tmp_path / "a.h5"
    file.write_text(OLD)
    link = tmp_path / "link.h5"
    link.symlink_to(file)
    dangling = tmp_path / "dangling.h5"
    dangling.symlink_to(tmp_path / "nothing")
    for path in (file, link, dangling, tmp_path, tmp_path / "none" / "a.h5", file / "a.h5"):
        with pytest.raises(CannotCreateError) as caught:
            ensure_writable_output(path)
        assert str(path.name) in str(caught.value) or str(path.parent) in str(caught.value)
        assert len(str(caught.value).splitlines()) == 1
    for path in (file, link):
        ensure_writable_output(path, overwrite=True)
    with pytest.raises(StorageError, match="MB are needed"):
        ensure_writable_output(tmp_path / "b.h5", needed_bytes=10**18)
    assert file.read_text() == OLD
    assert len(os.listdir(tmp_path)) == 3


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to become another user")
def test_a_read_only_folder_is_found_before_the_work(public_folder):
    def refused():
        with pytest.raises(CannotCreateError, match="another path"):
            ensure_writable_output(public_folder / "a.h5")
        with pytest.raises(CannotCreateError), new_file(public_folder / "a.h5") as part:
            part.write_text(NEW)

    as_nobody(refused)
    public_folder.chmod(0o777)
    as_nobody(lambda: ensure_writable_output(public_folder / "a.h5"))


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to become another user")
def test_unreadable_input_is_missing_input(public_folder):
    secret = public_folder / "a.json"
    write_json(secret, 1)
    secret.chmod(0o600)

    def refused():
        with pytest.raises(MissingInputError, match="Permission denied"):
            read_json(secret)

    as_nobody(refused)


# ---- JSON and digests


@pytest.mark.parametrize(
    "text", ["", "{", "[" * 100_000, "NaN", '{"a": Infinity}', "\xff", "1" * 5000, "\0", '"\ud800']
)
def test_bad_json_is_one_line(tmp_path, text):
    path = tmp_path / "a.json"
    path.write_text(text, encoding="latin-1" if text == "\xff" else "utf-8", errors="surrogatepass")
    with pytest.raises(DataError) as caught:
        read_json(path)
    assert str(path) in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_json_round_trip_and_missing(tmp_path):
    value = {"b": [1, 2.5, None, "ü"], "a": {"x": True}}
    write_json(tmp_path / "a.json", value)
    assert read_json(tmp_path / "a.json") == value
    with pytest.raises(ValueError, match="JSON compliant"):
        write_json(tmp_path / "b.json", float("nan"))
    with pytest.raises(MissingInputError, match="No such file"):
        read_json(tmp_path / "c.json")
    with pytest.raises(MissingInputError, match="directory"):
        read_json(tmp_path)
    assert os.listdir(tmp_path) == ["a.json"]


def test_a_digest_sees_names_types_shapes_and_values():
    a = np.arange(6, dtype=np.float32)
    same = digest({"a": a, "b": a}, "x")
    assert digest({"b": a, "a": a[::1].copy()}, "x") == same
    for other in (
        {"a": a, "c": a},
        {"a": a, "b": a.view(np.int32)},
        {"a": a, "b": a.reshape(2, 3)},
        {"a": a, "b": a + 1},
        {"a": a},
    ):
        assert digest(other, "x") != same
    assert digest({"a": a, "b": a}, "y") != same
    assert digest({"a": a.reshape(2, 3).T}) == digest({"a": a.reshape(2, 3).T.copy()})


def test_sha256_of_a_file(tmp_path):
    (tmp_path / "a").write_bytes(b"abc")
    assert sha256_of(tmp_path / "a").startswith("ba7816bf8f01cfea")


def test_importing_safe_io_stays_light():
    heavy = "{'torch', 'h5py', 'mujoco', 'safetensors'}"
    program = f"import sys, mcat.safe_io; print({heavy} & sys.modules.keys())"
    command = [sys.executable, "-c", program]
    assert subprocess.run(command, capture_output=True, text=True).stdout == "set()\n"
