"""What learners of a policy and its critics have in common: batches, losses, acting, state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mcat.agents.configs import CrossQConfig, TD3Config
from mcat.agents.networks import MLP, keep_freed_memory
from mcat.errors import DataError, DivergedError
from mcat.translator.tensors import Part, load_tensors, tensors_of


class Batch(NamedTuple):
    """Transitions; `terminal` is 1 only where the task truly ended, never at a time limit.

    A row may also have the rewards of n steps, and the state after them: then it has 1 - γ^(n-1)
    for `terminal`, so that what follows counts γ^n.

    Some learners take `(tasks, n, ...)` too: as many of each task.
    """

    obs: Tensor  # (n, obs)
    action: Tensor  # (n, act)
    reward: Tensor  # (n, 1)
    next_obs: Tensor  # (n, obs)
    terminal: Tensor  # (n, 1)


class Imitation(NamedTuple):
    """Steps of past episodes whose returns are known: self-imitation (Algorithm 2)."""

    obs: Tensor  # (m, obs)
    action: Tensor  # (m, act)
    returns: Tensor  # (m, 1), what followed
    weights: Tensor  # (m, 1), for having been drawn by priority
    share: float  # of L_sil in the critics' loss

    def loss(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """L_sil, a value is at least what was once received, and the rows' `Losses.gains`.

        The loss is one number, or one per task for rows by task.
        """
        excess = (self.returns - values).clamp(min=0)
        squares = self.weights * excess.square()
        loss = squares.sum((0, -2, -1)) / self.obs.shape[-2]
        return loss, excess.detach().sum(0).flatten()


class Losses(NamedTuple):
    """What one update minimised, still as tensors; the actor's is the latest there was."""

    critic: Tensor
    actor: Tensor
    imitation: Tensor
    # By how much the returns of imitated steps exceeded what the critics expected of them, both
    # added up; their next priorities.
    gains: Tensor


class Learner(ABC):
    """An actor, two critics, their optimisers, and one `update`.

    Attributes:
        actor: Maps observations to raw actions, which tanh bounds, or to a distribution of them.
        means: Maps observations to the raw actions without noise: the actor, or a part of it.
        deployed: What a user gets of it: just that, or an average of what it was of late.
        critics: Maps observations with actions to two values.
        updates: How many there were.
    """

    def __init__(
        self,
        actor: MLP,
        critics: nn.Module,
        generator: torch.Generator,
        deployed: MLP | None = None,
        means: MLP | None = None,
    ) -> None:
        self.actor, self.critics, self.generator = actor, critics, generator
        self.means = means or actor
        self.deployed = deployed or self.means
        self.updates = 0
        self._actor_loss = torch.zeros(())
        keep_freed_memory()

    @abstractmethod
    def update(self, batch: Batch, imitation: Imitation | None = None) -> Losses:
        """One step on the critics and, now and then, on the actor."""

    @property
    @abstractmethod
    def parts(self) -> dict[str, Part]:
        """All networks and optimisers."""

    @torch.no_grad()
    def smoothed_action(
        self, actor: MLP, next_obs: Tensor, config: TD3Config | CrossQConfig
    ) -> Tensor:
        """A' = π(s') + clipped noise (target policy smoothing)."""
        limit = config.target_noise_clip
        action = torch.tanh(actor(next_obs)[0])
        noise = torch.randn(action.shape, generator=self.generator).mul_(config.target_noise)
        return action.add_(noise.clamp_(-limit, limit)).clamp_(-1, 1)

    @torch.no_grad()
    def act(self, obs: NDArray[np.floating], *, deployed: bool = False) -> NDArray[np.float32]:
        """The deterministic actions `(n, act)` for observations `(n, obs)`.

        Args:
            obs: The observations.
            deployed: Those of the actor that a user gets, not of the one that learns.

        Raises:
            DivergedError: if the weights have grown beyond all bounds.
        """
        actor = self.deployed if deployed else self.means
        inputs = torch.from_numpy(np.asarray(obs, dtype=np.float32))
        return finite(torch.tanh(actor(inputs)[0]))

    def explore(
        self, obs: NDArray[np.floating], noise: NDArray[np.float32], spread: float
    ) -> NDArray[np.float32]:
        """Actions `(n, act)` to learn from.

        Args:
            obs: The observations.
            noise: Standard normal numbers, one for each of an action.
            spread: What they are multiplied by, for learners without a spread of their own.

        Raises:
            DivergedError: if the weights have grown beyond all bounds.
        """
        return (self.act(obs) + spread * noise).clip(-1, 1)

    def tensors(self) -> dict[str, Tensor]:
        """Everything that learning changes, by name (no copies of networks)."""
        return tensors_of(**self.parts) | {
            "actor_loss": self._actor_loss,
            "updates": torch.tensor(self.updates),
            "generator": self.generator.get_state(),
        }

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over what `tensors` gave; learning goes on as if it had never stopped.

        Raises:
            DataError: if it is the state of another learner.
        """
        try:
            updates, actor_loss = int(tensors["updates"]), tensors["actor_loss"].clone()
            generator = tensors["generator"]
            load_tensors(tensors, **self.parts)
            self.updates, self._actor_loss = updates, actor_loss
            self.generator.set_state(generator)
        except (KeyError, ValueError, RuntimeError, TypeError) as error:
            raise DataError(f"not a state of this learner: {error}") from error


def finite(actions: Tensor) -> NDArray[np.float32]:
    """Actions for an environment.

    Raises:
        DivergedError: if one is not finite.
    """
    found: NDArray[np.float32] = actions.numpy()
    if not np.isfinite(found).all():
        raise DivergedError("the actor's actions became NaN: try a lower learning rate")
    return found
