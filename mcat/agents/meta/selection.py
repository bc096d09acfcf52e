"""Which policy collects the next episode of a task: the shared one or another task's, transferred.

The rule of Algorithm 1; docs/decisions.md#which-policy-collects-the-next-episode has its details.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean
from typing import Any, NamedTuple

from mcat.agents.configs import SelectionConfig
from mcat.errors import DataError, UsageError


class _Entry(NamedTuple):
    """One episode; `source` is None if the shared policy drove it."""

    step: int
    task: int
    source: int | None
    value: float


class Selection:
    """The recent returns R^(i) of the shared policy and R^(j→i) of transfers, and the choice.

    They are a few dozen numbers, so all are in one list.
    """

    def __init__(self, tasks: int, config: SelectionConfig) -> None:
        if tasks < 1:
            raise UsageError(f"a selection needs at least 1 task, not {tasks}")
        self.tasks, self.config = tasks, config
        self._entries: list[_Entry] = []

    def choose(self, task: int) -> int | None:
        """The task whose policy shall be transferred to `task`; None for the shared policy."""
        own = self.mean(task)
        drivers = [entry.source for entry in self._entries if entry.task == task]
        if own is None or (self.config.alternate and drivers[-1] is not None):
            return None
        enough = own + self.config.margin * abs(own)

        # `max` takes the first of equals: ties go to the lowest number.
        untried = {}
        pairs = {}
        for source in range(self.tasks):
            pair, at_home = self.mean(task, source), self.mean(source)
            if pair is not None:
                pairs[source] = pair
            elif at_home is not None and at_home > enough:
                untried[source] = at_home
        if untried:
            return max(untried, key=untried.__getitem__)
        if pairs:
            best = max(pairs, key=pairs.__getitem__)
            if pairs[best] > enough:
                return best
        return None

    def mean(self, task: int, source: int | None = None) -> float | None:
        """R̄^(source→task), or R̄^(task) without a source; None if the set is empty."""
        values = [e.value for e in self._entries if e.task == task and e.source == source]
        return fmean(values) if values else None

    def add(self, step: int, task: int, source: int | None, value: float) -> None:
        """Remember the return of an episode that ended `step` steps into the run."""
        self._check(task, source)
        if source is not None:
            source = int(source)  # JSON knows no numpy numbers
        self._entries.append(_Entry(int(step), int(task), source, float(value)))

    def forget(self, now: int) -> None:
        """Drop what was stored before the last G steps."""
        own, transfers = self.config.memory, self.config.transfer_memory or self.config.memory
        self._entries = [
            entry
            for entry in self._entries
            if entry.step >= now - (own if entry.source is None else transfers)
        ]

    def state(self) -> dict[str, Any]:
        """Everything that changes, as JSON."""
        return {"entries": [list(entry) for entry in self._entries]}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take over what `state` gave."""
        entries = [_Entry(*entry) for entry in state["entries"]]
        for entry in entries:
            self._check(entry.task, entry.source)
        self._entries = entries

    def _check(self, task: int, source: int | None) -> None:
        """Refuse task numbers that there are not, or of a state of a run with other tasks."""
        for number in (task, source):
            if number is not None and not 0 <= number < self.tasks:
                raise DataError(f"task {number} in the returns: there are only {self.tasks} tasks")
