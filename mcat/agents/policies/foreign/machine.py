"""What a robot's engineer must know of the machine that a policy was made for."""

from __future__ import annotations

from typing import Any

from mcat.envs.families import FAMILIES
from mcat.envs.tasks import Task

_PLACES = ("x", "y", "z", "qw", "qx", "qy", "qz")
_SPEEDS = ("vx", "vy", "vz", "wx", "wy", "wz")


def facts_of_task(task: Task) -> dict[str, Any]:
    """Names in their order and the control rate; nothing where no simulator is installed.

    Of a robot that is not mcat's only what gymnasium's MuJoCo robots have: the rate.
    """
    if not task.own:
        env = task.make()
        dt = getattr(env.unwrapped, "dt", None)
        env.close()
        return {"control_rate_hz": round(1 / dt, 6)} if isinstance(dt, float) and dt > 0 else {}
    try:
        from mcat.envs.env import simulate

        simulation = simulate(task)
    except ImportError:
        return {}
    facts: dict[str, Any] = {"control_rate_hz": simulation.rate_hz}
    # On a table and in a mirror, numbers are not those of joints in the order of the model.
    if task.on_table or task.params.get("view") == "mirror":
        return facts
    positions: list[str] = []
    velocities: list[str] = []
    model = simulation.model
    for number in range(model.njnt):
        joint = model.joint(number)
        if len(joint.qpos0) == len(_PLACES):
            positions += [f"{joint.name} {part}" for part in _PLACES]
            velocities += [f"{joint.name} {part}" for part in _SPEEDS]
        else:
            positions.append(f"{joint.name} position")
            velocities.append(f"{joint.name} velocity")
    shown = len(simulation.observation_low) - len(velocities)
    facts["observation_names"] = positions[len(positions) - shown :] + velocities
    facts["action_names"] = [
        model.joint(int(model.actuator(number).trnid[0])).name for number in range(model.nu)
    ]
    return facts


def facts_of_family(name: str) -> dict[str, Any]:
    """The same of a family of ours, whose tasks are alike in this."""
    return facts_of_task(FAMILIES[name].train[0]) if name in FAMILIES else {}
