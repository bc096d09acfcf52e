"""Names, faults and changed physics of MuJoCo models; nothing here knows gymnasium.

Importing this module sends MuJoCo's warnings to the logger `mcat.mujoco` (level debug) instead of
the terminal and a `MUJOCO_LOG.TXT` in the user's directory; `FAULTS` names those that matter.
"""

from __future__ import annotations

import copy
import logging
import sys
from collections.abc import Mapping, Sequence

import mujoco
import numpy as np
from numpy.typing import NDArray

from mcat.errors import UsageError, short, unknown

FAULTS: dict[int, str] = {
    int(mujoco.mjtWarning.mjWARN_BADQPOS): "BADQPOS",
    int(mujoco.mjtWarning.mjWARN_BADQVEL): "BADQVEL",
    int(mujoco.mjtWarning.mjWARN_BADQACC): "BADQACC",
    int(mujoco.mjtWarning.mjWARN_BADCTRL): "BADCTRL",
}
"""MuJoCo's warnings about a state or control that is not a number or far too large."""

LARGEST: float = mujoco.mjMAXVAL
"""MuJoCo's own limit of what a state may be: 1e10."""

Factors = float | Mapping[str, float]
"""One factor for everything of a kind, or one per name."""

mujoco.set_mju_user_warning(logging.getLogger("mcat.mujoco").debug)


def fault(data: mujoco.MjData) -> str | None:
    """What went wrong since the warning counters were last cleared, such as "BADQACC@dof 3"."""
    for kind, name in FAULTS.items():
        if data.warning.number[kind]:
            return f"{name}@dof {data.warning.lastinfo[kind]}"
    return None


def sensible(reward: float) -> bool:
    """Whether a reward is a number, and not beyond what MuJoCo calls too large in a state."""
    return -LARGEST <= reward <= LARGEST  # NaN is not


# --- names ----------------------------------------------------------------------------------------


def names(model: mujoco.MjModel, kind: str) -> list[str]:
    """The names of every "body", "joint", "geom" or "actuator", "" for the unnamed."""
    count = {"body": model.nbody, "joint": model.njnt, "geom": model.ngeom, "actuator": model.nu}
    return [getattr(model, kind)(index).name for index in range(count[kind])]


def _index(model: mujoco.MjModel, kind: str, name: str) -> int:
    known = names(model, kind)
    if not name or name not in known:
        raise unknown(kind, name, filter(None, known))
    return known.index(name)


def _driven_joints(model: mujoco.MjModel) -> NDArray[np.int64]:
    """The joint each actuator drives, -1 if it drives something else (a tendon, a site)."""
    by_joint = np.isin(
        model.actuator_trntype,
        [mujoco.mjtTrn.mjTRN_JOINT, mujoco.mjtTrn.mjTRN_JOINTINPARENT],
    )
    return np.where(by_joint, model.actuator_trnid[:, 0], -1)


def _subtree(model: mujoco.MjModel, body: str) -> set[int]:
    bodies = {_index(model, "body", body)}
    for index in range(1, model.nbody):  # parents come before their children
        if model.body_parentid[index] in bodies:
            bodies.add(index)
    return bodies


def actuators_below(model: mujoco.MjModel, body: str) -> list[int]:
    """The actuators whose joints sit on `body` or on anything attached to it.

    Found through the joints, never by position: Ant's motors have no names and are not in leg
    order.
    """
    bodies = _subtree(model, body)
    found = [
        actuator
        for actuator, joint in enumerate(_driven_joints(model))
        if joint >= 0 and model.jnt_bodyid[joint] in bodies
    ]
    if not found:
        raise UsageError(f"no motor drives a joint at or below body '{body}'")
    return found


def actuators_of(model: mujoco.MjModel, joints: Sequence[str]) -> list[int]:
    """The actuators that drive these joints, in the order asked for."""
    driven = _driven_joints(model)
    found: list[int] = []
    for name in joints:
        actuators = np.flatnonzero(driven == _index(model, "joint", name)).tolist()
        if not actuators:
            motorised = [model.joint(joint).name for joint in driven if joint >= 0]
            raise UsageError(f"joint '{name}' has no motor: choose from {', '.join(motorised)}")
        found += actuators
    return found


def dofs_of(model: mujoco.MjModel, joints: Sequence[str]) -> list[int]:
    """The degrees of freedom of these joints (six for a free joint), in the order asked for."""
    owners = [_index(model, "joint", name) for name in joints]
    return [int(dof) for joint in owners for dof in np.flatnonzero(model.dof_jntid == joint)]


def mark_body(model: mujoco.MjModel, body: str) -> None:
    """Paint `body` and everything attached to it red; looks only, physics is left alone."""
    geoms = np.isin(model.geom_bodyid, list(_subtree(model, body)))
    model.geom_rgba[geoms] = (0.9, 0.1, 0.1, 1.0)


# --- whole models ---------------------------------------------------------------------------------


def refresh_constants(model: mujoco.MjModel) -> None:
    """Recompute what MuJoCo derives from masses and inertias; stale, it bends the joint limits.

    `mj_setConst` overwrites the state of the data it is given, hence the scratch copy.
    """
    mujoco.mj_setConst(model, mujoco.MjData(model))


_PARTS = ("actuator_", "body_", "bvh_", "cam_", "dof_", "geom_", "jnt_", "light_", "tendon_")
_LOOKS = ("_rgba", "_matid", "_group")
_ARRAYS = [n for n in dir(mujoco.MjModel) if n.startswith(_PARTS) and not n.endswith(_LOOKS)]


def snapshot(model: mujoco.MjModel) -> mujoco.MjModel:
    """A copy of the model to `restore` from later."""
    return copy.deepcopy(model)


def restore(model: mujoco.MjModel, saved: mujoco.MjModel) -> None:
    """Give `model` the physics of `saved`, a model of the same robot, in place.

    Data, renderers and environments that hold `model` keep working. Colours stay as they are.
    """
    for name in _ARRAYS:
        getattr(model, name)[...] = getattr(saved, name)
    model.opt.gravity[:] = saved.opt.gravity
    model.stat.center[:] = saved.stat.center
    for name in ("extent", "meaninertia", "meanmass", "meansize"):  # the solver's scale
        setattr(model.stat, name, getattr(saved.stat, name))


# --- changed physics ------------------------------------------------------------------------------

QUANTITIES: dict[str, str] = {
    "mass": "body",
    "inertia": "body",
    "damping": "joint",
    "armature": "joint",
    "friction": "geom",
    "gear": "actuator",
    "gravity": "",
    "size": "geom",
}
"""What `perturb` can scale, and whose names it goes by."""

_ABOVE_ZERO = ("mass", "inertia", "size")
_ANY_SIGN = ("gear", "gravity")


def perturb(
    pristine: mujoco.MjModel, changes: Mapping[str, Factors], xml_path: str | None = None
) -> mujoco.MjModel:
    """A new model whose quantities are those of `pristine` times the given factors.

    Size goes first and through the compiler, so that mass and inertia follow the geometry. It
    scales the radius of capsules and cylinders (a link gets thicker, its joints stay where they
    are) and every extent of spheres, boxes and ellipsoids.

    Args:
        pristine: The model to start from; it is left alone.
        changes: By quantity (`QUANTITIES`) one factor for all, or `{name: factor}`. Actuators also
            go by the name of their joint and geoms by that of their body, as many have no own.
        xml_path: The file `pristine` was read from; only size needs it.
    """
    for quantity, factors in changes.items():
        _check(quantity, factors)
    model = snapshot(pristine)
    if "size" in changes:
        _resize(model, changes["size"], xml_path)
    arrays: dict[str, NDArray[np.float64]] = {
        "mass": model.body_mass,
        "inertia": model.body_inertia,
        "damping": model.dof_damping,
        "armature": model.dof_armature,
        "friction": model.geom_friction,
        "gear": model.actuator_gear,
        "gravity": model.opt.gravity,
    }
    for quantity in changes.keys() & arrays.keys():
        scales = _scales(model, quantity, changes[quantity], len(arrays[quantity]))
        if not arrays[quantity][scales != 1.0].any() and (scales != 1.0).any():
            raise UsageError(f"{quantity} is 0 there: a factor cannot change it")
        arrays[quantity].T[...] *= scales
    refresh_constants(model)
    return model


def _check(quantity: str, factors: Factors) -> None:
    if quantity not in QUANTITIES:
        raise unknown("quantity", quantity, QUANTITIES)
    if isinstance(factors, Mapping) and not QUANTITIES[quantity]:
        raise UsageError(f"{quantity} takes one factor, not one per name")
    for factor in factors.values() if isinstance(factors, Mapping) else [factors]:
        number = isinstance(factor, int | float) and not isinstance(factor, bool)
        if not number or not abs(factor) <= sys.float_info.max:  # as NaN is not, nor 10**400
            raise UsageError(f"{quantity} must be a finite factor, got {short(factor)}")
        if factor == 0 and quantity in _ABOVE_ZERO:
            raise UsageError(f"{quantity} must be a factor above 0, got {factor!r}")
        if factor < 0 and quantity not in _ANY_SIGN:
            raise UsageError(f"{quantity} must not be negative, got {factor!r}")


def _scales(
    model: mujoco.MjModel, quantity: str, factors: Factors, rows: int
) -> NDArray[np.float64]:
    """The factor of every row of an array."""
    if not isinstance(factors, Mapping):
        return np.full(rows, float(factors))
    scales = np.ones(rows)
    for name, factor in factors.items():
        scales[_rows(model, QUANTITIES[quantity], name)] *= factor
    return scales


def _rows(model: mujoco.MjModel, kind: str, name: str) -> list[int]:
    """Where the arrays of a kind ("joint" means its degrees of freedom) hold what `name` names."""
    if kind == "joint":
        return dofs_of(model, [name])
    if kind == "actuator" and name not in names(model, "actuator"):
        return actuators_of(model, [name])
    if kind == "geom" and name not in names(model, "geom") and name in names(model, "body"):
        return np.flatnonzero(model.geom_bodyid == _index(model, "body", name)).tolist()
    return [_index(model, kind, name)]


_EXTENTS: dict[int, int] = {  # how many of a geom's size numbers grow with the body
    int(mujoco.mjtGeom.mjGEOM_SPHERE): 1,
    int(mujoco.mjtGeom.mjGEOM_CAPSULE): 1,
    int(mujoco.mjtGeom.mjGEOM_CYLINDER): 1,
    int(mujoco.mjtGeom.mjGEOM_ELLIPSOID): 3,
    int(mujoco.mjtGeom.mjGEOM_BOX): 3,
}


def _resize(model: mujoco.MjModel, factors: Factors, xml_path: str | None) -> None:
    """Recompile with scaled geoms and give `model` the result in place.

    Never through `spec.to_xml()`, which drops `settotalmass`.
    """
    if xml_path is None:
        raise UsageError("size needs a robot that was read from an XML file")
    spec = mujoco.MjSpec.from_file(xml_path)
    for index, geom in enumerate(spec.geoms):  # a name is the only way from spec to model
        geom.name = geom.name or f"unnamed geom {index}"
    original = spec.compile()
    for name in _ARRAYS:
        if not np.array_equal(getattr(original, name), getattr(model, name)):
            raise UsageError(f"size starts from {xml_path}, but the robot's {name} differs from it")
    scales = _scales(model, "size", factors, model.ngeom)
    if not np.isin(model.geom_type[scales != 1.0], list(_EXTENTS)).any() and (scales != 1.0).any():
        raise UsageError("size can scale spheres, capsules, cylinders, boxes and ellipsoids only")
    for geom in spec.geoms:
        extents = np.array(geom.size)
        extents[: _EXTENTS.get(int(geom.type), 0)] *= scales[original.geom(geom.name).id]
        geom.size = extents
    resized = spec.compile()
    resized.opt.gravity[:] = model.opt.gravity  # may have been changed since the file was read
    restore(model, resized)
