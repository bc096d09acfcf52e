"""`mcat envs check`: does an environment keep gymnasium's promises and ours?"""

from __future__ import annotations

import warnings

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.env_checker import check_env

from mcat.envs.gym_robots import allow_module
from mcat.envs.promises import STEPS, Findings, Walk, check_task, walk
from mcat.envs.robots import ROBOTS
from mcat.envs.tasks import Task
from mcat.envs.vector import TaskVectorEnv
from mcat.errors import McatError, unknown


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
        first = _fresh(env_id, seed)
        if not first.same(_fresh(env_id, seed)):
            problems.append(
                f"two environments reset with seed {seed} and given equal actions differ"
            )
        if first.same(_fresh(env_id, seed + 1)):
            problems.append("another seed gives the same episode")
        space = gym.make(env_id).observation_space
        if not all(space.contains(observation) for observation in first.observations):
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


def _fresh(env_id: str | EnvSpec, seed: int) -> Walk:
    """The beginning of an episode of a new environment."""
    env = gym.make(env_id)
    path = walk(env, seed, STEPS)
    env.close()
    return path


def _spec_problems(env_id: str, expected: Walk, seed: int) -> list[str]:
    env = gym.make(env_id)
    assert env.spec is not None
    try:
        same = expected.same(_fresh(EnvSpec.from_json(env.spec.to_json()), seed))
    except (TypeError, ValueError, gym.error.Error) as error:
        return [f"its spec does not survive JSON: {error}"]
    return [] if same else ["rebuilt from its own spec it behaves differently"]


def _vector_problems(env_id: str, expected: Walk, seed: int) -> list[str]:
    """Our own ids must step together exactly as they step alone."""
    owner = [robot for robot in ROBOTS.values() if robot.env_id == env_id]
    if not owner:
        return []
    task = Task(owner[0].name)
    vector = TaskVectorEnv([task, task])
    observations, _ = vector.reset(seed=[seed, seed + 1])
    found = Walk([observations[0]], [])
    space = vector.single_action_space
    space.seed(0)  # the actions of `walk`
    for _ in range(STEPS):
        action = space.sample()
        observations, rewards, *_ = vector.step(np.stack([action, -action]))
        found.observations.append(observations[0])
        found.rewards.append(float(rewards[0]))
    return [] if expected.same(found) else ["TaskVectorEnv and gymnasium.make differ"]
