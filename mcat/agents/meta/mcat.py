"""MCAT: context-based TD3 with self-imitation and policy transfer (the paper's Algorithm 1).

One shared policy π(s, z) learns all training tasks. Where it earns more on one task than on
another, the better one's actions, translated by H, collect the next episode of the worse one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mcat.agents.credit.credit import Credit
from mcat.agents.learners import make_learner
from mcat.agents.meta.algorithm import RANDOM, SHARED, PhaseCallback, Round, TaskSet
from mcat.agents.meta.config import GOOD_ENOUGH, MCATConfig, MetaTrainConfig
from mcat.agents.meta.exploration import Exploration
from mcat.agents.meta.novelty import Novelty
from mcat.agents.meta.run_config import RunConfig
from mcat.agents.meta.selection import Selection
from mcat.agents.meta.updates import CREDIT, LOSSES, NOTHING, PolicyUpdates, require_finite
from mcat.agents.policies.context_policy import ActingContextPolicy, ContextPolicy
from mcat.agents.sil import SelfImitation
from mcat.datasets.episodes import EpisodeStore
from mcat.datasets.rollout import Taken
from mcat.datasets.views import Episodes
from mcat.errors import UsageError
from mcat.safe_io import StrPath
from mcat.tensor_files import part
from mcat.translator.cycle.online import CycleLearner
from mcat.translator.online import ContextLearner, TranslatorLearner

# One round of so many is kept from C and F, to judge them by, if `hold_out`; the second is first.
HELD_OUT = 10
DYNAMICS = ("losses/forward", "losses/contrastive", "model/forward_steps", "model/forward_error")
MISMATCHES = ("model/mismatch_untranslated", "model/mismatch_translated")


class MCAT:
    """The state of Algorithm 1 between two of its lines, and the lines.

    Args:
        task_set: The tasks.
        config: The numbers.
        seed: Every random draw follows from it.
    """

    metrics = (*DYNAMICS, *MISMATCHES, *(f"losses/{name}" for name in LOSSES), *CREDIT)
    phases = ("dynamics", "translator", "policy")
    trials = 0  # it finds out while acting

    def __init__(self, task_set: TaskSet, config: MCATConfig, seed: np.random.SeedSequence) -> None:
        self.task_set, self.config = task_set, config
        tasks, sizes = len(task_set.train), (task_set.observation_size, task_set.action_size)
        least = 2 * task_set.round_rows  # one may be held out
        if config.replay_capacity < least:
            raise UsageError(f"replay_capacity must be at least two rounds, {least} steps")
        # One stream per consumer, so that none depends on how much another has drawn.
        agent, models, translator, credit, *streams = (
            int(child.generate_state(1, np.uint64)[0] >> 1) for child in seed.spawn(6)
        )
        self.rngs = {
            name: np.random.default_rng(stream)
            for name, stream in zip(("acting", "sampling"), streams, strict=True)
        }
        self.models = ContextLearner(
            *sizes, tasks, config.context, good_enough=config.good_enough or 0.0, seed=models
        )  # C, F
        learner = CycleLearner if config.translator == "cycle" else TranslatorLearner
        self.translator = learner(self.models.model, config.action, seed=translator)  # H
        self.rngs |= {"models": self.models.rng, "translator": self.translator.rng}
        contexts = config.context.context_size
        inputs = task_set.observation_size + contexts
        self.learner = make_learner(
            config.numbers, inputs, task_set.action_size, _generator(agent), contexts
        )  # π, Q
        self.policy, self.deployed = (
            ContextPolicy.of(actor, self.models.model, averaged=config.average_contexts)
            for actor in (self.learner.actor, self.learner.deployed)
        )
        self.credit = Credit(
            *sizes,
            config.credit,
            delay=task_set.delay,
            horizon=task_set.horizon,
            generator=_generator(credit),
        )
        self.novelty = Novelty.of(task_set, config.novelty)
        self.replay = EpisodeStore(*sizes, capacity=config.replay_capacity)  # B
        self.rounds = np.zeros(0, np.int64)  # of each episode in it
        self.imitation = SelfImitation(*sizes, config.imitation, config.discount)  # D
        self.selection = Selection(tasks, config.selection)  # R
        self.step = self.collected = 0

        self._updates: PolicyUpdates | None = None  # those of the round being collected
        self._exploration: Exploration | None = None

    @classmethod
    def of_run(cls, task_set: TaskSet, config: RunConfig, seed: np.random.SeedSequence) -> MCAT:
        """As a run asks for it: what is good enough for F depends on the robot.

        Args:
            task_set: The tasks.
            config: The settings of the run.
            seed: Every random draw follows from it.
        """
        assert isinstance(config, MetaTrainConfig)
        settings = config.mcat
        if settings.good_enough is None:
            settings = replace(settings, good_enough=GOOD_ENOUGH.get(config.robot, 0.0))
        return cls(task_set, settings, seed)

    # --- who acts --------------------------------------------------------------------------

    def plan(self) -> tuple[str, ...]:
        """Random actions at first, then the rule of `Selection`."""
        names = self.task_set.train
        if not self._warm:
            return (RANDOM,) * len(names)
        if not self.config.transfer:
            return (SHARED,) * len(names)
        sources = [self.selection.choose(task) for task in range(len(names))]
        return tuple(SHARED if source is None else names[source] for source in sources)

    def explorer(self, drivers: Sequence[str]) -> Callable[[NDArray[Any]], NDArray[np.float32]]:
        """One episode per training task, with noise whoever drives it."""
        if drivers[0] == RANDOM:
            shape = len(drivers), self.task_set.action_size
            return lambda states: self.rngs["acting"].uniform(-1, 1, shape).astype(np.float32)
        self._exploration = Exploration(
            self.policy,
            self.translator.translate,
            self.models.model.features,
            [None if d == SHARED else self.task_set.train.index(d) for d in drivers],
            rng=self.rngs["acting"],
            noise=self.config.exploration,
            online=self.config.target_context == "online",
        )
        return self._exploration

    def acting_policy(
        self, tasks: Sequence[int] = (), trials: Episodes | None = None
    ) -> ActingContextPolicy:
        """π(s, z_t) without noise and without H; it need not be told the tasks."""
        return self.deployed.start_episode()

    def remember(self, new: Round) -> None:
        """Keep a round's episodes, and the returns of those that show what a driver can do."""
        kept = new.remembered
        self.replay.extend(kept)
        number = int(self.rounds[-1]) + 1 if len(self.rounds) else 0
        rounds = np.append(self.rounds, np.full(kept.num_episodes, number))
        self.rounds = rounds[len(rounds) - self.replay.num_episodes :]  # the store drops the oldest
        self.imitation.add(kept)
        self.credit.add(new.episodes)
        if self.novelty is not None:
            self.novelty.add(new.episodes)
        paces = new.paces(self.task_set.horizon)
        for task, driver, value in zip(new.episodes.tasks, new.drivers, paces, strict=True):
            if driver != RANDOM:
                source = None if driver == SHARED else self.task_set.train.index(driver)
                self.selection.add(new.step, int(task), source, float(value))
        self.step, self.collected = new.step, len(new.episodes)

    # --- what is learned --------------------------------------------------------------------

    def prepare(self, on_progress: PhaseCallback) -> dict[str, float]:
        """C and F, then H, if π learns while acting: it must know the contexts it acts in."""
        if not (self.config.learn_while_acting and self._warm):
            return {}
        found = self._learn_models(on_progress)
        # Where episodes end early, the last one of each task may exceed the round by a horizon.
        self._updates = self._policy_updates(room=2 * self._round_steps)
        return found

    def after_step(self, taken: Taken, on_progress: PhaseCallback) -> None:
        """Algorithm 2 step by step, where π learns while acting."""
        if self._updates is None or self._exploration is None:
            return
        self._updates.see(taken, self._exploration.contexts)
        self._learn_to_act(self._updates, self._updates.seen, self._round_steps, on_progress)
        on_progress("collect", self._updates.seen, self._round_steps)

    def learn(self, on_progress: PhaseCallback) -> dict[str, float]:
        """All that was not learned before and during the round; nothing while tasks lack data."""
        found = dict.fromkeys(self.metrics, NOTHING)
        if not self.config.learn_while_acting and self._complete:
            found |= self._learn_models(on_progress)
            if self._warm:
                self._updates = self._policy_updates()
                self._learn_to_act(self._updates, self.collected, self.collected, on_progress)
        if self._updates is not None:
            linear = float(self.credit.used == "ridge")
            found |= {f"losses/{name}": mean for name, mean in self._updates.means.items()}
            found |= dict(zip(CREDIT, (self.credit.unexplained, linear), strict=True))
            self._updates = None
        self.selection.forget(self.step)
        return found

    def _learn_models(self, on_progress: PhaseCallback) -> dict[str, float]:
        """C and F, then H; after random actions only the first, as H is not used yet."""
        transfers = self.config.transfer and len(self._tasks) > 1
        found = self._learn_dynamics(on_progress)
        return found | self._learn_to_translate(on_progress if self._warm and transfers else None)

    def _learn_dynamics(self, on_progress: PhaseCallback) -> dict[str, float]:
        held_out = [self._episodes(task, held_out=True) for task in self._tasks]
        progress = self.models.learn(
            [self._episodes(task, held_out=False) for task in self._tasks],
            [episodes for episodes in held_out if len(episodes)],
            lambda done, total: on_progress("dynamics", done, total),
        )
        found = progress.forward, progress.contrastive, progress.steps, progress.error
        return dict(zip(DYNAMICS, found, strict=True))

    def _learn_to_translate(self, on_progress: PhaseCallback | None) -> dict[str, float]:
        found = (NOTHING, NOTHING)
        if on_progress is not None:
            progress = self.translator.learn(
                [self.replay.task(task) for task in self._tasks],
                lambda done, total: on_progress("translator", done, total),
            )
            found = progress.untranslated, progress.translated
        return dict(zip(MISMATCHES, found, strict=True))

    def _policy_updates(self, room: int = 0) -> PolicyUpdates:
        return PolicyUpdates(
            self.learner,
            self.policy,
            self.replay,
            imitation=self.imitation if self.config.imitate else None,
            credit=self.credit,
            novelty=self.novelty,
            rng=self.rngs["sampling"],
            batch_size=self.config.batch_size,
            scale_rewards=self.config.scale_rewards,
            td_steps=self.config.td_steps,
            discount=self.config.discount,
            room=room,
        )

    def _learn_to_act(
        self, update: PolicyUpdates, steps: int, total: int, on_progress: PhaseCallback
    ) -> None:
        """Algorithm 2: one update per collected step, or as many as configured."""
        due, end = (max(1, round(n * self.config.updates_per_step)) for n in (steps, total))
        while update.done < due:
            on_progress("policy", update.done, end)
            update()
            require_finite(LOSSES, update.sums)

    @property
    def _tasks(self) -> range:
        return range(len(self.task_set.train))

    @property
    def _round_steps(self) -> int:
        return len(self._tasks) * self.task_set.horizon

    @property
    def _complete(self) -> bool:
        """Whether each task has an episode to learn from; one that diverged is none."""
        return all(len(self._episodes(task, held_out=False)) for task in self._tasks)

    @property
    def _warm(self) -> bool:
        return self.step >= self.config.start_steps and self._complete

    def _episodes(self, task: int, *, held_out: bool) -> Episodes:
        away = (self.rounds % HELD_OUT == 1) & self.config.context.hold_out
        wanted = away == held_out
        return self.replay.select(np.flatnonzero(wanted & (self.replay.tasks == task)))

    # --- what a checkpoint keeps ----------------------------------------------------------

    def tensors(self) -> dict[str, Tensor]:
        """All networks, optimisers and priorities."""
        parts = {
            "learner": self.learner.tensors(),
            "models": self.models.tensors(),
            "translator": self.translator.tensors(),
            "imitation": self.imitation.tensors(),
            "credit": self.credit.tensors(),
        }
        return {f"{part}/{k}": v for part, tensors in parts.items() for k, v in tensors.items()}

    def state(self) -> dict[str, Any]:
        """The returns remembered, and where the random streams are."""
        return {
            "selection": self.selection.state(),
            "rngs": {name: rng.bit_generator.state for name, rng in self.rngs.items()},
        }

    def load(self, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        """Go on as if nothing had happened; every round must have been remembered."""
        self.learner.load_tensors(part("learner/", tensors))
        self.models.load_tensors(part("models/", tensors))
        tasks = [self.replay.task(task) for task in self._tasks]
        self.translator.load_tensors(part("translator/", tensors), tasks)
        self.imitation.load_tensors(part("imitation/", tensors))
        self.credit.load_tensors(part("credit/", tensors))
        self.selection.load_state(state["selection"])
        for name, rng in self.rngs.items():
            rng.bit_generator.state = state["rngs"][name]

    def save_policy(self, path: StrPath, metadata: dict[str, Any]) -> None:
        """Write π(s, z_t)."""
        self.deployed.save(path, metadata, overwrite=True)


def _generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)
