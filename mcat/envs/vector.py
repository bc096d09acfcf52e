"""`TaskVectorEnv`: many tasks, each with its own physics, stepped in lockstep."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from mcat.envs.env import simulate, spaces
from mcat.envs.robots import robot as find_robot
from mcat.envs.simulation import Array, checked_actions
from mcat.envs.tasks import Task
from mcat.errors import UsageError


class TaskVectorEnv(VectorEnv[Any, Any, Any]):
    """Steps several tasks together: batched arrays, no wrapper stack, no autoreset.

    Every sub-environment's trajectory is bitwise equal to that of `task.make()` with the same seed
    and actions. A sub-environment whose episode has ended is parked: it keeps its last observation
    and flags and is paid 0 until it is reset, so episodes of different lengths can be rolled out
    in lockstep.

    Args:
        tasks: One task per sub-environment; robots may differ if their spaces have equal shapes.
        threads: Threads that share the physics, the calling one included. The result does not
            depend on it; it pays when that many cores are idle.
    """

    metadata = {"autoreset_mode": AutoresetMode.DISABLED}  # noqa: RUF012

    def __init__(self, tasks: Sequence[Task], threads: int = 1) -> None:
        self.tasks = tuple(tasks)
        if not self.tasks:
            raise UsageError("TaskVectorEnv needs at least one task")
        shapes = {(t.spec.observation_size, t.spec.action_size): t.label() for t in self.tasks}
        if len(shapes) > 1:
            listed = ", ".join(f"{name} {shape}" for shape, name in shapes.items())
            raise UsageError(f"tasks stepped together need equal spaces, got {listed}")
        if threads < 1:
            raise UsageError(f"threads must be 1 or more, got {threads}")
        n = self.num_envs = len(self.tasks)
        self.simulations = [simulate(task) for task in self.tasks]
        self.single_observation_space, self.single_action_space = spaces(self.simulations[0])
        self.observation_space = batch_space(self.single_observation_space, n)
        self.action_space = batch_space(self.single_action_space, n)
        self._generators = [np.random.default_rng() for _ in self.tasks]
        self._observations = np.zeros((n, self.tasks[0].spec.observation_size))
        self._rows = list(self._observations)
        self._rewards = np.zeros(n)
        self._unstable = [False] * n
        self._owed = np.zeros(n)
        self._elapsed = np.zeros(n, dtype=np.int64)
        self._horizons = np.array([task.horizon for task in self.tasks])
        self._delays = np.array([task.delay for task in self.tasks])
        self._any_delay = bool((self._delays > 1).any())
        self._parked = np.ones(n, dtype=bool)
        self._never = np.zeros(n, dtype=bool)  # no task terminates (A13)
        self._action_shape = (n, self.tasks[0].spec.action_size)
        self._info: dict[str, Any] = {"context": _stack([task.context for task in self.tasks])}
        self._threads = min(threads, n)
        self._pool = ThreadPoolExecutor(self._threads)  # starts no thread before it has work

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Array, dict[str, Any]]:
        """Start episodes everywhere, or where `options["reset_mask"]` is true.

        Args:
            seed: Sub-environment i gets seed + i, or its entry of a sequence. None goes on with
                the generators as they are.
            options: `{"reset_mask": bool array}` resets some and leaves the others untouched.
        """
        mask = np.asarray((options or {}).get("reset_mask", np.ones(self.num_envs, dtype=bool)))
        if mask.shape != (self.num_envs,) or mask.dtype != bool:
            raise UsageError(f"reset_mask must be {self.num_envs} booleans")
        seeds = self._spread(seed)
        for i in np.flatnonzero(mask):
            if seeds[i] is not None:
                self._generators[i] = gym.utils.seeding.np_random(seeds[i])[0]
            self.simulations[i].reset(self._generators[i])
            self.simulations[i].observe(self._rows[i])
            self._unstable[i] = False
        self._owed[mask] = 0.0
        self._elapsed[mask] = 0
        self._parked[mask] = False
        return self._observations.copy(), dict(self._info)

    def step(
        self, actions: Any
    ) -> tuple[Array, Array, NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]:
        """Advance every sub-environment that is not parked by one action."""
        actions = checked_actions(actions, self._action_shape)
        live = ~self._parked
        self._rewards.fill(0.0)
        mine, *others = self._shares(live)  # the calling thread takes a share itself
        helpers = [self._pool.submit(self._advance, share, actions) for share in others]
        self._advance(mine, actions)
        for helper in helpers:
            helper.result()
        info = dict(self._info)
        if True in self._unstable:
            faults = np.array([simulation.fault for simulation in self.simulations], dtype=object)
            info |= {"unstable": np.array(self._unstable), "fault": faults}
            self._parked |= self._unstable
        self._elapsed += live
        self._parked |= self._elapsed >= self._horizons
        rewards = self._delayed(live) if self._any_delay else self._rewards.copy()
        return self._observations.copy(), rewards, self._never.copy(), self._parked.copy(), info

    def _advance(self, indices: list[int], actions: Array) -> None:
        for i in indices:
            simulation = self.simulations[i]
            self._rewards[i] = simulation.step(actions[i], self._rows[i])
            if simulation.fault is not None:
                self._unstable[i] = True

    def _shares(self, live: NDArray[np.bool_]) -> list[list[int]]:
        """Who is still moving, dealt out to the threads."""
        moving = np.flatnonzero(live).tolist()
        return [moving[k :: self._threads] for k in range(self._threads)]

    def _delayed(self, live: NDArray[np.bool_]) -> Array:
        """Pay every `delay` steps, and what is owed at the end, as `wrappers.DelayedReward`."""
        self._owed += self._rewards
        due = live & ((self._elapsed % self._delays == 0) | self._parked)
        paid = np.where(due, self._owed, 0.0)
        self._owed[due] = 0.0
        return paid

    def _spread(self, seed: int | Sequence[int | None] | None) -> list[int | None]:
        if seed is None:
            return [None] * self.num_envs
        if isinstance(seed, int | np.integer):
            return [int(seed) + i for i in range(self.num_envs)]
        if len(seed) != self.num_envs:
            raise UsageError(f"{self.num_envs} seeds are needed, got {len(seed)}")
        return list(seed)

    def close_extras(self, **kwargs: Any) -> None:
        """Stop the threads."""
        self._pool.shutdown()


def make_vector(robot: str, num_envs: int, **kwargs: Any) -> TaskVectorEnv:
    """What `gymnasium.make_vec("mcat/HalfCheetah-v0", num_envs=3, armature=[.1, .2, .3])` calls.

    A list gives each sub-environment its own value; anything else is shared by all. For vectors
    such as `goal` the list holds one vector per sub-environment.
    """
    threads = kwargs.pop("threads", 1)
    kwargs = {key: value for key, value in kwargs.items() if value is not None}
    vectors = {p.name for p in find_robot(robot).parameters if p.length > 1}
    lists = {
        key: value
        for key, value in kwargs.items()
        if isinstance(value, list) and (key not in vectors or isinstance(value[0], list | tuple))
    }
    for key, values in lists.items():
        if len(values) != num_envs:
            raise UsageError(f"{key} lists {len(values)} values for {num_envs} environments")
    tasks = [
        Task(robot, **(kwargs | {key: values[i] for key, values in lists.items()}))
        for i in range(num_envs)
    ]
    return TaskVectorEnv(tasks, threads=threads)


def _stack(contexts: list[dict[str, float]]) -> dict[str, Array]:
    """Contexts as arrays by name; NaN where a robot has no such parameter."""
    names = dict.fromkeys(name for context in contexts for name in context)
    return {name: np.array([c.get(name, np.nan) for c in contexts]) for name in names}
