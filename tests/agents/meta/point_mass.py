"""Point masses in a plane that must keep a speed: a `TaskSet` whose best policies are known.

The actuators of each task turn and scale the push, so a policy must find out which machine it
moves, and an action can be translated. Pushing at random, a mass with strong actuators comes near
the wanted speed now and then, one with weak ones hardly ever does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.spaces import Box

from mcat.agents.configs import CreditConfig, ImitationConfig, SelectionConfig, TD3Config
from mcat.agents.meta.algorithm import RANDOM, Round, TaskSet
from mcat.agents.meta.config import MCATConfig, MetaTrainConfig
from mcat.agents.meta.loop import MetaTrainer
from mcat.agents.meta.mcat import MCAT
from mcat.config import overlay
from mcat.datasets.episodes import EpisodeStore
from mcat.datasets.rollout import roll_out
from mcat.translator.configs import ActionConfig, ContextConfig

HORIZON, DELAY = 30, 5
WANTED = np.array([0.6, 0.0])  # velocity
REACH = 0.4  # how far from it nothing is earned any more
RESPONSE = 0.2  # the part of the way to the velocity of a push that is made in a step
EFFORT = 0.1  # what an action costs, times its square: where nothing pays it is best to rest


@dataclass(frozen=True)
class Gain:
    """What actions are multiplied by and turned by."""

    size: float
    degrees: float = 0.0

    @property
    def matrix(self) -> np.ndarray:
        angle = np.deg2rad(self.degrees)
        turn = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
        return self.size * np.array(turn)


STRONG, WEAK = Gain(2.5), Gain(0.75, 180.0)


class PointMasses:
    """Several in lockstep, with what `roll_out` and `episode_outcomes` use of `TaskVectorEnv`.

    The state is the velocity. A step earns up to 1, the nearer to the wanted one the more, and
    costs its effort; it is paid every `DELAY` steps.
    """

    def __init__(self, gains: Sequence[Gain], reach: float) -> None:
        self.num_envs, self.reach = len(gains), reach
        self.horizon = HORIZON
        self.single_observation_space = Box(-np.inf, np.inf, (2,))
        self.single_action_space = Box(-1.0, 1.0, (2,), np.float32)
        self._matrices = np.stack([gain.matrix for gain in gains])
        self._velocities = np.zeros((len(gains), 2))
        self._owed, self._elapsed = np.zeros(len(gains)), np.zeros(len(gains), dtype=int)

    def reset(
        self, *, seed: int | Sequence[int], options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        everywhere = np.ones(self.num_envs, dtype=bool)
        mask = (options or {}).get("reset_mask", everywhere)
        seeds = range(seed, seed + self.num_envs) if isinstance(seed, int) else seed
        starts = [np.random.default_rng(number).uniform(-0.1, 0.1, 2) for number in seeds]
        self._velocities[mask] = np.stack(starts)[mask]
        self._owed[mask], self._elapsed[mask] = 0.0, 0
        return self._velocities.copy(), {}

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, ...]:
        live = self._elapsed < HORIZON
        pushes = np.einsum("nij,nj->ni", self._matrices, np.clip(actions, -1, 1))
        self._velocities[live] += RESPONSE * (pushes - self._velocities)[live]
        distances = np.linalg.norm(self._velocities - WANTED, axis=1)
        earned = np.clip(1 - distances / self.reach, 0, 1)
        self._owed += live * (earned - EFFORT * np.square(actions).sum(axis=1))
        self._elapsed += live
        over = self._elapsed >= HORIZON
        due = live & ((self._elapsed % DELAY == 0) | over)
        paid = np.where(due, self._owed, 0.0)
        self._owed[due] = 0.0
        return self._velocities.copy(), paid, np.zeros(self.num_envs, dtype=bool), over, {}


def point_mass_task_set(
    train: Sequence[Gain] = (STRONG, WEAK), test: Sequence[Gain] = (), reach: float = REACH
) -> TaskSet:
    """Masses with these actuators."""
    gains = [*train, *test]
    names = tuple(f"gain-{gain.size:g}-{gain.degrees:g}" for gain in gains)
    return TaskSet(
        train=names[: len(train)],
        test=names[len(train) :],
        observation_size=2,
        action_size=2,
        horizon=HORIZON,
        delay=DELAY,
        make=lambda numbers: PointMasses([gains[i] for i in numbers], reach),
    )


LEARNING = MCATConfig(
    start_steps=600,
    updates_per_step=1.5,
    batch_size=64,
    exploration=0.2,
    good_enough=0.1,
    td3=TD3Config(hidden=(64, 64), learning_rate=5e-4, discount=0.9, target_rate=0.05),
    context=ContextConfig(
        history=3,
        future=3,
        recent=0,
        context_size=3,
        encoder_hidden=(32,),
        forward_hidden=(32, 32),
        learning_rate=5e-3,
        decay=False,
        shared_only=False,
        batch_size=64,
        margin=4.0,
        max_steps=60,
        evaluate_every=20,
        feature_samples=128,
    ),
    action=ActionConfig(
        embedding=16, hidden=(32, 32), batch_size=64, steps=80, learning_rate=5e-3, proximity=0.02
    ),
    imitation=ImitationConfig(batch_size=64),
    credit=CreditConfig(kind="none", hidden=(32, 32)),
    selection=SelectionConfig(memory=180),
)


TINY = overlay(
    LEARNING,
    {
        "start_steps": 60,
        "updates_per_step": 1 / 6,  # ten a round
        "batch_size": 16,
        "replay_capacity": 240,  # four rounds
        "td3.hidden": (8, 8),
        "good_enough": 0.0,
        "context.max_steps": 8,
        "context.evaluate_every": 4,
        "context.batch_size": 16,
        "context.encoder_hidden": (8,),
        "context.forward_hidden": (8,),
        "action.steps": 4,
        "action.batch_size": 16,
        "action.hidden": (8,),
        "imitation.capacity": 100,
        "imitation.batch_size": 8,
        "credit.kind": "learned",
        "credit.hidden": (8,),
    },
)
"""Every part at work, none for long; memories overflow."""


def tiny_task_set() -> TaskSet:
    """Two tasks to learn and one to look at; every velocity pays."""
    return point_mass_task_set((STRONG, WEAK), (Gain(1.5, 90.0),), reach=4.0)


def tiny_config(steps: int = 360, seed: int = 0, mcat: MCATConfig = TINY) -> MetaTrainConfig:
    """Six rounds, of which every second is followed by an evaluation."""
    return MetaTrainConfig(
        steps=steps, seed=seed, evaluate_every=2, evaluation_episodes=2, mcat=mcat
    )


def trainer(out: Path, config: MetaTrainConfig, task_set: TaskSet) -> MetaTrainer:
    """As `metatrain` makes one."""
    out.mkdir(parents=True, exist_ok=True)
    seed = np.random.SeedSequence(config.seed, spawn_key=(0,))
    return MetaTrainer(config, task_set, MCAT(task_set, config.mcat, seed), out)


def random_round(task_set: TaskSet, number: int) -> Round:
    """Random actions in every training task."""
    rng = np.random.default_rng(number)
    shape = len(task_set.train), task_set.action_size
    episodes = EpisodeStore(task_set.observation_size, task_set.action_size)
    found = roll_out(
        task_set.make(range(len(task_set.train))),
        lambda states: rng.uniform(-1, 1, shape),
        seed=np.random.SeedSequence(number),
        noise=(0.0, 0.0),
        episodes=len(task_set.train),
    )
    for task, episode in enumerate(found):
        assert episode is not None
        episodes.append_episode(**episode, task=task)
    step = (number + 1) * len(task_set.train) * task_set.horizon
    return Round(step=step, episodes=episodes, drivers=(RANDOM,) * len(task_set.train))


def no_progress(phase: str, done: int, total: int) -> None:
    pass


def mcat(config: MCATConfig = TINY, rounds: int = 2, task_set: TaskSet | None = None) -> MCAT:
    """One that has seen some rounds and learned from the last."""
    task_set = task_set or tiny_task_set()
    agent = MCAT(task_set, config, np.random.SeedSequence(0))
    for number in range(rounds):
        agent.remember(random_round(task_set, number))
    if rounds:
        agent.learn(no_progress)
    return agent
