"""SAC (Haarnoja et al. 2018): a stochastic policy that is paid for its entropy.

Actions are in [-1, 1]. Observations may end with a context. Batches may hold rows by task,
`(tasks, n, ...)`; methods that learn several tasks override `cost`, `actor_losses` or `descend`.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mcat.agents.configs import SACConfig
from mcat.agents.critics import make_critics
from mcat.agents.gaussian import Drawn, Gaussian, gaussian
from mcat.agents.learner import Batch, Imitation, Learner, Losses, finite
from mcat.agents.networks import MLP, Table, minimise
from mcat.translator.tensors import Part


class SAC(Learner):
    """Networks, their optimisers, and one `update`.

    Args:
        obs_size: Length of an observation, with its context if it has one.
        act_size: Length of an action.
        config: The hyperparameters.
        generator: Draws the initial weights and the actions.
        context_size: How many of the last numbers of an observation are its context, which
            normalised critics see as it is.
        tasks: How many tasks the batches hold rows of; each has its own temperature. None for rows
            that are not told apart.
        apart: Whether each of these tasks also has an actor and critics of its own.

    Attributes:
        temperature: The logarithm of α.
        twins: The critics, and how they make targets.
    """

    def __init__(
        self,
        obs_size: int,
        act_size: int,
        config: SACConfig,
        generator: torch.Generator,
        context_size: int = 0,
        *,
        tasks: int | None = None,
        apart: bool = False,
    ) -> None:
        heads = tasks if apart else None
        actor = MLP((obs_size, *config.hidden, 2 * act_size), heads or 1, generator)
        self.twins = make_critics(config, obs_size, act_size, generator, context_size, heads)
        means = actor.narrowed(act_size)
        deployed = means
        if config.deployed_rate < 1:
            deployed = MLP(means.sizes, means.members).requires_grad_(False)
            deployed.track(means, 1.0)
        super().__init__(actor, self.twins.net, generator, deployed, means)
        self.config, self.entropy, self._apart = config, -float(act_size), apart
        start = math.log(config.temperature)
        self.temperature = Table(torch.full((tasks, 1, 1) if tasks else (), start))
        rate, betas = config.learning_rate, (config.critic_beta, 0.999)
        self.actor_adam = torch.optim.Adam(actor.parameters(), rate, fused=True)
        self.critic_adam = torch.optim.Adam(
            self.critics.parameters(), rate, betas=betas, fused=True
        )
        self.temperature_adam = torch.optim.Adam(
            self.temperature.parameters(), config.temperature_rate, fused=True
        )

    def update(self, batch: Batch, imitation: Imitation | None = None) -> Losses:
        """One step on critics and, every `policy_delay`-th time, actor, temperature and targets."""
        obs, _, reward, next_obs, terminal = batch
        config = self.config
        for adam in (self.actor_adam, self.critic_adam):
            adam.param_groups[0]["lr"] = config.rate(self.updates)
        if imitation is not None:
            imitation = imitation._replace(returns=config.reward_scale * imitation.returns)

        with torch.no_grad():
            drawn = self.policy(next_obs).draw(self.generator)
            cost = self.cost(next_obs, drawn)
        values = self.twins.values(batch, drawn.action, imitation)
        # y = c r + γ (1 - terminal) [min Q'(s', a') - α log π(a')]
        later = config.discount * (1 - terminal) * (values.after.amin(0) - cost)
        target = config.reward_scale * reward + later
        losses = values.losses(target, imitation, huber_delta=config.huber_delta)
        self.descend(self.critic_adam, losses.total)
        self.updates += 1

        if self.updates % config.policy_delay == 0:
            self._improve(obs.detach())
        return losses.report(self._actor_loss)

    def policy(self, obs: Tensor) -> Gaussian:
        """The distribution of raw actions for observations `(..., obs)`."""
        rows = obs if self._apart else obs.flatten(0, -2)
        out = self.actor(rows).view(*obs.shape[:-1], -1)
        return gaussian(out, self.config.spread_floor)

    def cost(self, obs: Tensor, drawn: Drawn) -> Tensor:
        """What actions drawn for `obs` cost beside what they earn, `(..., 1)`: α log π."""
        alpha: Tensor = self.temperature().detach().exp()
        return alpha * drawn.log_density

    def actor_losses(self, obs: Tensor) -> tuple[Tensor, Drawn]:
        """α log π - min Q of new actions, a mean for each task if rows are by task; the actions."""
        drawn = self.policy(obs).draw(self.generator)
        value = self.twins.judge(obs, drawn.action).amin(0)
        return (self.cost(obs, drawn) - value).mean((-2, -1)), drawn

    def descend(self, adam: torch.optim.Adam, losses: Tensor) -> None:
        """A step on critics or actor along the mean of the tasks' losses."""
        minimise(adam, losses.mean())

    def _improve(self, obs: Tensor) -> None:
        """A step on the actor and the temperature; targets and the deployed actor follow."""
        losses, drawn = self.actor_losses(obs)
        self.descend(self.actor_adam, losses)
        self._actor_loss = losses.detach().mean()
        if self.config.temperature_rate > 0:
            surplus = -drawn.log_density.detach() - self.entropy
            minimise(self.temperature_adam, (self.temperature().exp() * surplus).mean())
        self.twins.follow()
        if self.deployed is not self.means:
            self.deployed.track(self.means, self.config.following(self.updates))

    @torch.no_grad()
    def explore(
        self, obs: NDArray[np.floating], noise: NDArray[np.float32], spread: float = 1.0
    ) -> NDArray[np.float32]:
        """Actions `(n, act)` of the stochastic policy; it has spreads of its own.

        Args:
            obs: The observations.
            noise: Standard normal numbers, one for each of an action.
            spread: Not used.

        Raises:
            DivergedError: if the weights have grown beyond all bounds.
        """
        policy = self.policy(torch.from_numpy(np.asarray(obs, dtype=np.float32)))
        return finite(torch.tanh(policy.mean + policy.log_std.exp() * torch.from_numpy(noise)))

    @property
    def parts(self) -> dict[str, Part]:
        """All networks and optimisers."""
        averaged = {} if self.deployed is self.means else {"deployed": self.deployed}
        return {
            "actor": self.actor,
            "actor_adam": self.actor_adam,
            **averaged,
            **self.twins.parts,
            "critic_adam": self.critic_adam,
            "temperature": self.temperature,
            "temperature_adam": self.temperature_adam,
        }
