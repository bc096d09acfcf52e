"""Task families through gymnasium: `Task`, `Family`, `TaskVectorEnv`, wrappers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mcat.envs.families import FAMILIES, family
from mcat.envs.robots import ROBOTS, Parameter, Robot, robot
from mcat.envs.tasks import Family, Task

if TYPE_CHECKING:
    from mcat.envs.env import TaskEnv
    from mcat.envs.vector import TaskVectorEnv

__all__ = [
    "FAMILIES",
    "ROBOTS",
    "Family",
    "Parameter",
    "Robot",
    "Task",
    "TaskEnv",
    "TaskVectorEnv",
    "family",
    "robot",
]

# These two import gymnasium and mujoco, which `import mcat` must not.
_HEAVY = {"TaskEnv": "mcat.envs.env", "TaskVectorEnv": "mcat.envs.vector"}


def __getattr__(name: str) -> Any:
    if name in _HEAVY:
        from importlib import import_module

        return getattr(import_module(_HEAVY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
