"""`mcat envs check`: does an environment keep gymnasium's promises and ours?"""

from __future__ import annotations

import warnings
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.env_checker import check_env

from mcat.envs.gym_robots import allow_module
from mcat.envs.promises import STEPS, Findings, check_task
from mcat.envs.robots import ROBOTS
from mcat.envs.tasks import Task
from mcat.envs.vector import TaskVectorEnv
from mcat.errors import McatError, unknown

Env = gym.Env[Any, Any]


def check_env_id(env_id: str, *, seed: int = 0) -> Findings:
    """Everything that is wrong with an environment, and what is good to know of its episodes."""
    allow_module(env_id)
    name = env_id.rpartition(":")[2]
    if name not in gym.registry:
        raise unknown("environment", env_id, gym.registry)
    problems = _problems(name, seed)
    try:
        found = check_task(Task(env_id), seed=seed)
    except McatError as error:
        found = Findings([str(error)])
    return Findings([*problems, *(line for line in found.problems if not problems)], found.notes)


def _problems(env_id: str, seed: int) -> list[str]:
    """What gymnasium and its users would stumble over."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # infinite Box bounds are normal for MuJoCo
        problems = _gymnasium_problems(env_id)
        if problems:
            return problems
        first, again = _rollout(gym.make(env_id), seed), _rollout(gym.make(env_id), seed)
        if not _equal(first, again):
            problems.append(
                f"two environments reset with seed {seed} and given equal actions differ"
            )
        if _equal(first, _rollout(gym.make(env_id), seed + 1)):
            problems.append("another seed gives the same episode")
        space = gym.make(env_id).observation_space
        if not all(space.contains(observation) for observation in first[0]):
            problems.append("an observation is outside of observation_space")
        problems += _spec_problems(env_id, first, seed)
        problems += _vector_problems(env_id, first, seed)
    return problems


def _gymnasium_problems(env_id: str) -> list[str]:
    env = gym.make(env_id)
    try:
        check_env(env.unwrapped, skip_render_check=True)
    except (AssertionError, TypeError, ValueError, gym.error.Error) as error:
        return [f"gymnasium's checker: {' '.join(str(error).split())}"]
    finally:
        env.close()
    return []


def _actions(env: Env, seed: int) -> list[Any]:
    env.action_space.seed(seed)
    return [env.action_space.sample() for _ in range(STEPS)]


def _rollout(env: Env, seed: int) -> tuple[list[Any], list[float]]:
    """Observations and rewards of one seeded episode's beginning."""
    observation, _ = env.reset(seed=seed)
    observations, rewards = [observation], []
    for action in _actions(env, 0):
        observation, reward, terminated, truncated, _ = env.step(action)
        observations.append(observation)
        rewards.append(float(reward))
        if terminated or truncated:
            break
    env.close()
    return observations, rewards


def _equal(one: tuple[list[Any], list[float]], two: tuple[list[Any], list[float]]) -> bool:
    same_length = len(one[1]) == len(two[1])
    return same_length and one[1] == two[1] and all(map(np.array_equal, one[0], two[0]))


def _spec_problems(env_id: str, expected: tuple[list[Any], list[float]], seed: int) -> list[str]:
    env = gym.make(env_id)
    assert env.spec is not None
    try:
        rebuilt = gym.make(EnvSpec.from_json(env.spec.to_json()))
    except (TypeError, ValueError, gym.error.Error) as error:
        return [f"its spec does not survive JSON: {error}"]
    same = _equal(expected, _rollout(rebuilt, seed))
    return [] if same else ["rebuilt from its own spec it behaves differently"]


def _vector_problems(env_id: str, expected: tuple[list[Any], list[float]], seed: int) -> list[str]:
    """Our own ids must step together exactly as they step alone."""
    owner = [robot for robot in ROBOTS.values() if robot.env_id == env_id]
    if not owner:
        return []
    task = Task(owner[0].name)
    vector = TaskVectorEnv([task, task])
    observations, _ = vector.reset(seed=[seed, seed + 1])
    seen, paid = [observations[0]], []
    for action in _actions(task.make(), 0):
        observations, rewards, *_ = vector.step(np.stack([action, -action]))
        seen.append(observations[0])
        paid.append(float(rewards[0]))
    return [] if _equal(expected, (seen, paid)) else ["TaskVectorEnv and gymnasium.make differ"]
