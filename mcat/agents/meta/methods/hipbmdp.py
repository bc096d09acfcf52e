"""HiP-BMDP (Zhang et al. 2021) on states: hidden parameters θ of each task in a table.

SAC acts on [s, θ_i], and θ_i is learned by what it says of the dynamics:

    L_dyn = mean ½ |m(s, a, θ_i) - Δs/σ_Δ|²
    L_metric = mean ( |θ_i - θ_j| - sg |m(s, a, θ_i) - m(s, a, θ_j)| )²

with j the task of another row and sg without gradient: tasks are as far apart as their effects.
An unseen task has the mean of θ.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from mcat.agents.learner import Batch, Imitation, Losses
from mcat.agents.meta.algorithm import TaskSet
from mcat.agents.meta.methods.coded import Coded
from mcat.agents.meta.methods.configs import HiPBMDPConfig
from mcat.agents.meta.methods.maths import metric_loss
from mcat.agents.meta.methods.units import Units
from mcat.agents.networks import MLP, Table, minimise
from mcat.agents.sac import SAC


class HiPBMDP(Coded):
    """The method; see the module.

    Attributes:
        theta: `(tasks, size)`, θ.
        model: m.
    """

    own_metrics = ("losses/dynamics", "losses/metric", "policy/temperature")

    def __init__(
        self, task_set: TaskSet, config: HiPBMDPConfig, seed: np.random.SeedSequence
    ) -> None:
        super().__init__(task_set, config, seed, config.sac.discount)
        states, actions, size = task_set.observation_size, task_set.action_size, config.size
        tasks, generator = len(task_set.train), self.generator
        self.learner = SAC(states + size, actions, config.sac, generator, size)
        self.theta = Table(torch.randn(tasks, size, generator=generator) / size**0.5)
        self.model = MLP((states + actions + size, *config.model_hidden, states), 1, generator)
        self.units, self._metric = Units(states), config.metric
        learned = [*self.model.parameters(), *self.theta.parameters()]
        self._adam = torch.optim.Adam(learned, config.model_rate, fused=True)
        self.extras = {
            "theta": self.theta,
            "model": self.model,
            "model_adam": self._adam,
            "units": self.units,
        }

    def codes(self) -> Tensor:
        """θ; SAC's losses do not reach it."""
        theta: Tensor = self.theta()
        return theta.detach()

    def begin(self) -> None:
        """The model's units are those of the first rounds."""
        self.units.measure(self.experience.replay)

    def update(self, batch: Batch, imitation: Imitation | None) -> tuple[Losses, Sequence[Tensor]]:
        """SAC's, then one of the model and θ on the same rows."""
        losses, _ = super().update(batch, imitation)
        dynamics, metric = self._model_losses(batch)
        minimise(self._adam, dynamics + self._metric * metric)
        temperature = self.learner.temperature().detach().exp()
        return losses, (dynamics.detach(), metric.detach(), temperature)

    def _model_losses(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """L_dyn and L_metric of rows by task."""
        tasks, each = batch.obs.shape[:2]
        own = torch.arange(tasks).repeat_interleave(each)
        other = own[torch.randperm(len(own), generator=self.generator)]
        obs, action, next_obs = (x.flatten(0, 1) for x in (batch.obs, batch.action, batch.next_obs))
        change = (next_obs - obs) / self.units.change
        theta, theirs = self.theta()[own], self.theta()[other]
        seen = torch.cat((obs / self.units.state, action), 1)
        effect = self.model(torch.cat((seen, theta), 1))[0]
        with torch.no_grad():
            otherwise = self.model(torch.cat((seen, theirs), 1))[0]
        dynamics = (effect - change).square().mean() / 2
        return dynamics, metric_loss(theta, theirs, effect.detach(), otherwise)
