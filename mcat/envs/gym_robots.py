"""Robots that mcat does not declare: any gymnasium id with Box spaces, with our wrappers on top.

An id is looked up only when its sizes are asked for or it is made: a file that names one is read
without running anything. Of a task in a file, nobody here may have heard: a module in front of its
id, as in `arm:Arm-v0`, is not imported, and arguments that are text, such as a path, are not passed
on, unless the same was typed here or MCAT_TRUST_FILES=1 says that the file is one's own.
"""

from __future__ import annotations

import json
import math
import os
import re
import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

from mcat.envs.robots import Parameter, Robot, Value, as_number
from mcat.errors import UsageError, short, unknown
from mcat.own_code import import_module, reason

if TYPE_CHECKING:
    import gymnasium as gym

    from mcat.envs.tasks import Task

    Env = gym.Env[Any, Any]

_ID = re.compile(r"(?:[^\W\d][\w.]*:)?(?:[\w-]+/)?[\w.-]+-v\d+")
_OLD_GYM = "GymV"  # ids that start another library, with arguments of its own


@dataclass(frozen=True, kw_only=True)
class Factor(Parameter):
    """What a physical quantity is multiplied by: one number, or numbers by name."""

    def check(self, value: Any) -> Value:
        """The number, or pairs of a name and its number; 1 is left out."""
        if hasattr(value, "tolist"):
            value = value.tolist()
        assert self.bounds is not None
        if isinstance(value, str) and "=" in value:
            value = dict(pair.partition("=")[::2] for pair in value.split(","))
        if isinstance(value, tuple) and all(isinstance(pair, tuple) for pair in value):
            value = dict(value)
        if not isinstance(value, Mapping):
            return as_number(self.name, value, self.bounds)
        pairs = {
            str(name).strip(): as_number(f"{self.name} of {short(name)}", factor, self.bounds)
            for name, factor in value.items()
        }
        return tuple(sorted(pairs.items())) or 1.0

    def describe(self) -> str:
        """What the command line takes."""
        return "a factor, or NAME=FACTOR,…"


@dataclass(frozen=True, kw_only=True)
class Parts(Parameter):
    """Names of parts of the model, such as joints; none of them by default."""

    def check(self, value: Any) -> Value:
        """The names."""
        if isinstance(value, str):
            value = [] if value.lower() == "none" else value.split(",")
        if value is None or (isinstance(value, list | tuple) and not value):
            return None
        if not isinstance(value, list | tuple) or not all(isinstance(v, str) for v in value):
            raise UsageError(f"{self.name} takes names, got {short(value)}")
        return tuple(name.strip() for name in value)

    def describe(self) -> str:
        """What the command line takes."""
        return "NAME,…"


def _factor(name: str, help_text: str, low: float = 1e-3) -> Factor:
    return Factor(name=name, default=1.0, bounds=(low, 1e3), help=help_text, unit="× stock")


PHYSICS: tuple[Parameter, ...] = (
    _factor("mass", "multiplies masses, by body"),
    _factor("inertia", "multiplies rotational inertias, by body"),
    _factor("damping", "multiplies the damping of joints", 0.0),
    _factor("armature", "multiplies the rotor inertia of joints", 0.0),
    _factor("friction", "multiplies friction, by geom or body", 0.0),
    _factor("gear", "multiplies what motors give, by motor or joint", -1e3),
    _factor("gravity", "multiplies gravity", -1e3),
    _factor("size", "multiplies the thickness of links, by geom or body"),
    Parts(name="cripple", default=None, help="bodies below which all motors are off"),
    Parts(name="mask", default=None, help="joints whose motors are off"),
)
"""What our wrappers change in a MuJoCo robot (see `mcat.envs.wrappers`)."""


def is_gym_id(name: object) -> bool:
    """Whether a text has the form of a gymnasium id, such as Walker2d-v5 or arm:my/Arm-v0."""
    return isinstance(name, str) and _ID.fullmatch(name) is not None


def file_safe(text: str) -> str:
    """Somebody's text as part of a file's name: no folder of it, nothing that steers a terminal."""
    return re.sub(r"[^\w.-]+", "_", text).strip("_")


def short_name(env_id: str) -> str:
    """An id as part of a file's name: no module, no version."""
    return re.sub(r"[^\w.]+", "_", env_id.rpartition(":")[2].rpartition("-v")[0])


_TYPED: set[str] = set()  # arguments with text in them that came from no file


def trust_arguments(arguments: tuple[tuple[str, str], ...]) -> None:
    """Allow arguments that are text, because somebody typed them."""
    _TYPED.update(value for _, value in arguments if '"' in value)


def _trusts_files() -> bool:
    return os.environ.get("MCAT_TRUST_FILES") == "1"


def allow_module(env_id: str) -> None:
    """Import the module in front of an id, because somebody typed it."""
    if ":" in env_id:
        import_module("environment", env_id)


def frozen_arguments(arguments: Mapping[str, Any] | None) -> tuple[tuple[str, str], ...]:
    """Keyword arguments as pairs of a name and JSON, which can be compared and hashed.

    Raises:
        UsageError: if a value is nothing that JSON can say.
    """
    if not isinstance(arguments or {}, Mapping):
        raise UsageError(f"arguments must be a table of names and values, got {short(arguments)}")
    pairs = []
    for name, value in sorted((arguments or {}).items()):
        if not isinstance(name, str) or not name.isidentifier():
            raise UsageError(f"{short(name)} is no keyword argument")
        if name in ("render_mode", "max_episode_steps"):
            raise UsageError(f"{name} is mcat's to set: use render or horizon")
        try:
            pairs.append((name, json.dumps(value, sort_keys=True, allow_nan=False)))
        except (TypeError, ValueError, RecursionError) as error:
            raise UsageError(
                f"argument {name} must be finite numbers, text or lists of them, got {short(value)}"
            ) from error
    return tuple(pairs)


def stock_horizon(env_id: str) -> int:
    """The time limit that the id was registered with.

    Raises:
        UsageError: if it has none, or there is no such id.
    """
    steps: int | None = _registered(env_id).max_episode_steps
    if steps is None:
        raise UsageError(f"{env_id} has no time limit: give a horizon (--horizon STEPS)")
    return steps


@lru_cache(maxsize=64)
def inspected(env_id: str, arguments: tuple[tuple[str, str], ...]) -> Robot:
    """The declaration of a robot, found by making it once.

    Raises:
        UsageError: if it cannot be made, or its spaces are none that mcat can learn in.
    """
    env = _bare(env_id, arguments)
    try:
        env.reset(seed=0)
        info = env.step(_middle(env))[4]
        return Robot(
            name=env_id,
            env_id=env_id,
            summary="gymnasium's own, or registered there",
            horizon=_registered(env_id).max_episode_steps or 0,
            observation_size=math.prod(env.observation_space.shape or ()),
            action_size=math.prod(env.action_space.shape or ()),
            parameters=PHYSICS,
            info=("success",) if "success" in info else (),
            suite="gymnasium",
        )
    except Exception as error:  # whatever a user's code may raise
        raise UsageError(f"{env_id} does not run: {reason(error)}") from error
    finally:
        env.close()


def parts_of(env_id: str) -> dict[str, list[str]]:
    """The names of bodies, joints and motors that factors and dead motors go by; none if no MuJoCo.

    Raises:
        UsageError: if it cannot be made.
    """
    env = _bare(env_id, ())
    try:
        if not _is_mujoco(env):
            return {}
        from mcat.envs.physics import names

        kinds = {"bodies": "body", "joints": "joint", "motors": "actuator"}
        model = env.unwrapped.model  # type: ignore[attr-defined]
        return {title: [n for n in names(model, kind) if n] for title, kind in kinds.items()}
    finally:
        env.close()


def make_env(task: Task, **kwargs: Any) -> Env:
    """The environment of such a task: one-dimensional observations, actions in [-1, 1].

    From the inside out: the id with its arguments, the time limit, changed physics, dead motors, a
    guard against MuJoCo's silent restarts, the scale of the actions, delayed rewards.
    """
    from gymnasium.wrappers import FlattenObservation, RescaleAction

    from mcat.envs.wrappers import (
        CrippleLeg,
        DelayedReward,
        MaskActuators,
        PerturbPhysics,
        StabilityGuard,
    )

    env = _bare(
        task.robot, frozen_arguments(task.arguments), max_episode_steps=task.horizon, **kwargs
    )
    changes: dict[str, Any] = dict(task.changes)
    bodies, joints = changes.pop("cripple", ()), changes.pop("mask", ())
    if changes:
        factors: Any = {k: dict(v) if isinstance(v, tuple) else v for k, v in changes.items()}
        env = PerturbPhysics(env, **factors)
    for body in bodies:
        env = CrippleLeg(env, body)
    if joints:
        env = MaskActuators(env, joints)
    if _is_mujoco(env):
        env = StabilityGuard(env)
    if len(env.observation_space.shape or ()) != 1:
        env = FlattenObservation(env)
    low, high = env.action_space.low, env.action_space.high  # type: ignore[attr-defined]
    if (low != -1).any() or (high != 1).any():
        with warnings.catch_warnings():  # of plain numbers, which its spec keeps in JSON
            warnings.filterwarnings("ignore", message=".*precision lowered")
            env = RescaleAction(env, cast(Any, -1.0), cast(Any, 1.0))
    return DelayedReward(env, task.delay) if task.delay > 1 else env


def _is_mujoco(env: Env) -> bool:
    if "mujoco" not in sys.modules:
        return False
    import mujoco

    return isinstance(getattr(env.unwrapped, "model", None), mujoco.MjModel)


def _middle(env: Env) -> Any:
    low, high = env.action_space.low, env.action_space.high  # type: ignore[attr-defined]
    return ((low + high) / 2).astype(env.action_space.dtype)


def _registered(env_id: str) -> Any:
    """What gymnasium knows of an id.

    Raises:
        UsageError: if it knows none, or it is in a module that nobody allowed.
    """
    import gymnasium as gym

    module, _, name = env_id.rpartition(":")
    if module and module not in sys.modules:
        if not _trusts_files():
            raise UsageError(
                f"{env_id} is in the module {module}, which a file may not import: if it is yours,"
                f" set MCAT_TRUST_FILES=1 (in Python: import {module})"
            )
        import_module("environment", env_id)
    if name.startswith(_OLD_GYM):
        raise UsageError(f"{name} is another library's: register your environment with gymnasium")
    try:
        return gym.spec(name)
    except gym.error.Error as error:
        known = [own for own in gym.registry if not own.startswith(("mcat/", _OLD_GYM))]
        raise unknown("robot or gymnasium id", env_id, known) from error


def _bare(env_id: str, arguments: tuple[tuple[str, str], ...], **kwargs: Any) -> Env:
    """The environment as gymnasium makes it, if its spaces will do.

    Raises:
        UsageError: saying what is wrong with them, or why it cannot be made.
    """
    import gymnasium as gym

    name = _registered(env_id).id
    strange = [key for key, value in arguments if '"' in value and value not in _TYPED]
    if strange and not _trusts_files():
        raise UsageError(
            f"{env_id} has arguments that are text, which a file may not choose"
            f" ({', '.join(strange)}): if it is yours, set MCAT_TRUST_FILES=1"
        )
    given = {key: json.loads(value) for key, value in arguments}
    try:
        env: Env = gym.make(name, disable_env_checker=True, **given, **kwargs)
    except Exception as error:  # whatever a user's code may raise
        raise UsageError(f"{env_id} cannot be made: {reason(error)}") from error
    seen, done = env.observation_space, env.action_space
    problem = ""
    if not isinstance(seen, gym.spaces.Box) or seen.dtype.kind not in "fiu":
        problem = f"its observations are {short(seen)}, not a Box of numbers: wrap it"
    elif not isinstance(done, gym.spaces.Box) or len(done.shape) != 1:
        problem = f"its actions are {short(done)}, not a Box of one dimension"
    elif not ((-math.inf < done.low) & (done.low < done.high) & (done.high < math.inf)).all():
        problem = f"its actions have no bounds ({short(done)}), so they have no scale: wrap it"
    if problem:
        env.close()
        raise UsageError(f"{env_id}: {problem}")
    return env
