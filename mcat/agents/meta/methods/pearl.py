"""PEARL (Rakelly et al. 2019): a latent task z, inferred from transitions of it.

The posterior of z given rows k of a task is a product of Gaussians (m_k, v_k) that an encoder says,
precision-weighted: V = 1 / Σ 1/v_k, M = V Σ m_k/v_k. SAC acts on [s, z], and

    L = mean over rows of (Q1 - y)² + (Q2 - y)²  +  λ Σ_i KL( N(M_i, V_i) || N(0, I) )

trains critics and encoder together; elsewhere z is without gradient. Rounds with z from the prior
and from the posterior take turns; a task's context is what the former collected. On any task, known
or not, two trial episodes with z from the prior come first; then the policy acts on M.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from mcat.agents.configs import SACConfig
from mcat.agents.gaussian import Drawn
from mcat.agents.learner import Batch, Imitation, Losses
from mcat.agents.meta.algorithm import RANDOM, Round, TaskSet
from mcat.agents.meta.methods.coded import Coded, coded, with_codes
from mcat.agents.meta.methods.configs import PEARLConfig
from mcat.agents.meta.methods.maths import kl_to_prior
from mcat.agents.meta.methods.units import Units
from mcat.agents.networks import MLP, descend
from mcat.agents.policies.inference import Inference
from mcat.agents.sac import SAC
from mcat.datasets.views import Episodes
from mcat.translator.tensors import Part
from mcat.types import PolicyFunction

PRIOR, POSTERIOR = "prior", "posterior"  # drivers: where z comes from
TRIALS = 2


class InferringSAC(SAC):
    """SAC on [s, z] whose critics' loss also trains the encoder that z comes from.

    Attributes:
        distance: λ KL of the rows to come.
    """

    def __init__(
        self,
        obs_size: int,
        act_size: int,
        config: SACConfig,
        generator: torch.Generator,
        *,
        encoder: MLP,
        latent: int,
        regularisation: float,
    ) -> None:
        super().__init__(obs_size, act_size, config, generator, latent)
        self.encoder, self._regularisation = encoder, regularisation
        self.encoder_adam = torch.optim.Adam(encoder.parameters(), config.learning_rate, fused=True)
        self.distance = torch.zeros(())

    def descend(self, adam: torch.optim.Adam, losses: Tensor) -> None:
        """A step on the actor, or on critics and encoder together."""
        if adam is not self.critic_adam:
            return super().descend(adam, losses)
        self.encoder_adam.param_groups[0]["lr"] = self.config.rate(self.updates)
        owners = [a.param_groups[0]["params"] for a in (adam, self.encoder_adam)]
        loss = losses.mean() + self.distance
        gradients = torch.autograd.grad(loss, [*owners[0], *owners[1]])
        descend(adam, gradients[: len(owners[0])])
        descend(self.encoder_adam, gradients[len(owners[0]) :])
        return None

    def actor_losses(self, obs: Tensor) -> tuple[Tensor, Drawn]:
        """SAC's, and what large means and spreads far from 1 cost."""
        policy = self.policy(obs)
        drawn = policy.draw(self.generator)
        value = self.twins.judge(obs, drawn.action).amin(0)
        losses = (self.cost(obs, drawn) - value).mean((-2, -1))
        squares = policy.mean.square().mean() + policy.log_std.square().mean()
        return losses + self._regularisation * squares, drawn

    @property
    def parts(self) -> dict[str, Part]:
        """All networks and optimisers."""
        return {**super().parts, "encoder": self.encoder, "encoder_adam": self.encoder_adam}


class PEARL(Coded):
    """The method; see the module."""

    own_metrics = ("pearl/kl", "pearl/z_spread")
    trials = TRIALS
    learner: InferringSAC
    inference: Inference

    def __init__(
        self, task_set: TaskSet, config: PEARLConfig, seed: np.random.SeedSequence
    ) -> None:
        super().__init__(task_set, config, seed, config.sac.discount)
        states, actions, latent = task_set.observation_size, task_set.action_size, config.latent
        row = 2 * states + actions + 1
        encoder = MLP((row, *config.encoder_hidden, 2 * latent), 1, self.generator)
        self.learner = InferringSAC(
            states + latent,
            actions,
            config.sac,
            self.generator,
            encoder=encoder,
            latent=latent,
            regularisation=config.regularisation,
        )
        self.units = Units(states)
        self.extras = {"units": self.units}
        self.inference = Inference(
            encoder,
            self.units.state,
            self.units.change,
            delay=task_set.delay,
            trials=TRIALS,
            seed=int(np.asarray(seed.entropy).ravel()[0]),
        )
        self._kl, self._rows = config.kl, config.context_rows
        self._contexts: dict[int, Episodes] = {}  # by task
        self._last = RANDOM  # driver

    def remember(self, new: Round) -> None:
        """Keep a round; what no posterior collected is the context of its tasks."""
        super().remember(new)
        self._last = new.drivers[0]
        if self._last != POSTERIOR:
            for task in np.unique(new.episodes.tasks).tolist():
                self._contexts[task] = new.episodes.task(task)

    def next_drivers(self) -> tuple[str, ...]:
        """Prior and posterior take turns."""
        return (POSTERIOR if self._last == PRIOR else PRIOR,) * len(self.task_set.train)

    def explore(self, drivers: Sequence[str]) -> PolicyFunction:
        """The stochastic policy with one z for the episode."""
        shape = len(drivers), self.inference.latent
        z = torch.from_numpy(self.rngs["acting"].standard_normal(shape, np.float32))
        if drivers[0] == POSTERIOR:
            self.begin()  # not so long ago, but not in this process if it was resumed
            with torch.no_grad():
                mean, variance = self._posterior(self.rngs["acting"])
                z = mean + variance.sqrt() * z
        return self.exploring(z)

    def begin(self) -> None:
        """The encoder's units are those of the first rounds; contexts are read in them."""
        self.units.measure(self.experience.replay)
        self._encoded = [
            self.inference.rows(self._contexts[task]) for task in range(len(self.task_set.train))
        ]

    def _posterior(self, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
        """Mean and variance of z from some rows of each task's context."""
        drawn = [rows[rng.integers(len(rows), size=self._rows)] for rows in self._encoded]
        return self.inference.posterior(torch.stack(drawn))

    def update(self, batch: Batch, imitation: Imitation | None) -> tuple[Losses, Sequence[Tensor]]:
        """One of critics and encoder, then of the actor."""
        mean, variance = self._posterior(self.rngs["sampling"])
        z = mean + variance.sqrt() * torch.randn(mean.shape, generator=self.generator)
        kl = kl_to_prior(mean, variance).sum()
        self.learner.distance = self._kl * kl
        rows, imitated = coded(batch, imitation, z.detach())
        losses = self.learner.update(rows._replace(obs=with_codes(batch.obs, z)), imitated)
        return losses, (kl.detach(), mean.detach().std(0, correction=0).mean())

    def codes(self) -> Tensor:
        """Nothing: they are inferred."""
        return torch.zeros(len(self.task_set.train), self.inference.latent)

    def unseen(self) -> Tensor:
        """The prior's mean."""
        return torch.zeros(self.inference.latent)
