"""The loop that gets every run of a sweep done, whatever starts them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

from mcat.interrupts import Interrupts
from mcat.safe_io import io_errors
from mcat.sweeps.endings import Ending, forgive
from mcat.sweeps.folder import DRIVER_LOCK, Sweep
from mcat.sweeps.runs import PlannedRun
from mcat.sweeps.state import RunState, look
from mcat.workplaces import claimed

POLL = 0.25  # seconds between two looks at processes
LOOK = 2.0  # seconds between two looks at folders, or more:
SHARE = 0.04  # of a core that looking may take, however many runs there are

Watch = Callable[[Sequence[RunState]], None]


class Engine(Protocol):
    """What starts runs. It sees names and command lines, and keeps no state of its own."""

    def room(self, adopted: Sequence[RunState]) -> int:
        """How many more can be started beside those that it has, and those of earlier drivers."""
        ...

    def start(self, run: PlannedRun) -> None:
        """Begin an attempt."""
        ...

    def ended(self) -> list[tuple[PlannedRun, Ending]]:
        """The attempts that ended since the last call."""
        ...

    def running(self) -> list[PlannedRun]:
        """Those that it started and that have not ended."""
        ...

    def stop(self, run: PlannedRun) -> None:
        """Ask a run to save and end."""
        ...


class Driver:
    """Starts what is to be started until every run has ended, or somebody asks to stop."""

    def __init__(self, sweep: Sweep, engine: Engine, watch: Watch) -> None:
        self.sweep, self.engine, self.watch = sweep, engine, watch
        self.stopping = False
        self.spoiled: dict[str, str] = {}  # variants that a user's mistake has stopped, and why

    def drive(self, stop: Interrupts) -> list[RunState]:
        """Run to the end, `driven` by nobody else; returns the last states.

        Raises:
            StoppedError: if a signal came; runs were asked to save and end.
        """
        wanted_again(self.sweep)
        self.sweep.note("drive")
        states: list[RunState] = []
        looked, pause = 0.0, LOOK
        while True:
            ended = self.engine.ended()
            for run, ending in ended:
                self._note_mistake(run, ending)
            if stop.requested and not self.stopping:
                self._stop_all()
            now = time.monotonic()
            if ended or not states or now - looked >= pause:
                began = time.process_time()
                states, looked = look(self.sweep), now
                self.watch(states)
                pause = max(LOOK, (time.process_time() - began) / SHARE)
                self._heed_stops()
                if not self.stopping:
                    self._start(states)
                if not self.engine.running() and not self._to_do(states):
                    break
            time.sleep(POLL)
        if stop.requested:
            raise stop.error(f"stopped: mcat sweep run {self.sweep.folder} goes on")
        return states

    def _start(self, states: Sequence[RunState]) -> None:
        own = {run.name for run in self.engine.running()}
        adopted = [s for s in states if s.state == "running" and s.run.name not in own]
        room = self.engine.room(adopted)
        for state in states:
            if room <= 0:
                return
            if state.run.name not in own and self._is_due(state):
                self.engine.start(state.run)
                room -= 1

    def _is_due(self, state: RunState) -> bool:
        if state.state != "waiting" or state.run.variant in self.spoiled:
            return False
        return state.ending is None or state.ending.again_at <= time.time()

    def _to_do(self, states: Sequence[RunState]) -> bool:
        """Whether there is, or will be, something to start or to wait for."""
        if any(s.holder and s.holder.here for s in states):  # of a driver that is no more
            return True
        wanted = any(s.state == "waiting" and s.run.variant not in self.spoiled for s in states)
        return wanted and not self.stopping

    def _note_mistake(self, run: PlannedRun, ending: Ending) -> None:
        """A mistake of the user's is that of the whole variant: others would end as this one."""
        if ending.kind == "mistake" and run.variant:
            self.spoiled[run.variant] = ending.line

    def _heed_stops(self) -> None:
        for run in self.engine.running():
            if self.sweep.stop_mark(run).exists():
                self.engine.stop(run)

    def _stop_all(self) -> None:
        self.stopping = True
        self.sweep.note("stopping")
        own = self.engine.running()
        for run in own:
            self.engine.stop(run)
        for state in look(self.sweep, detailed=False):
            if state.run not in own:
                _terminate(state)


@contextmanager
def driven(folder: Path) -> Iterator[None]:
    """Holds the folder of a sweep, made if it is not there: one process at a time changes its plan.

    Raises:
        BusyError: if another driver has it.
    """
    with io_errors(folder, "write"):
        folder.mkdir(parents=True, exist_ok=True)
    with claimed(folder / DRIVER_LOCK, f"sweep {folder}"):
        yield


def wanted_again(sweep: Sweep) -> None:
    """What an earlier command stopped, or failed at, is wanted again now."""
    for run in sweep.runs:
        sweep.stop_mark(run).unlink(missing_ok=True)
        forgive(sweep, run)


def stop_runs(sweep: Sweep, names: Sequence[str]) -> list[str]:
    """Ask runs, or all, to save and end, and keep drivers from starting them until the next `run`.

    Returns:
        The names of those that were running.

    Raises:
        MissingInputError: if there is no such run.
    """
    wanted = {sweep.run(name).name for name in names} or {run.name for run in sweep.runs}
    alive = []
    for state in look(sweep, detailed=False):
        if state.run.name not in wanted or state.state == "done":
            continue
        sweep.stop_mark(state.run).touch()
        if state.state == "running":
            alive.append(state.run.name)
            _terminate(state)
    sweep.note("stop", names=sorted(wanted) if names else "all")
    return alive


def _terminate(state: RunState) -> None:
    """Ask a run of this machine to save and end; on another, its engine sees the mark."""
    if state.holder and state.holder.here:
        with suppress(ProcessLookupError):
            os.kill(state.holder.pid, signal.SIGTERM)
