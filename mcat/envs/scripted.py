"""Meta-World's scripted policies as mcat policies on the 14-number state."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from mcat.envs.robots import ROBOTS
from mcat.errors import UsageError, unknown
from mcat.types import PolicyFunction

SCRIPTED = tuple(name for name, robot in ROBOTS.items() if robot.suite == "metaworld")
"""Robots for which there is a script."""


class Script(NamedTuple):
    """A script of Meta-World, and how much higher than it is the object is shown to it."""

    robot: str
    raised: float = 0.0  # m


SCRIPTS = {name: Script(name) for name in SCRIPTED} | {
    "push-high": Script("push", 0.03),
    "sweep-high": Script("sweep-into", 0.01),
}
"""Scripted policies by name: each robot's own, and two that are shown their object higher, without
which they would earn little on the targets of Table 1 even with the fingers that they are used to
(docs/metaworld.md#which-source-policy)."""

SOURCE_POLICY = {"sweep-into": "push", "coffee-push": "sweep-high"}
"""Target robot → scripted policy that acts in the source task "push" when transferring to it
(docs/decisions.md#which-script-is-the-source-policy)."""


class _HasRobot(Protocol):
    @property
    def robot(self) -> str: ...


def scripted_policy(task: str | _HasRobot, goal: Sequence[float] | None = None) -> PolicyFunction:
    """Meta-World's hand-written policy for a task.

    Args:
        task: A Meta-World robot such as "push", a `Task` of one, or another name in `SCRIPTS`.
        goal: Aim here rather than at the goal in the observations.

    Returns:
        A stateless policy `(n, 14) -> (n, 4)`, `(n, 3) -> (n, 3)` for "reach-hand", clipped to ±1.
    """
    name = task if isinstance(task, str) else task.robot
    if name not in SCRIPTS:
        raise unknown("scripted policy", name, SCRIPTS)
    robot, raised = SCRIPTS[name]
    aim = None if goal is None else np.asarray(goal, dtype=np.float64)
    if aim is not None and aim.shape != (3,):
        raise UsageError(f"goal takes 3 numbers, got {goal!r}")
    seen, moved = ROBOTS[robot].observation_size, ROBOTS[robot].action_size
    if aim is None and seen == 3:
        raise UsageError(f"{name} does not see its goal: give the task one, as --goal x,y,z")

    from metaworld.policies import ENV_POLICY_MAP  # takes a second to import

    scripts: dict[str, Any] = ENV_POLICY_MAP
    script = scripts[f"{robot.removesuffix('-hand')}-v3"]()

    def act(observations: NDArray[Any]) -> NDArray[np.float32]:
        full = np.zeros((len(observations), 39))  # the rest is never read by these seven
        seen_first = min(seen, 11)  # the goal is Meta-World's last
        full[:, :seen_first] = observations[:, :seen_first]
        full[:, 6] += raised
        full[:, 36:] = observations[:, 11:] if aim is None else aim
        with warnings.catch_warnings():  # one per batch: it warns of each action that we clip
            warnings.simplefilter("ignore")
            actions = [script.get_action(row) for row in full]
        clipped = np.clip(np.reshape(actions, (len(full), 4)), -1.0, 1.0).astype(np.float32)
        return clipped[:, :moved]

    return act
