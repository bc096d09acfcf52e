"""`TaskVectorEnv`: many tasks, each with its own physics, stepped in lockstep."""

from __future__ import annotations

from collections.abc import Sequence
from multiprocessing.sharedctypes import RawArray
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from mcat.envs.env import spaces
from mcat.envs.robots import robot as find_robot
from mcat.envs.simulation import Array, checked_actions
from mcat.envs.tasks import Task
from mcat.envs.workers import RESET, SEED, STAY, Helper, Lane, board_over, board_type
from mcat.errors import McatError, UsageError


class TaskVectorEnv(VectorEnv[Any, Any, Any]):
    """Steps several tasks together: batched arrays, no wrapper stack, no autoreset.

    Every sub-environment's trajectory is bitwise equal to that of `task.make()` with the same seed
    and actions. A sub-environment whose episode has ended is parked: it keeps its last observation
    and flags and is paid 0 until it is reset, so episodes of different lengths can be rolled out
    in lockstep.

    Args:
        tasks: One task per sub-environment; robots may differ if their spaces have equal shapes.
        workers: Processes that share the physics, the calling one included. The result does not
            depend on it; it pays when that many cores are idle.

    Attributes:
        simulations: Of the sub-environments in the calling process: all, or each `workers`-th.
    """

    metadata = {"autoreset_mode": AutoresetMode.DISABLED}  # noqa: RUF012

    def __init__(self, tasks: Sequence[Task], workers: int = 1) -> None:
        self.tasks = tuple(tasks)
        if not self.tasks:
            raise UsageError("TaskVectorEnv needs at least one task")
        shapes = {(t.spec.observation_size, t.spec.action_size): t.label() for t in self.tasks}
        if len(shapes) > 1:
            listed = ", ".join(f"{name} {shape}" for shape, name in shapes.items())
            raise UsageError(f"tasks stepped together need equal spaces, got {listed}")
        if workers < 1:
            raise UsageError(f"workers must be 1 or more, got {workers}")
        n = self.num_envs = len(self.tasks)
        workers = min(workers, n)
        size = n * board_type(self.tasks).itemsize
        shares = [slice(k, None, workers) for k in range(workers)]
        try:  # zeros, either way
            memory: Any = bytearray(size) if workers == 1 else RawArray("b", size)
            self._helpers = [Helper(self.tasks, memory, share) for share in shares[1:]]
        except OSError as error:  # no /dev/shm, no room there, no more processes
            raise McatError(
                f"cannot share the physics among processes ({error}): workers=1 does without"
            ) from error
        board = board_over(memory, self.tasks)
        self._lane = Lane(self.tasks[shares[0]], board[shares[0]])
        self.simulations = self._lane.simulations
        self._orders, self._seeds, self._actions = board["order"], board["seed"], board["action"]
        self._observations, self._rewards = board["observation"], board["reward"]
        self._faults = board["fault"]
        self.single_observation_space, self.single_action_space = spaces(self.simulations[0])
        self.observation_space = batch_space(self.single_observation_space, n)
        self.action_space = batch_space(self.single_action_space, n)
        self._owed = np.zeros(n)
        self._elapsed = np.zeros(n, dtype=np.int64)
        self._horizons = np.array([task.horizon for task in self.tasks])
        self._delays = np.array([task.delay for task in self.tasks])
        self._any_delay = bool((self._delays > 1).any())
        self._parked = np.ones(n, dtype=bool)
        self._never = np.zeros(n, dtype=bool)  # no task terminates (A13)
        self._info: dict[str, Any] = {"context": _stack([task.context for task in self.tasks])}

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
        self._orders.fill(STAY)
        for i, number in enumerate(self._spread(seed)):
            if mask[i]:
                self._orders[i] = RESET if number is None else SEED
                self._seeds[i] = number or 0
        self._move()
        self._owed[mask] = 0.0
        self._elapsed[mask] = 0
        self._parked[mask] = False
        return self._observations.copy(), dict(self._info)

    def step(
        self, actions: Any
    ) -> tuple[Array, Array, NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]:
        """Advance every sub-environment that is not parked by one action."""
        self._actions[:] = checked_actions(actions, self._actions.shape)
        live = ~self._parked
        self._orders[:] = live  # STEP or STAY
        self._rewards.fill(0.0)
        self._move()
        info = dict(self._info)
        if any(self._faults.tolist()):
            unstable = self._faults != b""
            faults = [fault.decode() or None for fault in self._faults.tolist()]
            info |= {"unstable": unstable, "fault": np.array(faults, dtype=object)}
            self._parked |= unstable
        self._elapsed += live
        self._parked |= self._elapsed >= self._horizons
        rewards = self._delayed(live) if self._any_delay else self._rewards.copy()
        return self._observations.copy(), rewards, self._never.copy(), self._parked.copy(), info

    def _move(self) -> None:
        """Have the orders on the board carried out; the calling process takes a share itself."""
        for helper in self._helpers:
            helper.start()
        self._lane.move()
        for helper in self._helpers:
            helper.finish()

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
            seed = [int(seed) + i for i in range(self.num_envs)]
        if len(seed) != self.num_envs:
            raise UsageError(f"{self.num_envs} seeds are needed, got {len(seed)}")
        wrong = [number for number in seed if number is not None and not 0 <= number < 2**64]
        if wrong:
            raise UsageError(f"seeds must be 0 to 2^64 - 1, got {wrong[0]}")
        return list(seed)

    def close_extras(self, **kwargs: Any) -> None:
        """End the helpers."""
        for helper in self._helpers:
            helper.close()


def make_vector(robot: str, num_envs: int, **kwargs: Any) -> TaskVectorEnv:
    """What `gymnasium.make_vec("mcat/HalfCheetah-v0", num_envs=3, armature=[.1, .2, .3])` calls.

    A list gives each sub-environment its own value; anything else is shared by all. For vectors
    such as `goal` the list holds one vector per sub-environment.
    """
    workers = kwargs.pop("workers", 1)
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
    return TaskVectorEnv(tasks, workers=workers)


def _stack(contexts: list[dict[str, float]]) -> dict[str, Array]:
    """Contexts as arrays by name; NaN where a robot has no such parameter."""
    names = dict.fromkeys(name for context in contexts for name in context)
    return {name: np.array([c.get(name, np.nan) for c in contexts]) for name in names}
