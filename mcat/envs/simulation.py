"""The lean core that the single and the vectorised environments share.

A `Simulation` is one robot in one MuJoCo world. It knows nothing of horizons, delays or
gymnasium; `env.TaskEnv` steps one of them, `vector.TaskVectorEnv` steps many. Both run the very
same code, so a sub-environment's trajectory equals the single environment's bit for bit.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from mcat.envs.physics import FAULTS, fault, sensible
from mcat.errors import UsageError, short

Array = NDArray[np.float64]


class Simulation(ABC):
    """One robot with its own physics.

    MuJoCo answers a diverging state by silently resetting it in mid-episode; only a warning
    counter tells. A step during which that happened is paid 0, leaves the last good observation in
    place and sets `fault`. So does a step whose reward is absurd: motors give only what they can,
    but what an action of 1e12 costs has no bound.

    Subclasses set `observation_low` and `observation_high` and implement `reset`, `advance` and
    `observe`. Live views of `data` may be kept: `mj_resetData` leaves them valid.
    """

    observation_low: Array
    observation_high: Array

    def __init__(self, model: mujoco.MjModel, data: mujoco.MjData, frame_skip: int) -> None:
        self.model = model
        self.data = data
        self.frame_skip = frame_skip
        self.step_time: float = frame_skip * model.opt.timestep
        self.rate_hz = round(1 / self.step_time, 6)
        self.action_size: int = model.nu
        self.fault: str | None = None
        self.bad_states = data.warning.number[min(FAULTS) : max(FAULTS) + 1]  # a live view

    @abstractmethod
    def reset(self, rng: np.random.Generator) -> None:
        """Start an episode that depends on `rng` alone; end by calling `forget_faults`."""

    @abstractmethod
    def advance(self, action: Array) -> float:
        """Apply one action for `frame_skip` substeps and return the reward."""

    @abstractmethod
    def observe(self, out: Array) -> None:
        """Write the observation into `out`."""

    def info(self) -> dict[str, Any]:
        """What a gymnasium user finds in `info` after a step, besides the context."""
        return {}

    def step(self, action: Array, out: Array) -> float:
        """Advance, observe into `out` and return the reward."""
        reward = self.advance(action)
        if any(self.bad_states.tolist()):  # five times as fast as `.any()`
            self.fault = fault(self.data)
        elif not sensible(reward):
            self.fault = f"reward {reward:g}"
        if self.fault is not None:  # now, or since the last reset
            return 0.0
        self.observe(out)
        return reward

    def forget_faults(self) -> None:
        """A new episode starts with a clean record."""
        self.bad_states[:] = 0
        self.fault = None


def checked_actions(actions: Any, shape: tuple[int, ...]) -> Array:
    """Actions as float64; wrong shapes and values that are not finite never reach MuJoCo."""
    try:
        array = np.asarray(actions)
    except (TypeError, ValueError, RuntimeError):  # ragged, or a tensor that cannot be an array
        array = np.array(None)
    if array.dtype.kind not in "fiub":  # text, dates, None, numbers of 400 digits
        raise UsageError(f"actions must be numbers of shape {shape}, got {short(actions)}")
    if array.shape != shape:
        raise UsageError(f"actions must have shape {shape}, got {array.shape}")
    array = array.astype(np.float64, copy=False)
    # The squares of finite actions may overflow, so a suspicion is looked into.
    if not math.isfinite(np.vdot(array, array)) and not np.isfinite(array).all():
        where = np.argwhere(~np.isfinite(array))[0].tolist()
        raise UsageError(f"action at index {where} is {array[tuple(where)]}: must be finite")
    return array
