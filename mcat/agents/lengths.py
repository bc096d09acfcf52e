"""Episodes of random length to learn from: more starts, less of what comes after a fall.

A robot that never terminates lies where it fell for the rest of a whole episode, and most of the
data are of that. Episodes that are cut at random show starts and ends alike; a cut is a time limit,
so values go on behind it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np

from mcat.errors import UsageError


def check_limits(limits: Sequence[int]) -> None:
    """Refuse limits that make no sense."""
    if (
        not 1 <= len(limits) <= 2
        or any(limit < 1 for limit in limits)
        or sorted(limits) != list(limits)
    ):
        text = ",".join(map(str, limits))
        raise UsageError(
            f"episode lengths must be a shortest and a longest such as 100,1000, not {text}"
        )


def draw_length(
    limits: Sequence[int], *, horizon: int, delay: int, rng: np.random.Generator
) -> int:
    """The length of one episode (docs/decisions.md#deviations-of-preset-fast).

    Args:
        limits: The shortest and the longest; without a longest the horizon.
        horizon: Steps of a whole episode.
        delay: Steps between two payments. Lengths are whole numbers of these, so that every step
            is paid for; the longest may be the horizon, where what is owed is paid.
        rng: Draws log-uniformly, so that all orders of magnitude are equally likely.
    """
    longest = min(horizon, limits[1] if len(limits) == 2 else horizon)
    shortest = min(max(limits[0], delay), longest)
    drawn = math.exp(rng.uniform(math.log(shortest), math.log(longest)))
    return min(horizon, max(1, round(drawn / delay)) * delay)


def cut(limits: Sequence[int], *, horizon: int, delay: int, rng: np.random.Generator) -> list[int]:
    """Lengths that add up to one horizon."""
    lengths: list[int] = []
    left = horizon
    while left:
        length = draw_length(limits, horizon=horizon, delay=delay, rng=rng)
        # A rest too short for an episode of its own goes with the last one.
        length = left if left - length < max(delay, limits[0]) else length
        lengths.append(length)
        left -= length
    return lengths


def endless_pieces(
    limits: Sequence[int] | None, *, horizon: int, delay: int, seed: np.random.SeedSequence
) -> Iterator[tuple[int, np.random.SeedSequence]]:
    """Lengths and seeds of episodes: a horizon in all, then another for those that end early."""
    rng = None if limits is None else np.random.default_rng(seed.spawn(1)[0])
    lengths = [horizon]
    for again in itertools.count():
        if limits is not None and rng is not None:
            lengths = cut(limits, horizon=horizon, delay=delay, rng=rng)
        alone = len(lengths) == 1 and not again
        yield from zip(lengths, [seed] if alone else seed.spawn(len(lengths)), strict=True)
