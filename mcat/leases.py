"""Leases: what keeps other processes out where a file system has no locks.

A lease is a small file that says which process holds it. It is written under another name and then
linked, which never replaces anything: of several processes one succeeds. What a dead process left
is taken over: at once if it died on this machine, else when nobody has renewed it for a while.

Whoever removes such a lease holds a second one meanwhile, beside it, and looks again: a process
that was quicker keeps what it took. A process that dies just then leaves the second lease, which is
taken over in the same way.
"""

from __future__ import annotations

import os
import re
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from mcat.config import from_json, to_json
from mcat.errors import CannotCreateError, DataError
from mcat.safe_io import NO_LINKS, PART, StrPath, dump_json, flush_to_disk, parse_json, part_of

RENEWED, STALE = 60.0, 600.0  # seconds: between two signs of life, and without one until it is dead
POLL = 1.0  # seconds between two looks of a process that waits

_TRIES, _PAUSE = 100, 0.01  # while others come and go; seconds
_LONGEST = 4096  # bytes of a lease, far more than there are


class TakenError(Exception):
    """A living process holds a lease.

    Attributes:
        owner: The process, in words.
        advice: What to do if it is gone and that cannot be seen from here.
    """

    def __init__(self, owner: str, advice: str = "") -> None:
        super().__init__(owner)
        self.owner, self.advice = owner, advice


@dataclass(frozen=True, kw_only=True)
class _Holder:
    """A process, told from all others."""

    host: str  # the name of its machine
    boot: str  # tells one start of a machine from the others; empty if the system has no such thing
    space: str  # where its number counts: a container has numbers of its own
    pid: int  # its number
    start: int  # when it began, as numbers are used again; 0 if the system does not say
    token: str  # tells its leases apart

    def __post_init__(self) -> None:
        if not 0 < self.pid < 2**31:
            raise ValueError("no number of a process")

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


class _Found(NamedTuple):
    """A lease that is there: what it says, and when it was renewed by the file system's clock."""

    text: bytes
    renewed: float


def lease_of(lock_file: StrPath) -> Path:
    """The lease that stands for a lock."""
    lock = Path(lock_file)
    return lock.with_name(f"{lock.name}.lease")


def belongs_to(name: str, lease: str) -> bool:
    """Whether a file of that name is the lease, or something left of taking it."""
    part = PART.fullmatch(name)
    whole = part[1] if part else name
    return re.fullmatch(rf"{re.escape(lease)}(\.over)*", whole) is not None


@contextmanager
def leased(path: Path) -> Iterator[bool]:
    """Holds the lease `path`, and renews it meanwhile.

    Yields:
        Whether it is really held: false on file systems that have no links.

    Raises:
        TakenError: if another process holds it, or another part of this one.
        CannotCreateError: if it is a file of somebody's own.
        OSError: if the file system refuses; FileNotFoundError if the folder has gone.
    """
    here = _this_process()
    text = _text(here)
    if not _take(path, text):
        yield False
        return
    _remove_parts(path)
    done = threading.Event()
    renewing = threading.Thread(target=_renew, args=(path, text, done), daemon=True)
    renewing.start()
    try:
        yield True
    finally:
        if os.getpid() == here.pid:  # a fork that ends in here holds nothing
            done.set()
            renewing.join()
            _let_go(path, text)


def is_held(path: Path) -> bool:
    """Whether a process holds the lease `path` that is alive, as far as can be seen from here."""
    try:
        return _is_held(path, _read(path))
    except FileNotFoundError:
        return False


def wait(path: Path) -> None:
    """Returns when nobody holds the lease `path`."""
    while is_held(path):
        time.sleep(POLL)


def _take(path: Path, text: bytes) -> bool:
    """Whether the lease is ours now; false if there are no links."""
    second = path.with_name(f"{path.name}.over")
    for _ in range(_TRIES):
        try:
            if _link(path, text):
                with suppress(OSError, CannotCreateError):  # it is ours, whatever was left
                    if os.path.lexists(second):  # of a process that died while it took the first
                        _remove_stale(second)
                return True
        except OSError as error:
            if error.errno not in NO_LINKS:
                raise
            return False
        with suppress(FileNotFoundError):  # let go meanwhile
            found = _read(path)
            if _is_held(path, found):
                raise _taken(path, found)
            if not _remove_stale(path):
                time.sleep(_PAUSE)
    raise TakenError("one of several that begin just now")


def _link(path: Path, text: bytes) -> bool:
    """Whether `path` was free and is ours now."""
    part = part_of(path)
    try:
        with open(part, "xb") as file:
            file.write(text)
        flush_to_disk(part)  # an empty lease after a power cut would be nobody's
        os.link(part, path)
        return True
    except FileExistsError:
        return _says(path, text)  # a network may repeat a call whose answer got lost
    except FileNotFoundError:
        if not path.parent.is_dir():
            raise
        return False  # the holder took our part for one that was left behind, and removed it
    finally:
        with suppress(OSError):
            os.unlink(part)


def _remove_stale(path: Path) -> bool:
    """Removes a lease if its holder is dead; false if another process is about to do it."""
    second, text = path.with_name(f"{path.name}.over"), _text(_this_process())
    try:
        if not _take(second, text):
            return False
    except TakenError:
        return False
    try:
        with suppress(FileNotFoundError):
            if not _is_held(path, _read(path)):
                os.unlink(path)
    finally:
        _let_go(second, text)
    return True


def _remove_parts(path: Path) -> None:
    """Removes what processes left that died while they wrote a lease; a living one tries again."""
    with suppress(OSError):
        for entry in os.scandir(path.parent):
            if PART.fullmatch(entry.name) and belongs_to(entry.name, path.name):
                os.unlink(entry.path)


def _let_go(path: Path, text: bytes) -> None:
    """Removes a lease, unless it was taken over because we were asleep for too long."""
    with suppress(OSError):
        if _says(path, text):
            os.unlink(path)


def _renew(path: Path, text: bytes, done: threading.Event) -> None:
    while not done.wait(RENEWED):
        with suppress(OSError):
            if _says(path, text):
                os.utime(path)


def _is_held(path: Path, found: _Found) -> bool:
    there, here = _holder(path, found.text), _this_process()
    if there.boot and (there.boot, there.space) == (here.boot, here.space):
        alive = _is_alive(there)
        if alive is not None:
            return alive
    age = _now(path) - found.renewed
    # What was renewed since this machine started is no relic of an earlier start: it is of another
    # machine with the same name.
    if there.host == here.host and there.boot != here.boot and age > _uptime():
        return False
    return age < STALE


def _is_alive(holder: _Holder) -> bool | None:
    """Whether a process of this machine is alive; None if the system hides it."""
    start = start_of(holder.pid)
    if start is not None:
        return start == holder.start
    try:
        os.kill(holder.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return None


def start_of(pid: int) -> int | None:
    """When a process began, in ticks since its machine did; 0 if it has ended, None if unknown."""
    try:
        content = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    fields = content.rpartition(b")")[2].split()  # before it is a name, which may hold anything
    ended = fields[0] in (b"Z", b"X")  # killed, and its parent has not looked yet
    return 0 if ended else int(fields[19])


def _this_process() -> _Holder:
    boot = space = ""
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        space = os.readlink("/proc/self/ns/pid")
    return _Holder(
        host=socket.gethostname(),
        boot=boot,
        space=space,
        pid=os.getpid(),
        start=start_of(os.getpid()) or 0,
        token=uuid.uuid4().hex,
    )


def _uptime() -> float:
    """Seconds since this machine started, asleep or not."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _now(path: Path) -> float:
    """The time by the clock that stamps the files beside `path`: ours may be another."""
    probe = part_of(path)
    descriptor = os.open(probe, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    try:
        os.utime(descriptor)
        return os.fstat(descriptor).st_mtime
    finally:
        os.close(descriptor)
        with suppress(OSError):
            os.unlink(probe)


def _text(holder: _Holder) -> bytes:
    return f"{dump_json(to_json(holder))}\n".encode()


def _read(path: Path) -> _Found:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        return _Found(os.read(descriptor, _LONGEST), os.fstat(descriptor).st_mtime)
    finally:
        os.close(descriptor)


def _says(path: Path, text: bytes) -> bool:
    """Whether it is the lease with that text; numbers of files are used again, texts are not."""
    try:
        return _read(path).text == text
    except FileNotFoundError:
        return False


def _holder(path: Path, text: bytes) -> _Holder:
    try:
        return from_json(_Holder, parse_json(text, path))
    except DataError as error:
        raise CannotCreateError(
            f"{path} is needed, but mcat did not make it: move it or choose another output"
        ) from error


def _taken(path: Path, found: _Found) -> TakenError:
    there, here = _holder(path, found.text), _this_process()
    if (there.boot, there.space) == (here.boot, here.space):
        return TakenError(str(there))
    return TakenError(
        str(there),
        f" (if {there.host} is gone: in {STALE / 60:.0f} minutes its lease counts no more, or"
        f" remove {path})",
    )
