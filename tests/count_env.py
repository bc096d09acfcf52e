"""A machine whose every number is known: it counts its steps, and ends when it is told to.

An observation is (steps so far, the last action as it arrived, a number drawn at the start). Each
step earns 1. Importing this module registers `Count-v0`, which has a time limit of 20 steps.
"""

from typing import Any

import gymnasium as gym
import numpy as np


class Count(gym.Env):
    """Ends after `ends_at` steps, or never; `fault` breaks one promise."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (3,), np.float64)
    action_space = gym.spaces.Box(0.0, 10.0, (1,), np.float32)

    def __init__(self, ends_at: int | None = None, gain: float = 1.0, fault: str = "") -> None:
        self.ends_at, self.gain, self.fault = ends_at, gain, fault
        self.steps = self.episodes = 0
        self.push = self.drawn = 0.0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        super().reset(seed=seed)
        self.steps, self.push = 0, 0.0
        self.episodes += 1
        self.drawn = self.np_random.uniform()
        if self.fault == "memory":
            self.drawn = float(self.episodes)
        if self.fault == "seedless":
            self.drawn = np.random.default_rng().uniform()
        return self._observation(), {}

    def step(self, action):
        self.steps += 1
        self.push = 0.0 if self.fault == "deaf" else self.gain * float(action[0])
        ended = self.steps == self.ends_at
        cut = self.fault == "hasty" and self.steps == 5
        reward = np.nan if self.fault == "nan" and self.steps == 3 else 1.0
        return self._observation(), reward, ended, cut, {}

    def _observation(self):
        return np.array([self.steps, self.push, self.drawn])


gym.register("Count-v0", entry_point=Count, max_episode_steps=20)
gym.register("Endless-v0", entry_point=Count)
