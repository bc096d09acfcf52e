"""One process at a time: locks, and the folders in which outputs are made.

A workplace is a folder beside an output, there only while the output is being made. Everything
that a killed process leaves lies in it, and the next process that makes the same output takes it
over. A folder of that name that holds anything else is somebody's own: it is never touched.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import re
import shutil
import socket
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from mcat import leases
from mcat.errors import CannotCreateError, MissingInputError
from mcat.safe_io import StrPath, exists_already, flush_to_disk, io_errors, require_space

# Answers of file systems that have no locks (Lustre and NFS, depending on the mount).
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL}

_OWNER = b"process "  # how our lock files begin

# linux/fs.h, and the answers of kernels and file systems that do not have it.
_AT_FDCWD, _NO_REPLACE, _EXCHANGE = -100, 1, 2
_NO_RENAMEAT2 = {errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP}


class BusyError(CannotCreateError):
    """Another process works on what was asked for."""

    def __init__(self, what: str, lock_file: StrPath, owner: str, advice: str = "") -> None:
        super().__init__(
            f"{what} is being written by another process ({owner}): wait for it{advice}"
        )
        self.what, self.owner = what, owner
        self._lock_file = lock_file

    def wait(self) -> None:
        """Returns when that process has ended its work, well or not."""
        with (
            suppress(MissingInputError),
            io_errors(self._lock_file, "read"),
            open(self._lock_file, "rb") as file,
        ):
            try:
                fcntl.flock(file, fcntl.LOCK_SH)
            except OSError as error:
                if error.errno not in _NO_LOCKS:
                    raise
                leases.wait(leases.lease_of(self._lock_file))


@contextmanager
def claimed(lock_file: StrPath, what: str) -> Iterator[bool]:
    """Holds `lock_file`, so that one process at a time works on `what`; freed even by `kill -9`.

    On file systems that have no locks, a lease beside it is held instead.

    Yields:
        Whether it is really held: false on file systems that have neither locks nor links.

    Raises:
        BusyError: if another process holds it.
        CannotCreateError: if it, or the lease, is a file of somebody's own.
    """
    with _errors(lock_file, what):
        descriptor = os.open(lock_file, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o666)
    with ExitStack() as stack:
        stack.callback(_close, descriptor)
        with _errors(lock_file, what):
            held = _lock(descriptor, lock_file, what)
            _require_own(descriptor, lock_file)
            if not held:
                held = stack.enter_context(leases.leased(leases.lease_of(lock_file)))
            os.truncate(descriptor, 0)
            os.pwrite(descriptor, _OWNER + f"{os.getpid()} on {socket.gethostname()}\n".encode(), 0)
        yield held


@contextmanager
def _errors(lock_file: StrPath, what: str) -> Iterator[None]:
    try:
        with io_errors(lock_file, "write"):
            yield
    except leases.TakenError as taken:
        raise BusyError(what, lock_file, taken.owner, taken.advice) from taken
    except CannotCreateError as error:
        if isinstance(error.__cause__, FileNotFoundError):  # its folder was there a moment ago
            raise BusyError(what, lock_file, "just about to end") from error
        raise


def _close(descriptor: int) -> None:
    with suppress(OSError):
        os.close(descriptor)


def _lock(descriptor: int, lock_file: StrPath, what: str) -> bool:
    """Whether the open `lock_file` is ours now; false if there are no locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # The holder before us may have deleted the file after we opened it.
        held = os.path.samestat(os.fstat(descriptor), os.stat(lock_file))
    except (BlockingIOError, FileNotFoundError):
        held = False
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        return False
    if not held:
        owner = os.pread(descriptor, 200, 0).decode(errors="replace").strip()
        raise BusyError(what, lock_file, owner or "unknown")
    return True


def _require_own(descriptor: int, lock_file: StrPath) -> None:
    if not (os.pread(descriptor, len(_OWNER), 0) or _OWNER).startswith(_OWNER):
        raise CannotCreateError(
            f"{lock_file} is needed, but mcat did not make it: move it or choose another output"
        )


@contextmanager
def workplace(folder: Path, known: Callable[[os.DirEntry[str]], bool], what: str) -> Iterator[bool]:
    """Holds `folder` for the making of `what`; it is removed at the end if nothing is left in it.

    Args:
        folder: Made if it is missing.
        known: Whether an entry, apart from the lock, is one that mcat makes there.
        what: The output.

    Yields:
        As `claimed` does.

    Raises:
        CannotCreateError: if `folder` is not ours; nothing is touched then.
        BusyError: if another process holds it.
    """
    _require_ours(folder, known)
    with io_errors(folder, "write"):
        folder.mkdir(exist_ok=True)
    lock, empty = folder / "lock", False
    try:
        with claimed(lock, what) as held:
            try:
                yield held
            finally:
                with suppress(OSError):
                    empty = set(os.listdir(folder)) <= {"lock", leases.lease_of(lock).name}
                    if empty:
                        lock.unlink()
    finally:
        with suppress(OSError):  # a process that came meanwhile keeps it
            if empty:
                folder.rmdir()


def _require_ours(folder: Path, known: Callable[[os.DirEntry[str]], bool]) -> None:
    advice = "move it away or choose another output"
    with io_errors(folder, "write"):
        if not os.path.lexists(folder):
            return
        if folder.is_symlink() or not folder.is_dir():
            raise CannotCreateError(f"{folder} is needed, but is no folder of mcat: {advice}")
        for entry in os.scandir(folder):
            lock = entry.name == "lock" or leases.belongs_to(entry.name, "lock.lease")
            if not (known(entry) or (lock and entry.is_file(follow_symlinks=False))):
                raise CannotCreateError(
                    f"{folder} is needed, but holds {entry.name}, which mcat did not make: {advice}"
                )


@contextmanager
def new_folder(path: StrPath, *, overwrite: bool = False, needed_bytes: int = 0) -> Iterator[Path]:
    """Yields a temporary folder; when the block ends well, it becomes `path` in one step.

    Files inside are to be written by `new_file`. With `overwrite` the folder that was at `path` is
    removed after the new one has taken its name, and stays if anything fails. The temporary folder
    of a killed process is removed by the next one that makes `path`.

    Raises:
        CannotCreateError: if `path` exists and `overwrite` is false, or its parent refuses it.
        BusyError: if another process is making `path`.
        StorageError: if the disk fails, is full or has less than `needed_bytes`.
    """
    final = Path(path)
    tidy_folder(final)
    _require_replaceable(final, overwrite)
    with io_errors(final, "write"):
        final.parent.mkdir(parents=True, exist_ok=True)
    with _making(final) as place:
        _require_replaceable(final, overwrite)  # another process may have made it meanwhile
        require_space(final, needed_bytes)
        new = place / f"new-{uuid.uuid4().hex}"
        try:
            with io_errors(final, "write"):
                new.mkdir()
                yield new
                _give_name(new, final, place / f"old-{uuid.uuid4().hex}")
                flush_to_disk(final.parent)
        finally:
            shutil.rmtree(new, ignore_errors=True)


def tidy_folder(path: StrPath) -> None:
    """Removes what a killed `new_folder` left, and brings back what it was about to replace."""
    final = Path(path)
    with suppress(CannotCreateError):  # somebody's own, or still at work
        if os.path.lexists(_workplace_of(final)):
            with _making(final):
                pass


def _workplace_of(final: Path) -> Path:
    return final.with_name(f".{final.name}.part")


@contextmanager
def _making(final: Path) -> Iterator[Path]:
    """The workplace of a folder, cleared of what killed processes left."""
    place = _workplace_of(final)
    with workplace(place, _is_half_made, str(final)) as held:
        if held:  # else it may be another process's
            _clear(place, final)
        yield place


def _is_half_made(entry: os.DirEntry[str]) -> bool:
    named = re.fullmatch("(new|old)-[0-9a-f]{32}", entry.name)
    return named is not None and entry.is_dir(follow_symlinks=False)


def _clear(place: Path, final: Path) -> None:
    with io_errors(final, "write"):
        for old in place.glob("old-*"):
            if not os.path.lexists(final):
                old.rename(final)  # killed after it was moved away, before the new one came
        for folder in place.glob("*-*"):
            shutil.rmtree(folder, ignore_errors=True)


def _require_replaceable(final: Path, overwrite: bool) -> None:
    with io_errors(final, "write"):
        if os.path.lexists(final):
            if not overwrite:
                raise exists_already(final)
            if final.is_symlink() or not final.is_dir():
                raise CannotCreateError(f"{final} is no folder: choose another path")


def _give_name(new: Path, final: Path, aside: Path) -> None:
    """Lets `new` be `final`, in one step where the system can; what was there is at `new` then."""
    if not os.path.lexists(final):
        if not _renameat2(new, final, _NO_REPLACE):
            new.rename(final)  # fails if another process has made `final` meanwhile
    elif not _renameat2(new, final, _EXCHANGE):
        final.rename(aside)
        try:
            new.rename(final)
        finally:
            if not os.path.lexists(final):
                aside.rename(final)  # a killed process cannot: the next one does it in `_clear`
        aside.rename(new)


def _renameat2(old: Path, new: Path, flags: int) -> bool:
    """Whether the system can do it, and so has done it."""
    try:
        call = ctypes.CDLL(None, use_errno=True).renameat2
    except AttributeError:
        return False
    if call(_AT_FDCWD, os.fsencode(old), _AT_FDCWD, os.fsencode(new), flags) == 0:
        return True
    number = ctypes.get_errno()
    if number in _NO_RENAMEAT2:
        return False
    raise OSError(number, os.strerror(number), str(new))
