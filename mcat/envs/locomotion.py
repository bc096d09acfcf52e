"""Hopper, HalfCheetah, Ant and the three-legged HalfCheetah (docs/decisions.md#machines).

The models are gymnasium's own XML files; with default parameters every step, observation and
reward equals gymnasium's v5 environments (Hopper and Ant without termination, Ant without contact
forces). No environment here ever terminates.
"""

from __future__ import annotations

import copy
import math
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import mujoco
import numpy as np
from numpy.typing import NDArray

from mcat.envs.physics import actuators_below, dofs_of, mark_body, refresh_constants
from mcat.envs.simulation import Array, Simulation

# T-MCL's numbering, which the paper uses. The actuators are not in leg order: look them up.
ANT_LEGS = ("front_left_leg", "front_right_leg", "back_leg", "right_back_leg")


class Mirror(NamedTuple):
    """A robot as it looks in a mirror: left and right change places; `value[order] * sign`."""

    observation_order: NDArray[np.int64]
    observation_sign: Array
    action_order: NDArray[np.int64]
    action_sign: Array

    def observations(self, values: NDArray[Any]) -> NDArray[Any]:
        """Observations `(..., obs)` as they look in the mirror, in the same numbers' type."""
        seen: NDArray[Any] = values[..., self.observation_order]
        seen *= self.observation_sign.astype(values.dtype)
        return seen

    def actions(self, values: NDArray[Any]) -> NDArray[Any]:
        """Actions `(..., act)` as they look in the mirror."""
        seen: NDArray[Any] = values[..., self.action_order]
        seen *= self.action_sign.astype(values.dtype)
        return seen


class Locomotion(Simulation):
    """A robot that is paid for moving along x.

    Args:
        model: The compiled model, with the task's physics already in it.
        frame_skip: Physics steps per action.
        skip_qpos: Leading positions the observation leaves out (x, or x and y).
        velocity_limit: Observed velocities are clipped to this.
        alive: Paid every step, fallen or not (docs/decisions.md#when-an-episode-ends).
        control_cost: Times the squared control of the working motors.
        torso: Body whose x is measured; None takes the root joint's.
        position_noise: Half-width of the uniform noise on the initial positions.
        velocity_noise: Scale of the initial velocities.
        normal_velocity: Whether those are normal rather than uniform.
        dead_actuators: Motors that do nothing.
        mirror: Show observations, and take actions, as in a mirror.
    """

    def __init__(
        self,
        model: mujoco.MjModel,
        *,
        frame_skip: int,
        skip_qpos: int = 1,
        velocity_limit: float = math.inf,
        alive: float = 0.0,
        control_cost: float = 0.0,
        torso: str | None = None,
        position_noise: float = 0.1,
        velocity_noise: float = 0.1,
        normal_velocity: bool = True,
        dead_actuators: tuple[int, ...] = (),
        mirror: Mirror | None = None,
    ) -> None:
        data = mujoco.MjData(model)
        super().__init__(model, data, frame_skip)
        self.velocity_limit = velocity_limit
        self.alive = alive
        self.control_cost = control_cost
        self.position_noise = position_noise
        self.velocity_noise = velocity_noise
        self.normal_velocity = normal_velocity
        self.dead_actuators = list(dead_actuators)
        self.mirror = mirror
        self._ctrl = data.ctrl
        self._x = data.qpos[:1] if torso is None else data.body(torso).xpos[:1]
        self._positions, self._velocities = data.qpos[skip_qpos:], data.qvel
        self._velocity: float = 0.0
        self._split = model.nq - skip_qpos
        size = self._split + model.nv
        self.observation_low = np.full(size, -np.inf)
        self.observation_high = np.full(size, np.inf)

    def reset(self, rng: np.random.Generator) -> None:
        """Draw the initial state exactly as gymnasium's v5 environments do."""
        model, data, noise = self.model, self.data, self.velocity_noise
        mujoco.mj_resetData(model, data)
        spread = self.position_noise
        data.qpos[:] = model.qpos0 + rng.uniform(-spread, spread, size=model.nq)
        if self.normal_velocity:
            data.qvel[:] = noise * rng.standard_normal(model.nv)
        else:
            data.qvel[:] = rng.uniform(-noise, noise, size=model.nv)
        mujoco.mj_forward(model, data)
        self._velocity = 0.0
        self.forget_faults()

    def advance(self, action: Array) -> float:
        """Velocity along x, plus the bonus for being alive, minus the cost of control."""
        if self.mirror is not None:
            action = self.mirror.actions(action)
        self._ctrl[:] = action
        if self.dead_actuators:
            self._ctrl[self.dead_actuators] = 0.0
        before: float = self._x.item()
        mujoco.mj_step(self.model, self.data, self.frame_skip)
        self._velocity = (self._x.item() - before) / self.step_time
        # Unlike `dot`, `vdot` does not print a warning when huge squares overflow.
        cost = self.control_cost * float(np.vdot(self._ctrl, self._ctrl))
        return self._velocity + self.alive - cost

    def observe(self, out: Array) -> None:
        """Positions without x (and y), then velocities."""
        out[: self._split] = self._positions
        out[self._split :] = self._velocities
        if self.velocity_limit < math.inf:
            limit, velocities = self.velocity_limit, out[self._split :]
            np.clip(velocities, -limit, limit, out=velocities)
        if self.mirror is not None:
            out[:] = self.mirror.observations(out)

    def info(self) -> dict[str, Any]:
        """Where the robot is and how fast it went."""
        return {"x_position": self._x.item(), "x_velocity": self._velocity}


def build(robot: str, **parameters: Any) -> Locomotion:
    """The simulation of a locomotion robot with these parameters, all of them given."""
    return _BUILDERS[robot](**parameters)


def _hopper(*, size: float) -> Locomotion:
    """Every capsule's radius grows by size/0.05 (docs/decisions.md#the-size-of-a-hopper)."""
    spec = mujoco.MjSpec.from_file(_asset("hopper.xml"))
    for geom in spec.geoms:
        if geom.type == mujoco.mjtGeom.mjGEOM_CAPSULE:
            geom.size = [geom.size[0] * (size / 0.05), *geom.size[1:]]
    return Locomotion(
        spec.compile(),
        frame_skip=4,
        velocity_limit=10.0,
        alive=1.0,
        control_cost=0.001,
        position_noise=0.005,
        velocity_noise=0.005,
        normal_velocity=False,
    )


def _halfcheetah(*, armature: float, mass: float, inertia: float) -> Locomotion:
    model = mujoco.MjModel.from_xml_path(_asset("half_cheetah.xml"))
    # The three root joints keep 0 (docs/decisions.md#armature-is-a-value); mass is changed after
    # compilation, which would normalise it to 14 kg (docs/decisions.md#mass-without-inertia).
    model.dof_armature[3:] = armature
    model.body_mass[:] *= mass
    model.body_inertia[:] *= inertia
    refresh_constants(model)
    return Locomotion(model, frame_skip=5, control_cost=0.1)


def _halfcheetah3leg(*, armature: float) -> Locomotion:
    model = mujoco.MjModel.from_xml_string(three_leg_xml())
    model.dof_armature[3:] = armature
    refresh_constants(model)
    return Locomotion(model, frame_skip=5, control_cost=0.1)


def _ant(
    *, cripple: int | None, damping: float, control_cost: float, semantics: str, view: str
) -> Locomotion:
    model = mujoco.MjModel.from_xml_path(_asset("ant.xml"))
    # Legs 0 and 1, or as released leg 0 (docs/decisions.md#which-legs-damping-changes); what
    # control costs is in docs/decisions.md#the-control-cost-of-the-ant.
    multiplied = 2 if semantics == "paper" else 1
    for leg in range(4):
        hinges = dofs_of(model, [f"hip_{leg + 1}", f"ankle_{leg + 1}"])
        model.dof_damping[hinges] *= damping if leg < multiplied else 1.0 / damping
    dead: tuple[int, ...] = ()
    if cripple is not None:
        dead = tuple(actuators_below(model, ANT_LEGS[cripple]))
        mark_body(model, ANT_LEGS[cripple])
    return Locomotion(
        model,
        frame_skip=5,
        skip_qpos=2,
        alive=0.05,
        control_cost=control_cost,
        torso="torso",
        dead_actuators=dead,
        mirror=ant_mirror() if view == "mirror" else None,
    )


@cache
def ant_mirror() -> Mirror:
    """The ant's legs 0 and 3 stand to the left and right of x, in front; 1 and 2 behind them.

    In a mirror along x their hips, which turn about the vertical, turn the other way round, and
    their ankles the same way; of the torso y, the turns about x and z, and their speeds change
    sign.
    """
    pairs = np.array([6, 7, 4, 5, 2, 3, 0, 1])  # hip and ankle of each leg
    joints = np.tile([-1.0, 1.0], 4)
    motors = np.array([2, 3, 0, 1, 6, 7, 4, 5])  # their legs are 3, 0, 1, 2
    return Mirror(
        np.concatenate([np.arange(5), 5 + pairs, 13 + np.arange(6), 19 + pairs]),
        np.concatenate([[1, 1, -1, 1, -1], joints, [1, -1, 1, -1, 1, -1], joints]),
        motors,
        joints,
    )


_BUILDERS: dict[str, Callable[..., Locomotion]] = {
    "hopper": _hopper,
    "halfcheetah": _halfcheetah,
    "halfcheetah3leg": _halfcheetah3leg,
    "ant": _ant,
}


@cache
def three_leg_xml() -> str:
    """Gymnasium's cheetah with its rear leg doubled and the two splayed in y, as in Zhang et al.

    The second rear leg follows the first in the tree, so positions, velocities and motors come
    in the order rear, second rear, front. The compiler still normalises the total mass to 14 kg
    (docs/decisions.md#a-cheetah-with-three-legs).
    """
    tree = ElementTree.parse(_asset("half_cheetah.xml"))
    root = tree.getroot()
    torso, motors = root.find(".//body[@name='torso']"), root.find("actuator")
    assert torso is not None
    assert motors is not None
    first = torso.find("body[@name='bthigh']")
    assert first is not None
    second = copy.deepcopy(first)
    _splay(first, side=1.0)
    _splay(second, side=-1.0)
    for element in second.iter():
        if "name" in element.attrib:
            element.set("name", element.attrib["name"] + "2")
    torso.insert(list(torso).index(first) + 1, second)
    rear = [motor for motor in motors if motor.attrib["joint"] in ("bthigh", "bshin", "bfoot")]
    for offset, motor in enumerate(rear):
        twin = copy.deepcopy(motor)
        for key in ("name", "joint"):
            twin.set(key, twin.attrib[key] + "2")
        motors.insert(len(rear) + offset, twin)
    return ElementTree.tostring(root, encoding="unicode")


def _splay(thigh: ElementTree.Element, side: float) -> None:
    """Move the capsules of a rear leg outwards; the joints stay in the plane."""
    capsules = {
        "bthigh": {"pos": (0, 0.1 * side, -0.13), "axisangle": (1, 0, 0, 0.785 * side),
                   "size": (0.046, 0.145)},
        "bshin": {"pos": (-0.29, 0.25 * side, -0.07), "axisangle": (0, 1, 0, -2.03),
                  "size": (0.046, 0.15)},
        "bfoot": {"pos": (-0.12, 0.28 * side, -0.127), "axisangle": (0, 1, 0, -0.27),
                  "size": (0.046, 0.094)},
    }  # fmt: skip
    for body in thigh.iter("body"):
        geom = body.find("geom")
        assert geom is not None
        for key, numbers in capsules[body.attrib["name"]].items():
            geom.set(key, " ".join(f"{number:g}" for number in numbers))


def _asset(name: str) -> str:
    import gymnasium.envs.mujoco

    return str(Path(gymnasium.envs.mujoco.__file__).parent / "assets" / name)
