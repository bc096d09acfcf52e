"""What the methods that MCAT is compared with have in common: who acts, when they learn, state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mcat.agents.learner import Batch, Imitation, Learner, Losses
from mcat.agents.meta.algorithm import RANDOM, SHARED, PhaseCallback, Round, TaskSet
from mcat.agents.meta.methods.configs import MethodConfig
from mcat.agents.meta.methods.experience import Experience, Imitated
from mcat.agents.meta.run_config import RunConfig
from mcat.agents.meta.updates import CREDIT, LOSSES, NOTHING, require_finite
from mcat.agents.policies.meta_policy import MetaPolicy
from mcat.datasets.rollout import Taken
from mcat.datasets.views import Episodes
from mcat.errors import DataError
from mcat.safe_io import StrPath
from mcat.tensor_files import part
from mcat.translator.tensors import Part, load_tensors, tensors_of
from mcat.types import PolicyFunction


class MultiTask(ABC):
    """A method whose learner sees as many rows of every task in each update.

    A subclass says what one update is, who explores and what a user gets
    (docs/decisions.md#baselines-of-meta-learning).

    Attributes:
        own_metrics: Names of what an update tells beside the losses of every method.
        experience: What was seen so far.
        learner: A policy and its critics.
        extras: The other networks and optimisers that learn, by name.
    """

    phases: tuple[str, ...] = ("policy",)
    trials = 0
    own_metrics: tuple[str, ...] = ()
    learner: Learner

    def __init__(
        self,
        task_set: TaskSet,
        config: MethodConfig,
        seed: np.random.SeedSequence,
        discount: float,
    ) -> None:
        self.task_set, self.config = task_set, config
        # One stream per consumer, so that none depends on how much another has drawn.
        agent, credit, acting, sampling = (
            int(child.generate_state(1, np.uint64)[0] >> 1) for child in seed.spawn(4)
        )
        self.generator = torch.Generator().manual_seed(agent)
        self.rngs = {
            "acting": np.random.default_rng(acting),
            "sampling": np.random.default_rng(sampling),
        }
        generator = torch.Generator().manual_seed(credit)
        rng = self.rngs["sampling"]
        self.experience = Experience(task_set, config, discount, generator, rng)
        self.extras: dict[str, Part] = {}
        self._sums, self._done, self._seen = torch.zeros(0), 0, 0
        self._learning = False

    @classmethod
    def of_run(cls, task_set: TaskSet, config: RunConfig, seed: np.random.SeedSequence) -> Self:
        """As a run asks for it: a subclass takes the tasks, its own numbers and the seed."""
        make: Callable[..., Self] = cls
        return make(task_set, config.own, seed)

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of what is logged of learning."""
        return (*(f"losses/{name}" for name in LOSSES), *CREDIT, *self.own_metrics)

    # --- what a subclass says -------------------------------------------------------------

    @abstractmethod
    def update(self, batch: Batch, imitation: Imitation | None) -> tuple[Losses, Sequence[Tensor]]:
        """Learn from rows by task `(tasks, n, ...)`; returns losses and `own_metrics`."""

    @abstractmethod
    def explore(self, drivers: Sequence[str]) -> PolicyFunction:
        """Acts in one round after random actions are over, row i on training task i."""

    @abstractmethod
    def acting_policy(self, tasks: Sequence[int], trials: Episodes | None) -> PolicyFunction:
        """What a user gets; see `Algorithm`."""

    @property
    @abstractmethod
    def policy(self) -> MetaPolicy:
        """What a user gets, as it is now."""

    def next_drivers(self) -> tuple[str, ...]:
        """Who drives after random actions are over."""
        return (SHARED,) * len(self.task_set.train)

    def begin(self) -> None:
        """Called before the first update of a round, with rows to learn from."""
        return

    def rows(self, numbers: NDArray[np.int64]) -> Batch:
        """The rows of an update, by their numbers in `experience`."""
        return self.experience.rows(numbers)

    def imitated_rows(self, imitated: Imitated) -> Imitation:
        """The imitated rows of an update."""
        return imitated.rows

    # --- the loop's side ------------------------------------------------------------------

    def plan(self) -> tuple[str, ...]:
        """Random actions at first."""
        if not self.experience.warm:
            return (RANDOM,) * len(self.task_set.train)
        return self.next_drivers()

    def explorer(self, drivers: Sequence[str]) -> PolicyFunction:
        """One episode per training task."""
        if drivers[0] != RANDOM:
            return self.explore(drivers)
        shape = len(drivers), self.task_set.action_size
        rng = self.rngs["acting"]
        return lambda states: rng.uniform(-1, 1, shape).astype(np.float32)

    def remember(self, new: Round) -> None:
        """Keep a round's episodes."""
        self.experience.remember(new)

    def prepare(self, on_progress: PhaseCallback) -> dict[str, float]:
        """Make room for what happens while acting, if that is learned from at once."""
        if self.config.learn_while_acting and self.experience.warm:
            self._begin(room=self.task_set.horizon)
        return {}

    def after_step(self, taken: Taken, on_progress: PhaseCallback) -> None:
        """Learn while acting."""
        if not self._learning:
            return
        total = len(self.task_set.train) * self.task_set.horizon
        self._seen += int(taken.running.sum())
        self.see(taken)
        self._learn(self._seen, total, on_progress)
        on_progress("collect", self._seen, total)

    def see(self, taken: Taken) -> None:
        """Take in a step while acting."""
        self.experience.see(taken)

    def learn(self, on_progress: PhaseCallback) -> dict[str, float]:
        """All that was not learned during the round; nothing while tasks lack data."""
        if not self.config.learn_while_acting and self.experience.warm:
            self._begin()
            steps = self.experience.collected
            self._learn(steps, steps, on_progress)
        found = dict.fromkeys(self.metrics, NOTHING)
        if self._learning:
            means = (self._sums / max(self._done, 1)).tolist()
            credit = self.experience.credit
            linear = float(credit.used == "ridge")
            values = (*means[: len(LOSSES)], credit.unexplained, linear, *means[len(LOSSES) :])
            found = dict(zip(self.metrics, values, strict=True))
            self._learning = False
        return found

    def _begin(self, room: int = 0) -> None:
        self.experience.begin(room)
        self.begin()
        self._sums = torch.zeros(len(LOSSES) + len(self.own_metrics))
        self._done = self._seen = 0
        self._learning = True

    def _learn(self, steps: int, total: int, on_progress: PhaseCallback) -> None:
        """As many updates as so many steps of a round are worth."""
        due, end = (max(1, round(n * self.config.updates_per_step)) for n in (steps, total))
        while self._done < due:
            on_progress("policy", self._done, end)
            self._sums += self._update_once()
            self._done += 1
            require_finite((*LOSSES, *self.own_metrics), self._sums)

    def _update_once(self) -> Tensor:
        experience = self.experience
        credit_loss = experience.credit.step(self.rngs["sampling"])
        imitated = experience.imitated()
        numbers = experience.draw(self.config.batch_size // experience.tasks)
        rows = None if imitated is None else self.imitated_rows(imitated)
        losses, own = self.update(self.rows(numbers), rows)
        experience.learned_from(imitated, losses.gains)
        return torch.stack((losses.critic, losses.actor, losses.imitation, credit_loss, *own))

    # --- what a checkpoint keeps ----------------------------------------------------------

    def tensors(self) -> dict[str, Tensor]:
        """All networks, optimisers and priorities."""
        learner = {f"learner/{name}": tensor for name, tensor in self.learner.tensors().items()}
        extras = {f"extras/{name}": tensor for name, tensor in tensors_of(**self.extras).items()}
        return {**learner, **extras, **self.experience.tensors()}

    def save_policy(self, path: StrPath, metadata: dict[str, Any]) -> None:
        """Write the policy, of MQL unadapted, as a file of its own."""
        self.policy.save(path, metadata, overwrite=True)

    def state(self) -> dict[str, Any]:
        """Where the random streams are."""
        return {"rngs": {name: rng.bit_generator.state for name, rng in self.rngs.items()}}

    def load(self, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        """Go on as if nothing had happened; every round must have been remembered."""
        self.learner.load_tensors(part("learner/", tensors))
        try:
            load_tensors(part("extras/", tensors), **self.extras)
        except ValueError as error:
            raise DataError(f"not a state of this method: {error}") from error
        self.experience.load_tensors(tensors)
        for name, rng in self.rngs.items():
            rng.bit_generator.state = state["rngs"][name]
