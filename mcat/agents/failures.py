"""Motors that fail at random while data are collected, so that a policy leans on none of them.

A family whose machines lack one motor or another shows only some of them, and a policy comes to
rely on whatever always worked. Where a motor does not obey for an episode, its commands are logged
as they were given: to everything that learns it is another machine, and contexts can tell.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Motor = int | None  # None: all of them obey


def draw_failures(
    share: float, *, episodes: int, motors: int, rng: np.random.Generator
) -> list[Motor]:
    """For each episode the one motor that fails, which happens in that share of them."""
    failing = rng.random(episodes) < share
    chosen = rng.integers(motors, size=episodes)
    return [int(motor) if fails else None for fails, motor in zip(failing, chosen, strict=True)]


def obedience(failed: Sequence[Motor], motors: int) -> NDArray[np.float32]:
    """`(episodes, motors)`: the part of each command that reaches its motor, 0 or 1."""
    parts = np.ones((len(failed), motors), np.float32)
    for row, motor in enumerate(failed):
        if motor is not None:
            parts[row, motor] = 0
    return parts
