"""What is known of the changed machine before the first real step: logs, and what to do in them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mcat.agents.learner import Batch
from mcat.agents.networks import MLP
from mcat.datasets.checks import CONSTANT
from mcat.datasets.views import Episodes
from mcat.errors import DataError
from mcat.types import PolicyFunction

CHUNK = 4096  # states translated at once
LEAST_SPREAD = 1e-3  # a sensor that hardly moved must not be heard a thousand times too loud


class LogUnits(NamedTuple):
    """Units of observations and rewards: those of the logs."""

    mean: Tensor  # (obs,)
    spread: Tensor  # (obs,)
    reward: float

    def of(self, obs: Tensor) -> Tensor:
        """Observations `(n, obs)` in these units."""
        return (obs - self.mean) / self.spread

    def batch(self, rows: Batch) -> Batch:
        """Transitions in these units."""
        obs, next_obs = self.of(rows.obs), self.of(rows.next_obs)
        return rows._replace(obs=obs, next_obs=next_obs, reward=rows.reward / self.reward)

    def fold(self, actor: MLP) -> MLP:
        """The same actor for observations as they come: a policy file knows no units."""
        plain = MLP(actor.sizes, 1).requires_grad_(False)
        plain.load_state_dict(actor.state_dict())
        weight, bias = actor.layers[0].detach(), actor.layers[1].detach()
        plain.layers[0].data.copy_(weight / self.spread)
        shift = (weight / self.spread * self.mean).sum(2).unsqueeze(1)  # (1, 1, width)
        plain.layers[1].data.copy_(bias - shift)
        return plain


@dataclass(frozen=True)
class Known:
    """The logs in those units, and what a policy, if there is one, would do in their states."""

    rows: Batch
    proposed: Tensor | None
    scale: LogUnits

    def __len__(self) -> int:
        return len(self.rows.obs)

    def draw(self, rng: np.random.Generator, size: int) -> tuple[Batch, Tensor | None]:
        """Transitions drawn uniformly, with replacement, and the policy's actions in them."""
        drawn = torch.from_numpy(rng.integers(len(self), size=size))
        proposed = None if self.proposed is None else self.proposed[drawn]
        return Batch(*(column[drawn] for column in self.rows)), proposed

    def with_rewards(self, rewards: NDArray[np.float32]) -> Known:
        """The same with other rewards `(n,)`, in the same units."""
        column = torch.from_numpy(rewards)[:, None] / self.scale.reward
        return replace(self, rows=self.rows._replace(reward=column))


def known_of(
    logs: Episodes, rewards: NDArray[np.float32], policy: PolicyFunction | None = None
) -> Known:
    """Logs, with what each transition earned, as a learner takes them; and a policy beside them.

    Raises:
        DataError: if the policy answers with NaN or infinite actions.
    """
    columns = logs.transitions(np.arange(len(logs)))
    obs, action, _, next_obs, terminal = (
        torch.from_numpy(np.array(column)) for column in columns[1:]
    )
    spread = obs.std(0, correction=0)
    spread = torch.where(spread > CONSTANT, spread.clamp_min(LEAST_SPREAD), 1.0)
    size = float(rewards.std())
    scale = LogUnits(obs.mean(0), spread, size if size > CONSTANT else 1.0)
    earned = torch.from_numpy(np.array(rewards))[:, None]
    rows = scale.batch(Batch(obs, action, earned, next_obs, terminal[:, None]))
    return Known(rows, None if policy is None else _proposed(policy, obs), scale)


def _proposed(policy: PolicyFunction, obs: Tensor) -> Tensor:
    found = [np.asarray(policy(part.numpy()), np.float32) for part in torch.split(obs, CHUNK)]
    actions = np.concatenate(found)
    if not np.isfinite(actions).all():
        row = int(np.argwhere(~np.isfinite(actions))[0][0])
        raise DataError(f"the policy's action in logged state {row} is NaN or infinite")
    return torch.from_numpy(actions.clip(-1, 1))
