"""Task families through gymnasium: `Task`, `Family`, `TaskVectorEnv`, wrappers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcat.envs.families import FAMILIES, family
from mcat.envs.robots import ROBOTS, Parameter, Robot, robot
from mcat.envs.tasks import Family, Task
from mcat.lazy import on_first_use

if TYPE_CHECKING:
    from mcat.envs.env import TaskEnv
    from mcat.envs.lockstep import in_lockstep
    from mcat.envs.objects import task_of
    from mcat.envs.scripted import scripted_policy
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
    "in_lockstep",
    "robot",
    "scripted_policy",
    "task_of",
]

# These import gymnasium and mujoco, which `import mcat` must not.
__getattr__ = on_first_use(__name__)
