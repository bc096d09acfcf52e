"""`TaskVectorEnv`: many tasks, each with its own physics, stepped in lockstep."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing.sharedctypes import RawArray
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from mcat.envs.env import spaces
from mcat.envs.robots import robot as find_robot
from mcat.envs.simulation import Array, checked_actions
from mcat.envs.tasks import Task
from mcat.envs.workers import (
    RESET,
    SEED,
    STAY,
    EnvSlice,
    WorkerProcess,
    shared_row_type,
    shared_rows,
    timeout_or_default,
)
from mcat.errors import McatError, UsageError, short, unknown


class TaskVectorEnv(VectorEnv[Any, Any, Any]):
    """Steps several tasks together: batched arrays, no wrapper stack.

    Every sub-environment's trajectory is bitwise equal to that of `task.make()` with the same seed
    and actions, and `reset` and `step` return what gymnasium's `SyncVectorEnv` of them returns in
    the same autoreset mode.

    Args:
        tasks: One task per sub-environment; robots may differ if their spaces have equal shapes.
        workers: Processes that share the physics, the calling one included. The result does not
            depend on it; it pays when that many cores are idle.
        autoreset_mode: What follows the end of an episode. "Disabled": it is yours to `reset`, and
            a step before that is refused. "NextStep": the next step starts a new one. "SameStep":
            the same step does, and `info` holds `final_obs` and `final_info`.
        timeout: Seconds that a process may stand still before `step` gives it up; a minute, or
            what MCAT_WORKER_TIMEOUT says.

    Attributes:
        simulations: Those of the calling process: of all sub-environments, or each `workers`-th.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        workers: int = 1,
        *,
        autoreset_mode: AutoresetMode | str = AutoresetMode.DISABLED,
        timeout: float | None = None,
    ) -> None:
        self.tasks = tuple(tasks)
        if not self.tasks:
            raise UsageError("TaskVectorEnv needs at least one task")
        require_equal_spaces(self.tasks)
        if workers < 1:
            raise UsageError(f"workers must be 1 or more, got {workers}")
        self._autoreset = _mode(autoreset_mode)
        self.metadata = {"autoreset_mode": self._autoreset}
        self._made_with = min(workers, len(self.tasks)), timeout_or_default(timeout)
        self._start_workers(*self._made_with)
        n = self.num_envs = len(self.tasks)
        self.single_observation_space, self.single_action_space = spaces(self.simulations[0])
        self.observation_space = batch_space(self.single_observation_space, n)
        self.action_space = batch_space(self.single_action_space, n)
        self._owed = np.zeros(n)
        self._elapsed = np.full(n, -1)  # -1: no episode has begun
        self._horizons = np.array([task.horizon for task in self.tasks])
        self._delays = np.array([task.delay for task in self.tasks])
        self._any_delay = bool((self._delays > 1).any())
        self._over = np.ones(n, dtype=bool)
        self._park = False
        self._never = np.zeros(n, dtype=bool)  # no task terminates
        # Robots with equal spaces say the same.
        self._names = [(name, f"_{name}") for name in self.tasks[0].spec.info]
        self._everyone = np.ones(n, dtype=bool)
        self._contexts = self._batch(self._everyone, lambda i: {"context": self.tasks[i].context})
        for array in (self._everyone, *self._contexts["context"].values()):
            array.flags.writeable = False  # handed out in every `info`

    @property
    def horizon(self) -> int:
        """Steps of its longest episode."""
        return int(self._horizons.max())

    def __reduce__(self) -> tuple[Any, ...]:
        """A pickle or a copy is a new environment of the same tasks."""
        workers, timeout = self._made_with
        make = partial(type(self), autoreset_mode=self._autoreset, timeout=timeout)
        return make, (self.tasks, workers), {"spec": self.spec}

    def _start_workers(self, workers: int, timeout: float) -> None:
        """Start the workers and take a share of the sub-environments."""
        size = len(self.tasks) * shared_row_type(self.tasks).itemsize
        shares = [slice(k, None, workers) for k in range(workers)]
        try:  # zeros, either way
            memory: Any = bytearray(size) if workers == 1 else RawArray("b", size)
            self._workers = [
                WorkerProcess(self.tasks, memory, share, timeout) for share in shares[1:]
            ]
        except OSError as error:  # no /dev/shm, no room there, no more processes
            raise McatError(
                f"cannot share the physics among processes ({error}): workers=1 does without"
            ) from error
        rows = shared_rows(memory, self.tasks)
        self._env_slice = EnvSlice(self.tasks[shares[0]], rows[shares[0]])
        self.simulations = self._env_slice.simulations
        self._orders, self._seeds, self._actions = rows["order"], rows["seed"], rows["action"]
        self._observations, self._rewards = rows["observation"], rows["reward"]
        self._measured, self._faults = rows["measured"], rows["fault"]

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
                `{"park": True}` lets episodes of different lengths run in lockstep: from here to
                the next reset, those that are over stay as they are and are paid 0.
        """
        options = options or {}
        mask = np.asarray(options.get("reset_mask", self._everyone))
        if mask.shape != (self.num_envs,) or mask.dtype != bool:
            raise UsageError(f"reset_mask must be {self.num_envs} booleans")
        if options.get("park") and self._autoreset is not AutoresetMode.DISABLED:
            raise UsageError("park goes with autoreset_mode Disabled, where nothing starts anew")
        self._park = bool(options.get("park"))
        seeds = self._spread(seed)
        self._seeds[:] = [number or 0 for number in seeds]
        orders = [RESET if number is None else SEED for number in seeds]
        self._orders[:] = np.where(mask, orders, STAY)
        self._move()
        self._begin(mask)
        info = self._info() if mask.all() else self._batch(mask, self._info_of)
        return self._observations.copy(), info

    def step(
        self, actions: Any
    ) -> tuple[Array, Array, NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]:
        """Advance every sub-environment by one action.

        Raises:
            UsageError: if an episode is over, or none has begun, and nothing was said about it.
        """
        self._actions[:] = checked_actions(actions, self._actions.shape)
        live = ~self._over
        self._orders[:] = live  # STEP or STAY
        resting = not all(live.tolist())
        if resting:
            self._require_more()
        again = resting and self._autoreset is AutoresetMode.NEXT_STEP
        if again:
            self._orders[self._over] = RESET
        self._rewards.fill(0.0)
        self._move()
        if again:
            self._begin(~live)
        self._elapsed += live
        self._over |= self._elapsed >= self._horizons
        if any(self._faults.tolist()):
            self._over |= self._faults != b""
        rewards = self._delayed(live) if self._any_delay else self._rewards.copy()
        truncated, final = self._over.copy(), {}
        if self._autoreset is AutoresetMode.SAME_STEP and any(truncated.tolist()):
            final = self._batch(truncated, self._end)
            self._orders[:] = np.where(truncated, RESET, STAY)
            self._move()
            self._begin(truncated)
        info = final | self._info()
        return self._observations.copy(), rewards, self._never.copy(), truncated, info

    def _require_more(self) -> None:
        """Refuse a step of what has not begun, or has ended for good."""
        if self._park:
            return
        fresh = self._elapsed < 0
        if fresh.any():
            raise UsageError(
                f"sub-environment {fresh.argmax()} has not been reset: call reset() first"
            )
        if self._autoreset is AutoresetMode.DISABLED:
            raise UsageError(
                f"the episode of sub-environment {self._over.argmax()} is over: reset it with"
                " options={'reset_mask': mask}, or ask for autoreset_mode='NextStep'"
            )

    def _begin(self, rows: NDArray[np.bool_]) -> None:
        """Reset the books of the rows where new episodes start."""
        self._owed[rows] = 0.0
        self._elapsed[rows] = 0
        self._over[rows] = False

    # --- info -------------------------------------------------------------------------------------

    def _info(self) -> dict[str, Any]:
        """What all sub-environments say, batched as gymnasium does: `key` and the mask `_key`."""
        info = {"context": dict(self._contexts["context"]), "_context": self._everyone}
        measured = self._measured.copy()
        for column, (name, mask) in enumerate(self._names):
            info[name], info[mask] = measured[:, column], self._everyone
        if any(self._faults.tolist()):
            unstable = self._faults != b""
            faults = np.array([text.decode() or None for text in self._faults], dtype=object)
            info |= {"unstable": unstable, "_unstable": unstable.copy()}
            info |= {"fault": faults, "_fault": unstable.copy()}
        return info

    def _info_of(self, i: int) -> dict[str, Any]:
        """What one sub-environment says, as `TaskEnv` does."""
        info: dict[str, Any] = {"context": self.tasks[i].context}
        for (name, _), value in zip(self._names, self._measured[i].tolist(), strict=True):
            info[name] = value
        if self._faults[i]:
            info |= {"unstable": True, "fault": self._faults[i].decode()}
        return info

    def _end(self, i: int) -> dict[str, Any]:
        """How an episode ended."""
        return {"final_obs": self._observations[i].copy(), "final_info": self._info_of(i)}

    def _batch(
        self, rows: NDArray[np.bool_], describe: Callable[[int], dict[str, Any]]
    ) -> dict[str, Any]:
        info: dict[str, Any] = {}
        for i in np.flatnonzero(rows).tolist():
            info = self._add_info(info, describe(i), i)
        return info

    # --- physics and pay --------------------------------------------------------------------------

    def _move(self) -> None:
        """Have the orders in the shared rows carried out, here and in the worker processes."""
        for worker in self._workers:
            worker.start()
        self._env_slice.move()
        for worker in self._workers:
            worker.finish()

    def _delayed(self, live: NDArray[np.bool_]) -> Array:
        """Pay every `delay` steps, and what is owed at the end, as `wrappers.DelayedReward`."""
        self._owed += self._rewards
        due = live & ((self._elapsed % self._delays == 0) | self._over)
        paid = np.where(due, self._owed, 0.0)
        self._owed[due] = 0.0
        return paid

    def _spread(self, seed: int | Sequence[int | None] | None) -> list[int | None]:
        if seed is None:
            return [None] * self.num_envs
        if isinstance(seed, int | np.integer):
            seed = [int(seed) + i for i in range(self.num_envs)]
        if not isinstance(seed, Sequence | np.ndarray) or isinstance(seed, str):
            raise UsageError(f"seed must be a whole number or a list of them, got {short(seed)}")
        if len(seed) != self.num_envs:
            raise UsageError(f"{self.num_envs} seeds are needed, got {len(seed)}")
        for number in seed:
            whole = isinstance(number, int | np.integer)
            if number is not None and not (whole and 0 <= number < 2**64):
                raise UsageError(f"seeds must be 0 to 2^64 - 1, got {short(number)}")
        return list(seed)

    def close_extras(self, **kwargs: Any) -> None:
        """End the workers."""
        for worker in self._workers:
            worker.close()


def require_equal_spaces(tasks: Sequence[Task]) -> None:
    """Refuse tasks that cannot be rows of one array."""
    sizes = {(t.spec.observation_size, t.spec.action_size): t.label() for t in tasks}
    if len(sizes) > 1:
        listed = ", ".join(f"{name} {size}" for size, name in sizes.items())
        raise UsageError(f"tasks stepped together need equal spaces, got {listed}")


def make_vector(
    robot: str,
    num_envs: int,
    *,
    workers: int = 1,
    autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
    timeout: float | None = None,
    render_mode: str | None = None,
    width: int = 480,
    height: int = 480,
    **parameters: Any,
) -> VectorEnv[Any, Any, Any]:
    """What `gymnasium.make_vec("mcat/HalfCheetah-v0", num_envs=3, armature=[.1, .2, .3])` calls.

    A list gives each sub-environment its own value; anything else is shared by all. For vectors
    such as `goal` the list holds one vector per sub-environment. Pictures need gymnasium's own
    vector environment, which steps as ours does, but slower.
    """
    tasks = [Task(robot, **each) for each in _spread(robot, num_envs, parameters)]
    if render_mode is None:
        return TaskVectorEnv(tasks, workers, autoreset_mode=autoreset_mode, timeout=timeout)
    if workers != 1:
        raise UsageError("pictures are made in one process: leave out workers or render_mode")
    look = {"render_mode": render_mode, "width": width, "height": height}
    makers = [partial(task.make, **look) for task in tasks]
    return SyncVectorEnv(makers, autoreset_mode=_mode(autoreset_mode))


def _spread(robot: str, num_envs: int, parameters: dict[str, Any]) -> list[dict[str, Any]]:
    """The parameters of each sub-environment."""
    vectors = {p.name for p in find_robot(robot).parameters if p.length > 1}
    shared: dict[str, Any] = {}
    lists: dict[str, list[Any]] = {}
    for key, value in parameters.items():
        value = value.tolist() if isinstance(value, np.ndarray) else value
        several = isinstance(value, list) and (
            key not in vectors or any(isinstance(item, list | tuple | np.ndarray) for item in value)
        )
        if several and len(value) != num_envs:
            raise UsageError(f"{key} lists {len(value)} values for {num_envs} environments")
        if several:
            lists[key] = value
        elif value is not None:
            shared[key] = value
    return [shared | {key: values[i] for key, values in lists.items()} for i in range(num_envs)]


def _mode(name: AutoresetMode | str) -> AutoresetMode:
    try:
        return AutoresetMode(name)
    except ValueError:
        known = [mode.value for mode in AutoresetMode]
        raise unknown("autoreset_mode", name, known) from None
