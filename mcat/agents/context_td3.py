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
from mcat.agents.credit import CreditModel, paid_segments, uniform_rewards
from mcat.agents.sil import SelfImitation
from mcat.agents.td3 import TD3, Batch, Imitation
from mcat.datasets.views import Episodes
from mcat.translator.windows import past_of

LOSSES = ("critic", "actor", "imitation", "credit")
CHUNK = 4096  # histories encoded at once


class PolicyUpdates:
    """The updates between two rounds.

    Args:
        td3: The learner, whose observations are states with contexts.
        policy: Encodes the contexts.
        replay: B, what to learn from.
        imitation: D; None for no self-imitation.
        credit: How payments are put down to steps; its config says whether at all.
        delay: Steps between two payments.
        rng: Draws the batches.
        batch_size: Of TD rows.
    """

    def __init__(
        self,
        td3: TD3,
        policy: ContextPolicy,
        replay: Episodes,
        *,
        imitation: SelfImitation | None,
        credit: CreditModel,
        delay: int,
        rng: np.random.Generator,
        batch_size: int,
    ) -> None:
        self._td3, self._replay, self._imitation, self._credit = td3, replay, imitation, credit
        self._rng, self._batch_size = rng, batch_size
        self._contexts = encode_all(policy, replay)
        self._imitated = encode_all(policy, imitation.episodes) if imitation else torch.zeros(0)
        kind = credit.config.kind
        self._rewards = uniform_rewards(replay, delay) if kind == "uniform" else None
        self._segments = paid_segments(replay, delay) if kind == "learned" else None
        if self._segments is not None:
            credit.fit_scales(replay, self._segments)

    def __call__(self) -> Tensor:
        """One update; returns the losses named in `LOSSES`."""
        credit_loss = torch.zeros(())
        if self._segments is not None:
            credit_loss = self._credit.step(self._replay, self._segments, self._rng)
        indices, imitated = np.empty(0, np.int64), None
        if self._imitation is not None and len(self._imitation):
            indices, imitated = self._imitation_rows(self._imitation)
        losses = self._td3.update(self._batch(), imitated)
        if self._imitation is not None and imitated is not None:
            self._imitation.update(indices, losses.gains.numpy())
        return torch.stack((losses.critic, losses.actor, losses.imitation, credit_loss))

    def _batch(self) -> Batch:
        """Transitions of all tasks, each with its z_t, which also goes with s_{t+1} (A3)."""
        indices = self._rng.integers(len(self._replay), size=self._batch_size)
        rows, context = self._replay.transitions(indices), self._contexts[indices]
        obs, action, received, next_obs, terminal = map(torch.from_numpy, rows[1:])
        reward = received[:, None]
        if self._rewards is not None:
            reward = torch.from_numpy(self._rewards[indices])[:, None]
        elif self._segments is not None:
            reward = self._credit.rewards(obs, action, next_obs)
        return Batch(
            obs=torch.cat((obs, context), 1),
            action=action,
            reward=reward,
            next_obs=torch.cat((next_obs, context), 1),
            terminal=terminal[:, None],
        )

    def _imitation_rows(self, memory: SelfImitation) -> tuple[np.ndarray, Imitation]:
        """Steps of D drawn by priority, with the returns as they were received."""
        indices, weights = memory.sample(self._rng, memory.config.batch_size)
        rows = memory.episodes.transitions(indices)
        return indices, Imitation(
            obs=torch.cat((torch.from_numpy(rows.observations), self._imitated[indices]), 1),
            action=torch.from_numpy(rows.actions),
            returns=torch.from_numpy(memory.returns[indices])[:, None],
            weights=torch.from_numpy(weights.astype(np.float32))[:, None],
            share=memory.config.weight,
        )


def encode_all(policy: ContextPolicy, episodes: Episodes) -> Tensor:
    """z_t of every step `(len, Z)` under the present C."""
    chunks = np.split(np.arange(len(episodes)), range(CHUNK, len(episodes), CHUNK))
    return torch.cat([policy.encode(past_of(episodes, c, policy.history)) for c in chunks])
