"""The lean core that the single and the vectorised environments share.

A `Simulation` is one robot in one MuJoCo world. It knows nothing of horizons, delays or
gymnasium; `env.TaskEnv` steps one of them, `vector.TaskVectorEnv` steps many. Because both run
the very same code, a sub-environment's trajectory equals the single environment's bit for bit.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from mcat.envs.physics import FAULTS
from mcat.errors import UsageError

Array = NDArray[np.float64]


class Simulation(ABC):
    """One robot with its own physics.

    Subclasses call `super().__init__`, set `observation_low`/`observation_high`, and implement
    `reset`, `advance` and `observe`. Live views of `data` may be kept: `mj_resetData` keeps them.
    """

    def __init__(self, model: mujoco.MjModel, data: mujoco.MjData, frame_skip: int) -> None:
        self.model = model
        self.data = data
        self.frame_skip = frame_skip
        self.action_size: int = model.nu
        self.fault: str | None = None
        self.step_time = frame_skip * model.opt.timestep
        self._time_due = 0.0
        self._warnings = data.warning.number  # a live view

    observation_low: Array
    observation_high: Array

    @abstractmethod
    def reset(self, rng: np.random.Generator) -> None:
        """Start an episode; end by calling `start_clock`."""

    @abstractmethod
    def advance(self, action: Array) -> float:
        """Apply one action for `frame_skip` substeps and return the dense (or sparse) reward."""

    @abstractmethod
    def observe(self, out: Array) -> None:
        """Write the observation into `out`."""

    def info(self) -> dict[str, Any]:
        """What a gymnasium user finds in `info` after a step, besides the context."""
        return {}

    def prepare_render(self) -> None:
        """Put in place what only pictures need."""

    def start_clock(self) -> None:
        """Forget old faults and note the time; MuJoCo's own resets will set it back."""
        self._warnings[:] = 0
        self.fault = None
        self._time_due = self.data.time - 0.5 * self.model.opt.timestep

    def step(self, action: Array, out: Array) -> float:
        """Advance, observe into `out` and return the reward.

        MuJoCo answers a diverging state by silently resetting it in mid-episode, which shows only
        in its clock and a warning counter. Then `fault` is set, the reward is 0 and `out` keeps
        the last good observation.
        """
        reward = self.advance(action)
        self._time_due += self.step_time
        if self.data.time < self._time_due or not math.isfinite(reward):
            self.fault = self._name_fault()
            return 0.0
        self.observe(out)
        return reward

    def _name_fault(self) -> str:
        for kind, name in FAULTS.items():
            if self._warnings[kind]:
                return f"{name}@dof {self.data.warning.lastinfo[kind]}"
        return "non-finite reward"


def checked_actions(actions: Any, shape: tuple[int, ...]) -> Array:
    """Actions as float64; wrong shapes and values that are not finite never reach MuJoCo."""
    array = np.asarray(actions, dtype=np.float64)
    if array.shape != shape:
        raise UsageError(f"actions must have shape {shape}, got {array.shape}")
    if not np.isfinite(array).all():
        where = np.argwhere(~np.isfinite(array))[0].tolist()
        raise UsageError(f"action at index {where} is {array[tuple(where)]}: must be finite")
    return array
