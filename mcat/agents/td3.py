"""TD3 (Fujimoto et al. 2018): twin critics, delayed actor and target updates, target smoothing.

Actions are in [-1, 1]. Observations may carry a context: the caller concatenates it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mcat.agents.configs import TD3Config
from mcat.agents.networks import MLP, Adam, keep_freed_memory
from mcat.errors import DataError, DivergedError


class Batch(NamedTuple):
    """Transitions; `terminal` is 1 only where the task truly ended, never at a time limit."""

    obs: Tensor  # (n, obs)
    action: Tensor  # (n, act)
    reward: Tensor  # (n, 1)
    next_obs: Tensor  # (n, obs)
    terminal: Tensor  # (n, 1)


class Imitation(NamedTuple):
    """Steps of past episodes whose returns are known: self-imitation (A19)."""

    obs: Tensor  # (m, obs)
    action: Tensor  # (m, act)
    returns: Tensor  # (m, 1), what followed
    weights: Tensor  # (m, 1), for having been drawn by priority
    share: float  # of L_sil in the critics' loss


class Losses(NamedTuple):
    """What one update minimised, still as tensors; the actor's is the latest there was.

    Attributes:
        gains: By how much the returns of imitated steps exceeded what the critics expected of
            them, both added up; their next priorities.
    """

    critic: Tensor
    actor: Tensor
    imitation: Tensor
    gains: Tensor


class TD3:
    """The learner: networks, their targets, their optimisers, and one `update`.

    Args:
        obs_size: Length of an observation, with its context if it has one.
        act_size: Length of an action.
        config: The hyperparameters.
        generator: Draws the initial weights and the target noise.
    """

    def __init__(
        self, obs_size: int, act_size: int, config: TD3Config, generator: torch.Generator
    ) -> None:
        self.config = config
        self.generator = generator
        self.actor = MLP((obs_size, *config.hidden, act_size), 1, generator)
        self.critics = MLP((obs_size + act_size, *config.hidden, 1), 2, generator)
        self.actor_target, self.critics_target = self.actor.copy(), self.critics.copy()
        self.actor_adam = Adam(self.actor, config.learning_rate)
        self.critic_adam = Adam(self.critics, config.learning_rate)
        self.updates = 0
        self._first_critic = self.critics.constant(0)
        self._actor_loss = torch.zeros(())
        keep_freed_memory()

    def update(self, batch: Batch, imitation: Imitation | None = None) -> Losses:
        """One step on the critics and, every `policy_delay`-th time, on actor and targets."""
        obs, action, reward, next_obs, terminal = batch
        config = self.config

        with torch.no_grad():  # y = r + γ (1 - terminal) min Q'(s', π'(s') + clipped noise): A2
            noise = torch.randn(action.shape, generator=self.generator).mul_(config.target_noise)
            noise.clamp_(-config.target_noise_clip, config.target_noise_clip)
            next_action = torch.tanh(self.actor_target(next_obs)[0]).add_(noise).clamp_(-1, 1)
            next_value = self.critics_target(torch.cat((next_obs, next_action), 1)).amin(0)
            target = reward + config.discount * (1 - terminal) * next_value

        rows = torch.cat((obs, action), 1)
        if imitation is not None:  # both kinds of rows go through the critics together
            rows = torch.cat((rows, torch.cat((imitation.obs, imitation.action), 1)))
        values, imitated = self.critics(rows).tensor_split((len(obs),), 1)
        critic_loss = (values - target).square().sum() / len(obs)  # MSE of Q1 plus MSE of Q2
        loss, imitation_loss, gains = critic_loss, torch.zeros(()), torch.zeros(0)
        if imitation is not None:  # L_sil: a value is at least what was once received (A19)
            excess = (imitation.returns - imitated).clamp(min=0)
            imitation_loss = (imitation.weights * excess.square()).sum() / len(imitation.obs)
            loss = critic_loss + imitation.share * imitation_loss
            gains = excess.detach().sum(0).flatten()
        self.critic_adam.minimise(loss)
        self.updates += 1

        if self.updates % config.policy_delay == 0:  # A20
            own_action = torch.tanh(self.actor(obs)[0])
            actor_loss = -self._first_critic(torch.cat((obs, own_action), 1)).mean()
            self.actor_adam.minimise(actor_loss)
            self.actor_target.track(self.actor, config.target_rate)
            self.critics_target.track(self.critics, config.target_rate)
            self._actor_loss = actor_loss.detach()
        return Losses(critic_loss.detach(), self._actor_loss, imitation_loss.detach(), gains)

    @torch.no_grad()
    def act(self, obs: NDArray[np.floating]) -> NDArray[np.float32]:
        """The deterministic actions `(n, act)` for observations `(n, obs)`.

        Raises:
            DivergedError: if the weights have grown beyond all bounds.
        """
        inputs = torch.from_numpy(np.asarray(obs, dtype=np.float32))
        actions: NDArray[np.float32] = torch.tanh(self.actor(inputs)[0]).numpy()
        if not np.isfinite(actions).all():
            raise DivergedError("the actor's actions became NaN: try a lower learning rate")
        return actions

    def tensors(self) -> dict[str, Tensor]:
        """Everything that learning changes, by name (no copies)."""
        return {
            "actor": self.actor.flat,
            "actor_target": self.actor_target.flat,
            "actor_adam.mean": self.actor_adam.mean,
            "actor_adam.square": self.actor_adam.square,
            "critics": self.critics.flat,
            "critics_target": self.critics_target.flat,
            "critic_adam.mean": self.critic_adam.mean,
            "critic_adam.square": self.critic_adam.square,
            "actor_loss": self._actor_loss,
            "steps": torch.tensor(
                [self.updates, int(self.actor_adam.steps), int(self.critic_adam.steps)]
            ),
            "generator": self.generator.get_state(),
        }

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over what `tensors` gave; learning goes on as if it had never stopped."""
        for name, own in self.tensors().items():
            found = tensors.get(name)
            if found is None or found.shape != own.shape or found.dtype != own.dtype:
                raise DataError(f"the TD3 state has no fitting '{name}'; was it another network?")
        for name, own in self.tensors().items():
            own.copy_(tensors[name])
        self._actor_loss = tensors["actor_loss"].clone()
        self.updates, actor_steps, critic_steps = tensors["steps"].tolist()
        self.actor_adam.steps.fill_(actor_steps)
        self.critic_adam.steps.fill_(critic_steps)
        self.generator.set_state(tensors["generator"])
