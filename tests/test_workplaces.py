"""Locks, and folders that appear when they are complete, whenever the process dies."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import tempfile
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from mcat import leases, workplaces
from mcat.agents.runs import folder as runs
from mcat.errors import CannotCreateError, StorageError
from mcat.safe_io import new_file
from mcat.workplaces import BusyError, claimed, new_folder, tidy_folder
from tests.file_faults import (
    CHANGES,
    LOOKS,
    Faults,
    calls_of,
    deaths,
    failing,
    in_child,
    killing,
)
from tests.leases.made import no_locks, write_lease

# ---- claims


def test_one_process_at_a_time_holds_a_claim(tmp_path):
    lock = tmp_path / "lock"
    with (
        claimed(lock, "out.h5"),
        pytest.raises(CannotCreateError, match=f"process {os.getpid()}"),
        claimed(lock, "out.h5"),
    ):
        pytest.fail("claimed twice")
    with claimed(lock, "out.h5"):
        lock.unlink()
    child = os.fork()
    if child == 0:
        with claimed(lock, "out.h5"):
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    with claimed(lock, "out.h5"):  # freed by the kill
        pass


def test_a_process_waits_for_the_one_that_holds_a_claim(tmp_path):
    lock = tmp_path / "lock"
    ready, go = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        with claimed(lock, "out.h5"):
            os.write(ready[1], b".")
            os.read(go[0], 1)
            os.kill(os.getpid(), signal.SIGKILL)
    os.read(ready[0], 1)
    with pytest.raises(BusyError) as caught, claimed(lock, "out.h5"):
        pytest.fail("claimed twice")
    assert caught.value.owner.startswith(f"process {child} on ")
    waiter = threading.Thread(target=caught.value.wait)
    waiter.start()
    waiter.join(timeout=0.1)
    assert waiter.is_alive()
    os.write(go[1], b".")
    waiter.join(timeout=60)
    assert not waiter.is_alive()
    os.waitpid(child, 0)
    lock.unlink()
    caught.value.wait()  # nothing to wait for


@pytest.mark.parametrize("kind", ["file", "link"])
def test_a_lock_file_of_somebodys_own_is_untouched(tmp_path, kind):
    mine = tmp_path / "mine"
    mine.write_text("precious")
    lock = mine
    if kind == "link":
        lock = tmp_path / "lock"
        lock.symlink_to(mine)
    with pytest.raises(CannotCreateError, match=f"{lock}"), claimed(lock, "out.h5"):
        pytest.fail("claimed")
    assert mine.read_text() == "precious"


# ---- folders


@pytest.fixture
def tmp_path(tmp_path):
    """In memory where that is possible: hundreds of flushes to a disk take long."""
    if not os.access("/dev/shm", os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder)


def write(path, text, **options):
    with new_folder(path, **options) as folder, new_file(folder / "a.txt") as part:
        part.write_text(text)


def content(path):
    """None if it is not there, else the text in it."""
    if not path.exists():
        return None
    assert os.listdir(path) == ["a.txt"]
    return (path / "a.txt").read_text()


def no_renameat2(monkeypatch):
    monkeypatch.setattr(workplaces, "_renameat2", lambda old, new, flags: False)


@pytest.mark.parametrize(
    ("able", "locks"),
    [(True, True), (False, True), (True, False)],
    ids=["renameat2", "rename", "leases"],
)
def test_a_kill_at_any_file_call_leaves_the_old_folder_or_the_new(
    tmp_path, monkeypatch, able, locks
):
    if not able:
        no_renameat2(monkeypatch)
    if not locks:
        no_locks(monkeypatch)
    path = tmp_path / "out"

    def work():
        write(path, "new", overwrite=True)

    write(path, "old")
    calls = calls_of(tmp_path, work)
    assert len(calls) > 14
    gaps = 0
    for death in deaths(calls):
        write(path, "old", overwrite=True)
        assert os.listdir(tmp_path) == ["out"]  # nothing else is ever left
        assert in_child(work, Faults(tmp_path, killing(*death))) == -signal.SIGKILL
        gaps += content(path) is None
        tidy_folder(path)
        assert content(path) in ("old", "new")
        assert os.listdir(tmp_path) == ["out"]
    assert gaps == 0 if able else 0 < gaps < 4


@pytest.mark.parametrize("locks", [True, False], ids=["locks", "leases"])
def test_a_kill_at_any_file_call_leaves_no_folder_or_the_new(tmp_path, monkeypatch, locks):
    if not locks:
        no_locks(monkeypatch)
    path = tmp_path / "out"
    calls = calls_of(tmp_path, lambda: write(path, "new"))
    for death in deaths(calls):
        shutil.rmtree(path)
        assert os.listdir(tmp_path) == []
        assert in_child(lambda: write(path, "new"), Faults(tmp_path, killing(*death))) < 0
        if content(path) == "new":
            with pytest.raises(CannotCreateError, match="exists already"):
                write(path, "other")
        else:
            write(path, "new")
        assert content(path) == "new"
        assert os.listdir(tmp_path) == ["out"]


@pytest.mark.parametrize("locks", [True, False], ids=["locks", "leases"])
def test_the_folder_of_a_living_process_is_never_removed(tmp_path, monkeypatch, locks):
    if not locks:
        no_locks(monkeypatch)
    path = tmp_path / "out"
    with new_folder(path) as folder:
        (folder / "a.txt").write_text("half")
        tidy_folder(path)
        with pytest.raises(BusyError, match=f"out is being written.*process {os.getpid()} on"):
            write(path, "other")
        assert (folder / "a.txt").read_text() == "half"
    assert content(path) == "half"
    assert os.listdir(tmp_path) == ["out"]


@pytest.mark.parametrize(
    "entry",
    ["thesis.txt", "new-1", f"new-{'0' * 32}x", f"mine-{'0' * 32}", "lock.lease.mine", "my.lease"],
)
@pytest.mark.parametrize("kind", ["file", "folder", "link"])
def test_a_hidden_folder_of_somebodys_own_is_refused(tmp_path, entry, kind):
    place = tmp_path / ".out.part"
    place.mkdir()
    if kind == "file":
        (place / entry).write_text("precious")
    elif kind == "folder":
        (place / entry).mkdir()
    else:
        (place / entry).symlink_to(tmp_path)
    with pytest.raises(CannotCreateError, match=f"holds {entry}, which mcat did not make"):
        write(tmp_path / "out", "new")
    assert os.listdir(tmp_path) == [".out.part"]
    assert os.listdir(place) == [entry]


def test_the_folder_of_another_machine_s_process_is_never_removed(tmp_path, monkeypatch):
    """Nor half-made folders in it, until that machine has given no sign of life for long."""
    no_locks(monkeypatch)
    path, half = tmp_path / "out", tmp_path / f".out.part/new-{'0' * 32}"
    half.mkdir(parents=True)
    lease = write_lease(half.parent / "lock", host="node7", boot="its own")
    tidy_folder(path)
    with pytest.raises(BusyError, match="on node7"):
        write(path, "new")
    assert half.is_dir()
    assert json.loads(lease.read_text())["host"] == "node7"
    write_lease(half.parent / "lock", age=leases.STALE + 1, host="node7", boot="its own")
    write(path, "new")
    assert content(path) == "new"
    assert os.listdir(tmp_path) == ["out"]


def test_of_many_processes_without_locks_one_makes_a_folder(tmp_path, monkeypatch):
    """The others are told that it is busy or there; what was left by a dead one is gone."""
    no_locks(monkeypatch)
    for number in range(10):
        path = tmp_path / f"out{number}"
        children = []
        for name in "abcdef":
            children.append(os.fork())
            if children[-1] == 0:
                code = 99
                try:
                    write(path, name)
                    code = 0
                except CannotCreateError:
                    code = 73
                finally:
                    os._exit(code)
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        assert sorted(codes) == [0] + [73] * 5
        assert content(path) == "abcdef"[codes.index(0)]
        tidy_folder(path)
    assert len(os.listdir(tmp_path)) == 10


def test_a_file_or_link_is_never_replaced_by_a_folder(tmp_path):
    file, link = tmp_path / "file", tmp_path / "link"
    file.write_text("precious")
    link.symlink_to(tmp_path / "target")
    for path in (file, link):
        with pytest.raises(CannotCreateError, match="exists already"):
            write(path, "new")
        with pytest.raises(CannotCreateError, match="is no folder"):
            write(path, "new", overwrite=True)
    assert file.read_text() == "precious"
    assert sorted(os.listdir(tmp_path)) == ["file", "link"]


def test_too_little_space_is_found_before_the_work(tmp_path):
    with (
        pytest.raises(StorageError, match="MB are needed"),
        new_folder(tmp_path / "out", needed_bytes=10**18),
    ):
        pytest.fail("began")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("able", [True, False], ids=["renameat2", "rename"])
@pytest.mark.parametrize(
    ("number", "for_good"), [(errno.ENOSPC, False), (errno.EIO, False), (errno.EROFS, True)]
)
def test_a_failing_disk_is_one_line_and_the_old_folder_stays(
    tmp_path, monkeypatch, number, for_good, able
):
    if not able:
        no_renameat2(monkeypatch)
    path, names = tmp_path / "out", (*CHANGES, *LOOKS)
    write(path, "old")

    def work():
        write(path, "new", overwrite=True)

    calls = calls_of(tmp_path, work, names)
    assert len(calls) > 25
    for at in range(1, len(calls) + 1):
        with (
            Faults(tmp_path, failing(number, at, for_good=for_good), names).injected(),
            suppress(CannotCreateError, StorageError),
        ):
            work()
        tidy_folder(path)
        assert content(path) in ("old", "new")
        write(path, "old", overwrite=True)
        assert os.listdir(tmp_path) == ["out"]


def test_only_unfinished_files_of_the_run_itself_are_removed(tmp_path):
    run, part = tmp_path / "run", f"part-{'0' * 32}"
    (run / "checkpoints").mkdir(parents=True)
    (run / "notes").mkdir()
    ours = [run / f".metrics.csv.{part}", run / f"checkpoints/.step-7.safetensors.{part}"]
    theirs = [
        run / ".mine.part-time",
        run / f".mine.{part}0",
        run / f"mine.{part}",
        run / f"notes/.mine.{part}",
    ]
    for path in [*ours, *theirs]:
        path.write_text("precious")
    (run / f".folder.{part}").mkdir()
    (run / f".link.{part}").symlink_to(theirs[0])
    (run / ".tr.part").mkdir()
    runs.remove_stale_files(run)
    assert not any(path.exists() for path in ours)
    assert all(path.read_text() == "precious" for path in theirs)
    left = {".folder." + part, ".link." + part, ".tr.part", "checkpoints", "notes"}
    assert left <= set(os.listdir(run))
