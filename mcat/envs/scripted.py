"""Meta-World's scripted policies as mcat policies on the 14-number state."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from mcat.envs.robots import ROBOTS
from mcat.errors import UsageError, unknown
from mcat.types import PolicyFunction

SCRIPTED = tuple(name for name, robot in ROBOTS.items() if robot.suite == "metaworld")
"""Robots for which there is a script."""

SOURCE_POLICY = {"sweep-into": "push", "coffee-push": "sweep-into"}
"""Target robot → scripted policy that acts in the source task "push" when transferring to it
(docs/decisions.md#which-script-is-the-source-policy).

The push policy cannot serve for the mug: it heads for the goal only once the hand is within 4 cm
of the object's height, the mug's origin is at the table, and the hand stops 5 cm above it.
"""


class _HasRobot(Protocol):
    @property
    def robot(self) -> str: ...


def scripted_policy(task: str | _HasRobot, goal: Sequence[float] | None = None) -> PolicyFunction:
    """Meta-World's hand-written policy for a task.

    Args:
        task: A Meta-World robot such as "push", or a `Task` of one.
        goal: Aim here rather than at the goal in the observations.

    Returns:
        A stateless policy `(n, 14) -> (n, 4)`, `(n, 3) -> (n, 3)` for "reach-hand", clipped to ±1.
    """
    name = task if isinstance(task, str) else task.robot
    if name not in SCRIPTED:
        raise unknown("scripted policy", name, SCRIPTED)
    aim = None if goal is None else np.asarray(goal, dtype=np.float64)
    if aim is not None and aim.shape != (3,):
        raise UsageError(f"goal takes 3 numbers, got {goal!r}")
    seen, moved = ROBOTS[name].observation_size, ROBOTS[name].action_size
    if aim is None and seen == 3:
        raise UsageError(f"{name} does not see its goal: give the task one, as --goal x,y,z")

    from metaworld.policies import ENV_POLICY_MAP  # takes a second to import

    scripts: dict[str, Any] = ENV_POLICY_MAP
    script = scripts[f"{name.removesuffix('-hand')}-v3"]()

    def act(observations: NDArray[Any]) -> NDArray[np.float32]:
        full = np.zeros((len(observations), 39))  # the rest is never read by these seven
        seen_first = min(seen, 11)  # the goal is Meta-World's last
        full[:, :seen_first] = observations[:, :seen_first]
        full[:, 36:] = observations[:, 11:] if aim is None else aim
        with warnings.catch_warnings():  # one per batch: it warns of each action that we clip
            warnings.simplefilter("ignore")
            actions = [script.get_action(row) for row in full]
        clipped = np.clip(np.reshape(actions, (len(full), 4)), -1.0, 1.0).astype(np.float32)
        return clipped[:, :moved]

    return act
