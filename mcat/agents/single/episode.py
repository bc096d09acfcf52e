"""Acting in a task: one episode after another to learn from, many at once to be judged by."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mcat.envs.tasks import Task

if TYPE_CHECKING:
    from mcat.envs.lockstep import Lockstep


class Step(NamedTuple):
    """What one action led to; with a `fault` the physics diverged and it led nowhere."""

    obs: NDArray[np.float64]
    action: NDArray[np.float32]
    reward: float
    next_obs: NDArray[np.float64]
    terminal: bool  # the task ended here, as opposed to the time
    over: bool  # the episode ended here, for whatever reason
    fault: str | None
    cut: bool = False  # over because somebody broke it off, so that its return is not known


class Episode:
    """The episode that runs in one environment.

    It can be brought back from its seed and its actions: simulations are deterministic, so taking
    the same actions again restores whatever hidden state there is (the solver's warm start,
    rewards still owed), to the bit.

    Args:
        task: What it is an episode of.
        env: Where to act, one row; None makes the task's own.
    """

    def __init__(self, task: Task, env: Lockstep | None = None) -> None:
        from mcat.envs.lockstep import lockstep, require_rows  # needs a simulator: not at import

        if env is not None:
            sizes = task.spec.observation_size, task.spec.action_size
            require_rows(env, 1, task.horizon, sizes)
        self._env = env or lockstep([task])

    def start(self, seed: int) -> None:
        """Start a new episode."""
        self.seed = seed
        self.length, self.earned = 0, 0.0
        observations, _ = self._env.reset(seed=seed)
        self.obs: NDArray[np.float64] = observations[0]

    def step(self, action: NDArray[np.float32]) -> Step:
        """Take one action."""
        observations, rewards, terminated, truncated, info = self._env.step(action[np.newaxis])
        before, self.obs = self.obs, observations[0]
        fault = str(info["fault"][0]) if "fault" in info else None
        self.length += 1
        self.earned += float(rewards[0])
        over = bool(terminated[0] or truncated[0])
        return Step(before, action, float(rewards[0]), self.obs, bool(terminated[0]), over, fault)

    def replay_to(self, seed: int, actions: Iterable[NDArray[np.float32]]) -> None:
        """Return to where `actions` had led in the episode of `seed`."""
        self.start(seed)
        for action in actions:
            self.step(action)
