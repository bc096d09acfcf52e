"""Deaths and errors at the n-th file call below a folder."""

from __future__ import annotations

import builtins
import io
import os
import signal
from contextlib import contextmanager

import pytest

from mcat import workplaces
from mcat.errors import McatError

CHANGES = ("fsync", "link", "mkdir", "pwrite", "rename", "replace", "rmdir", "truncate", "unlink")
LOOKS = ("listdir", "lstat", "open", "scandir", "stat")


class Faults:
    """Counts the file calls below `folder`; `act(number, real, args, options)` does them or not."""

    def __init__(self, folder, act, names=CHANGES):
        self.folder, self.act, self.names = os.path.realpath(folder), act, names
        self.calls = []

    @contextmanager
    def injected(self):
        with pytest.MonkeyPatch.context() as patch:
            for name in self.names:
                patch.setattr(os, name, self._counted(getattr(os, name)))
            patch.setattr(workplaces, "_renameat2", self._counted(workplaces._renameat2))
            opened = self._counted(io.open, lambda path, mode="r", *_, **__: set(mode) & set("wxa"))
            patch.setattr(io, "open", opened)
            patch.setattr(builtins, "open", opened)
            yield self

    def _counted(self, real, counts=lambda *args, **options: True):
        def call(*args, **options):
            if not (counts(*args, **options) and self._concerns(args, options.get("dir_fd"))):
                return real(*args, **options)
            self.calls.append(real.__name__)
            return self.act(len(self.calls), real, args, options)

        return call

    def _concerns(self, args, within):
        """Whether one of the paths and descriptors is below the folder."""
        for arg in args:
            if isinstance(arg, int) and not isinstance(arg, bool):
                path = _descriptor(arg)
            elif isinstance(arg, str | os.PathLike):
                path = os.path.join(_descriptor(within), arg)
            else:
                continue
            if os.path.abspath(path).startswith(self.folder):
                return True
        return False


def _descriptor(number):
    try:
        return "" if number is None else os.readlink(f"/proc/self/fd/{number}")
    except OSError:
        return ""


class HalfWriter:
    """Writes half of what it is given, then dies."""

    def __init__(self, file):
        self._file = file

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self._file.close()

    def write(self, data):
        self._file.write(data[: len(data) // 2])
        self._file.flush()
        die()


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def killing(at, moment):
    """An `act` that ends the process before, after or in the middle of one call."""

    def act(number, real, args, options):
        if number == at and moment == "before":
            die()
        try:
            found = real(*args, **options)
        finally:
            if number == at and moment == "after":
                die()
        return HalfWriter(found) if number == at and moment == "half" else found

    return act


def failing(number, at, *, for_good):
    """An `act` that raises OSError(number) at one call, or from it on."""

    def act(now, real, args, options):
        if now == at or (for_good and now > at):
            raise OSError(number, os.strerror(number))
        return real(*args, **options)

    return act


def plain(number, real, args, options):
    return real(*args, **options)


def in_child(work, faults=None):
    """Runs `work` in a fork; its exit code is that of the command line, 98 for two lines."""
    child = os.fork()
    if child == 0:
        code = 99
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            with (faults or Faults("/nowhere", plain)).injected():
                work()
            code = 0
        except McatError as error:
            code = error.exit_code if len(str(error).splitlines()) == 1 else 98
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def calls_of(folder, work, names=CHANGES):
    """The file calls that `work` makes."""
    with Faults(folder, plain, names).injected() as faults:
        work()
    return faults.calls


def deaths(calls):
    """Every moment at which a process that makes those calls can die: `(number, moment)`."""
    return [
        (number, moment)
        for number, name in enumerate(calls, 1)
        for moment in ("before", "after", *(["half"] if name == "open" else []))
    ]
