"""How evenly the rows of a log follow one another."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mcat.datasets.arrays import goes_on

GAP = 1.5  # times the usual step: a row is missing
UNEVEN = 1.2  # times as long: the long steps of an uneven log beside its short ones
MAX_GAP = 5  # usual steps, or ticks: nobody knows what happened in a longer pause


class Pace(NamedTuple):
    """The steps of a log within its episodes, in seconds."""

    short: float  # one in twenty is shorter
    usual: float  # half of them are shorter
    long: float  # one in twenty is longer
    even: bool  # whether nearly all have the same length, apart from those over missing rows

    def __str__(self) -> str:
        if self.even:
            return f"{1 / self.usual:.4g} Hz"
        return (
            f"about {1 / self.usual:.4g} Hz, unevenly (nine of ten steps take"
            f" {1e3 * self.short:.3g} to {1e3 * self.long:.3g} ms)"
        )


def pace_of(time: NDArray[np.float64], ends: NDArray[np.int64]) -> Pace | None:
    """The steps of a log; None if it never goes on."""
    with np.errstate(over="ignore"):
        steps = np.diff(time)
    forward = steps[goes_on(ends)[:-1] & (steps > 0) & np.isfinite(steps)]
    if not len(forward):
        return None
    usual = float(np.median(forward))
    steady = np.quantile(forward[forward <= GAP * usual], (0.05, 0.95))
    short, long = np.quantile(forward[forward <= MAX_GAP * usual], (0.05, 0.95))
    return Pace(float(short), usual, float(long), bool(steady[1] <= UNEVEN * steady[0]))
