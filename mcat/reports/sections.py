"""The parts that every report is made of: a finding in words, and its numbers as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Rows = Sequence[Sequence[str]]


Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Section:
    """One part of the report."""

    name: str  # of its picture
    title: str  # the question it answers
    reading: str  # how to read it, in a sentence or two
    finding: str  # what it shows here, the title of its picture
    rows: Rows  # the same as numbers, the heading first


def number(value: float) -> str:
    """A number for people: three digits that count, thousands whole."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def with_error(mean: float, error: float | None) -> str:
    """A mean and, if it is known, its standard error."""
    return f"{mean:,.1f}" + ("" if error is None else f" ± {error:,.1f}")


def thousands(steps: float) -> str:
    """A number of steps, as in "200K" and "1M"."""
    if abs(steps) >= 1e6:
        return f"{steps / 1e6:g}M"
    return f"{steps / 1e3:g}K" if abs(steps) >= 1e3 else f"{steps:g}"


def share(part: float) -> str:
    """A part of 1 in percent."""
    return f"{100 * part:.0f} %"


def rate(part: float | None) -> str:
    """A part of 1 in percent that may not be known."""
    return "–" if part is None else share(part)


def told_apart(
    points: Array, tasks: NDArray[np.int64], names: Mapping[int, str]
) -> tuple[str, Rows]:
    """How many contexts lie nearest to the mean of their own task, in words and task by task."""
    present = np.unique(tasks)
    centres = np.stack([points[tasks == task].mean(0) for task in present])
    distances = np.linalg.norm(points[:, None] - centres, axis=2)
    right = present[distances.argmin(1)] == tasks
    rows = [("task", "contexts", "nearest to their own task's mean")] + [
        (names[task], str((tasks == task).sum()), share(right[tasks == task].mean()))
        for task in present.tolist()
    ]
    return f"{share(right.mean())} of the contexts lie nearest to their own task's mean", rows
