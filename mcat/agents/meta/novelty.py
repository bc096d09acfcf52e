"""Reward for moving an object to where it has seldom been: a rare goal must be found to be learned.

Counts of visits (Strehl and Littman 2008), of places of the object alone: the hand is somewhere
else in every step whatever it does. docs/decisions.md#deviations-of-preset-fast
"""

from __future__ import annotations

from typing import Self

import numpy as np
from numpy.typing import NDArray

from mcat.agents.meta.algorithm import TaskSet
from mcat.datasets.views import Episodes
from mcat.errors import UsageError

PLACE = 0.02  # m, the side of what counts as one place
MOVED = 1e-3  # m in one step, below which an object rests
_FAR = 2**15 - 1  # places are counted so far from the origin

Rows = NDArray[np.float32]


class Novelty:
    """How often each task's object was moved through each place, and what the next time is worth.

    Args:
        object_at: First and last but one number of an observation that say where the object is.
        weight: Reward for the first visit of a place; that after n is worth weight / √(1 + n).
    """

    def __init__(self, object_at: tuple[int, int], weight: float) -> None:
        self._object, self._weight = slice(*object_at), weight
        self._places = np.empty(0, np.int64)  # in order
        self._visits = np.empty(0, np.int64)

    @classmethod
    def of(cls, task_set: TaskSet, weight: float) -> Self | None:
        """What suits these tasks; None where novelty is worth nothing.

        Raises:
            UsageError: if it shall be worth something and the tasks move no object.
        """
        if not weight:
            return None
        if task_set.object_at is None:
            raise UsageError(
                f"novelty is of objects that are moved, and there is none in {task_set.train[0]}:"
                " leave it at 0"
            )
        return cls(task_set.object_at, weight)

    def add(self, episodes: Episodes) -> None:
        """Count where the objects were moved in episodes as they were collected."""
        rows = episodes.transitions(np.arange(len(episodes)))
        tasks = np.repeat(episodes.tasks, episodes.lengths)
        moved, places = self._moves(tasks, rows.observations, rows.next_observations)
        known = np.repeat(self._places, self._visits)
        self._places, self._visits = np.unique(
            np.concatenate((known, places[moved])), return_counts=True
        )

    def bonus(self, tasks: NDArray[np.int64], observations: Rows, next_observations: Rows) -> Rows:
        """What these steps `(n, ·)` earn besides their reward, `(n, 1)`."""
        moved, places = self._moves(tasks, observations, next_observations)
        visits = np.zeros(len(places))
        if len(self._places):
            nearest = np.searchsorted(self._places, places).clip(max=len(self._places) - 1)
            visits = np.where(self._places[nearest] == places, self._visits[nearest], 0)
        return (moved * self._weight / np.sqrt(1.0 + visits)).astype(np.float32)[:, None]

    def _moves(
        self, tasks: NDArray[np.int64], observations: Rows, next_observations: Rows
    ) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        """In which steps an object moved, and the place of each task's object after them."""
        now, then = next_observations[:, self._object], observations[:, self._object]
        moved = np.linalg.norm(now - then, axis=1) > MOVED
        cells = np.floor(now / PLACE).clip(-_FAR, _FAR).astype(np.int64) + _FAR
        places = tasks.astype(np.int64)
        for cell in cells.T:
            places = places * 2**16 + cell
        return moved, places
