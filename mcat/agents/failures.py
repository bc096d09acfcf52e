"""Motors that fail while data are collected, so that a policy leans on none of them.

A family whose machines lack one motor or another shows only some of them, and a policy comes to
rely on whatever always worked. Where a motor does not obey for an episode, its commands are logged
as they were given: to everything that learns it is another machine, and contexts can tell. The more
the failures of a motor cost, the more often it fails. They begin when there is a gait to spoil.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Motor = int | None  # None: all of them obey

_LEAST_COST = 0.1  # so that no motor is forgotten
_RATE = 0.3  # at which costs and returns follow new episodes


def draw_failures(
    share: float, costs: Sequence[float], *, episodes: int, rng: np.random.Generator
) -> list[Motor]:
    """For each episode the one motor that fails, which happens in that share of them.

    Args:
        share: How many of the episodes have a failing motor.
        costs: What the failures of each motor cost; they are drawn in proportion.
        episodes: How many there are.
        rng: Draws.
    """
    failing = rng.random(episodes) < share
    chosen = rng.choice(len(costs), size=episodes, p=np.array(costs) / np.sum(costs))
    return [int(motor) if fails else None for fails, motor in zip(failing, chosen, strict=True)]


def obedience(failed: Sequence[Motor], motors: int) -> NDArray[np.float32]:
    """`(episodes, motors)`: the part of each command that reaches its motor, 0 or 1."""
    parts = np.ones((len(failed), motors), np.float32)
    for row, motor in enumerate(failed):
        if motor is not None:
            parts[row, motor] = 0
    return parts


def learn_costs(
    costs: list[float],
    intact: list[float],
    tasks: Sequence[int],
    failed: Sequence[Motor],
    returns: Sequence[float],
) -> None:
    """Update what failures cost: the share of its return that a machine loses by them.

    Args:
        costs: By motor, from `_LEAST_COST` to 1; changed in place.
        intact: What each task earned of late with all motors; changed in place.
        tasks: The task of each new episode.
        failed: The motor that failed in it.
        returns: What it earned, for episodes of equal length.
    """
    for task, motor, value in zip(tasks, failed, returns, strict=True):
        if motor is None:
            intact[task] += _RATE * (value - intact[task])
    for task, motor, value in zip(tasks, failed, returns, strict=True):
        if motor is not None and intact[task] > 0:
            lost = min(1.0, max(_LEAST_COST, 1 - value / intact[task]))
            costs[motor] += _RATE * (lost - costs[motor])
