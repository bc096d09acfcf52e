"""PCGrad (Yu et al. 2020) on SAC: gradients of tasks that disagree are projected.

All tasks share the networks of one SAC, which is told by a one-hot code which task it is; each task
has its own temperature. With g_i the gradient of task i's loss, for every i and the other tasks j
in an order drawn anew: if g·g_j < 0, g ← g - (g·g_j / |g_j|²) g_j, where g starts as g_i and the
g_j stay as they were. The step is along the mean of the results, for critics and actor alike.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from mcat.agents.learner import Batch, Imitation, Losses
from mcat.agents.meta.algorithm import TaskSet
from mcat.agents.meta.methods.coded import Coded
from mcat.agents.meta.methods.configs import PCGradConfig
from mcat.agents.meta.methods.maths import project
from mcat.agents.networks import descend
from mcat.agents.sac import SAC


class ProjectedSAC(SAC):
    """SAC on rows by task whose steps are along projected gradients."""

    # Of the latest update, whether gradients of critics or actor disagreed.
    conflicts: Tensor = torch.zeros(())

    def descend(self, adam: torch.optim.Adam, losses: Tensor) -> None:
        """A step along the mean of the tasks' projected gradients."""
        parameters = adam.param_groups[0]["params"]
        each = [
            torch.autograd.grad(loss, parameters, retain_graph=True) for loss in losses.unbind()
        ]
        flat = torch.stack([torch.cat([g.flatten() for g in own]) for own in each])
        step, conflict = project(flat, self.generator)
        sizes = [parameter.numel() for parameter in parameters]
        parts = torch.split(step, sizes)
        descend(adam, [g.view_as(p) for g, p in zip(parts, parameters, strict=True)])
        # The critics come first in an update.
        before = 0.0 if adam is self.critic_adam else self.conflicts
        self.conflicts = conflict.float().clamp(min=before)


class PCGrad(Coded):
    """The method; see the module."""

    own_metrics = ("pcgrad/conflicts", "policy/temperature")
    learner: ProjectedSAC

    def __init__(
        self, task_set: TaskSet, config: PCGradConfig, seed: np.random.SeedSequence
    ) -> None:
        super().__init__(task_set, config, seed, config.sac.discount)
        tasks = len(task_set.train)
        self.learner = ProjectedSAC(
            task_set.observation_size + tasks,
            task_set.action_size,
            config.sac,
            self.generator,
            tasks,
            tasks=tasks,
        )

    def codes(self) -> Tensor:
        """One-hot."""
        return torch.eye(len(self.task_set.train))

    def update(self, batch: Batch, imitation: Imitation | None) -> tuple[Losses, Sequence[Tensor]]:
        """SAC's, with projections."""
        losses, _ = super().update(batch, imitation)
        temperature = self.learner.temperature().detach().exp().mean()
        return losses, (self.learner.conflicts, temperature)
