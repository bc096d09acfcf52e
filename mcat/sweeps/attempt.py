"""One attempt at a run: its process, alone on its lock and its cores."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from mcat.errors import StorageError
from mcat.leases import start_of
from mcat.safe_io import io_errors
from mcat.sweeps.endings import Ending, write_ending
from mcat.sweeps.folder import Sweep, open_sweep
from mcat.sweeps.runs import PlannedRun
from mcat.sweeps.state import holder_of, is_locked, is_made

BUSY = 73
POLL = 0.2  # seconds between two looks at a process


class Attempt:
    """A run that was started; its lock is held for as long as its process lives.

    The process inherits the lock, so that neither the end of the driver frees it nor a `kill -9` of
    the run leaves it held.

    Args:
        sweep: Where it belongs.
        run: Which.
        cores: To keep it on; none to leave that to the system.
        own_session: Let it live on if whoever started it dies.
    """

    def __init__(
        self,
        sweep: Sweep,
        run: PlannedRun,
        cores: Sequence[int] = (),
        *,
        own_session: bool = True,
    ) -> None:
        self.sweep, self.run, self.cores = sweep, run, tuple(cores)
        self._own_session = own_session
        self.process: subprocess.Popen[bytes] | None = None
        self._refused: StorageError | None = None  # by a disk that has no room for a lock or a log
        try:
            self._begin()
        except StorageError as error:
            self._refused = error

    def _begin(self) -> None:
        lock = self.sweep.lock(self.run)
        with io_errors(lock, "write"):
            descriptor = os.open(lock, os.O_CREAT | os.O_RDWR, 0o666)
        try:
            if self._locked(descriptor):
                self.process = self._start(descriptor)
        finally:
            os.close(descriptor)

    def _locked(self, descriptor: int) -> bool:
        """Whether the lock is ours; whoever looks at the states of runs holds it for a moment."""
        for _ in range(10):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            except BlockingIOError:
                time.sleep(0.05)
            except OSError:  # no locks there: see `holder_of`
                return holder_of(self.sweep, self.run) is None
        return False

    def _start(self, lock: int) -> subprocess.Popen[bytes]:
        sweep, cpus = self.sweep, self.sweep.resources.cpus
        line = self.run.command_line(sweep.folder, cpus)
        with (
            io_errors(sweep.log(self.run), "write"),
            sweep.log(self.run).open("ab") as log,
            _on_cores(self.cores),
        ):
            process = subprocess.Popen(
                line,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "OMP_NUM_THREADS": str(cpus)},
                pass_fds=(lock,),
                start_new_session=self._own_session,
            )
        who = {
            "pid": process.pid,
            "start": start_of(process.pid),
            "host": socket.gethostname(),
            "cores": self.cores,
        }
        with suppress(OSError):  # a full disk: that it is held is what counts
            os.truncate(lock, 0)
            os.pwrite(lock, json.dumps(who).encode(), 0)
        sweep.note("started", self.run, **who)
        return process

    def poll(self) -> Ending | None:
        """How it ended, noted for everybody; None while it runs."""
        if self._refused is not None:
            why = self._refused
            return write_ending(self.sweep, self.run, why.exit_code, made=False, line=str(why))
        code = BUSY if self.process is None else self.process.poll()
        if code is None:
            return None
        # Somebody who was not sent by the sweep may work on what the run makes.
        busy = self.process is None or any(map(is_locked, self.sweep.own_locks(self.run)))
        made = is_made(self.sweep, self.run)
        return write_ending(self.sweep, self.run, code, made=made, busy=busy)

    def stop(self) -> None:
        """Ask it to save and end."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)


@contextmanager
def _on_cores(cores: Sequence[int]) -> Iterator[None]:
    """What is started meanwhile is on these cores from its first moment; none leaves it free."""
    before = os.sched_getaffinity(0) if cores else set()
    if cores:
        os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        if cores:
            os.sched_setaffinity(0, before)


def attempt(folder: Path, name: str, asked_to_stop: Callable[[], bool] = lambda: False) -> Ending:
    """One attempt from start to end, or until asked to stop, as an engine elsewhere makes it."""
    sweep = open_sweep(folder)
    run = sweep.run(name)
    if is_made(sweep, run):
        return write_ending(sweep, run, 0, made=True)
    started = Attempt(sweep, run, own_session=False)  # a scheduler ends all that it started
    told = False
    while (ending := started.poll()) is None:
        if not told and (asked_to_stop() or sweep.stop_mark(run).exists()):
            started.stop()
            told = True
        time.sleep(POLL)
    return ending
