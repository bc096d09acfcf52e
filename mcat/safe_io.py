"""All durable writing, and the first checks of all reading.

A file appears under its final name only when it is complete: it is written under a temporary
name in the same folder, flushed to the disk, and then claims its name in one atomic step. A
process killed at any moment leaves the old file or the new one, never half of one.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import re
import shutil
import stat
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from typing import Any, Literal, NoReturn

from mcat.errors import CannotCreateError, DataError, MissingInputError, StorageError

StrPath = str | os.PathLike[str]

MAX_JSON_BYTES = 64 * 2**20
PART = re.compile(r"\.(.+)\.part-[0-9a-f]{32}", re.DOTALL)  # how unfinished files are named

_FULL = {errno.ENOSPC, errno.EDQUOT}
# What a path or its permissions forbid, as opposed to what the disk cannot do.
_REFUSED = {
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.EISDIR,
    errno.ENOTDIR,
    errno.ENOENT,
    errno.EEXIST,
    errno.ELOOP,
    errno.ENAMETOOLONG,
    errno.EBUSY,
    errno.ETXTBSY,
}
# Answers of file systems that have no hard links (FAT, some network mounts).
NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}


@contextmanager
def io_errors(path: StrPath, doing: Literal["read", "write"]) -> Iterator[None]:
    """Turns what the operating system reports about `path` into one line with the right code."""
    try:
        yield
    except MissingInputError:  # ours already, although it is an OSError too
        raise
    except OSError as error:
        _raise_for(error, path, doing)


def _raise_for(error: OSError, path: StrPath, doing: Literal["read", "write"]) -> NoReturn:
    reason = error.strerror or str(error)
    if error.errno in _FULL:
        raise StorageError(f"cannot {doing} {path}: {reason}; free some space there") from error
    if error.errno == errno.EFBIG:
        raise StorageError(
            f"cannot {doing} {path}: {reason}; raise the file size limit (ulimit -f) or the quota"
        ) from error
    if error.errno in _REFUSED and doing == "read":
        raise MissingInputError(f"cannot read {path}: {reason}") from error
    if error.errno in _REFUSED:
        raise CannotCreateError(f"cannot write {path}: {reason}; choose another path") from error
    raise StorageError(f"cannot {doing} {path}: {reason}") from error


def is_file(path: StrPath) -> bool:
    """Whether there is a file; a disk that cannot tell is an error like any other."""
    with io_errors(path, "read"):
        return Path(path).is_file()


@contextmanager
def open_input(path: StrPath) -> Iterator[BufferedReader]:
    """A file to read, opened without waiting: a pipe or a device, which may never end, is none.

    Raises:
        MissingInputError: if it is not there.
        DataError: if it is not a regular file.
    """
    with io_errors(path, "read"), open(path, "rb", opener=_without_waiting) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise DataError(f"{path}: a pipe or a device, not a file: copy it to a file first")
        yield file


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)  # opening a pipe waits for its writer


@contextmanager
def new_file(path: StrPath, *, overwrite: bool = False) -> Iterator[Path]:
    """Yields a temporary path; when the block ends well, what was written there becomes `path`.

    Of several processes that make the same `path` without `overwrite` exactly one succeeds. When
    the block fails the temporary file is removed and whatever was at `path` is untouched.

    Raises:
        CannotCreateError: if `path` exists and `overwrite` is false, or its folder refuses files.
        StorageError: if the disk is full or fails.
    """
    final = Path(path)
    part = part_of(final)
    try:
        with io_errors(final, "write"):
            yield part
            flush_to_disk(part)
            if overwrite:
                os.replace(part, final)
            else:
                _claim_name(part, final)
            flush_to_disk(final.parent)
    except BaseException:
        with suppress(OSError):  # a disk that fails for good: the first error is the one to tell
            part.unlink()
        raise


def part_of(final: Path) -> Path:
    """A new name beside `final`, under which it can be written."""
    return final.with_name(f".{final.name}.part-{uuid.uuid4().hex}")


def _claim_name(part: Path, final: Path) -> None:
    """Gives `part` the name `final`, failing if that is taken; never replaces anything."""
    try:
        os.link(part, final)
        os.unlink(part)
    except FileExistsError:
        raise exists_already(final) from None
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        try:
            os.close(os.open(final, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        except FileExistsError:
            raise exists_already(final) from None
        os.replace(part, final)


def exists_already(path: Path) -> CannotCreateError:
    """The error for an output that is there and was not to be replaced."""
    return CannotCreateError(
        f"{path} exists already: pass --overwrite (in Python overwrite=True) or choose another path"
    )


def flush_to_disk(path: Path) -> None:
    """Returns once a file, or a folder's list of names, would survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_stale_parts(folder: Path, name: str | None = None) -> None:
    """Removes the unfinished files that killed processes left in `folder`, if it is there.

    Only regular files with exactly the name of one, and only those of the file `name` if given.
    Call it while no other process writes them.
    """
    with io_errors(folder, "write"), suppress(FileNotFoundError):
        for entry in os.scandir(folder):
            found = PART.fullmatch(entry.name)
            if found and name in (None, found[1]) and entry.is_file(follow_symlinks=False):
                os.unlink(entry.path)


def ensure_writable_output(
    path: StrPath, *, overwrite: bool = False, needed_bytes: int = 0
) -> None:
    """Finds out before any work is done whether `path` can be written at its end.

    Raises:
        CannotCreateError: if `path` exists and `overwrite` is false, is a folder or a dangling
            link, or if its folder is missing or read-only.
        StorageError: if fewer than `needed_bytes` are free there.
    """
    final = Path(path)
    with io_errors(final, "write"):
        if final.is_dir():
            raise CannotCreateError(f"{final} is a folder: name a file inside it")
        if final.is_symlink() and not final.exists():
            raise CannotCreateError(
                f"{final} is a link to nothing: remove it or choose another path"
            )
        if final.exists() and not overwrite:
            raise CannotCreateError(
                f"{final} exists already: pass --overwrite (or --resume to go on with it)"
            )
        if not final.parent.is_dir():
            raise CannotCreateError(f"folder {final.parent} does not exist: create it first")
        probe = part_of(final)  # only a real file shows quotas, squashed roots, odd mounts
        os.close(os.open(probe, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        probe.unlink()
    require_space(final, needed_bytes)


def require_space(path: Path, needed_bytes: int) -> None:
    """Finds out whether that much can be written beside `path`.

    Raises:
        StorageError: if not.
    """
    with io_errors(path, "write"):
        free = shutil.disk_usage(path.parent).free
    if free < needed_bytes:
        raise StorageError(
            f"cannot write {path}: about {math.ceil(needed_bytes / 1e6)} MB are needed"
            f" and {free / 1e6:.1f} MB are free there"
        )


def sha256_of(path: StrPath) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal."""
    with open_input(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def dump_json(value: object, *, indent: int | None = None) -> str:
    """JSON with sorted keys and no NaN: equal values give equal text."""
    return json.dumps(value, indent=indent, sort_keys=True, allow_nan=False)


def parse_json(text: str | bytes, path: StrPath) -> Any:
    """What JSON `text` found in `path` says; all its numbers are finite as floats.

    Raises:
        DataError: if it is not JSON, or holds a number beyond the range of floats.
    """
    try:
        return _JSON.decode(text if isinstance(text, str) else text.decode("utf-8-sig"))
    except (ValueError, OverflowError, RecursionError) as error:
        reason = str(error).splitlines()[0]
        raise DataError(f"{path}: damaged, its JSON cannot be read ({reason})") from error


def _no_constants(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _integer(digits: str) -> int:
    number = int(digits)
    float(number)  # raises if it is too large: nobody expects that of a number read from a file
    return number


def _float(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise OverflowError(f"{digits[:20]} is too large for a float")
    return number


# Made once: `json.loads` would make one for each of many small files.
_JSON = json.JSONDecoder(parse_constant=_no_constants, parse_int=_integer, parse_float=_float)


def write_file(path: StrPath, content: str | bytes, *, overwrite: bool = False) -> None:
    """Writes a text in UTF-8, or bytes, whole or not at all."""
    with new_file(path, overwrite=overwrite) as part:
        part.write_bytes(content.encode() if isinstance(content, str) else content)


def write_json(path: StrPath, value: object, *, overwrite: bool = False) -> None:
    """Writes `value` as a JSON file, whole or not at all."""
    write_file(path, dump_json(value, indent=2) + "\n", overwrite=overwrite)


def read_json(path: StrPath) -> Any:
    """Reads a JSON file.

    Raises:
        MissingInputError: if it is not there.
        DataError: if it is not JSON or far too large to be ours.
    """
    with open_input(path) as file:
        text = file.read(MAX_JSON_BYTES + 1)
    if len(text) > MAX_JSON_BYTES:
        raise DataError(f"{path}: larger than {MAX_JSON_BYTES} bytes, not a JSON file of mcat")
    return parse_json(text, path)
