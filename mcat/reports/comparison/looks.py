"""What the runs of a family had earned at equal steps, or at equal CPU seconds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mcat.paper.experiments import TEST
from mcat.paper.meta import Printed, yardstick
from mcat.reports.comparison.results import ComparedRun
from mcat.reports.comparison.statistics import Band, iqm_band
from mcat.reports.groups import Group
from mcat.reports.printed import paper_value
from mcat.reports.sections import Array

Axis = Literal["step", "cpu"]
Scores = dict[str, dict[int, float]]  # variant → seed → mean over tasks
Measure = Callable[[ComparedRun, str, str], Array]  # run, split and task → one value a row

_CPU_PLACES = 50  # of a curve over CPU seconds, at which no two runs were evaluated together


class FamilyCurve(NamedTuple):
    """IQM over the runs of a variant, along steps or CPU seconds; and each of the runs."""

    places: Array
    band: Band
    runs: Array


@dataclass(frozen=True, kw_only=True)
class FamilyRuns:
    """The compared runs of one family."""

    name: str  # of the family
    runs: tuple[ComparedRun, ...]  # one for each variant and seed
    # Others with the variant and the seed of one that came further: they add nothing that another
    # seed would.
    repeated: tuple[ComparedRun, ...] = ()

    @property
    def split(self) -> str:
        """The tasks that are judged by: those never trained on, where there are some."""
        return "test" if any(run.tasks("test") for run in self.runs) else "train"

    @property
    def paper(self) -> float | None:
        """What the paper's MCAT earned on the test tasks after 2M steps, if it is known."""
        return next(filter(None, (yardstick(run.run.record) for run in self.runs)), None)

    @property
    def printed(self) -> tuple[Printed, ...]:
        """The paper's returns on the test tasks in the settings of these runs."""
        found = (paper_value(as_group(run), TEST) for run in self.runs)
        return tuple(dict.fromkeys(filter(None, found)))

    @cached_property
    def steps(self) -> float | None:
        """The largest evaluated step that all have reached, None before one was evaluated."""
        return self.reached("step")

    def reached(self, axis: Axis) -> float | None:
        """How far all of them have been evaluated, None before one was.

        Once runs are done, those that still run count when they have come as far; runs that
        ended badly hold up nobody.
        """
        return _shared_end(self.runs, axis)

    def scores(
        self, split: str, at: float, axis: Axis = "step", measure: Measure = ComparedRun.returns
    ) -> Scores:
        """What each run had earned on average over a split's tasks at so many steps or CPU seconds.

        It is told by its latest evaluation until then. A run that diverged before counts as the
        worst of all on every task; one that has not come so far is left out.
        """
        values = [_tasks_at(run, split, at, axis, measure) for run in self.runs]
        worst = _worst(values)
        found: Scores = {}
        for run, own in zip(self.runs, values, strict=True):
            if _diverged_before(run, at, axis):
                own = {task: worst.get(task, np.nan) for task in run.tasks(split)}
            score = float(np.mean(list(own.values()))) if own else np.nan
            if np.isfinite(score):
                found.setdefault(run.variant, {})[run.run.record.seed] = score
        return found

    def curves(self, split: str, axis: Axis) -> dict[str, FamilyCurve]:
        """One curve for each variant, as far as its runs have come together."""
        found = {}
        for variant in variants_of(self.runs):
            own = [run for run in self.runs if run.variant == variant]
            end = _shared_end(own, axis)
            if end is None or not (counted := [run for run in own if _counts(run, end, axis)]):
                continue
            places = _places(counted, end, axis)
            if len(places):
                scores = np.stack([self._along(run, split, places, axis) for run in counted])
                known = np.isfinite(scores).all(0)
                if known.any():
                    own_scores = scores[:, known]
                    found[variant] = FamilyCurve(places[known], iqm_band(own_scores), own_scores)
        return found

    def _along(self, run: ComparedRun, split: str, places: Array, axis: Axis) -> Array:
        """The mean over tasks at each place; after a run diverged, of the worst of all."""
        means = []
        for task in run.tasks(split):
            values = _interpolated(run, split, task, places, axis)
            lost = _diverged_before(run, places, axis)
            if lost.any():
                others = [_interpolated(other, split, task, places, axis) for other in self.runs]
                values = np.where(lost, np.fmin.reduce(others), values)
            means.append(values)
        return np.mean(means, axis=0) if means else np.full(len(places), np.nan)


def families_of(runs: Sequence[ComparedRun]) -> tuple[FamilyRuns, ...]:
    """Runs by family, in the order in which they come."""
    members: dict[str, list[ComparedRun]] = {}
    for run in runs:
        members.setdefault(run.family, []).append(run)
    return tuple(_family(name, own) for name, own in members.items())


def _family(name: str, runs: Sequence[ComparedRun]) -> FamilyRuns:
    furthest: dict[tuple[str, int], ComparedRun] = {}
    for run in runs:
        key = run.variant, run.run.record.seed
        furthest[key] = max(furthest.get(key, run), run, key=lambda run: run.run.steps)
    kept = set(map(id, furthest.values()))
    return FamilyRuns(
        name=name,
        runs=tuple(furthest.values()),
        repeated=tuple(run for run in runs if id(run) not in kept),
    )


def variants_of(runs: Iterable[ComparedRun]) -> tuple[str, ...]:
    """The names of all variants, the reference first."""
    return tuple(dict.fromkeys(run.variant for run in runs))


def as_group(run: ComparedRun) -> Group:
    """A run as `mcat plot` takes it."""
    return Group(label=run.variant, runs=(run.run,))


def _shared_end(runs: Sequence[ComparedRun], axis: Axis) -> float | None:
    ends = {
        state: [end for run in runs if run.state == state and (end := _end(run, axis)) is not None]
        for state in ("done", "running", "failed", "diverged")
    }
    return next((min(found) for found in ends.values() if found), None)


def _end(run: ComparedRun, axis: Axis) -> float | None:
    """Where its latest evaluation was."""
    places = run.places(axis)[run.evaluations]
    return float(places[-1]) if len(places) and np.isfinite(places[-1]) else None


def _counts(run: ComparedRun, at: float, axis: Axis) -> bool:
    end = _end(run, axis)
    return (end is not None and end >= at) or run.state == "diverged"


def _diverged_before(run: ComparedRun, at: float | Array, axis: Axis) -> NDArray[np.bool_]:
    """Whether a run was lost when it should have been evaluated at a place."""
    end = _end(run, axis)
    late = np.asarray(at) > (-np.inf if end is None else end)
    return np.asarray(late & (run.state == "diverged"))


def _tasks_at(
    run: ComparedRun, split: str, at: float, axis: Axis, measure: Measure
) -> dict[str, float]:
    """Task → value at the latest evaluation until `at`; empty if it was not that far."""
    if not _counts(run, at, axis) or _diverged_before(run, at, axis):
        return {}
    found = {}
    for task in run.tasks(split):
        values = measure(run, split, task)
        (rows,) = np.nonzero(np.isfinite(values) & (run.places(axis) <= at))
        if not len(rows):
            return {}
        found[task] = float(values[rows[-1]])
    return found


def _worst(values: Iterable[dict[str, float]]) -> dict[str, float]:
    """Task → the lowest return of all runs."""
    worst: dict[str, float] = {}
    for own in values:
        for task, value in own.items():
            worst[task] = min(value, worst.get(task, value))
    return worst


def _places(runs: Sequence[ComparedRun], end: float, axis: Axis) -> Array:
    """Where a curve over these runs has points, from where all had been evaluated once."""
    evaluated = [run.places(axis)[run.evaluations] for run in runs if len(run.evaluations)]
    first = max(places[0] for places in evaluated)
    if axis == "cpu":
        return np.linspace(first, end, _CPU_PLACES) if end > first else np.array([end])
    grid = np.unique(np.concatenate(evaluated))
    return np.asarray(grid[(grid >= first) & (grid <= end)])


def _interpolated(run: ComparedRun, split: str, task: str, places: Array, axis: Axis) -> Array:
    """Returns between evaluations, NaN outside of them."""
    values, known = run.returns(split, task), run.places(axis)
    rows = np.isfinite(values) & np.isfinite(known)
    if not rows.any():
        return np.full(len(places), np.nan)
    return np.interp(places, known[rows], values[rows], left=np.nan, right=np.nan)
