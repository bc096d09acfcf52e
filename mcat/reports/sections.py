"""What every report is made of: a finding in words, its numbers as a table, what is a gain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mcat.agents.returns import Returns
from mcat.transfer.result import ReturnMatrix

Rows = Sequence[Sequence[str]]
Array = NDArray[np.float64]
_FEWEST = 5  # with fewer episodes the error itself is not known well enough to judge by


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


def difference(before: Returns, after: Returns) -> tuple[float, float]:
    """Mean and standard error of what one earns more in the same episodes; ∞ for too few."""
    differences = np.subtract(after.values, before.values)
    if len(differences) < _FEWEST:
        return float(differences.mean()), np.inf
    return float(differences.mean()), float(differences.std(ddof=1)) / np.sqrt(len(differences))


def gains(matrix: ReturnMatrix) -> tuple[Array, NDArray[np.bool_]]:
    """Per source (row) and target (column) the gain in percent, and whether it is no chance.

    The gain is 100·(transferred − untranslated) / max(|untranslated|, 1), NaN for a pair that was
    not evaluated.
    """
    before, after, before_error, after_error = (
        np.array(cells, dtype=np.float64)  # None becomes NaN
        for cells in (
            matrix.untranslated,
            matrix.transferred,
            matrix.untranslated_error,
            matrix.transferred_error,
        )
    )
    gain = after - before
    clear = np.abs(gain) > 2 * np.hypot(before_error, after_error)
    return 100 * gain / np.maximum(np.abs(before), 1), clear
