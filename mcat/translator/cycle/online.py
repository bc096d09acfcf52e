"""The translator of Zhang et al. (2020) for many tasks, in place of H (the paper's D.6).

Networks of H's size, trained for as long, but the other way round (see `cycle.py`): F is asked
about the *source*, and Psi, which acts in the end, learns only to undo Phi.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from mcat.datasets.views import Episodes
from mcat.translator.action import ActionTraining, ActionTranslator, Query, Route
from mcat.translator.adversarial import Adversary, discriminator
from mcat.translator.configs import ActionConfig, CycleConfig
from mcat.translator.context import ContextModel
from mcat.translator.networks import take_step
from mcat.translator.online import TranslatorLearner
from mcat.translator.tensors import Part

WEIGHTS = CycleConfig()  # 20, 1 and 1
POOL = 8  # batches of either kind that the adversary remembers, as in the original


class ContextCycle(ActionTraining):
    """Trains Phi, and Psi as `network`, against an adversary; C and F stay as they are.

    A query holds transitions of the *target*, and asks for actions that do the same on the source.

    Attributes:
        helpers: Phi, and the discriminator D(a, z) of actions with the features of their tasks.
    """

    def __init__(
        self,
        model: ContextModel,
        routes: Sequence[Route],
        config: ActionConfig,
        *,
        rng: np.random.Generator,
    ) -> None:
        config = replace(config, residual=False, loss="l1")  # both maps make new actions
        super().__init__(model, routes, config, seed=int(rng.integers(2**31)))
        sizes = routes[0].episodes.observation_size, routes[0].episodes.action_size
        context_size = model.config.context_size
        with torch.random.fork_rng(devices=[]):  # torch.nn draws initial weights from global state
            torch.manual_seed(int(self.rng.integers(2**31)))
            self.phi = ActionTranslator(*sizes, config, context_size)
            judge = discriminator(sizes[1] + context_size)
        self.helpers = nn.ModuleDict({"phi": self.phi, "discriminator": judge})
        translators = [*self.phi.parameters(), *self.network.parameters()]
        self.adam = torch.optim.Adam(translators, config.learning_rate, fused=True)
        pool = POOL * config.batch_size
        self.adversary = Adversary(judge, pool, config.learning_rate, rng)
        self.rng = rng

    def step(self) -> Tensor:
        """One step of the adversary, then one of Phi and Psi; returns their loss before it."""
        target, source = (self.routes[k] for k in self.rng.integers(len(self.routes), size=2))
        others = [route.source for route in self.routes if route.source != source.source]
        n = self.config.batch_size
        query = self.sample(target, n)  # each row draws its own source
        proposed = self.propose(query)
        # Real are actions of a task with its own feature; with another's they count as made up.
        real = self.sample(source._replace(targets=others), n)
        made = _judged(proposed, query.target), _judged(real.rows.action, real.target)
        self.adversary.learn(torch.cat(made), _judged(real.rows.action, real.source))
        loss = WEIGHTS.total(**self.losses(query, proposed))
        take_step(self.adam, loss)
        return loss.detach()

    def propose(self, query: Query) -> Tensor:
        """Phi: actions that do on the source what was done on the target."""
        rows = query.rows
        states = self.model.scaled(rows.obs)
        new: Tensor = self.phi(states, rows.action, query.target, query.source)
        return new

    def losses(self, query: Query, proposed: Tensor) -> dict[str, Tensor]:
        """The three losses of target transitions whose actions Phi turned into `proposed`."""
        rows = query.rows
        states = self.model.scaled(rows.obs)
        back = self.network(states, proposed, query.target, query.source)
        return {
            "dynamics": self.state_error(query, proposed),
            "domain": (back - rows.action).abs().mean(),
            "adversarial": self.adversary.suspicion(_judged(proposed, query.target)),
        }


def _judged(action: Tensor, feature: Tensor) -> Tensor:
    """What the discriminator sees."""
    return torch.cat((action, feature), 1)


class CycleLearner(TranslatorLearner):
    """Psi between any two tasks, with the interface of H."""

    def _prepare(self, tasks: Sequence[Episodes]) -> ActionTraining:
        training = super()._prepare(tasks)
        self._cycle.adversary.forget()  # the features that its samples came with have changed
        return training

    def _parts(self, training: ActionTraining) -> dict[str, Part]:
        cycle = self._cycle
        helpers: dict[str, Part] = {"helpers": cycle.helpers, "helpers_adam": cycle.adversary.adam}
        return super()._parts(training) | helpers

    def _begin(self, routes: Sequence[Route]) -> ActionTraining:
        return ContextCycle(self.model, routes, self.config, rng=self.rng)

    @property
    def _cycle(self) -> ContextCycle:
        assert isinstance(self._training, ContextCycle)
        return self._training
