"""Leases for tests: by processes that hold them, and written by hand."""

from __future__ import annotations

import errno
import fcntl
import json
import os

from mcat import leases
from mcat.workplaces import BusyError, claimed

HOLD = """
import errno, fcntl, sys
def no_locks(*_):
    raise OSError(errno.ENOLCK, "No locks available")
fcntl.flock = no_locks
from mcat.workplaces import claimed
with claimed(sys.argv[1], "out.h5"):
    print("held", flush=True)
    sys.stdin.read()
"""


def no_locks(monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)


def write_lease(lock, age=0.0, **changes):
    """A lease of a process like this one, but for `changes`, renewed `age` seconds ago."""
    path = leases.lease_of(lock)
    holder = json.loads(leases._text(leases._this_process())) | changes
    path.write_text(json.dumps(holder))
    renewed = leases._now(path) - age
    os.utime(path, (renewed, renewed))
    return path


def is_free(lock):
    """Whether it can be claimed; what it holds is as it was then, or only the lock."""
    try:
        with claimed(lock, "out.h5") as held:
            assert held
    except BusyError:
        return False
    assert os.listdir(lock.parent) == ["lock"]
    return True


def dead_pid():
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    return child
