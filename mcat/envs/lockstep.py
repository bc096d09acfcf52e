"""Episodes in lockstep: our own robots by `TaskVectorEnv`, all others by `AnyRobots`.

Whoever acts in lockstep needs what `Lockstep` says: `reset` with seeds, a `reset_mask` and `park`,
and `step`, after which rows whose episode is over stay as they are and are paid 0. Gymnasium's own
vector environments start such rows anew; `AnyRobots` looks away until the next reset.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, cast

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray

from mcat.envs.simulation import Array, checked_actions
from mcat.envs.tasks import Task
from mcat.envs.vector import TaskVectorEnv, require_equal_spaces
from mcat.errors import UsageError, short

LARGEST_REWARD = 1e10  # beyond it a simulation counts as diverged, as MuJoCo's states do
NOT_FINITE = "not finite, or far too large"

Env = gym.Env[Any, Any]
Flags = NDArray[np.bool_]
Moved = tuple[Array, Array, Flags, Flags, dict[str, Any]]


class Lockstep(Protocol):
    """Episodes in lockstep, a row each."""

    num_envs: int
    single_observation_space: Any
    single_action_space: Any

    @property
    def horizon(self) -> int:
        """Steps of the longest episode there can be."""
        ...

    def reset(
        self, *, seed: Any = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """Start episodes; those of `options["reset_mask"]` if it is there."""
        ...

    def step(self, actions: Any) -> Moved:
        """One action each."""
        ...

    def close(self) -> None:
        """Free what it holds."""
        ...


def lockstep(tasks: Sequence[Task], workers: int = 1) -> Lockstep:
    """The environments of these tasks.

    Args:
        tasks: One for each row; their spaces must have equal shapes.
        workers: Processes that share the physics of mcat's own robots; others are stepped in this
            one.
    """
    if all(task.own for task in tasks):
        return cast(Lockstep, TaskVectorEnv(tasks, workers=workers))
    require_equal_spaces(tasks)
    succeeds = all(task.spec.can_succeed for task in tasks)
    return AnyRobots(
        [task.make() for task in tasks], max(t.horizon for t in tasks), succeeds=succeeds
    )


def in_lockstep(env: Any, horizon: int | None = None) -> Lockstep:
    """Whatever a user has, as something to act in: an environment, several, or a vector of them.

    Args:
        env: A `Lockstep` (as it is), a gymnasium environment or vector environment, or a list of
            environments.
        horizon: Steps after which an episode is cut; the time limit of its spec by default.

    Raises:
        UsageError: if it is none of these, has no time limit, or spaces that are no Box.
    """
    if isinstance(env, gym.Env):
        env = [env]
    many = isinstance(env, list | tuple) and env and all(isinstance(e, gym.Env) for e in env)
    if not many and hasattr(env, "horizon"):
        return cast(Lockstep, env)
    if not many and not isinstance(env, VectorEnv):
        raise UsageError(f"{short(env)} is no gymnasium environment")
    spec = env[0].spec if many else env.spec
    limit = getattr(spec, "max_episode_steps", None) if horizon is None else horizon
    if limit is None:
        raise UsageError("this environment has no time limit: give a horizon")
    return AnyRobots(env, limit)


def require_rows(env: Lockstep, rows: int, horizon: int, sizes: tuple[int, int]) -> None:
    """Refuse what does not fit: other rows or another horizon, observations or actions."""
    spaces = env.single_observation_space.shape, env.single_action_space.shape
    found, wanted = (env.num_envs, env.horizon, *spaces), (rows, horizon, *((n,) for n in sizes))
    if found != wanted:
        raise UsageError(
            f"env has rows, horizon, observations and actions {found}, and {wanted} is needed"
        )


class AnyRobots:
    """Any gymnasium environments in lockstep, in this process.

    Actions are in [-1, 1] whatever the bounds of theirs; those outside are clipped. A step that
    leaves an observation or a reward that is not finite counts as diverged: it is paid 0, keeps the
    last good observation and ends the episode as a cut one, with `info["unstable"]`.

    Args:
        env: The environments, or a gymnasium vector environment.
        horizon: Steps after which an episode is cut.
        succeeds: Whether their `info["success"]` is to be passed on.
    """

    def __init__(
        self, env: Sequence[Env] | VectorEnv[Any, Any, Any], horizon: int, *, succeeds: bool = False
    ) -> None:
        self.horizon, self._succeeds = horizon, succeeds
        self._rows = _Vector(env) if isinstance(env, VectorEnv) else _Separate(env)
        seen, done = self._rows.observation_space, self._rows.action_space
        if not isinstance(seen, Box) or not isinstance(done, Box):
            raise UsageError(f"observations and actions must be Boxes, not {seen} and {done}")
        if not (np.isfinite(done.low) & np.isfinite(done.high)).all():
            raise UsageError(f"actions without bounds have no scale: {done}")
        self._low, self._high, self._shape = done.low, done.high, done.shape
        self._unit = bool((done.low == -1).all() and (done.high == 1).all())
        n = self.num_envs = self._rows.count
        size = int(np.prod(done.shape))
        self.single_action_space = Box(-1.0, 1.0, (size,), np.float32)
        self.single_observation_space = cast(Box, gym.spaces.flatten_space(seen))
        self._observations = np.zeros((n, *self.single_observation_space.shape))
        self._terminated, self._truncated = np.zeros(n, dtype=bool), np.ones(n, dtype=bool)
        self._unstable = np.zeros(n, dtype=bool)
        self._faults = np.full(n, None, dtype=object)
        self._elapsed = np.zeros(n, dtype=np.int64)

    def reset(
        self, *, seed: Any = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """Start episodes where `options["reset_mask"]` is true, everywhere without one.

        Args:
            seed: Row i gets seed + i, or its entry of a sequence.
            options: `reset_mask`; rows left out stay over. `park` is what is done anyway.
        """
        n = self.num_envs
        mask = np.asarray((options or {}).get("reset_mask", np.ones(n, dtype=bool)))
        if mask.shape != (n,) or mask.dtype != bool:
            raise UsageError(f"reset_mask must be {n} booleans")
        if seed is None or isinstance(seed, int | np.integer):
            seed = [None if seed is None else int(seed) + i for i in range(n)]
        if len(seed) != n:
            raise UsageError(f"{n} seeds are needed, got {len(seed)}")
        started = self._rows.reset(mask, list(seed))
        self._observations[mask] = started.reshape(n, -1)[mask]
        self._truncated[mask] = self._terminated[mask] = self._unstable[mask] = False
        self._truncated[~mask & ~self._terminated] = True
        self._faults[mask] = None
        self._elapsed[mask] = 0
        return self._observations.copy(), {}

    def step(self, actions: Any) -> Moved:
        """One action each; what is over stays as it is."""
        n = self.num_envs
        unit = np.clip(checked_actions(actions, (n, *self.single_action_space.shape)), -1, 1)
        live = ~(self._terminated | self._truncated)
        moved = self._rows.step(live, self._scaled(unit))
        observations = moved[0].reshape(n, -1)
        rewards = np.where(live, moved[1], 0.0)
        self._elapsed += live
        faulty = ~(np.isfinite(observations).all(axis=1) & (np.abs(rewards) <= LARGEST_REWARD))
        faulty = live & (faulty | moved[4]["unstable"])
        self._faults[faulty] = NOT_FINITE
        rewards[faulty] = 0.0
        good = live & ~faulty
        self._observations[good] = observations[good]
        self._unstable |= faulty
        self._terminated |= good & moved[2]
        late = self._elapsed >= self.horizon
        self._truncated |= live & ~self._terminated & (moved[3] | late | faulty)
        info: dict[str, Any] = {}
        if self._unstable.any():
            info = {"unstable": self._unstable.copy(), "fault": self._faults.copy()}
        if self._succeeds:
            info["success"] = np.where(live, moved[4]["success"], 0.0)
        flags = self._terminated.copy(), self._truncated.copy()
        return self._observations.copy(), rewards, *flags, info

    def _scaled(self, unit: Array) -> Array:
        """Actions in [-1, 1] as those of the environments."""
        actions = unit.reshape(self.num_envs, *self._shape)
        if not self._unit:
            actions = self._low + (actions + 1) / 2 * (self._high - self._low)
        return actions.astype(self._rows.action_space.dtype)

    def close(self) -> None:
        """Close the environments."""
        self._rows.close()


class _Separate:
    """Environments that are moved one after another."""

    def __init__(self, envs: Sequence[Env]) -> None:
        self._envs, self.count = list(envs), len(envs)
        self.observation_space = envs[0].observation_space
        self.action_space = envs[0].action_space
        self._seen = np.zeros((self.count, int(np.prod(self.observation_space.shape or ()))))

    def reset(self, mask: Flags, seeds: list[int | None]) -> Array:
        for i in np.flatnonzero(mask).tolist():
            self._seen[i] = np.ravel(self._envs[i].reset(seed=seeds[i])[0])
        return self._seen

    def step(self, live: Flags, actions: Array) -> Moved:
        rewards, (ended, cut) = np.zeros(self.count), np.zeros((2, self.count), dtype=bool)
        told = {"unstable": np.zeros(self.count, dtype=bool), "success": np.zeros(self.count)}
        for i in np.flatnonzero(live).tolist():
            seen, rewards[i], ended[i], cut[i], info = self._envs[i].step(actions[i])
            self._seen[i] = np.ravel(seen)
            for key in told.keys() & info.keys():
                told[key][i] = info[key]
        return self._seen, rewards, ended, cut, told

    def close(self) -> None:
        for env in self._envs:
            env.close()


class _Vector:
    """A gymnasium vector environment; what it does with rows that are over is not looked at."""

    def __init__(self, env: VectorEnv[Any, Any, Any]) -> None:
        self._env, self.count = env, env.num_envs
        self.observation_space = env.single_observation_space
        self.action_space = env.single_action_space
        self._mode = AutoresetMode((env.metadata or {}).get("autoreset_mode", "NextStep"))

    def reset(self, mask: Flags, seeds: list[int | None]) -> Array:
        return np.asarray(self._env.reset(seed=cast(Any, seeds))[0], dtype=np.float64)

    def step(self, live: Flags, actions: Array) -> Moved:
        seen, rewards, ended, cut, info = self._env.step(actions)
        observations = np.array(seen, dtype=np.float64)
        over = ended | cut
        if self._mode is AutoresetMode.SAME_STEP:
            for i in np.flatnonzero(over):
                observations[i] = info["final_obs"][i]
        elif self._mode is AutoresetMode.DISABLED and over.any():
            self._env.reset(options={"reset_mask": over})
        told = {
            key: np.asarray(info.get(key, np.zeros(self.count)), dtype=kind)
            for key, kind in (("unstable", bool), ("success", float))
        }
        return observations, np.asarray(rewards, dtype=np.float64), ended, cut, told

    def close(self) -> None:
        self._env.close()
