"""What is known of the changed machine before the first real step: logs, and what to do in them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from mcat.agents.learner import Batch
from mcat.agents.networks import MLP
from mcat.datasets.views import Episodes
from mcat.types import PolicyFunction

CHUNK = 4096  # states translated at once
LEAST_SPREAD = 1e-3


class Scale(NamedTuple):
    """Units of observations and rewards: those of the logs."""

    mean: Tensor  # (obs,)
    spread: Tensor  # (obs,)
    reward: float

    def of(self, obs: Tensor) -> Tensor:
        """Observations `(n, obs)` in these units."""
        return (obs - self.mean) / self.spread

    def fold(self, actor: MLP) -> MLP:
        """The same actor for observations as they come: a policy file knows no units."""
        plain = MLP(actor.sizes, 1).requires_grad_(False)
        plain.load_state_dict(actor.state_dict())
        weight, bias = actor.layers[0].detach(), actor.layers[1].detach()
        plain.layers[0].data.copy_(weight / self.spread)
        shift = (weight / self.spread * self.mean).sum(2).unsqueeze(1)  # (1, 1, width)
        plain.layers[1].data.copy_(bias - shift)
        return plain


class Known(NamedTuple):
    """The logs in those units, and the source policy's translated actions in their states.

    Attributes:
        rows: The transitions.
        translated: `(n, act)`; None without a source policy.
        scale: The units.
    """

    rows: Batch
    translated: Tensor | None
    scale: Scale

    def __len__(self) -> int:
        return len(self.rows.obs)


def known_of(logs: Episodes, policy: PolicyFunction | None) -> Known:
    """Logs as a learner takes them.

    Args:
        logs: Of the changed machine, with rewards.
        policy: The source policy, translated; None if there is none.
    """
    columns = logs.transitions(np.arange(len(logs)))
    obs, action, reward, next_obs, terminal = (
        torch.from_numpy(np.array(column)) for column in columns[1:]
    )
    scale = Scale(obs.mean(0), obs.std(0).clamp_min(LEAST_SPREAD), max(float(reward.std()), 1e-6))
    translated = None
    if policy is not None:
        found = [np.asarray(policy(part.numpy()), np.float32) for part in torch.split(obs, CHUNK)]
        translated = torch.from_numpy(np.concatenate(found))
    rows = Batch(
        scale.of(obs), action, reward[:, None] / scale.reward, scale.of(next_obs), terminal[:, None]
    )
    return Known(rows, translated, scale)
