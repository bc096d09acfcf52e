"""Runs as processes of this machine, each on cores of its own; needs nothing but Python."""

from __future__ import annotations

import os
from collections.abc import Sequence

from mcat.sweeps.attempt import Attempt
from mcat.sweeps.endings import Ending
from mcat.sweeps.folder import Sweep
from mcat.sweeps.runs import PlannedRun
from mcat.sweeps.state import RunState


class LocalEngine:
    """An `Engine` of child processes, which live on if the driver dies; by default one a core."""

    def __init__(self, sweep: Sweep, jobs: int | None = None) -> None:
        self.sweep = sweep
        # Where the system keeps no process on cores (macOS), their number is all there is to know.
        pins = hasattr(os, "sched_getaffinity")
        self.cores = sorted(os.sched_getaffinity(0)) if pins else []
        number = len(self.cores) or os.cpu_count() or 1
        self.jobs = jobs or max(1, number // sweep.resources.cpus)
        self.attempts: list[Attempt] = []
        self._taken: set[int] = set()  # by runs of an earlier driver

    def room(self, adopted: Sequence[RunState]) -> int:
        """What `jobs` leaves; runs of an earlier driver keep their cores."""
        here = [state.holder for state in adopted if state.holder and state.holder.here]
        self._taken = {core for holder in here for core in holder.cores}
        return self.jobs - len(self.attempts) - len(adopted)

    def start(self, run: PlannedRun) -> None:
        """Start it on cores that no other run has, if there are enough of them."""
        busy = self._taken | {core for one in self.attempts for core in one.cores}
        free = [core for core in self.cores if core not in busy]
        cpus = self.sweep.resources.cpus
        cores = free[:cpus] if len(free) >= cpus else ()
        self.attempts.append(Attempt(self.sweep, run, cores))

    def ended(self) -> list[tuple[PlannedRun, Ending]]:
        """Reap those that ended."""
        found = [(one, one.poll()) for one in self.attempts]
        self.attempts = [one for one, ending in found if ending is None]
        return [(one.run, ending) for one, ending in found if ending is not None]

    def running(self) -> list[PlannedRun]:
        """Those that it started and that have not ended."""
        return [one.run for one in self.attempts]

    def stop(self, run: PlannedRun) -> None:
        """Ask it to save and end."""
        for one in self.attempts:
            if one.run.name == run.name:
                one.stop()
