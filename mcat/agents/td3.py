"""TD3 (Fujimoto et al. 2018): twin critics, delayed actor and target updates, target smoothing.

Actions are in [-1, 1]. Observations may carry a context: the caller concatenates it.
"""

from __future__ import annotations

import copy

import torch

from mcat.agents.configs import TD3Config
from mcat.agents.critics import TrackedCritics
from mcat.agents.learner import Batch, Imitation, Learner, Losses
from mcat.agents.networks import MLP, minimise
from mcat.translator.tensors import Part


class TD3(Learner):
    """Networks, their targets, their optimisers, and one `update`.

    Args:
        obs_size: Length of an observation, with its context if it has one.
        act_size: Length of an action.
        config: The hyperparameters.
        generator: Draws the initial weights and the target noise.
    """

    def __init__(
        self, obs_size: int, act_size: int, config: TD3Config, generator: torch.Generator
    ) -> None:
        actor = MLP((obs_size, *config.hidden, act_size), 1, generator)
        sizes = obs_size + act_size, *config.hidden, 1
        self.twins = TrackedCritics(sizes, generator, rate=config.target_rate)
        critics = self.twins.net
        super().__init__(actor, critics, generator)
        self.config = config
        self.critics: MLP = critics
        self.actor_target = copy.deepcopy(actor).requires_grad_(False)
        self.critics_target = self.twins.target
        rate = config.learning_rate
        self.actor_adam = torch.optim.Adam(actor.parameters(), rate, fused=True)
        self.critic_adam = torch.optim.Adam(critics.parameters(), rate, fused=True)

    def update(self, batch: Batch, imitation: Imitation | None = None) -> Losses:
        """One step on the critics and, every `policy_delay`-th time, on actor and targets."""
        obs, _, reward, next_obs, terminal = batch
        config = self.config

        # y = r + γ (1 - terminal) min Q'(s', π'(s') + clipped noise)
        # (docs/decisions.md#losses-of-the-critics)
        next_action = self.smoothed_action(self.actor_target, next_obs, config)
        values = self.twins.values(batch, next_action, imitation)
        target = reward + config.discount * (1 - terminal) * values.after.amin(0)
        losses = values.losses(target, imitation)
        minimise(self.critic_adam, losses.total)
        self.updates += 1

        # Targets too, as in TD3 (docs/decisions.md#updates-of-actor-and-targets).
        if self.updates % config.policy_delay == 0:
            own_action = torch.tanh(self.actor(obs)[0])
            actor_loss = -self.critics(torch.cat((obs, own_action), 1), member=0).mean()
            minimise(self.actor_adam, actor_loss)
            self.actor_target.track(self.actor, config.target_rate)
            self.twins.follow()
            self._actor_loss = actor_loss.detach()
        return losses.report(self._actor_loss)

    @property
    def parts(self) -> dict[str, Part]:
        """All networks and optimisers."""
        return {
            "actor": self.actor,
            "actor_target": self.actor_target,
            "actor_adam": self.actor_adam,
            **self.twins.parts,
            "critic_adam": self.critic_adam,
        }
