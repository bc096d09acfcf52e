"""Distral (Teh et al. 2017) in SAC's form: a policy for each task, distilled into one, π0.

    y_i = r + γ (1 - d) [ min Q'_i(s', a') + (α/β) log π0(a'|s') - (1/β) log π_i(a'|s') ]
    L_πi = mean[ (1/β) log π_i(a) - (α/β) log π0(a) - min Q_i(s, a) ],  a ~ π_i
    L_π0 = mean over tasks of KL(π_i || π0)

Each task learns from its own rows, by networks of its own, and its own policy explores. π0 sees
the state alone and is what a user gets, on every task: it cannot tell machines apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mcat.agents.gaussian import Drawn, Gaussian, gaussian
from mcat.agents.learner import Batch, Imitation, Losses
from mcat.agents.meta.algorithm import TaskSet
from mcat.agents.meta.methods.configs import DistralConfig
from mcat.agents.meta.methods.maths import distral_cost
from mcat.agents.meta.methods.multitask import MultiTask
from mcat.agents.networks import MLP, Table, minimise
from mcat.agents.policies.coded_policy import ActingCodedPolicy, CodedPolicy
from mcat.agents.sac import SAC
from mcat.datasets.views import Episodes
from mcat.translator.tensors import Part
from mcat.types import PolicyFunction

OWN = "own"  # the driver: each task's own policy


class DistralSAC(SAC):
    """SAC with networks for each task, drawn to a policy that is drawn to them.

    Attributes:
        prior: Of π0.
        distilled: The part of it that a user gets, or an average of what that was of late.
        kl: The latest L_π0.
    """

    def __init__(
        self,
        obs_size: int,
        act_size: int,
        config: DistralConfig,
        generator: torch.Generator,
        tasks: int,
    ) -> None:
        sac = replace(config.sac, temperature=1 / config.beta)
        super().__init__(obs_size, act_size, sac, generator, tasks=tasks, apart=True)
        self._alpha, self._beta = config.alpha, config.beta
        self.prior = MLP((obs_size, *sac.hidden, 2 * act_size), 1, generator)
        self.prior_adam = torch.optim.Adam(self.prior.parameters(), sac.learning_rate, fused=True)
        self._prior_means = self.distilled = self.prior.narrowed(act_size)
        if sac.deployed_rate < 1:
            self.distilled = MLP(self._prior_means.sizes, 1).requires_grad_(False)
            self.distilled.track(self._prior_means, 1.0)
        self.kl = Table(torch.zeros(())).requires_grad_(False)  # a part, as it is not always new

    def distilled_policy(self, obs: Tensor) -> Gaussian:
        """π0 for states by task."""
        out = self.prior(obs.flatten(0, -2)).view(*obs.shape[:-1], -1)
        return gaussian(out, self.config.spread_floor)

    def cost(self, obs: Tensor, drawn: Drawn) -> Tensor:
        """(1/β) log π_i - (α/β) log π0 of actions of the tasks' policies."""
        distilled = self.distilled_policy(obs).log_density(drawn.raw)
        return distral_cost(drawn.log_density, distilled, alpha=self._alpha, beta=self._beta)

    def _improve(self, obs: Tensor) -> None:
        """A step on the tasks' policies, then one on π0."""
        super()._improve(obs)
        with torch.no_grad():
            own = self.policy(obs)
        self.prior_adam.param_groups[0]["lr"] = self.config.rate(self.updates)
        loss = own.kl(self.distilled_policy(obs)).mean()
        minimise(self.prior_adam, loss)
        self.kl.values.copy_(loss.detach())
        if self.distilled is not self._prior_means:
            self.distilled.track(self._prior_means, self.config.following(self.updates))

    @property
    def parts(self) -> dict[str, Part]:
        """All networks and optimisers."""
        averaged = {} if self.distilled is self._prior_means else {"distilled": self.distilled}
        own: dict[str, Part] = {"prior": self.prior, "prior_adam": self.prior_adam, "kl": self.kl}
        return {**super().parts, **own, **averaged}


class Distral(MultiTask):
    """The method; see the module."""

    own_metrics = ("policy/kl",)
    learner: DistralSAC

    def __init__(
        self, task_set: TaskSet, config: DistralConfig, seed: np.random.SeedSequence
    ) -> None:
        super().__init__(task_set, config, seed, config.sac.discount)
        sizes = task_set.observation_size, task_set.action_size
        self.learner = DistralSAC(*sizes, config, self.generator, len(task_set.train))

    def next_drivers(self) -> tuple[str, ...]:
        """Each task's own policy."""
        return (OWN,) * len(self.task_set.train)

    def update(self, batch: Batch, imitation: Imitation | None) -> tuple[Losses, Sequence[Tensor]]:
        """One of every task's networks, and of π0."""
        return self.learner.update(batch, imitation), (self.learner.kl().clone(),)

    def explore(self, drivers: Sequence[str]) -> PolicyFunction:
        """π_i in row i, stochastic."""
        rng = self.rngs["acting"]

        def act(states: NDArray[Any]) -> NDArray[np.float32]:
            shape = len(states), 1, self.task_set.action_size
            noise = rng.standard_normal(shape, dtype=np.float32)
            return self.learner.explore(states[:, None], noise)[:, 0]

        return act

    @property
    def policy(self) -> CodedPolicy:
        """π0, without a code for any task."""
        tasks = self.task_set.train
        return CodedPolicy(
            self.learner.distilled, torch.zeros(len(tasks), 0), torch.zeros(0), tasks
        )

    def acting_policy(self, tasks: Sequence[int], trials: Episodes | None) -> ActingCodedPolicy:
        """The mean of π0."""
        return self.policy.begin(tasks, self.task_set.names, trials)
