"""What a robot's engineer must know of the machine that a policy was made for."""

from __future__ import annotations

from typing import Any

from mcat.envs.tasks import Task
from mcat.errors import UsageError

_PLACES = ("x", "y", "z", "qw", "qx", "qy", "qz")
_SPEEDS = ("vx", "vy", "vz", "wx", "wy", "wz")


def facts_of_task(task: Task) -> dict[str, Any]:
    """Names in their order and the control rate; nothing where no simulator is installed.

    Of a robot that is not mcat's what gymnasium's MuJoCo robots tell of themselves.
    """
    try:
        if not task.own:
            return _facts_of_id(task)
        from mcat.envs.env import simulate

        simulation = simulate(task)
    except (ImportError, UsageError):  # or nobody here may make it
        return {}
    facts: dict[str, Any] = {"control_rate_hz": simulation.rate_hz}
    # On a table and in a mirror, numbers are not those of joints in the order of the model.
    if task.on_table or task.params.get("view") == "mirror":
        return facts
    positions, velocities = _joints(simulation.model)
    shown = len(simulation.observation_low) - len(velocities)
    facts["observation_names"] = positions[len(positions) - shown :] + velocities
    facts["action_names"] = _motors(simulation.model)
    return facts


def _facts_of_id(task: Task) -> dict[str, Any]:
    env = task.make()
    robot: Any = env.unwrapped
    env.close()
    facts: dict[str, Any] = {}
    if isinstance(dt := getattr(robot, "dt", None), float) and dt > 0:
        facts["control_rate_hz"] = round(1 / dt, 6)
    parts = getattr(robot, "observation_structure", None)
    if not isinstance(parts, dict) or not {"skipped_qpos", "qpos", "qvel"} <= parts.keys():
        return facts
    positions, velocities = _joints(robot.model)
    names = positions[parts["skipped_qpos"] :] + velocities
    for part, size in parts.items():
        if part not in ("skipped_qpos", "qpos", "qvel"):
            names += [f"{part} {number}" for number in range(size)]
    motors = _motors(robot.model)
    if (len(names), len(motors)) == (task.spec.observation_size, task.spec.action_size):
        facts |= {"observation_names": names, "action_names": motors}
    return facts


def _joints(model: Any) -> tuple[list[str], list[str]]:
    """Names of all positions and of all velocities."""
    positions: list[str] = []
    velocities: list[str] = []
    for number in range(model.njnt):
        joint = model.joint(number)
        if len(joint.qpos0) == len(_PLACES):
            positions += [f"{joint.name} {part}" for part in _PLACES]
            velocities += [f"{joint.name} {part}" for part in _SPEEDS]
        else:
            positions.append(f"{joint.name} position")
            velocities.append(f"{joint.name} velocity")
    return positions, velocities


def _motors(model: Any) -> list[str]:
    return [model.joint(int(model.actuator(number).trnid[0])).name for number in range(model.nu)]
