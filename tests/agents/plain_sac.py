"""SAC once more, of ordinary torch modules and torch's own distributions."""

from __future__ import annotations

import copy

import torch
from torch import nn
from torch.distributions import (
    Independent,
    Normal,
    TanhTransform,
    TransformedDistribution,
)

from mcat.agents.configs import SACConfig
from mcat.agents.learner import Batch
from mcat.agents.networks import MLP
from mcat.agents.sac import SAC


def as_modules(net: MLP) -> nn.ModuleList:
    """The members of an MLP as ordinary torch modules."""
    modules = nn.ModuleList()
    for member in range(net.members):
        layers: list[nn.Module] = []
        for weight, bias in zip(net.layers[::2], net.layers[1::2], strict=True):
            layer = nn.Linear(weight.shape[2], weight.shape[1])
            layer.weight.data.copy_(weight[member].detach())
            layer.bias.data.copy_(bias[member, 0].detach())
            layers += [layer, nn.ReLU()]
        modules.append(nn.Sequential(*layers[:-1]))
    return modules


class PlainSAC:
    """SAC with target networks, as one would write it down, starting from an agent's weights."""

    def __init__(self, agent: SAC) -> None:
        self.config: SACConfig = agent.config
        (self.actor,) = as_modules(agent.actor)
        self.critics = as_modules(agent.critics)
        self.targets = copy.deepcopy(self.critics)
        self.log_alpha = nn.Parameter(torch.tensor(self.config.temperature).log())
        rate = self.config.learning_rate
        self.actor_adam = torch.optim.Adam(self.actor.parameters(), rate)
        self.critic_adam = torch.optim.Adam(self.critics.parameters(), rate)
        self.alpha_adam = torch.optim.Adam([self.log_alpha], self.config.temperature_rate)

    def sample(self, obs, noise):
        mean, log_std = self.actor(obs).chunk(2, -1)
        spread = log_std.clamp(self.config.spread_floor, 2).exp()
        policy = TransformedDistribution(
            Independent(Normal(mean, spread), 1), TanhTransform(cache_size=1)
        )
        (squash,) = policy.transforms
        action = squash(mean + spread * noise)  # remembers what it came from
        return action, policy.log_prob(action)[:, None]

    @staticmethod
    def least(critics, obs, action):
        x = torch.cat((obs, action), 1)
        return torch.minimum(critics[0](x), critics[1](x))

    def update(self, batch: Batch, next_noise, noise) -> tuple[float, float]:
        obs, action, reward, next_obs, terminal = batch
        alpha = self.log_alpha.detach().exp()
        with torch.no_grad():
            next_action, log_pi = self.sample(next_obs, next_noise)
            soft = self.least(self.targets, next_obs, next_action) - alpha * log_pi
            y = self.config.reward_scale * reward + self.config.discount * (1 - terminal) * soft
        x = torch.cat((obs, action), 1)
        critic_loss = sum((critic(x) - y).square().mean() for critic in self.critics)
        self.step(self.critic_adam, critic_loss)

        own, log_pi = self.sample(obs, noise)
        actor_loss = (alpha * log_pi - self.least(self.critics, obs, own)).mean()
        self.step(self.actor_adam, actor_loss)
        entropy = -float(action.shape[1])
        self.step(self.alpha_adam, (self.log_alpha.exp() * (-log_pi.detach() - entropy)).mean())
        for target, source in zip(
            self.targets.parameters(), self.critics.parameters(), strict=True
        ):
            target.data += self.config.target_rate * (source.data - target.data)
        return critic_loss.item(), actor_loss.item()

    @staticmethod
    def step(adam, loss):
        adam.zero_grad()
        loss.backward()
        adam.step()
