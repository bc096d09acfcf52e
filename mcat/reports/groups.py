"""Runs that only their seeds tell apart, joined to one curve with a name."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from mcat.agents.meta.methods.registry import METHODS
from mcat.agents.meta.run_config import RunConfig
from mcat.agents.runs.record import RunRecord
from mcat.config import completed, defaults_of, flatten, to_json
from mcat.envs.families import FAMILIES
from mcat.errors import MissingInputError, UsageError
from mcat.paper.meta import has_other_tasks
from mcat.reports.runs import Contexts, LearningRun
from mcat.reports.sections import Array, Rows, told_apart

# Settings that say how far a run goes and how it is watched, not what it does.
_NO_PART_OF_THE_METHOD = {
    "family", "seed", "steps", "threads", "evaluate_every", "evaluation_episodes", "snapshots",
    "checkpoint_every",
}  # fmt: skip
# By the part after the method.
_NAMES = {
    "imitate": "SIL",
    "mirror_replay": "mirrored replay",
    "context.contrastive_weight": "contrastive loss",
    "credit.kind": "credit",
    "crossq.deployed_share": "long average",
    "crossq.huber_delta": "Huber loss",
    "selection.margin": "selection margin",
}
_OFF = (False, None, "none", 0)


class MeanCurve(NamedTuple):
    """Mean and standard error over runs, at those steps that all of them have reached."""

    steps: Array
    mean: Array
    error: Array


@dataclass(frozen=True, kw_only=True)
class Group:
    """Runs of one method on one family."""

    label: str
    runs: tuple[LearningRun, ...]

    @property
    def record(self) -> RunRecord:
        """What its runs have in common, but for the seed."""
        return self.runs[0].record

    def curve(self, column: str) -> MeanCurve | None:
        """The mean over those of its runs that have values, None before one has."""
        curves = [curve for run in self.runs if len((curve := run.curve(column))[0])]
        if not curves:
            return None
        first = max(steps[0] for steps, _ in curves)
        last = min(steps[-1] for steps, _ in curves)
        grid = np.unique(np.concatenate([steps for steps, _ in curves]))
        grid = grid[(grid >= first) & (grid <= last)]
        if not len(grid):
            return None
        return MeanCurve(grid, *mean_and_error(np.stack([np.interp(grid, *c) for c in curves])))


def mean_and_error(values: Array) -> tuple[Array, Array]:
    """Mean and its standard error over the first axis; of one run the error is 0."""
    n = len(values)
    error = values.std(0, ddof=1) / math.sqrt(n) if n > 1 else np.zeros(values.shape[1:])
    return values.mean(0), error


def group_runs(runs: Sequence[LearningRun], labels: Sequence[str] = ()) -> tuple[Group, ...]:
    """Join the runs whose family and settings agree; those without a row of metrics are left out.

    Raises:
        MissingInputError: if no run has a row of metrics.
        UsageError: if there are more or fewer curves than labels.
    """
    joined: dict[str, list[LearningRun]] = {}
    for run in runs:
        if run.steps:
            record = run.record
            method = (
                record.method,
                record.family,
                record.tasks,
                record.preset,
                sorted(_settings(record).items()),
            )
            joined.setdefault(repr(method), []).append(run)
    if not joined:
        raise MissingInputError("nothing to plot yet: no run has come so far that it was measured")
    names = labels or _labels([group[0].record for group in joined.values()])
    if len(names) != len(joined):
        curves = "; ".join(
            " and ".join(run.record.name for run in group) for group in joined.values()
        )
        raise UsageError(f"--labels gives {len(names)} names to {len(joined)} curves: {curves}")
    return tuple(
        Group(label=name, runs=tuple(group))
        for name, group in zip(names, joined.values(), strict=True)
    )


def _settings(record: RunRecord) -> dict[str, Any]:
    """What makes the method: dotted names of settings → values, also of those it did not know."""
    preset = _preset(record)
    defaults = defaults_of(type(preset)) if preset and record.kind == "metatrain" else {}
    settings = _of_method(completed(record.config, defaults))
    if not has_other_tasks(record):
        settings.pop("mirror_replay", None)  # nothing is mirrored there, whatever it says
    return settings


def _of_method(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in settings.items() if k not in _NO_PART_OF_THE_METHOD}


def _preset(record: RunRecord) -> RunConfig | None:
    """What is today called as the preset of a run; None if there is no such any more."""
    method = METHODS.get(record.method) if record.kind == "metatrain" else METHODS["mcat"]
    if method is None or record.preset not in method.presets:
        return None
    family = record.own_family or FAMILIES.get(record.family)
    return method.preset(record.preset, family.train[0].robot if family else "")


def _labels(records: Sequence[RunRecord]) -> list[str]:
    """For each its preset and what was changed in it, with the method if it is not always MCAT."""
    labels = []
    for record in records:
        preset = _preset(record)
        usual = _of_method(flatten(to_json(preset) if preset else record.config))
        changed = [
            _words(key.removeprefix(f"{record.method}."), value)
            for key, value in sorted(_settings(record).items())
            if key in usual and value != usual[key]
        ]
        labels.append(", ".join([record.preset, *changed]))
    names = [method.label if (method := METHODS.get(r.method)) else r.method for r in records]
    if set(names) != {METHODS["mcat"].label}:
        labels = [f"{name} {label}" for name, label in zip(names, labels, strict=True)]
    uses = Counter((r.family, label) for r, label in zip(records, labels, strict=True))
    return [
        label if uses[record.family, label] == 1 else f"{label} ({record.name})"
        for record, label in zip(records, labels, strict=True)
    ]


def _words(key: str, value: Any) -> str:
    """A setting for a legend: "no transfer", "delay 100", "SIL"."""
    if key == "imitate" and value is True:
        return _NAMES[key]
    name = _NAMES.get(key, key.split(".")[-1].replace("_", " "))
    return f"no {name}" if value in _OFF else f"{name} {value}"


def short_names(names: Sequence[str]) -> dict[str, str]:
    """Task names without the words that all of them begin or end with."""
    if len(names) < 2:
        return {name: name for name in names}
    words = [name.split("-") for name in names]
    start = _shared(words)
    end = _shared([parts[start:][::-1] for parts in words])
    short = ["-".join(parts[start : len(parts) - end]) for parts in words]
    return dict(zip(names, short if all(short) else names, strict=True))


def _shared(lists: Sequence[Sequence[str]]) -> int:
    """How many first words all lists share."""
    for count, column in enumerate(zip(*lists, strict=False)):
        if len(set(column)) > 1:
            return count
    return min(map(len, lists))


def in_order(names: Iterable[str]) -> list[str]:
    """Sorted by the numbers in them, as in 0.05, 0.1, 0.75, 10; without numbers as they come."""
    return sorted(names, key=lambda name: [float(n) for n in re.findall(r"\d+(?:\.\d+)?", name)])


def contexts_apart(run: LearningRun, contexts: Contexts) -> tuple[str, Rows]:
    """`told_apart` of the contexts of a run, the tasks in order and by their short names."""
    order = in_order(dict.fromkeys(contexts.tasks))
    names = short_names(run.record.tasks)
    numbers = np.array([order.index(task) for task in contexts.tasks])
    labels = {number: names.get(task, task) for number, task in enumerate(order)}
    return told_apart(contexts.points, numbers, labels)
