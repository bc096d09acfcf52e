"""MQL (Fakoor et al. 2020): TD3 whose networks read the last steps, adapted to each task.

Training is plain: uniform rows of all tasks, contexts learned end to end by TD3's losses. On any
task, known or not, one trial episode comes first; copies of all networks then learn from it,

 1. by updates on the trial alone,
 2. by updates on the replay whose rows weigh β(x), the odds of being the trial's by a logistic
    regression on [s, context], with λ |θ - θ_meta|² beside the losses, λ = 1 - ESS(β).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mcat.agents.learner import Batch, Imitation, Losses
from mcat.agents.meta.algorithm import TaskSet
from mcat.agents.meta.methods.adaptation import Adaptation, with_windows
from mcat.agents.meta.methods.configs import MQLConfig
from mcat.agents.meta.methods.experience import Imitated
from mcat.agents.meta.methods.multitask import MultiTask
from mcat.agents.meta.methods.recurrent_td3 import RecurrentTD3
from mcat.agents.policies.recurrent_policy import ActingRecurrentPolicy, RecurrentPolicy
from mcat.agents.recurrent import pushed, step_rows, windows_of
from mcat.datasets.rollout import Taken
from mcat.datasets.views import Episodes
from mcat.types import PolicyFunction


class Exploring:
    """A `PolicyFunction` for one episode of each training task: the actor, with noise."""

    def __init__(
        self, policy: ActingRecurrentPolicy, noise: float, rng: np.random.Generator
    ) -> None:
        self._policy, self._noise, self._rng = policy, noise, rng
        self.paid = policy.paid

    def __call__(self, states: NDArray[Any]) -> NDArray[np.float32]:
        """The actions for the states that the last ones led to."""
        actions = self._policy(states)
        noise = self._noise * self._rng.standard_normal(actions.shape, dtype=np.float32)
        taken: NDArray[np.float32] = np.clip(actions + noise, -1, 1)
        self._policy.took(taken)
        return taken

    @property
    def windows(self) -> NDArray[np.float32]:
        """What went before the last actions."""
        return self._policy.windows


class Together:
    """A `PolicyFunction` of several, each of which acts in rows of its own."""

    def __init__(self, members: Sequence[tuple[NDArray[np.int64], ActingRecurrentPolicy]]) -> None:
        self._members = members
        self.contexts = torch.zeros(0)

    def __call__(self, states: NDArray[Any]) -> NDArray[np.float32]:
        """The actions of whoever has the row."""
        acted = [(rows, policy(states[rows])) for rows, policy in self._members]
        order = np.argsort(np.concatenate([rows for rows, _ in acted]))
        self.contexts = torch.cat([policy.contexts for _, policy in self._members])[order]
        actions: NDArray[np.float32] = np.concatenate([actions for _, actions in acted])[order]
        return actions

    def took(self, actions: NDArray[Any]) -> None:
        """Say what was done in place of the last actions."""
        for rows, policy in self._members:
            policy.took(actions[rows])

    def paid(self, rewards: NDArray[Any]) -> None:
        """Say what the last actions earned."""
        for rows, policy in self._members:
            policy.paid(rewards[rows])


class MQL(MultiTask):
    """The method; see the module."""

    trials = 1
    learner: RecurrentTD3

    def __init__(self, task_set: TaskSet, config: MQLConfig, seed: np.random.SeedSequence) -> None:
        super().__init__(task_set, config, seed, config.numbers.discount)
        self._own, self._root = config, seed.entropy
        sizes = task_set.observation_size, task_set.action_size, config.history, config.memory
        self.learner = RecurrentTD3(*sizes, config.numbers, self.generator)

    def explore(self, drivers: Sequence[str]) -> PolicyFunction:
        """The actor with noise, and an empty memory."""
        policy = ActingRecurrentPolicy(self.learner.actor, self.task_set.delay)
        self._exploring = Exploring(policy, self._own.exploration, self.rngs["acting"])
        return self._exploring

    # --- rows with windows ------------------------------------------------------------------

    def begin(self) -> None:
        """Windows of what is stored are gathered when drawn, those seen while acting kept."""
        self._stored = len(self.experience.replay)
        self._windows: list[tuple[NDArray[np.float32], NDArray[np.float32]]] = []

    def see(self, taken: Taken) -> None:
        """Take in a step with the windows it was taken in."""
        tasks = self.experience.see(taken)
        before = self._exploring.windows[tasks]
        actions, rewards, states = taken.actions, taken.rewards, taken.observations
        row = step_rows(actions[tasks], rewards[tasks], states[tasks], self.task_set.delay)
        after = pushed(before, row)
        self._windows += list(zip(before, after, strict=True))

    def rows(self, numbers: NDArray[np.int64]) -> Batch:
        """Rows `(n, ...)` of all tasks, with windows behind their states."""
        flat = numbers.ravel()
        batch = self.experience.rows(flat)
        new = np.flatnonzero(flat >= self._stored)
        before, after = self._windows_of(self.experience.replay, np.minimum(flat, self._stored - 1))
        for place in new:
            seen = self._windows[flat[place] - self._stored]
            before[place], after[place] = (torch.from_numpy(x).flatten() for x in seen)
        return with_windows(batch, before, after)

    def imitated_rows(self, imitated: Imitated) -> Imitation:
        """Imitated rows `(n, ...)`, likewise."""
        memory = self.experience.imitation
        assert memory is not None
        before, _ = self._windows_of(memory.episodes, imitated.indices.ravel())
        obs, action, returns, weights = (column.flatten(0, 1) for column in imitated.rows[:4])
        return Imitation(torch.cat((obs, before), 1), action, returns, weights, imitated.rows.share)

    def _windows_of(self, episodes: Episodes, numbers: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        return windows_of(episodes, numbers, self._own.history, self.task_set.delay)

    def update(self, batch: Batch, imitation: Imitation | None) -> tuple[Losses, Sequence[Tensor]]:
        """TD3's."""
        return self.learner.update(batch, imitation), ()

    # --- what a user gets -------------------------------------------------------------------

    def acting_policy(self, tasks: Sequence[int], trials: Episodes | None) -> PolicyFunction:
        """The meta-trained actor; with trials one for each task that has learned from its own."""
        if trials is None or not self.learner.updates:
            return self.policy.start_episode()
        adaptation = Adaptation(
            self._own,
            self.learner,
            self.experience,
            delay=self.task_set.delay,
            horizon=self.task_set.horizon,
        )
        members = []
        for task in np.unique(np.asarray(tasks)).tolist():
            seed = np.random.SeedSequence(self._root, spawn_key=(4, task))
            actor = adaptation.actor(trials.task(task), seed)
            acting = ActingRecurrentPolicy(actor, self.task_set.delay)
            members.append((np.flatnonzero(np.asarray(tasks) == task), acting))
        return Together(members)

    def get_ready(self) -> None:
        """Make what adapting needs and a checkpoint has not, for a run that was only restored."""
        if self.experience.warm:
            self.experience.begin()

    @property
    def policy(self) -> RecurrentPolicy:
        """The meta-trained actor."""
        return RecurrentPolicy(self.learner.deployed, self.task_set.delay)
