"""Where a file system has no locks, leases keep others out: no two hold one, no dead one blocks."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from mcat import leases
from mcat.errors import CannotCreateError
from mcat.workplaces import BusyError, claimed
from tests.leases.made import HOLD, dead_pid, is_free, no_locks, write_lease

# ---- of this machine


def test_one_at_a_time_and_nothing_is_left(lock):
    with claimed(lock, "out.h5") as held:
        assert held
        assert sorted(os.listdir(lock.parent)) == ["lock", "lock.lease"]
        assert leases.is_held(leases.lease_of(lock))
        owner = rf"out.h5 is being written .*\(process {os.getpid()} on .+\): wait for it$"
        with pytest.raises(BusyError, match=owner), claimed(lock, "out.h5"):
            pytest.fail("claimed twice")
    assert not leases.is_held(leases.lease_of(lock))
    assert os.listdir(lock.parent) == ["lock"]
    assert is_free(lock)


@pytest.mark.parametrize("signal_number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_process_holds_a_lease_as_long_as_it_lives(lock, signal_number):
    """Stopped, it lives; killed, it is dead even before its parent has looked."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert holder.stdout.readline() == b"held\n"
        # However long ago it was renewed: one can see that it is alive.
        os.utime(leases.lease_of(lock), (0, 0))
        with pytest.raises(BusyError, match=f"process {holder.pid} on"), claimed(lock, "out.h5"):
            pytest.fail("claimed twice")
        holder.send_signal(signal_number)
        os.waitid(os.P_PID, holder.pid, os.WEXITED | os.WSTOPPED | os.WNOWAIT)
        assert is_free(lock) == (signal_number == signal.SIGKILL)
    finally:
        holder.kill()
        holder.communicate()
    assert is_free(lock)


def test_a_lease_of_a_process_whose_number_was_given_again_is_taken_over(lock):
    write_lease(lock)
    assert not is_free(lock)  # ours
    write_lease(lock, start=leases.start_of(os.getpid()) - 1)
    assert is_free(lock)
    write_lease(lock, pid=dead_pid())
    assert is_free(lock)


def test_the_start_of_a_process_is_read_behind_its_name(tmp_path):
    """A program's name may hold spaces and brackets, which separate the numbers before it."""
    program = tmp_path / "a) Z 1 2 (b"
    program.write_text("#!/bin/sh\nread line\n")
    program.chmod(0o755)
    before = leases._uptime() * os.sysconf("SC_CLK_TCK")
    with subprocess.Popen([program], stdin=subprocess.PIPE) as child:
        start = leases.start_of(child.pid)
        assert before - 2 <= start <= leases._uptime() * os.sysconf("SC_CLK_TCK") + 1
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert leases.start_of(child.pid) == 0
    assert leases.start_of(child.pid) is None


def test_a_process_that_the_system_hides_counts_as_one_elsewhere(lock, monkeypatch):
    def forbidden(pid, number):
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    real = leases.start_of
    monkeypatch.setattr(leases, "start_of", lambda pid: real(pid) if pid == os.getpid() else None)
    monkeypatch.setattr(os, "kill", forbidden)
    write_lease(lock, age=30, pid=1)
    assert not is_free(lock)
    write_lease(lock, age=leases.STALE + 1, pid=1)
    assert is_free(lock)


def test_a_lease_from_before_this_machine_started_is_taken_over(lock, monkeypatch):
    monkeypatch.setattr(leases, "_uptime", lambda: 100.0)
    write_lease(lock, age=101, boot="an earlier one")
    assert is_free(lock)
    # One that was renewed since is of another machine with the same name.
    write_lease(lock, age=99, boot="another machine's")
    assert not is_free(lock)


def test_a_fork_that_leaves_the_block_lets_nothing_go(lock):
    child = None
    try:
        with claimed(lock, "out.h5"):
            child = os.fork()
            if child == 0:
                raise KeyboardInterrupt
            os.waitpid(child, 0)
            assert not is_free(lock)
    finally:
        if child == 0:
            os._exit(0)


# ---- of another machine


def test_a_lease_of_another_machine_counts_while_it_is_renewed(lock):
    path = write_lease(lock, age=leases.STALE - 5, host="node7", boot="its own", pid=12)
    with pytest.raises(BusyError) as caught, claimed(lock, "out.h5"):
        pytest.fail("claimed twice")
    assert caught.value.owner == "process 12 on node7"
    assert str(caught.value) == (
        "out.h5 is being written by another process (process 12 on node7): wait for it (if node7 is"
        f" gone: in 10 minutes its lease counts no more, or remove {path})"
    )
    assert json.loads(path.read_text())["pid"] == 12
    path.unlink()
    assert is_free(lock)
    write_lease(lock, age=leases.STALE + 1, host="node7", boot="its own", pid=12)
    assert is_free(lock)


def test_a_container_has_numbers_of_its_own(lock):
    """Its processes cannot be seen from here, though the machine and its start are the same."""
    write_lease(lock, age=30, space="pid:[1]", pid=dead_pid())
    assert not is_free(lock)
    write_lease(lock, age=leases.STALE + 1, space="pid:[1]", pid=os.getpid())
    assert is_free(lock)


@pytest.mark.parametrize("hours", [-30, 30])
def test_only_the_clock_of_the_file_system_counts(lock, monkeypatch, hours):
    other, clock, now = {"host": "node7", "boot": "its own"}, time.time, leases._now
    monkeypatch.setattr(time, "time", lambda: clock() + 3600 * hours)
    monkeypatch.setattr(time, "time_ns", lambda: int(1e9 * time.time()))
    for age, free in (30, False), (leases.STALE + 1, True):  # our own clock is wrong
        write_lease(lock, age=age, **other)
        assert is_free(lock) == free
    monkeypatch.undo()
    monkeypatch.setattr(leases, "_now", lambda path: now(path) + 3600 * hours)
    no_locks(monkeypatch)
    for age, free in (30, False), (leases.STALE + 1, True):  # the file system's is
        write_lease(lock, age=age, **other)
        assert is_free(lock) == free


def test_the_clock_of_the_file_system_is_read_from_a_file(lock, monkeypatch):
    real = os.fstat

    class Later:
        st_mtime = 1234.5

    before = leases._now(lock)
    assert abs(before - time.time()) < 60
    with monkeypatch.context() as patch:
        patch.setattr(os, "fstat", lambda descriptor: Later if real(descriptor) else None)
        assert leases._now(lock) == 1234.5
    assert os.listdir(lock.parent) == []


def test_a_lease_is_renewed_while_it_is_held_and_no_other(lock, monkeypatch):
    monkeypatch.setattr(leases, "RENEWED", 0.02)
    path = leases.lease_of(lock)
    with claimed(lock, "out.h5"):
        os.utime(path, (1000, 1000))
        for _ in range(500):
            if path.stat().st_mtime > 1000:
                break
            time.sleep(0.02)
        assert abs(path.stat().st_mtime - leases._now(path)) < 60
        write_lease(lock, pid=1, host="node7", boot="its own")  # asleep too long, it was taken over
        os.utime(path, (1000, 1000))
        time.sleep(0.2)
        assert path.stat().st_mtime == 1000
    assert json.loads(path.read_text())["host"] == "node7"  # and what is another's stays
    assert not [thread for thread in threading.enumerate() if thread.name.endswith("(_renew)")]


# ---- waiting


def test_a_process_waits_for_the_end_of_a_lease(lock, monkeypatch):
    monkeypatch.setattr(leases, "POLL", 0.02)
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdout.readline() == b"held\n"
    with pytest.raises(BusyError) as caught, claimed(lock, "out.h5"):
        pytest.fail("claimed twice")
    waiter = threading.Thread(target=caught.value.wait)
    waiter.start()
    waiter.join(timeout=0.2)
    assert waiter.is_alive()
    holder.kill()
    waiter.join(timeout=60)
    assert not waiter.is_alive()
    holder.communicate()
    assert is_free(lock)
    caught.value.wait()  # nothing to wait for


# ---- what is nobody's lease


@pytest.mark.parametrize(
    "content", ["precious", "{}", "[1]", '{"pid": 1}', "", "link", "folder", "pid 0", "pid text"]
)
def test_a_lease_of_somebodys_own_is_untouched(lock, content):
    path = lock.with_name("lock.lease")
    if content == "link":
        path.symlink_to("nowhere")
    elif content == "folder":
        path.mkdir()
    elif content.startswith("pid "):
        write_lease(lock, pid=int(content[4:]) if content == "pid 0" else "all")
    else:
        path.write_text(content)
    before = path.lstat()
    with pytest.raises(CannotCreateError) as caught, claimed(lock, "out.h5"):
        pytest.fail("claimed")
    assert not isinstance(caught.value, BusyError)
    assert len(str(caught.value).splitlines()) == 1
    assert (path.lstat().st_ino, path.lstat().st_mtime) == (before.st_ino, before.st_mtime)


def test_a_lock_file_of_somebodys_own_is_untouched(lock):
    lock.write_text("precious")
    with pytest.raises(CannotCreateError, match="did not make it"), claimed(lock, "out.h5"):
        pytest.fail("claimed")
    assert lock.read_text() == "precious"
    assert os.listdir(lock.parent) == ["lock"]


def test_without_locks_and_links_nothing_is_held(lock, monkeypatch):
    def refuse(*_):
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", refuse)
    with claimed(lock, "out.h5") as held:
        assert not held
    assert os.listdir(lock.parent) == ["lock"]


def test_a_disk_that_fails_is_told_of(lock, monkeypatch):
    def fail(*_):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "link", fail)
    with pytest.raises(Exception, match="Input/output error") as caught, claimed(lock, "out.h5"):
        pytest.fail("claimed")
    assert caught.value.exit_code == 74
    assert os.listdir(lock.parent) == ["lock"]


def test_a_folder_that_goes_meanwhile_was_another_processs(lock, monkeypatch):
    real = leases._take

    def late(path, text):
        lock.unlink()
        lock.parent.rmdir()
        return real(path, text)

    monkeypatch.setattr(leases, "_take", late)
    with pytest.raises(BusyError, match="just about to end") as caught, claimed(lock, "out.h5"):
        pytest.fail("claimed")
    caught.value.wait()
    lock.parent.mkdir()
