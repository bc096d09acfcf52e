"""`TaskEnv`: one task as a gymnasium environment."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.spaces import Box
from gymnasium.wrappers import TimeLimit

from mcat.envs.simulation import Array, Simulation, checked_actions
from mcat.envs.tasks import Task
from mcat.envs.wrappers import DelayedReward


def simulate(task: Task) -> Simulation:
    """The simulation behind a task."""
    params: dict[str, Any] = task.params
    if task.on_table:
        from mcat.envs.manipulation import HandReach, Manipulation  # import metaworld: a second

        if task.robot == "reach-hand":
            return HandReach(**params)
        return Manipulation(task.robot, **params)
    from mcat.envs import locomotion

    return locomotion.build(task.robot, **params)


def spaces(simulation: Simulation) -> tuple[Box, Box]:
    """Observation and action space; actions are normalised to [-1, 1]."""
    observations = Box(simulation.observation_low, simulation.observation_high, dtype=np.float64)
    return observations, Box(-1.0, 1.0, (simulation.action_size,), np.float32)


class TaskEnv(gym.Env[Any, Any]):
    """One task, without time limit or reward delay (`make` adds them).

    `info["context"]` holds the hidden physical parameters. If MuJoCo's state diverges the episode
    is truncated with reward 0 and the last good observation, and `info["unstable"]` and
    `info["fault"]` say so.

    Args:
        task: The robot and its physics.
        render_mode: "human", "rgb_array", "depth_array", or None for no pictures.
        width: Width of a picture, in pixels.
        height: Height of a picture, in pixels.
    """

    metadata = {  # noqa: RUF012 (gymnasium's convention)
        "render_modes": ["human", "rgb_array", "depth_array"],
        "render_fps": 20,
    }

    def __init__(
        self, task: Task, render_mode: str | None = None, width: int = 480, height: int = 480
    ) -> None:
        self.task = task
        self.simulation = simulate(task)
        self.model, self.data = self.simulation.model, self.simulation.data
        self.observation_space, self.action_space = spaces(self.simulation)
        self.context = task.context
        self.render_mode = render_mode
        self.metadata = {**self.metadata, "render_fps": round(1 / self.simulation.step_time)}
        self._observation = np.zeros(self.simulation.observation_low.size)
        self._frame_size = (width, height)
        self._spec: EnvSpec | None = None
        self._renderer: Any = None

    def __reduce__(self) -> tuple[Any, ...]:
        """A pickle or a copy is a new environment of the same task, as with gymnasium's robots."""
        made_from = (self.task, self.render_mode, *self._frame_size)
        return type(self), made_from, {"_spec": self._spec}

    @property
    def spec(self) -> EnvSpec | None:
        """What `gymnasium.make` was asked for, as JSON keeps it: lists, not tuples or arrays."""
        return self._spec

    @spec.setter
    def spec(self, spec: EnvSpec | None) -> None:
        if spec is not None:
            plain = {key: _plain(value) for key, value in spec.kwargs.items()}
            spec = replace(spec, kwargs=plain)
        self._spec = spec

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """Start an episode; the same seed gives the same episode."""
        super().reset(seed=seed)
        self.simulation.reset(self.np_random)
        self.simulation.observe(self._observation)
        if self.render_mode == "human":
            self.render()
        return self._observation.copy(), self._info()

    def step(self, action: Array) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """Apply one action; refuses NaN, infinite and wrongly shaped ones."""
        action = checked_actions(action, (self.simulation.action_size,))
        reward = self.simulation.step(action, self._observation)
        info = self._info()
        fault = self.simulation.fault
        if fault is not None:
            info |= {"unstable": True, "fault": fault}
        if self.render_mode == "human":
            self.render()
        return self._observation.copy(), reward, False, fault is not None, info

    def render(self) -> Any:
        """A picture (rgb_array, depth_array) or a window (human)."""
        if self.render_mode is None:
            return None
        if self._renderer is None:
            from mcat.envs.render import open_renderer

            self._renderer = open_renderer(self.task, self.simulation, *self._frame_size)
        return self._renderer.render(self.render_mode)

    def close(self) -> None:
        """Free the renderer."""
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None

    def _info(self) -> dict[str, Any]:
        return {"context": dict(self.context), **self.simulation.info()}


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.tolist()
    return list(value) if isinstance(value, tuple) else value


def make(
    robot: str,
    *,
    delay: int = 1,
    horizon: int | None = None,
    render_mode: str | None = None,
    width: int = 480,
    height: int = 480,
    **parameters: Any,
) -> gym.Env[Any, Any]:
    """What `gymnasium.make("mcat/Ant-v0", cripple=3, delay=500)` calls.

    The delay goes around the time limit, so that what is still owed is paid at truncation. Set the
    episode length by `horizon`; gymnasium's `max_episode_steps` would go outside of both.
    """
    task = Task(robot, delay=delay, horizon=horizon, **parameters)
    env: gym.Env[Any, Any] = TaskEnv(task, render_mode, width, height)
    env = TimeLimit(env, task.horizon)
    return DelayedReward(env, task.delay) if task.delay > 1 else env
