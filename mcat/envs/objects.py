"""Tasks of environments that have no id: objects, classes and functions of one's own, in Python."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import gymnasium as gym

from mcat.envs.gym_robots import is_gym_id
from mcat.envs.tasks import Task
from mcat.errors import UsageError, short
from mcat.own_code import reason

Env = gym.Env[Any, Any]
_MADE_OF: dict[str, object] = {}  # what the ids of this module were registered for


def task_of(
    env: Env | Callable[..., Env],
    name: str | None = None,
    *,
    horizon: int | None = None,
    **parameters: Any,
) -> Task:
    """A task of an environment of one's own, for whatever takes tasks: collect, train, a family.

    It is registered with gymnasium under its name; a run of it is resumed after the same call.

    Args:
        env: An environment, of which copies are made as it is now, wrappers included; or a class or
            function that makes one, which is given `arguments`.
        name: What files and tables call it; that of the class or function by default.
        horizon: Steps per episode at most; the time limit that it was made with by default.
        **parameters: As `Task` takes them: `delay`, `arguments`, `mass` and so on.

    Raises:
        UsageError: if it is no environment, cannot be copied, has no time limit, or its name is
            taken.
    """
    if isinstance(env, gym.Env):
        make, kind = _copies(env), type(env.unwrapped).__name__
        horizon = horizon or getattr(env.spec, "max_episode_steps", None)
    elif isinstance(env, gym.vector.VectorEnv):
        raise UsageError("a vector of environments acts by in_lockstep; a task has one of them")
    elif callable(env):
        make, kind = env, getattr(env, "__name__", type(env).__name__)
    else:
        raise UsageError(f"{short(env)} is no environment, nor does it make one")
    env_id = f"{name or kind.strip('_<>')}-v0"
    if not is_gym_id(env_id) or ":" in env_id:
        raise UsageError(f"{short(name or kind)} is no name: letters, digits, - and _ will do")
    if env_id not in gym.registry:
        gym.register(env_id, entry_point=make)
        _MADE_OF[env_id] = env
    elif _MADE_OF.get(env_id) is not env:
        raise UsageError(f"there is another {env_id} already: give a name")
    return Task(env_id, horizon=horizon, **parameters)


def _copies(env: Env) -> Callable[..., Env]:
    try:
        first = copy.deepcopy(env)
    except Exception as error:  # whatever an object of somebody's may raise
        raise UsageError(
            f"{short(env)} cannot be copied ({reason(error)}): give the class or function that"
            " makes it"
        ) from error

    def make(render_mode: str | None = None) -> Env:
        return copy.deepcopy(first)

    return make
