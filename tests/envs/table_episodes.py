"""Episodes of one Meta-World simulation, ours or the stock one."""

from __future__ import annotations

import numpy as np
from metaworld.env_dict import ALL_V3_ENVIRONMENTS

from mcat.envs.manipulation import Manipulation
from mcat.envs.scripted import SCRIPTED

STOCK = tuple(name for name in SCRIPTED if name != "reach-hand")  # tasks that Meta-World has


def stock_env(name: str, start: np.ndarray):
    """Meta-World's own environment, goal visible, with the given start frozen."""
    env = ALL_V3_ENVIRONMENTS[f"{name}-v3"]()
    env._partially_observable = False
    del env.sawyer_observation_space  # cached with the goal bounds at zero
    env.observation_space = env.sawyer_observation_space
    env._set_task_called = env._freeze_rand_vec = True
    env._last_rand_vec = start.copy()
    env.max_path_length = 10**9
    return env


def start_of(sim: Manipulation) -> np.ndarray:
    return sim._env._last_rand_vec


def rollout(sim: Manipulation, act, rng: np.random.Generator, steps: int):
    """Observations (first one included) and rewards of one episode."""
    sim.reset(rng)
    observations, rewards = np.zeros((steps + 1, 14)), np.zeros(steps)
    sim.observe(observations[0])
    for t in range(steps):
        rewards[t] = sim.step(act(observations[t]), observations[t + 1])
    assert sim.fault is None
    return observations, rewards


def returns(sim: Manipulation, policy, episodes: int, rng: np.random.Generator) -> np.ndarray:
    """The returns of 500-step episodes."""

    def act(observation: np.ndarray) -> np.ndarray:
        return policy(observation[None])[0].astype(np.float64)

    return np.array([rollout(sim, act, rng, 500)[1].sum() for _ in range(episodes)])
