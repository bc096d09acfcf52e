"""The translator of Zhang et al. (2020) for many tasks, in place of H (the paper's D.6).

Networks of H's size, trained for as long, but the other way round (see `pair.py`): F is asked
about the *source*, and Psi, which acts in the end, learns only to undo Phi
(docs/decisions.md#the-baseline-inside-mcat).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from mcat.datasets.views import Episodes
from mcat.translator.action import ActionTraining, ActionTranslator, SourceTargets, TranslationBatch
from mcat.translator.adversarial import Adversary, discriminator
from mcat.translator.configs import ActionConfig, CycleConfig
from mcat.translator.context import ContextModel
from mcat.translator.networks import optimise, seeded
from mcat.translator.online import TranslatorLearner
from mcat.translator.tensors import Part

WEIGHTS = CycleConfig()  # 20, 1 and 1
POOL = 8  # batches of either kind that the adversary remembers, as in the original


class ContextCycle(ActionTraining):
    """Trains Phi, and Psi as `network`, against an adversary; C and F stay as they are.

    A batch holds transitions of the *target*; wanted are actions that do the same on the source.

    Attributes:
        helpers: Phi, and the discriminator D(a, z) of actions with the features of their tasks.
    """

    def __init__(
        self,
        model: ContextModel,
        sources: Sequence[SourceTargets],
        config: ActionConfig,
        *,
        rng: np.random.Generator,
    ) -> None:
        config = replace(config, residual=False, loss="l1")  # both maps make new actions
        super().__init__(model, sources, config, seed=int(rng.integers(2**31)))
        sizes = sources[0].episodes.observation_size, sources[0].episodes.action_size
        context_size = model.config.context_size
        with seeded(self.rng):
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
        target, source = (self.sources[k] for k in self.rng.integers(len(self.sources), size=2))
        others = [other.task for other in self.sources if other.task != source.task]
        n = self.config.batch_size
        batch = self.sample(target, n)  # each row draws its own source
        proposed = self.propose(batch)
        # Real are actions of a task with its own feature; with another's they count as fake.
        real = self.sample(source._replace(targets=others), n)
        fake = (
            _discriminator_inputs(proposed, batch.target),
            _discriminator_inputs(real.rows.action, real.target),
        )
        self.adversary.learn(torch.cat(fake), _discriminator_inputs(real.rows.action, real.source))
        loss = WEIGHTS.total(**self.losses(batch, proposed))
        optimise(self.adam, loss)
        return loss.detach()

    def propose(self, batch: TranslationBatch) -> Tensor:
        """Phi: actions that do on the source what was done on the target."""
        rows = batch.rows
        states = self.network.seen(self.model, rows.obs)
        new: Tensor = self.phi(states, rows.action, batch.target, batch.source)
        return new

    def losses(self, batch: TranslationBatch, proposed: Tensor) -> dict[str, Tensor]:
        """The three losses of target transitions whose actions Phi turned into `proposed`."""
        rows = batch.rows
        states = self.network.seen(self.model, rows.obs)
        back = self.network(states, proposed, batch.target, batch.source)
        return {
            "dynamics": self.state_error(batch, proposed),
            "domain": (back - rows.action).abs().mean(),
            "adversarial": self.adversary.generator_loss(
                _discriminator_inputs(proposed, batch.target)
            ),
        }


def _discriminator_inputs(action: Tensor, feature: Tensor) -> Tensor:
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

    def _begin(self, sources: Sequence[SourceTargets]) -> ActionTraining:
        return ContextCycle(self.model, sources, self.config, rng=self.rng)

    @property
    def _cycle(self) -> ContextCycle:
        assert isinstance(self._training, ContextCycle)
        return self._training
