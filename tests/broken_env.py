"""An environment with a fault that `mcat envs check` must find: it ignores its seed."""

from typing import Any

import gymnasium as gym
import numpy as np


class IgnoresSeed(gym.Env):
    observation_space = gym.spaces.Box(-10.0, 10.0, (2,))
    action_space = gym.spaces.Box(-1.0, 1.0, (1,))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        super().reset(seed=seed)
        return np.random.default_rng().uniform(-1, 1, 2).astype(np.float32), {}

    def step(self, action):
        return np.zeros(2, dtype=np.float32), 0.0, False, False, {}


def make() -> gym.Env:
    return IgnoresSeed()
