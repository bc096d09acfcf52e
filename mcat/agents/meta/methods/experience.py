"""What a method has seen, as rows to learn from: replay, self-imitation and credit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mcat.agents.credit.credit import Credit
from mcat.agents.learner import Batch, Imitation
from mcat.agents.meta.algorithm import Round, TaskSet
from mcat.agents.meta.methods.configs import MethodConfig
from mcat.agents.meta.novelty import Novelty
from mcat.agents.meta.rows import SCALE_ROWS, LearningRows, imitation_rows
from mcat.agents.sil import SelfImitation
from mcat.datasets.episodes import EpisodeStore
from mcat.datasets.rollout import Taken
from mcat.datasets.views import Episodes
from mcat.errors import UsageError
from mcat.tensor_files import part


class Imitated(NamedTuple):
    """Steps of D, as many of each task."""

    indices: NDArray[np.int64]  # (tasks, n), of D's transitions
    rows: Imitation  # (tasks, n, ...)


class Experience:
    """The rounds so far, and what TD learning is given of them.

    `remember` takes rounds in. `begin` makes rows of them for the updates of one round, and `see`
    adds those that happen meanwhile. Rows are drawn by task, as many of each.

    Attributes:
        replay: B.
        imitation: D; None without self-imitation.
        step: Environment steps so far.
        collected: Transitions of the last round.
        latest: The numbers of the replay's episodes that came in the last round.
    """

    def __init__(
        self,
        task_set: TaskSet,
        config: MethodConfig,
        discount: float,
        generator: torch.Generator,
        rng: np.random.Generator,
    ) -> None:
        self.tasks, horizon = len(task_set.train), task_set.horizon
        if config.replay_capacity < task_set.round_rows:
            raise UsageError(
                f"replay_capacity must be at least a round, {task_set.round_rows} steps"
            )
        if config.batch_size < self.tasks:
            raise UsageError(
                f"batch_size must be at least 1 for each of {self.tasks} tasks, not"
                f" {config.batch_size}"
            )
        sizes = task_set.observation_size, task_set.action_size
        self.config, self._rng = config, rng
        self.replay = EpisodeStore(*sizes, capacity=config.replay_capacity)
        self.imitation = (
            SelfImitation(*sizes, config.imitation, discount) if config.imitate else None
        )
        delay = task_set.delay
        self.credit = Credit(
            *sizes, config.credit, delay=delay, horizon=horizon, generator=generator
        )
        self.novelty = Novelty.of(task_set, config.novelty)
        self.step = self.collected = 0
        self.latest = range(0)

    def remember(self, new: Round) -> None:
        """Take in a round."""
        kept = new.remembered
        self.replay.extend(kept)
        if self.imitation is not None:
            self.imitation.add(kept)
        self.credit.add(new.episodes)
        if self.novelty is not None:
            self.novelty.add(new.episodes)
        self.step, self.collected = new.step, len(new.episodes)
        episodes = self.replay.num_episodes
        self.latest = range(max(0, episodes - kept.num_episodes), episodes)

    @property
    def warm(self) -> bool:
        """Whether random actions are over and each task has an episode to learn from."""
        known = set(self.replay.tasks.tolist())
        return self.step >= self.config.start_steps and len(known) == self.tasks

    # --- rows of one round's updates ------------------------------------------------------

    def begin(self, room: int = 0) -> None:
        """Make rows of what was remembered.

        Args:
            room: How many rows of each task `see` may add.
        """
        replay = self.replay
        room_of_all = room * self.tasks
        self._rows = LearningRows(replay, self.credit, novelty=self.novelty, room=room_of_all)
        owners = np.repeat(replay.tasks, replay.lengths)
        self._counts = np.bincount(owners, minlength=self.tasks)
        self._places = np.zeros((self.tasks, self._counts.max() + room), np.int64)
        for task, count in enumerate(self._counts):
            self._places[task, :count] = np.flatnonzero(owners == task)
        if self.imitation is not None:
            kept = self.imitation.episodes
            self._imitated = np.repeat(kept.tasks, kept.lengths)
        if self.config.scale_rewards:
            endless = not replay.terminals.any() and self.imitation is None
            self._rows.scale_rewards(self.draw(SCALE_ROWS // self.tasks), centred=endless)

    def see(self, taken: Taken) -> NDArray[np.int64]:
        """Take in a step of each task at once, if its rewards are known; returns whose."""
        first = self._rows.count
        tasks = self._rows.add(taken)
        self._places[tasks, self._counts[tasks]] = np.arange(first, self._rows.count)
        self._counts[tasks] += 1
        return tasks

    def draw(self, each: int) -> NDArray[np.int64]:
        """The numbers `(tasks, each)` of rows of each task, uniform and with replacement.

        Those of the replay come first, then those seen, in their order.
        """
        chosen = (self._rng.random((self.tasks, each)) * self._counts[:, None]).astype(np.int64)
        return np.take_along_axis(self._places, chosen, axis=1)

    def rows(self, numbers: NDArray[np.int64]) -> Batch:
        """Rows `(..., ·)` with rewards in the learner's units."""
        return self._rows.batch(numbers)

    def rows_of(self, episodes: Episodes, numbers: NDArray[np.int64]) -> Batch:
        """Transitions of any episodes, with rewards made as those of the latest `begin`."""
        found = episodes.transitions(numbers)
        obs, action, _, next_obs, terminal = map(torch.from_numpy, found[1:])
        reward = self._rows.scaled(self.credit.rewards_of(episodes, numbers))
        return Batch(obs, action, reward, next_obs, terminal[:, None])

    def imitated(self) -> Imitated | None:
        """Steps of D by priority, as many of each task; None if there are none.

        Those of a task that has none are another's, and weigh nothing.
        """
        memory = self.imitation
        if memory is None or len(memory) == 0:
            return None
        each = max(1, memory.config.batch_size // self.tasks)
        drawn = [memory.sample(self._rng, each, self._imitated == t) for t in range(self.tasks)]
        indices = np.stack([numbers for numbers, _ in drawn])
        weights = np.stack([weight for _, weight in drawn])
        return Imitated(indices, imitation_rows(memory, indices, weights, self._rows.spread))

    def learned_from(self, imitated: Imitated | None, gains: Tensor) -> None:
        """Set the priorities of imitated steps by what the critics expected of them."""
        if self.imitation is not None and imitated is not None:
            weighed = (imitated.rows.weights > 0).numpy().ravel()
            self.imitation.update(imitated.indices.ravel()[weighed], gains.numpy()[weighed])

    # --- what a checkpoint keeps ----------------------------------------------------------

    def tensors(self) -> dict[str, Tensor]:
        """What remembering the same rounds again would not restore, by name."""
        imitation = {} if self.imitation is None else self.imitation.tensors()
        return {f"imitation/{name}": tensor for name, tensor in imitation.items()} | {
            f"credit/{name}": tensor for name, tensor in self.credit.tensors().items()
        }

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over what `tensors` gave, after every round was remembered."""
        if self.imitation is not None:
            self.imitation.load_tensors(part("imitation/", tensors))
        self.credit.load_tensors(part("credit/", tensors))
