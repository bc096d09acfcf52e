"""Whether a task, or a family of them, keeps the promises that training needs.

What is broken makes results wrong: episodes that do not repeat cannot be resumed, tasks that move
alike are one. What is only worth knowing is a note: episodes that end by themselves, say.
"""

from __future__ import annotations

import warnings
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from mcat.envs.tasks import Family, Task
from mcat.errors import McatError, counted
from mcat.own_code import reason

STEPS = 50  # of the episodes that are compared
RANDOM_EPISODES, RANDOM_STEPS = 10, 2_000  # whichever comes first
LONGEST = 5_000  # steps of one of them at most

Env = gym.Env[Any, Any]


@dataclass
class Findings:
    """What was found out about a task or a family."""

    problems: list[str] = field(default_factory=list)  # what must be mended, a line each
    notes: list[str] = field(default_factory=list)  # what is good to know


@dataclass
class Walk:
    """The beginning of an episode under random actions."""

    observations: list[NDArray[Any]]
    rewards: list[float]
    ended: bool = False  # whether it ended by itself
    cut: bool = False  # whether a time limit cut it

    def __len__(self) -> int:
        return len(self.rewards)

    def same(self, other: Walk) -> bool:
        """Whether exactly the same happened in both."""
        return self.rewards == other.rewards and all(
            map(np.array_equal, self.observations, other.observations)
        )


def check_task(task: Task, *, seed: int = 0) -> Findings:
    """Everything that is wrong with a task, and what is good to know."""
    found = Findings()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # infinite bounds are normal for MuJoCo
        try:
            env = task.replace(delay=1).make()
            _look_at(env, task, seed, found)
            env.close()
        except McatError as error:
            found.problems.append(str(error))
        except Exception as error:  # whatever a user's code may raise
            found.problems.append(f"it does not run: {reason(error)}")
    return found


def check_family(family: Family, *, seed: int = 0) -> dict[str, Findings]:
    """The same for every task of a family, by name; what is wrong with all of them under its own.

    Raises:
        UsageError: if its tasks cannot be made.
    """
    names = [task.label(*family.varies) for task in family.tasks]
    found = {
        name: check_task(task, seed=seed) for name, task in zip(names, family.tasks, strict=True)
    }
    whole = found[family.name] = Findings()
    for what in ("horizon", "delay"):
        values = sorted({getattr(task, what) for task in family.tasks})
        if len(values) > 1:
            whole.problems.append(f"its tasks must share one {what}, not {values}")
    if any(found[name].problems for name in names):
        return found
    specs = [task.spec for task in family.tasks]
    sizes = sorted({(spec.observation_size, spec.action_size) for spec in specs})
    if len(sizes) > 1:
        whole.problems.append(f"its tasks have other spaces (observations, actions): {sizes}")
    else:
        whole.problems += _alike(family, names, seed)
    if not family.test:
        whole.notes.append("it has no test tasks: nothing will be said of machines it never saw")
    return found


def _look_at(env: Env, task: Task, seed: int, found: Findings) -> None:
    first = walk(env, seed, STEPS)
    fresh = task.replace(delay=1).make()
    if not first.same(walk(fresh, seed, STEPS)):
        found.problems.append(f"two of them with seed {seed} and equal actions differ")
    elif not first.same(walk(env, seed, STEPS)):
        found.problems.append(
            "an episode depends on the one before, not on its seed alone: it cannot be resumed"
        )
    if first.same(walk(env, seed + 1, STEPS)):
        found.notes.append("every episode starts alike, whatever the seed")
    others = walk(env, seed, STEPS, actions=1).observations
    if all(map(np.array_equal, first.observations, others)):
        found.problems.append("actions change nothing that is observed")
    fresh.close()
    walks = [walk(env, seed, min(task.horizon, LONGEST))]
    while len(walks) < RANDOM_EPISODES and sum(map(len, walks)) < RANDOM_STEPS:
        walks.append(walk(env, seed + len(walks), min(task.horizon, LONGEST), len(walks)))
    _judge(walks, env, task, found)


def _judge(walks: list[Walk], env: Env, task: Task, found: Findings) -> None:
    """What random episodes show."""
    observations = [row for path in walks for row in path.observations]
    rewards = np.array([reward for path in walks for reward in path.rewards])
    if not all(np.isfinite(row).all() for row in observations) or not np.isfinite(rewards).all():
        found.problems.append("an observation or a reward is NaN or infinite")
    elif not all(env.observation_space.contains(row) for row in observations):
        found.problems.append("an observation is outside of observation_space")
    early = [path for path in walks if path.cut and not path.ended and len(path) < task.horizon]
    if early:
        found.problems.append(
            f"a time limit of its own cuts episodes after {len(early[0])} of {task.horizon} steps:"
            f" set horizon to {len(early[0])}"
        )
    if len(rewards) and np.ptp(rewards) == 0:
        found.notes.append(f"random actions are always paid {rewards[0]:g}")
    ended = [len(path) for path in walks if path.ended]
    if ended:
        found.notes.append(
            f"{len(ended)} of {counted(len(walks), 'random episode')} end by themselves, after"
            f" {min(ended)} to {max(ended)} of {task.horizon} steps: nothing is earned after that"
        )
        if task.delay > max(ended):
            found.notes.append(
                f"no payment falls due before that (delay {task.delay}): each is paid at its end"
            )


def _alike(family: Family, names: list[str], seed: int) -> list[str]:
    """Pairs of tasks that cannot be told apart by what happens."""
    walks = []
    for task in family.tasks:
        env = task.replace(delay=1).make()
        walks.append(walk(env, seed, STEPS))
        env.close()
    return [
        f"{names[j]} and {names[i]} move and pay alike: {', '.join(family.varies)} changes nothing"
        for i in range(len(walks))
        for j in range(i)
        if walks[i].same(walks[j])
    ]


def walk(env: Env, seed: int, steps: int, actions: int = 0) -> Walk:
    """Random actions, which depend on the number `actions` alone."""
    env.action_space.seed(actions)
    observation, _ = env.reset(seed=seed)
    path = Walk([deepcopy(observation)], [])
    while len(path) < steps and not (path.ended or path.cut):
        observation, reward, path.ended, path.cut, _ = env.step(env.action_space.sample())
        path.observations.append(deepcopy(observation))
        path.rewards.append(float(reward))
    return path
