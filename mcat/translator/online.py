"""C, F and H, refined as episodes come in: what meta-training does between two rounds.

The offline trainings of `fit.py` see all data at once and may lower their learning rate to 0. Here
the data grow, so networks and optimisers live on, and each call goes on where the last one ended.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from mcat.datasets.views import Episodes
from mcat.errors import DivergedError
from mcat.translator.action import ActionTraining, SourceTargets
from mcat.translator.configs import ActionConfig, ContextConfig
from mcat.translator.context import (
    ContextModel,
    fit_scales,
    held_out_errors,
    joint_losses,
    objective,
    set_features,
)
from mcat.translator.networks import optimise, seeded
from mcat.translator.tensors import Part, load_tensors, tensors_of
from mcat.translator.windows import sample_windows

TEST_ROWS = 512  # per task

ProgressCallback = Callable[[int, int], None]
"""Called before each step with how many were taken and how many there are at most."""

Translation = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""H: from states, source actions, features of source and of target, row by row."""


@dataclass(frozen=True, kw_only=True)
class ForwardProgress:
    """How one refinement of C and F went: mean losses, and the held-out error, NaN without any."""

    steps: int
    forward: float
    contrastive: float
    error: float


class ContextLearner:
    """C and F of several tasks. `config.max_steps` and `patience` count per call of `learn`."""

    def __init__(
        self,
        obs_size: int,
        act_size: int,
        tasks: int,
        config: ContextConfig,
        *,
        good_enough: float = 0.0,
        seed: int = 0,
    ) -> None:
        self.config, self.good_enough = config, good_enough
        self.rng = np.random.default_rng(seed)
        with seeded(self.rng):
            self.model = ContextModel(obs_size, act_size, tasks, config)
        self.adam = torch.optim.Adam(self.model.parameters(), config.learning_rate, fused=True)
        self.error: float | None = None  # None while nothing is held out

    def learn(
        self,
        training: Sequence[Episodes],
        held_out: Sequence[Episodes],
        on_progress: ProgressCallback,
    ) -> ForwardProgress:
        """Refine C and F until the held-out error stops falling, then renew the tasks' features."""
        config = self.config
        fit_scales(self.model, training)
        tests = [sample_windows(task, config, self.rng, TEST_ROWS) for task in held_out]
        good = self.error is not None and self.error < self.good_enough
        limit = config.max_steps // (10 if good else 1)
        sums, best, waited, step = torch.zeros(2), float("inf"), 0, 0
        for step in range(1, limit + 1):
            on_progress(step - 1, limit)
            forward, contrastive = joint_losses(self.model, training, self.rng)
            _require_finite(forward, "forward loss")
            _require_finite(contrastive, "contrastive loss")
            optimise(self.adam, objective(self.model, forward, contrastive))
            sums += torch.stack((forward, contrastive)).detach()
            if tests and step % config.evaluate_every == 0:
                error = float(held_out_errors(self.model, tests).mean())
                waited = 0 if error < 0.99 * best else waited + 1
                best = min(best, error)
                if waited >= config.patience:
                    break
        self.error = float(held_out_errors(self.model, tests).mean()) if tests else None
        set_features(self.model, training, self.rng)
        forward_mean, contrastive_mean = (sums / max(step, 1)).tolist()
        return ForwardProgress(
            steps=step,
            forward=forward_mean,
            contrastive=contrastive_mean,
            error=float("nan") if self.error is None else self.error,
        )

    def tensors(self) -> dict[str, Tensor]:
        """All that learning changes but the generator."""
        error = {} if self.error is None else {"error": torch.tensor(self.error).double()}
        return tensors_of(model=self.model, adam=self.adam) | error

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over what `tensors` gave."""
        self.error = float(tensors["error"]) if "error" in tensors else None
        load_tensors(tensors, model=self.model, adam=self.adam)


@dataclass(frozen=True, kw_only=True)
class TranslationProgress:
    """Mismatch under F of source actions, as they are and translated; see `ActionTraining.run`."""

    untranslated: float
    translated: float


class TranslatorLearner:
    """H between any two tasks. `config.steps` counts per call of `learn`."""

    def __init__(self, model: ContextModel, config: ActionConfig, *, seed: int = 0) -> None:
        self.model, self.config = model, config
        self.rng = np.random.default_rng(seed)
        self._training: ActionTraining | None = None

    def learn(
        self, tasks: Sequence[Episodes], on_progress: ProgressCallback
    ) -> TranslationProgress:
        """Refine H on transitions of every task, towards every task."""
        training = self._prepare(tasks)
        training.weigh()
        for step in range(self.config.steps):
            on_progress(step, self.config.steps)
            _require_finite(training.step(), "translation loss")
        tests = [training.sample(source, TEST_ROWS) for source in training.sources]
        with torch.no_grad():
            new = [training.translate(test) for test in tests]
        pairs = zip(tests, new, strict=True)
        return TranslationProgress(
            untranslated=float(np.mean([training.mismatch(t, t.rows.action) for t in tests])),
            translated=float(np.mean([training.mismatch(t, action) for t, action in pairs])),
        )

    @torch.no_grad()
    def translate(self, obs: Tensor, action: Tensor, source: Tensor, target: Tensor) -> Tensor:
        """H(s, a, z_source, z_target) for states, source actions and features, row by row."""
        assert self._training is not None, "H is not trained yet"
        network = self._training.network
        new: Tensor = network(network.seen(self.model, obs), action, source, target)
        return new

    def tensors(self) -> dict[str, Tensor]:
        """All that learning changes but the generator; nothing before the first `learn`."""
        return {} if self._training is None else tensors_of(**self._parts(self._training))

    def load_tensors(self, tensors: Mapping[str, Tensor], tasks: Sequence[Episodes]) -> None:
        """Take over what `tensors` gave."""
        if tensors:
            load_tensors(tensors, **self._parts(self._prepare(tasks)))

    def _parts(self, training: ActionTraining) -> dict[str, Part]:
        return {"network": training.network, "adam": training.adam}

    def _prepare(self, tasks: Sequence[Episodes]) -> ActionTraining:
        """The training, on the episodes there are now; source and target may be the same."""
        numbers = range(len(tasks))
        sources = [SourceTargets(number, task, numbers) for number, task in enumerate(tasks)]
        if self._training is None:
            self._training = self._begin(sources)
        self._training.sources = sources
        return self._training

    def _begin(self, sources: Sequence[SourceTargets]) -> ActionTraining:
        seed = int(self.rng.integers(2**31))
        training = ActionTraining(self.model, sources, self.config, seed=seed)
        training.rng = self.rng
        return training


def _require_finite(loss: Tensor, name: str) -> None:
    if not math.isfinite(loss.item()):
        raise DivergedError(f"the {name} became {loss.item()}: try a lower learning rate")
