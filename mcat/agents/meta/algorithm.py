"""What the meta-training loop knows of a method: who acts, what is learned, what is saved."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from mcat.agents.meta.images import Images
from mcat.datasets.episodes import EpisodeStore
from mcat.datasets.views import Episodes
from mcat.envs.robots import Places
from mcat.envs.tasks import Family, Task
from mcat.errors import UsageError
from mcat.safe_io import StrPath
from mcat.types import PolicyFunction

if TYPE_CHECKING:  # names of tasks and drivers need neither
    from torch import Tensor

    from mcat.datasets.rollout import Taken
    from mcat.envs.lockstep import Lockstep

RANDOM, SHARED = "random", "shared"
"""Drivers of an episode that most methods have; MCAT's third kind is the name of a task whose
policy was transferred, and others have names of their own."""

PhaseCallback = Callable[[str, int, int], None]
"""Called between two small pieces of work with its name, how many are done and of how many; it
shows progress and raises `StoppedError` when a signal came."""


@dataclass(frozen=True, kw_only=True)
class TaskSet:
    """The tasks of a run and how to act in them."""

    train: tuple[str, ...]  # names of the tasks to learn
    test: tuple[str, ...]  # names of those that are only looked at
    observation_size: int
    action_size: int
    horizon: int  # steps of an episode at most
    delay: int  # steps between two payments of reward
    # Environments in lockstep for tasks by number, the training tasks first.
    make: Callable[[Sequence[int]], Lockstep]
    # Whether `info["success"]` says after each step if a task is at its goal.
    can_succeed: bool = False
    # Which numbers of an observation say where hand and object are, if one is moved.
    places: Places | None = None
    # What makes the mirror images of episodes, to be remembered too; None where nobody asks.
    images: Images | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all tasks, in the order of their numbers."""
        return self.train + self.test

    @property
    def round_rows(self) -> int:
        """How many rows a round has to remember, at most."""
        return len(self.train) * self.horizon * (1 if self.images is None else 2)

    @classmethod
    def of(cls, family: Family) -> TaskSet:
        """The tasks of a family.

        Raises:
            UsageError: if they do not share horizon and delay.
        """
        tasks: tuple[Task, ...] = family.tasks
        first = tasks[0]
        for task in tasks:
            if (task.horizon, task.delay) != (first.horizon, first.delay):
                raise UsageError(
                    f"the tasks of {family.name} must share horizon and delay: {task.label()} has"
                    f" {task.horizon} and {task.delay}, {first.label()} {first.horizon} and"
                    f" {first.delay}"
                )

        def make(numbers: Sequence[int]) -> Lockstep:
            from mcat.envs.lockstep import lockstep

            return lockstep([tasks[i] for i in numbers])

        names = tuple(task.replace(delay=1).label(*family.varies) for task in tasks)
        return cls(
            train=names[: len(family.train)],
            test=names[len(family.train) :],
            observation_size=first.spec.observation_size,
            action_size=first.spec.action_size,
            horizon=first.horizon,
            delay=first.delay,
            make=make,
            can_succeed=first.spec.can_succeed,
            places=first.spec.places,
        )


@dataclass(frozen=True, kw_only=True)
class Round:
    """As many steps of each training task as a whole episode has, rolled out in lockstep."""

    step: int  # environment steps of the run up to its end
    # Whole episodes, or several that were cut, with the numbers of their tasks; one whose physics
    # diverged is missing.
    episodes: Episodes
    # Who acted in each of `episodes`: "random", "shared", the name of the task whose policy was
    # transferred, or what the method calls it.
    drivers: tuple[str, ...]
    # Whether each of `episodes` was at its goal after any of its steps; None for tasks without a
    # goal, and in rounds read from files: nothing is learned from it.
    successes: tuple[bool, ...] | None = None
    # `episodes` as they look in a mirror, under the tasks that they are there; nobody was paid for
    # them or drove them.
    images: Episodes | None = None

    @property
    def remembered(self) -> Episodes:
        """All that dynamics and values may be learned from: `episodes`, then `images`."""
        if self.images is None:
            return self.episodes
        return EpisodeStore.concatenate([self.episodes, self.images])

    @property
    def returns(self) -> NDArray[np.float64]:
        """What each episode earned."""
        return self.episodes.episode_returns()

    def paces(self, horizon: int) -> NDArray[np.float64]:
        """What each would have earned in `horizon` steps, at the pace of those it was given.

        One that ended by itself would have earned no more (docs/decisions.md#when-an-episode-ends).
        """
        ended = self.episodes.transitions(self.episodes.episode_ends - 1).terminals > 0
        return self.returns * np.where(ended, 1.0, horizon / self.episodes.lengths)


class Algorithm(Protocol):
    """A method of meta-RL. The loop owns the environments, the metrics and the files."""

    metrics: tuple[str, ...]  # names of what `prepare` and `learn` return together
    # Names of the pieces of learning that it tells of, in the order of their columns.
    phases: tuple[str, ...]
    trials: int  # episodes on each task before those that count, to find out which it is

    def prepare(self, on_progress: PhaseCallback) -> dict[str, float]:
        """What is learned before a round; returns what to log of it."""
        ...

    def plan(self) -> tuple[str, ...]:
        """Who shall drive each training task in the next round."""
        ...

    def explorer(self, drivers: Sequence[str]) -> PolicyFunction:
        """Acts in one round, row i on training task i; it starts with an empty memory."""
        ...

    def after_step(self, taken: Taken, on_progress: PhaseCallback) -> None:
        """Learn while acting: called after every step of an explorer."""
        ...

    def acting_policy(self, tasks: Sequence[int], trials: Episodes | None) -> PolicyFunction:
        """What a user gets: acts without noise; it starts with an empty memory.

        Args:
            tasks: The number of each row's task in `TaskSet.names`; those after the training tasks
                are unseen.
            trials: Episodes of this policy on these tasks, by the same numbers; None before the
                first. Nothing else of the method changes by learning from them.
        """
        ...

    def remember(self, new: Round) -> None:
        """Take in a round; on resuming also those of before, in order."""
        ...

    def learn(self, on_progress: PhaseCallback) -> dict[str, float]:
        """What is learned after a round; returns the rest to log, NaN where nothing was."""
        ...

    def tensors(self) -> Mapping[str, Tensor]:
        """Arrays that learning changes, by name."""
        ...

    def state(self) -> dict[str, Any]:
        """Everything else that changes, as JSON."""
        ...

    def load(self, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        """Take over what `tensors` and `state` gave, after every round was remembered."""
        ...

    def save_policy(self, path: StrPath, metadata: dict[str, Any]) -> None:
        """Write the acting policy as a file of its own."""
        ...
