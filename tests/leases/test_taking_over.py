"""Taking over what a dead process held: of many takers one wins, and none dies in between."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from mcat import leases
from mcat.workplaces import BusyError, claimed
from tests.file_faults import Faults, calls_of, deaths, in_child, killing
from tests.leases.made import HOLD, dead_pid, is_free, write_lease


def test_of_many_takers_one_wins(lock):
    """Of six processes at once, whether nobody held it, a dead one, or one that died taking it."""
    lease, gone = leases.lease_of(lock), dead_pid()
    for number in range(30):
        if number % 3:
            text = write_lease(lock, pid=gone).read_text()
        if number % 3 == 2:
            lease.with_name("lock.lease.over").write_text(text)
        begin, told, end = os.pipe(), os.pipe(), os.pipe()
        children = [_taker(lock, begin, told, end) for _ in range(6)]
        os.close(begin[1])  # all of them go on then
        answers = b"".join(sorted(os.read(told[0], 1) for _ in children))
        os.close(end[1])
        for child in children:
            os.waitpid(child, 0)
        for descriptor in (begin[0], *told, end[0]):
            os.close(descriptor)
        assert answers == b"bbbbbw"
        assert is_free(lock)


def _taker(lock, begin, told, end):
    """A process that tells whether it wins or finds it busy, and keeps what it has to the end."""
    child = os.fork()
    if child:
        return child
    answer = b"?"
    try:
        os.close(begin[1])
        os.close(end[1])
        os.read(begin[0], 1)
        with claimed(lock, "out.h5") as held:
            answer = b"w" if held else b"n"
            os.write(told[1], answer)
            os.read(end[0], 1)
    except BusyError:
        answer = b"b"
    finally:
        if answer in b"?b":
            os.write(told[1], answer)
        os._exit(0)


def test_who_was_quicker_keeps_what_it_took(lock, monkeypatch):
    """Between our look at a dead process's lease and its removal, another takes it over."""
    write_lease(lock, pid=dead_pid())
    real, quicker = leases._remove_stale, []

    def late(path):
        if not quicker:
            quicker.append(
                subprocess.Popen(
                    [sys.executable, "-c", HOLD, str(lock)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                )
            )
            assert quicker[0].stdout.readline() == b"held\n"
        return real(path)

    monkeypatch.setattr(leases, "_remove_stale", late)
    with pytest.raises(BusyError) as caught, claimed(lock, "out.h5"):
        pytest.fail("claimed twice")
    assert caught.value.owner.startswith(f"process {quicker[0].pid} on")
    assert json.loads(leases.lease_of(lock).read_text())["pid"] == quicker[0].pid
    quicker[0].communicate(b"")
    assert is_free(lock)


@pytest.mark.parametrize("left", [False, True], ids=["free", "left by a dead process"])
def test_a_kill_at_any_file_call_blocks_nobody(lock, left):
    gone = dead_pid()

    def work():
        with claimed(lock, "out.h5") as held:
            assert held

    if left:
        write_lease(lock, pid=gone)
    calls = calls_of(lock.parent, work)
    assert calls.count("link") == (3 if left else 1)  # refused, the second lease, the first
    for death in deaths(calls):
        if left:
            write_lease(lock, pid=gone)
        assert in_child(work, Faults(lock.parent, killing(*death))) == -signal.SIGKILL
        assert is_free(lock), death


def test_two_takers_that_died_one_after_the_other_block_nobody(lock):
    gone = dead_pid()
    text = write_lease(lock, pid=gone).read_text()
    for name in ("lock.lease.over", "lock.lease.over.over"):
        lock.with_name(name).write_text(text)
    assert is_free(lock)


def test_a_living_taker_is_waited_for_but_not_for_ever(lock, monkeypatch):
    monkeypatch.setattr(leases, "_PAUSE", 0.0)
    text = write_lease(lock).read_text()
    write_lease(lock, pid=dead_pid())
    lock.with_name("lock.lease.over").write_text(text)  # ours, so it is alive
    with pytest.raises(BusyError, match="one of several"), claimed(lock, "out.h5"):
        pytest.fail("claimed")
    lock.with_name("lock.lease.over").unlink()
    assert is_free(lock)
