"""Updates of π(s, z) and its critics from whole episodes (the paper's Algorithm 2).

C does not change while the policy learns, so z_t of every stored step is computed once per
iteration: the numbers are those that encoding each batch anew would give (A4), for a fraction of
the cost. No gradient reaches C.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from mcat.agents.context_policy import ContextPolicy
from mcat.agents.credit import Credit
from mcat.agents.learner import Batch, Imitation, Learner
from mcat.agents.sil import SelfImitation
from mcat.datasets.views import Episodes
from mcat.translator.windows import past_of

LOSSES = ("critic", "actor", "imitation", "credit")
CHUNK = 4096  # histories encoded at once
SCALE_ROWS = 10_000  # rewards enough to tell their mean and spread


class PolicyUpdates:
    """The updates between two rounds.

    Args:
        learner: π and its critics, whose observations are states with contexts.
        policy: Encodes the contexts.
        replay: B, what to learn from.
        imitation: D; None for no self-imitation.
        credit: How payments are put down to steps.
        rng: Draws the batches.
        batch_size: Of TD rows.
        scale_rewards: Give the learner rewards in units of their spread and, where no episode ends
            by itself and nothing is imitated, without their mean. That changes no policy's rank.
    """

    def __init__(
        self,
        learner: Learner,
        policy: ContextPolicy,
        replay: Episodes,
        *,
        imitation: SelfImitation | None,
        credit: Credit,
        rng: np.random.Generator,
        batch_size: int,
        scale_rewards: bool = False,
    ) -> None:
        self._learner, self._replay, self._imitation = learner, replay, imitation
        self._credit, self._rng, self._batch_size = credit, rng, batch_size
        self._contexts = encode_all(policy, replay)
        self._imitated = encode_all(policy, imitation.episodes) if imitation else torch.zeros(0)
        credit.begin(replay)
        self._mean, self._spread = self._reward_scale() if scale_rewards else (0.0, 1.0)

    def __call__(self) -> Tensor:
        """One update; returns the losses named in `LOSSES`."""
        credit_loss = self._credit.step(self._rng)
        indices, imitated = np.empty(0, np.int64), None
        if self._imitation is not None and len(self._imitation):
            indices, imitated = self._imitation_rows(self._imitation)
        losses = self._learner.update(self._batch(), imitated)
        if self._imitation is not None and imitated is not None:
            self._imitation.update(indices, losses.gains.numpy())
        return torch.stack((losses.critic, losses.actor, losses.imitation, credit_loss))

    def _batch(self) -> Batch:
        """Transitions of all tasks, each with its z_t, which also goes with s_{t+1} (A3)."""
        indices = self._rng.integers(len(self._replay), size=self._batch_size)
        rows, context = self._replay.transitions(indices), self._contexts[indices]
        obs, action, _, next_obs, terminal = map(torch.from_numpy, rows[1:])
        return Batch(
            obs=torch.cat((obs, context), 1),
            action=action,
            reward=(self._credit.rewards(rows) - self._mean) / self._spread,
            next_obs=torch.cat((next_obs, context), 1),
            terminal=terminal[:, None],
        )

    def _reward_scale(self) -> tuple[float, float]:
        """Mean and spread of the rewards; 0 for the mean where subtracting it would mislead."""
        rows = self._replay.sample_transitions(self._rng, SCALE_ROWS)
        rewards = self._credit.rewards(rows).double()
        endless = not self._replay.terminals.any()
        mean = float(rewards.mean()) if endless and self._imitation is None else 0.0
        return mean, max(float(rewards.std()), 1e-6)

    def _imitation_rows(self, memory: SelfImitation) -> tuple[np.ndarray, Imitation]:
        """Steps of D drawn by priority, with the returns as they were received."""
        indices, weights = memory.sample(self._rng, memory.config.batch_size)
        rows = memory.episodes.transitions(indices)
        return indices, Imitation(
            obs=torch.cat((torch.from_numpy(rows.observations), self._imitated[indices]), 1),
            action=torch.from_numpy(rows.actions),
            returns=torch.from_numpy(memory.returns[indices])[:, None] / self._spread,
            weights=torch.from_numpy(weights.astype(np.float32))[:, None],
            share=memory.config.weight,
        )


def encode_all(policy: ContextPolicy, episodes: Episodes) -> Tensor:
    """z_t of every step `(len, Z)` under the present C."""
    chunks = np.split(np.arange(len(episodes)), range(CHUNK, len(episodes), CHUNK))
    return torch.cat([policy.encode(past_of(episodes, c, policy.history)) for c in chunks])
