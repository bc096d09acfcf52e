"""Reward for moving an object to where it has seldom been: a rare goal must be found to be learned.

Counts of visits (Strehl and Littman 2008) of two kinds of places: where the object is moved to,
and, for a tenth of that, where the hand is near the object, which it else seldom touches.
docs/decisions.md#deviations-of-preset-fast
"""

from __future__ import annotations

from typing import Self

import numpy as np
from numpy.typing import NDArray

from mcat.agents.meta.algorithm import TaskSet
from mcat.datasets.views import Episodes
from mcat.envs.robots import Places
from mcat.errors import UsageError

PLACE = 0.02  # m, the side of what counts as one place
NEAR = 0.15  # m in each direction, how far from the object places of the hand count
MOVED = 1e-3  # m in one step, below which an object rests
HAND_SHARE = 0.1  # what a place of the hand is worth beside one of the object
_FAR = 2**15 - 1  # places are counted so far from the origin

Rows = NDArray[np.float32]
Tasks = NDArray[np.int64]


class Visits:
    """How often each place was visited."""

    def __init__(self) -> None:
        self._places = np.empty(0, np.int64)  # in order
        self._counts = np.empty(0, np.int64)

    def add(self, places: NDArray[np.int64]) -> None:
        """Count visits of these places."""
        earlier = np.repeat(self._places, self._counts)
        self._places, self._counts = np.unique(
            np.concatenate((earlier, places)), return_counts=True
        )

    def of(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """How many there were of each."""
        if not len(self._places):
            return np.zeros(len(places), np.int64)
        nearest = np.searchsorted(self._places, places).clip(max=len(self._places) - 1)
        return np.where(self._places[nearest] == places, self._counts[nearest], 0)


class Novelty:
    """What new places are worth, each task having its own.

    Args:
        where: Which numbers of an observation say where hand and object are.
        weight: Reward for moving the object to a place for the first time; that after n visits is
            worth weight / √(1 + n). One of the hand, as seen from the object, is worth a tenth.
    """

    def __init__(self, where: Places, weight: float) -> None:
        self._hand, self._object = slice(*where.hand), slice(*where.object)
        self._weight = weight
        self.of_hand, self.of_object = Visits(), Visits()

    @classmethod
    def of(cls, task_set: TaskSet, weight: float) -> Self | None:
        """What suits these tasks; None where novelty is worth nothing.

        Raises:
            UsageError: if it shall be worth something and the tasks move no object.
        """
        if not weight:
            return None
        if task_set.places is None:
            raise UsageError(
                f"novelty is of objects that are moved, and there is none in {task_set.train[0]}:"
                " leave it at 0"
            )
        return cls(task_set.places, weight)

    def add(self, episodes: Episodes) -> None:
        """Count the places of episodes as they were collected."""
        rows = episodes.transitions(np.arange(len(episodes)))
        tasks = np.repeat(episodes.tasks, episodes.lengths)
        near, hand, moved, place = self._seen(tasks, rows.observations, rows.next_observations)
        self.of_hand.add(hand[near])
        self.of_object.add(place[moved])

    def bonus(self, tasks: Tasks, observations: Rows, next_observations: Rows) -> Rows:
        """What these steps `(n, ·)` earn besides their reward, `(n, 1)`."""
        near, hand, moved, place = self._seen(tasks, observations, next_observations)
        new_hand = HAND_SHARE * near / np.sqrt(1.0 + self.of_hand.of(hand))
        new_place = moved / np.sqrt(1.0 + self.of_object.of(place))
        earned: Rows = (self._weight * (new_hand + new_place)).astype(np.float32)[:, None]
        return earned

    def _seen(
        self, tasks: Tasks, observations: Rows, next_observations: Rows
    ) -> tuple[NDArray[np.bool_], NDArray[np.int64], NDArray[np.bool_], NDArray[np.int64]]:
        """After each step: is the hand near, at which place; was the object moved, to which?"""
        now, before = next_observations[:, self._object], observations[:, self._object]
        moved = np.linalg.norm(now - before, axis=1) > MOVED
        reach = next_observations[:, self._hand] - now
        near = np.abs(reach).max(axis=1) < NEAR
        return near, _numbered(tasks, reach), moved, _numbered(tasks, now)


def _numbered(tasks: Tasks, points: Rows) -> NDArray[np.int64]:
    """A number for the cube in which each point `(n, 3)` lies, of its task's own."""
    numbers = tasks.astype(np.int64)
    for cell in np.floor(points / PLACE).clip(-_FAR, _FAR).astype(np.int64).T:
        numbers = numbers * 2**16 + (cell + _FAR)
    return numbers
