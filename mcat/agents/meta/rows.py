"""Rows to learn from: what the replay holds, then what happens while they are learned from."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mcat.agents.credit.credit import Credit
from mcat.agents.learner import Batch, Imitation
from mcat.agents.meta.novelty import Novelty
from mcat.agents.sil import SelfImitation
from mcat.datasets.rollout import Taken
from mcat.datasets.views import Episodes, Floats, Indices

SCALE_ROWS = 10_000  # rewards enough to tell their mean and spread


class LearningRows:
    """Transitions of all tasks with rewards as credited, for the updates of one round.

    Args:
        replay: Its transitions come first, in their order.
        credit: How payments are put down to steps.
        contexts: `(len, Z)`, the z_t of these transitions; None for states alone.
        novelty: What new places of an object are worth besides; None for nothing.
        room: How many rows `add` may add.

    Attributes:
        columns: All rows, and behind them room for more.
        count: Rows in use.
        asks: Whether rewards are those of a network: others after every step, so `batch` asks.
        mean: Of rewards, from which they are counted.
        spread: In units of which they are.
    """

    def __init__(
        self,
        replay: Episodes,
        credit: Credit,
        *,
        contexts: Tensor | None = None,
        novelty: Novelty | None = None,
        room: int = 0,
    ) -> None:
        self._credit, self._novelty, self._states = credit, novelty, replay.observation_size
        credit.begin(replay)
        self.asks = credit.used == "learned"
        rows = replay.transitions(np.arange(len(replay)))
        obs, action, received, next_obs, terminal = map(torch.from_numpy, rows[1:])
        owners = np.repeat(replay.tasks, replay.lengths)
        bonus = self._bonus_of(owners, rows.observations, rows.next_observations)
        self._bonus = torch.cat((bonus, bonus.new_zeros(room, 1)))
        reward = received[:, None] if self.asks else credit.rewards() + bonus
        stored = _with_contexts(Batch(obs, action, reward, next_obs, terminal[:, None]), contexts)
        self.columns = Batch(*(torch.cat((x, x.new_empty(room, x.shape[1]))) for x in stored))
        self.count = len(replay)
        self.mean, self.spread = 0.0, 1.0

    def scale_rewards(self, numbers: NDArray[np.int64], *, centred: bool) -> None:
        """Give rewards in units of these rows' spread from now on and, if `centred`, without mean.

        A constant in every reward misleads where episodes end by themselves.
        """
        drawn = self.batch(numbers).reward.double()
        self.mean = float(drawn.mean()) if centred else 0.0
        self.spread = max(float(drawn.std()), 1e-6)
        if not self.asks:
            self.columns = self.columns._replace(reward=self.scaled(self.columns.reward))

    def scaled(self, reward: Tensor) -> Tensor:
        """Rewards in the learner's units."""
        return (reward - self.mean) / self.spread

    def add(self, taken: Taken, contexts: Tensor | None = None) -> NDArray[np.int64]:
        """Take in a step and its contexts `(tasks, Z)` if its rewards are known; returns whose."""
        tasks = taken.running.nonzero()[0]
        if not self._credit.at_once:
            return tasks[:0]
        obs, action, received, next_obs, terminal = (
            torch.from_numpy(np.asarray(column[tasks], np.float32)) for column in taken[:5]
        )
        reward = self._credit.estimate(obs, action, next_obs, received[:, None])
        bonus = self._bonus_of(tasks, obs.numpy(), next_obs.numpy())
        reward = reward if self.asks else self.scaled(reward + bonus)
        new = _with_contexts(
            Batch(obs, action, reward, next_obs, terminal[:, None]),
            None if contexts is None else contexts[torch.from_numpy(tasks)],
        )
        for column, values in zip((*self.columns, self._bonus), (*new, bonus), strict=True):
            column[self.count : self.count + len(tasks)] = values
        self.count += len(tasks)
        return tasks

    def batch(self, numbers: NDArray[np.int64]) -> Batch:
        """The rows `(..., ·)` of these numbers, with rewards in their units."""
        where = torch.from_numpy(numbers)
        batch = Batch(*(column[where] for column in self.columns))
        if not self.asks:
            return batch
        obs, action, received, next_obs = (column.flatten(0, -2) for column in batch[:4])
        obs, next_obs = (x[:, : self._states] for x in (obs, next_obs))
        reward = self._credit.estimate(obs, action, next_obs, received).view_as(batch.reward)
        return batch._replace(reward=self.scaled(reward + self._bonus[where]))

    def _bonus_of(
        self, tasks: NDArray[np.int64], obs: NDArray[np.float32], next_obs: NDArray[np.float32]
    ) -> Tensor:
        """What steps `(n, ·)` earn for novelty, `(n, 1)`."""
        if self._novelty is None:
            return torch.zeros(len(tasks), 1)
        return torch.from_numpy(self._novelty.bonus(tasks, obs, next_obs))


def imitation_rows(
    memory: SelfImitation, indices: Indices, weights: Floats, unit: float
) -> Imitation:
    """Steps of D `(..., ·)` with the returns as they were received, divided by `unit`."""
    rows = memory.episodes.transitions(indices)
    return Imitation(
        obs=torch.from_numpy(rows.observations),
        action=torch.from_numpy(rows.actions),
        returns=torch.from_numpy(memory.returns[indices])[..., None] / unit,
        weights=torch.from_numpy(weights)[..., None],
        share=memory.config.weight,
    )


def _with_contexts(rows: Batch, contexts: Tensor | None) -> Batch:
    """Each row with its z_t, which also goes with s_{t+1} (Algorithm 2, line 2)."""
    if contexts is None:
        return rows
    obs, next_obs = (torch.cat((x, contexts), 1) for x in (rows.obs, rows.next_obs))
    return rows._replace(obs=obs, next_obs=next_obs)
