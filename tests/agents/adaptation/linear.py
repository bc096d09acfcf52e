"""A machine whose best policy is known: x' = 0.9 x + 0.5 u, and a step costs x² + 0.3 u².

It is seen as (x, x²), so that its rewards are linear in what is seen and in u².
"""

from __future__ import annotations

from pathlib import Path

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box

from mcat.datasets import EpisodeStore

A, B, EFFORT, DISCOUNT, LENGTH = 0.9, 0.5, 0.3, 0.9, 10


def best_gain() -> float:
    """K of the best policy u = -K x, by iterating the discounted Riccati equation."""
    p = 1.0
    for _ in range(1000):
        k = DISCOUNT * A * B * p / (EFFORT + DISCOUNT * B * B * p)
        p = 1 + EFFORT * k * k + DISCOUNT * (A - B * k) ** 2 * p
    return k


def seen(x):
    """`(n, 2)` observations of states `(n,)`."""
    return np.stack((x, np.square(x)), axis=-1)


def best(obs):
    """The best policy."""
    return -best_gain() * obs[:, :1]


def cost(x, u):
    return x**2 + EFFORT * u**2


def earned(policy) -> float:
    """The mean return of whole episodes from starts all over [-1, 1]."""
    x, total = np.linspace(-1, 1, 21), 0.0
    for _ in range(LENGTH):
        u = np.clip(policy(seen(x).astype(np.float32))[:, 0], -1, 1)
        total -= float(cost(x, u).mean())
        x = A * x + B * u
    return total


def gained(policy) -> float:
    """Its return: 1 for the best policy, 0 for doing nothing."""
    lazy = earned(np.zeros_like)
    return (earned(policy) - lazy) / (earned(best) - lazy)


def linear_logs(episodes: int = 100, seed: int = 0, delay: int = 1) -> EpisodeStore:
    """Random actions, from random starts; rewards paid every `delay` steps."""
    rng = np.random.default_rng(seed)
    x = [rng.uniform(-1, 1, episodes)]
    u = rng.uniform(-1, 1, (LENGTH, episodes))
    for t in range(LENGTH):
        x.append(A * x[-1] + B * u[t])
    states = np.array(x).T
    rewards = -cost(states[:, :-1], u.T)
    if delay > 1:
        paid = np.add.reduceat(rewards, np.arange(0, LENGTH, delay), axis=1)
        rewards = np.zeros_like(rewards)
        ends = [min(start + delay, LENGTH) - 1 for start in range(0, LENGTH, delay)]
        rewards[:, ends] = paid
    return EpisodeStore.from_arrays(
        observations=seen(states[:, :-1].ravel()),
        actions=u.T.reshape(-1, 1),
        next_observations=seen(states[:, 1:].ravel()),
        rewards=rewards.ravel(),
        episode_ends=np.arange(1, episodes + 1) * LENGTH,
    )


class LinearEnv(gym.Env):
    """That machine. Its actions are in [-2, 2]: twice those of the logs.

    Args:
        count: A file that grows by a byte with every step, whatever becomes of the process.
        fails_at: The step, counted by that file, at which it raises.
        nan_at: The steps at which its sensor fails.
        delay: Steps between two payments.
    """

    observation_space = Box(-100.0, 100.0, (2,), np.float64)
    action_space = Box(-2.0, 2.0, (1,), np.float32)

    def __init__(self, count="", fails_at=-1, nan_at=(), delay=1):
        self.count, self.fails_at, self.nan_at, self.delay = count, fails_at, nan_at, delay
        self.steps, self.owed = 0, 0.0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x, self.t = float(self.np_random.uniform(-1, 1)), 0
        return seen(self.x), {}

    def step(self, action):
        self.steps += 1
        if self.count:
            with open(self.count, "ab") as file:
                file.write(b".")
            self.steps = Path(self.count).stat().st_size
        if self.steps == self.fails_at:
            raise ConnectionError("the cable\nis loose")
        u = float(action[0]) / 2
        self.owed -= cost(self.x, u)
        self.x, self.t = A * self.x + B * u, self.t + 1
        over = self.t == LENGTH
        paid = self.owed if self.t % self.delay == 0 or over else 0.0
        self.owed -= paid
        shown = np.full(2, np.nan) if self.steps in self.nan_at else seen(self.x)
        return shown, paid, False, over, {}


gym.register("McatTest/Linear-v0", lambda **kwargs: LinearEnv(**kwargs))
