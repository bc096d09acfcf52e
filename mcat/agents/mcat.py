"""MCAT: context-based TD3 with self-imitation and policy transfer (the paper's Algorithm 1).

One shared policy π(s, z) learns all training tasks. Where it earns more on one task than on
another, the better one's actions, translated by H, collect the next episode of the worse one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mcat.agents.algorithm import RANDOM, SHARED, Arena, Pulse, Round
from mcat.agents.context_policy import ContextPolicy, Deployment
from mcat.agents.context_td3 import LOSSES, PolicyUpdates
from mcat.agents.credit import Credit
from mcat.agents.exploration import Exploration
from mcat.agents.learners import make_learner
from mcat.agents.mcat_config import MCATConfig
from mcat.agents.selection import Selection
from mcat.agents.sil import SelfImitation
from mcat.datasets.episodes import EpisodeStore
from mcat.datasets.views import Episodes
from mcat.errors import DivergedError, UsageError
from mcat.safe_io import StrPath
from mcat.translator.online import ContextLearner, TranslatorLearner
from mcat.translator.online_cycle import CycleLearner

HELD_OUT = 10  # one round of so many is kept from C and F, to judge them by; the second is first
NOTHING = float("nan")  # logged where a phase did not take place
DYNAMICS = ("losses/forward", "losses/contrastive", "model/forward_steps", "model/forward_error")
CREDIT = ("credit/unexplained", "credit/linear")
MISMATCHES = ("model/mismatch_untranslated", "model/mismatch_translated")


class MCAT:
    """The state of Algorithm 1 between two of its lines, and the lines.

    Args:
        arena: The tasks.
        config: The numbers.
        seed: Every random draw follows from it.
    """

    metrics = (*DYNAMICS, *MISMATCHES, *(f"losses/{name}" for name in LOSSES), *CREDIT)

    def __init__(self, arena: Arena, config: MCATConfig, seed: np.random.SeedSequence) -> None:
        self.arena, self.config = arena, config
        tasks, sizes = len(arena.train), (arena.observation_size, arena.action_size)
        if config.replay_capacity < 2 * tasks * arena.horizon:  # one may be held out
            raise UsageError(
                f"replay_capacity must be at least two rounds, {2 * tasks * arena.horizon} steps"
            )
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
        inputs = arena.observation_size + config.context.context_size
        self.learner = make_learner(config, inputs, arena.action_size, _generator(agent))  # π, Q
        self.policy = ContextPolicy.of(self.learner.actor, self.models.model)
        self.credit = Credit(
            *sizes,
            config.credit,
            delay=arena.delay,
            horizon=arena.horizon,
            generator=_generator(credit),
        )
        self.replay = EpisodeStore(*sizes, capacity=config.replay_capacity)  # B
        self.rounds = np.zeros(0, np.int64)  # of each episode in it
        self.imitation = SelfImitation(*sizes, config.imitation, config.discount)  # D
        self.selection = Selection(tasks, config.selection)  # R
        self.step = self.collected = 0

    # --- who acts --------------------------------------------------------------------------

    def plan(self) -> tuple[str, ...]:
        """Random actions at first (A16), then the rule of A17."""
        names = self.arena.train
        if not self._warm:
            return (RANDOM,) * len(names)
        if not self.config.transfer:
            return (SHARED,) * len(names)
        sources = [self.selection.choose(task) for task in range(len(names))]
        return tuple(SHARED if source is None else names[source] for source in sources)

    def explorer(self, drivers: Sequence[str]) -> Callable[[NDArray[Any]], NDArray[np.float32]]:
        """One episode per training task, with noise (A29)."""
        if drivers[0] == RANDOM:
            shape = len(drivers), self.arena.action_size
            return lambda states: self.rngs["acting"].uniform(-1, 1, shape).astype(np.float32)
        return Exploration(
            self.policy,
            self.translator.translate,
            self.models.model.features,
            [None if d == SHARED else self.arena.train.index(d) for d in drivers],
            rng=self.rngs["acting"],
            noise=self.config.exploration,
            online=self.config.target_context == "online",
        )

    def deployed(self) -> Deployment:
        """π(s, z_t) without noise (A30)."""
        return self.policy.begin()

    def remember(self, new: Round) -> None:
        """Keep a round's episodes, and its returns but for random ones (A16)."""
        self.replay.extend(new.episodes)
        number = int(self.rounds[-1]) + 1 if len(self.rounds) else 0
        rounds = np.append(self.rounds, np.full(new.episodes.num_episodes, number))
        self.rounds = rounds[len(rounds) - self.replay.num_episodes :]  # the store drops the oldest
        self.imitation.add(new.episodes)
        self.credit.add(new.episodes)
        paces = new.paces(self.arena.horizon)
        for task, driver, value in zip(new.episodes.tasks, new.drivers, paces, strict=True):
            if driver != RANDOM:
                source = None if driver == SHARED else self.arena.train.index(driver)
                self.selection.add(new.step, int(task), source, float(value))
        self.step, self.collected = new.step, len(new.episodes)

    # --- what is learned --------------------------------------------------------------------

    def learn(self, pulse: Pulse) -> dict[str, float]:
        """C and F, then H, then π and Q; after random actions only the first (A16)."""
        if not self._complete:
            return dict.fromkeys(self.metrics, NOTHING)
        found = self._learn_dynamics(pulse)
        transfers = self.config.transfer and len(self._tasks) > 1
        found |= self._learn_to_translate(pulse if self._warm and transfers else None)
        found |= self._learn_to_act(pulse if self._warm else None)
        self.selection.forget(self.step)
        return found

    def _learn_dynamics(self, pulse: Pulse) -> dict[str, float]:
        held_out = [self._episodes(task, held_out=True) for task in self._tasks]
        progress = self.models.learn(
            [self._episodes(task, held_out=False) for task in self._tasks],
            [episodes for episodes in held_out if len(episodes)],
            lambda done, total: pulse("dynamics", done, total),
        )
        found = progress.forward, progress.contrastive, progress.steps, progress.error
        return dict(zip(DYNAMICS, found, strict=True))

    def _learn_to_translate(self, pulse: Pulse | None) -> dict[str, float]:
        found = (NOTHING, NOTHING)
        if pulse is not None:
            progress = self.translator.learn(
                [self.replay.task(task) for task in self._tasks],
                lambda done, total: pulse("translator", done, total),
            )
            found = progress.untranslated, progress.translated
        return dict(zip(MISMATCHES, found, strict=True))

    def _learn_to_act(self, pulse: Pulse | None) -> dict[str, float]:
        """Algorithm 2: one update per collected step, or as many as configured."""
        if pulse is None:
            return dict.fromkeys((*(f"losses/{name}" for name in LOSSES), *CREDIT), NOTHING)
        update = PolicyUpdates(
            self.learner,
            self.policy,
            self.replay,
            imitation=self.imitation if self.config.imitate else None,
            credit=self.credit,
            rng=self.rngs["sampling"],
            batch_size=self.config.batch_size,
            scale_rewards=self.config.scale_rewards,
        )
        updates = max(1, round(self.collected * self.config.updates_per_step))
        sums = torch.zeros(len(LOSSES))
        for number in range(updates):
            pulse("policy", number, updates)
            sums += update()
            _require_finite(sums)  # at once: the first loss to go takes the others with it
        means = (sums / updates).tolist()
        found = {f"losses/{name}": mean for name, mean in zip(LOSSES, means, strict=True)}
        linear = float(self.credit.used == "ridge")
        return found | dict(zip(CREDIT, (self.credit.unexplained, linear), strict=True))

    @property
    def _tasks(self) -> range:
        return range(len(self.arena.train))

    @property
    def _complete(self) -> bool:
        """Whether each task has an episode to learn from; one that diverged is none."""
        return all(len(self._episodes(task, held_out=False)) for task in self._tasks)

    @property
    def _warm(self) -> bool:
        return self.step >= self.config.start_steps and self._complete

    def _episodes(self, task: int, *, held_out: bool) -> Episodes:
        wanted = (self.rounds % HELD_OUT == 1) == held_out
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

        def part(name: str) -> dict[str, Tensor]:
            return {
                key.removeprefix(f"{name}/"): tensor
                for key, tensor in tensors.items()
                if key.startswith(f"{name}/")
            }

        self.learner.load_tensors(part("learner"))
        self.models.load_tensors(part("models"))
        tasks = [self.replay.task(task) for task in self._tasks]
        self.translator.load_tensors(part("translator"), tasks)
        self.imitation.load_tensors(part("imitation"))
        self.credit.load_tensors(part("credit"))
        self.selection.load_state(state["selection"])
        for name, rng in self.rngs.items():
            rng.bit_generator.state = state["rngs"][name]

    def save_policy(self, path: StrPath, metadata: dict[str, Any]) -> None:
        """Write π(s, z_t)."""
        self.policy.save(path, metadata, overwrite=True)


def _require_finite(sums: Tensor) -> None:
    values = dict(zip(LOSSES, sums.tolist(), strict=True))
    for name in ("credit", *LOSSES):  # its rewards are in the others
        if not math.isfinite(values[name]):
            raise DivergedError(f"the {name} loss became {values[name]}: try a lower learning rate")


def _generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)
