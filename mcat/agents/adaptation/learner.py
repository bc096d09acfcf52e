"""TD3 that starts from logs: layer-normalised critics, and an actor kept near what is known.

Of every logged state two actions are known: the logged one, and the source policy's, translated.
The actor is drawn to whichever the critics value more (`anchor`), as TD3+BC (Fujimoto and Gu 2021)
draws it to the logged one. Once there are real steps, half of each batch comes from the logs, and
by default nothing is drawn to anything (RLPD, Ball et al. 2023).

Actions are in [-1, 1]. Observations are normalised by the spread of the logs.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm

from mcat.agents.adaptation.config import AnchoredConfig
from mcat.agents.learner import Batch, Imitation, Learner, Losses
from mcat.agents.networks import MLP, in_pairs, minimise
from mcat.translator.tensors import Part


class LayerNormCritics(MLP):
    """`members` critics applied together, with layer normalisation before each ReLU."""

    def __init__(self, sizes: Sequence[int], members: int, generator: torch.Generator) -> None:
        super().__init__(sizes, members, generator)
        self.scales = nn.ParameterList(
            nn.Parameter(torch.full((members, 1, width), fill))
            for width in sizes[1:-1]
            for fill in (1.0, 0.0)
        )

    def forward(self, x: Tensor, member: int | None = None) -> Tensor:
        """Map `(n, in)` to `(members, n, out)`."""
        out = x.expand(self.members, *x.shape)
        *hidden, (last, last_bias) = in_pairs(self.layers)
        for (weight, bias), (gain, shift) in zip(hidden, in_pairs(self.scales), strict=True):
            out = torch.baddbmm(bias, out, weight.mT)
            out = (layer_norm(out, out.shape[-1:]) * gain + shift).relu()
        return torch.baddbmm(last_bias, out, last.mT)


class Anchored(Learner):
    """Networks, their targets, their optimisers, and one `update`."""

    def __init__(
        self, obs_size: int, act_size: int, config: AnchoredConfig, generator: torch.Generator
    ) -> None:
        actor = MLP((obs_size, *config.hidden, act_size), 1, generator)
        critics = LayerNormCritics((obs_size + act_size, *config.hidden, 1), 2, generator)
        deployed = copy.deepcopy(actor).requires_grad_(False)
        super().__init__(actor, critics, generator, deployed)
        self.config = config
        self.target_actor = copy.deepcopy(actor).requires_grad_(False)
        self.target_critics = LayerNormCritics(critics.sizes, 2, generator).requires_grad_(False)
        self.target_critics.track(critics, 1.0)
        self.actor_adam = torch.optim.Adam(actor.parameters(), config.learning_rate, fused=True)
        self.critic_adam = torch.optim.Adam(critics.parameters(), config.learning_rate, fused=True)

    def update(self, batch: Batch, imitation: Imitation | None = None) -> Losses:
        """One step as plain TD3 has it, drawn to nothing."""
        return self.update_near(batch, None)

    def update_near(self, batch: Batch, anchor: Tensor | None, weight: float = 1.0) -> Losses:
        """One step on the critics and, every `policy_delay`-th time, on the actor.

        Args:
            batch: Transitions.
            anchor: `(m, act)`, what the actor is drawn to in the first m of them; None for nothing.
            weight: What the distance to it counts.
        """
        obs, action, reward, next_obs, terminal = batch
        config = self.config
        with torch.no_grad():
            next_action = self.smoothed_action(self.target_actor, next_obs, config)
            next_values = self.target_critics(torch.cat((next_obs, next_action), 1)).amin(0)
            target = reward + config.discount * (1 - terminal) * next_values
        values = self.critics(torch.cat((obs, action), 1))
        critic_loss = (values - target).square().sum() / len(obs)
        minimise(self.critic_adam, critic_loss)
        self.updates += 1
        if self.updates % config.policy_delay == 0:
            self._improve(obs, anchor, weight)
        return Losses(critic_loss.detach(), self._actor_loss, torch.zeros(()), torch.zeros(0))

    def actor_loss(self, obs: Tensor, anchor: Tensor | None, weight: float = 1.0) -> Tensor:
        """-λ Q(s, π(s)), Q in units of its size, and the distance to the anchor."""
        action = torch.tanh(self.actor(obs)[0])
        values = self.critics(torch.cat((obs, action), 1))[0]
        loss: Tensor = -self.config.greed * values.mean() / values.abs().mean().detach()
        if anchor is None:
            return loss
        return loss + weight * (action[: len(anchor)] - anchor).square().mean()

    def _improve(self, obs: Tensor, anchor: Tensor | None, weight: float) -> None:
        config, loss = self.config, self.actor_loss(obs, anchor, weight)
        minimise(self.actor_adam, loss)
        self._actor_loss = loss.detach()
        self.target_critics.track(self.critics, config.target_rate)
        self.target_actor.track(self.actor, config.target_rate)
        # At first the plain mean of all actors so far: none of the untrained one stays in it.
        steps = self.updates // config.policy_delay
        self.deployed.track(self.actor, max(config.deployed_rate, 1 / steps))

    @torch.no_grad()
    def better_of(self, obs: Tensor, first: Tensor, second: Tensor) -> Tensor:
        """Row by row that of two actions which the target critics value more; ties to the first."""
        one, two = (
            self.target_critics(torch.cat((obs, action), 1)).amin(0) for action in (first, second)
        )
        return torch.where(two > one, second, first)

    @property
    def parts(self) -> dict[str, Part]:
        """All networks and optimisers."""
        return {
            "actor": self.actor,
            "actor_adam": self.actor_adam,
            "target_actor": self.target_actor,
            "deployed": self.deployed,
            "critics": self.critics,
            "critic_adam": self.critic_adam,
            "target_critics": self.target_critics,
        }
