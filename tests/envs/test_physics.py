"""Names, constants and changed physics of MuJoCo models."""

import logging
import math
import subprocess
import sys
from pathlib import Path

import gymnasium as gym
import mujoco
import numpy as np
import pytest

from mcat.envs import physics
from mcat.errors import UsageError

ASSETS = Path(gym.__file__).parent / "envs" / "mujoco" / "assets"
ROBOTS = ("hopper", "half_cheetah", "ant", "walker2d_v5", "humanoid")


def asset(robot):
    return str(ASSETS / f"{robot}.xml")


def load(robot):
    return mujoco.MjModel.from_xml_path(asset(robot))


def differing(one, other):
    """The names of all arrays in which two models differ."""
    arrays = [name for name in dir(one) if isinstance(getattr(one, name), np.ndarray)]
    return {n for n in arrays if not np.array_equal(getattr(one, n), getattr(other, n))} | {
        f"stat.{n}"
        for n in ("center", "extent", "meaninertia", "meanmass", "meansize")
        if not np.array_equal(getattr(one.stat, n), getattr(other.stat, n))
    }


def trajectory(model, data=None, steps=300):
    """States under fixed random controls, from a state that makes contacts."""
    data = data or mujoco.MjData(model)
    mujoco.mj_resetData(model, data)
    rng = np.random.default_rng(0)
    data.qvel[:] = 0.1 * rng.standard_normal(model.nv)
    states = []
    for _ in range(steps):
        data.ctrl[:] = rng.uniform(-1, 1, model.nu)
        mujoco.mj_step(model, data)
        states.append(np.concatenate([data.qpos, data.qvel]))
    return np.array(states)


# --- warnings -------------------------------------------------------------------------------------

DIVERGE = """
import mujoco, numpy as np, sys
{redirect}
model = mujoco.MjModel.from_xml_path(sys.argv[1])
data = mujoco.MjData(model)
data.qvel[:] = np.nan
mujoco.mj_step(model, data)
assert data.warning.number.any()
"""


@pytest.mark.parametrize("redirected", [True, False])
def test_a_diverging_model_leaves_no_file_and_prints_nothing(tmp_path, redirected):
    code = DIVERGE.format(redirect="import mcat.envs.physics" if redirected else "")
    run = subprocess.run(
        [sys.executable, "-c", code, asset("hopper")], cwd=tmp_path, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    silent = not run.stdout and not run.stderr and not list(tmp_path.iterdir())
    assert silent == redirected  # without us MuJoCo does litter: the test can fail


def test_warnings_go_to_the_log_and_the_fault_is_named(caplog):
    model = load("half_cheetah")
    data = mujoco.MjData(model)
    assert physics.fault(data) is None
    data.qvel[3] = math.nan
    with caplog.at_level(logging.DEBUG, logger="mcat.mujoco"):
        mujoco.mj_step(model, data)
    assert "QVEL" in caplog.text
    assert physics.fault(data) == "BADQVEL@dof 3"


def test_faults_are_the_four_bad_state_warnings():
    assert physics.FAULTS == {4: "BADQPOS", 5: "BADQVEL", 6: "BADQACC", 7: "BADCTRL"}


# --- names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "actuators"),
    [
        ("front_left_leg", [2, 3]),
        ("front_right_leg", [4, 5]),
        ("back_leg", [6, 7]),
        ("right_back_leg", [0, 1]),
        ("torso", list(range(8))),
    ],
)
def test_actuators_below_finds_the_legs_of_ant(body, actuators):
    assert physics.actuators_below(load("ant"), body) == actuators


def test_actuators_and_dofs_come_in_the_order_asked_for():
    model = load("ant")
    assert physics.actuators_of(model, ["ankle_1", "hip_4"]) == [3, 0]
    assert physics.dofs_of(model, ["ankle_1", "root", "hip_4"]) == [7, 0, 1, 2, 3, 4, 5, 12]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: physics.actuators_below(m, "front_left_leq"), "did you mean front_left_leg"),
        (lambda m: physics.actuators_of(m, ["hip_5"]), "unknown joint 'hip_5': did you mean hip_"),
        (lambda m: physics.actuators_of(m, ["root"]), "joint 'root' has no motor: choose from"),
        (lambda m: physics.actuators_of(m, [""]), "unknown joint ''"),
        (lambda m: physics.dofs_of(m, ["knee"]), "unknown joint 'knee'"),
        (lambda m: physics.mark_body(m, "tail"), "unknown body 'tail'"),
    ],
)
def test_unknown_names_are_one_clear_line(call, message):
    with pytest.raises(UsageError, match=message) as error:
        call(load("ant"))
    assert "\n" not in str(error.value)


def test_a_body_without_motors_is_refused():
    stone = "<body name='stone'><freejoint/><geom size='1'/></body>"
    model = mujoco.MjModel.from_xml_string(f"<mujoco><worldbody>{stone}</worldbody></mujoco>")
    with pytest.raises(UsageError, match="no motor drives a joint at or below body 'stone'"):
        physics.actuators_below(model, "stone")


def test_marking_a_body_changes_colours_only():
    model = load("ant")
    physics.mark_body(model, "front_left_leg")
    assert differing(load("ant"), model) == {"geom_rgba"}
    painted = (model.geom_rgba != load("ant").geom_rgba).any(axis=1)
    assert {model.body(model.geom_bodyid[geom]).name for geom in np.flatnonzero(painted)} == {
        "front_left_leg",
        *("aux_1", ""),  # the lower leg has no name
    }


# --- changed physics ------------------------------------------------------------------------------


@pytest.mark.parametrize("robot", ROBOTS)
@pytest.mark.parametrize("changes", [{}, dict.fromkeys(("mass", "damping", "size", "gravity"), 1)])
def test_factor_1_changes_no_bit(robot, changes):
    pristine = load(robot)
    assert differing(pristine, physics.perturb(pristine, changes, asset(robot))) == set()


def compiled(robot, edit):
    spec = mujoco.MjSpec.from_file(asset(robot))
    edit(spec)
    return spec.compile()


def armature_times_5(spec):
    for joint in spec.joints:
        joint.armature *= 5


def friction_times_half(spec):
    for geom in spec.geoms:
        geom.friction = np.array(geom.friction) * 0.5


def gear_times_2(spec):
    for actuator in spec.actuators:
        actuator.gear = np.array(actuator.gear) * 2


def gravity_times_3(spec):
    spec.option.gravity = np.array(spec.option.gravity) * 3


def radius_times_1_3(spec):
    for geom in spec.geoms:
        if geom.type in (mujoco.mjtGeom.mjGEOM_CAPSULE, mujoco.mjtGeom.mjGEOM_SPHERE):
            geom.size = [geom.size[0] * 1.3, *geom.size[1:]]


@pytest.mark.parametrize("robot", ROBOTS)
@pytest.mark.parametrize(
    ("changes", "edit"),
    [
        ({"armature": 5}, armature_times_5),
        ({"friction": 0.5}, friction_times_half),
        ({"gear": 2}, gear_times_2),
        ({"gravity": 3}, gravity_times_3),
        ({"size": 1.3}, radius_times_1_3),
    ],
)
def test_edited_in_place_equals_recompiled_bit_for_bit(robot, changes, edit):
    live = load(robot)
    data = mujoco.MjData(live)  # made before the change, as an environment's is
    stock = trajectory(live, data)
    physics.restore(live, physics.perturb(live, changes, asset(robot)))
    recompiled = compiled(robot, edit)
    assert differing(live, recompiled) == set()
    changed = trajectory(live, data)
    assert np.array_equal(changed, trajectory(recompiled))
    assert not np.array_equal(changed, stock)


def test_mass_and_inertia_together_equal_another_total_mass():
    """`settotalmass` scales both after compilation, exactly as the two factors do."""

    def heavier(spec):
        spec.compiler.settotalmass = 28

    model = load("half_cheetah")
    both = physics.perturb(model, {"mass": 2, "inertia": 2})
    recompiled = compiled("half_cheetah", heavier)
    for name in ("body_mass", "body_inertia", "dof_invweight0", "body_subtreemass", "dof_M0"):
        np.testing.assert_allclose(getattr(both, name), getattr(recompiled, name), rtol=1e-12)
    np.testing.assert_allclose(
        trajectory(both, steps=50), trajectory(recompiled, steps=50), atol=1e-9
    )


def test_mass_alone_leaves_inertia():
    model = load("half_cheetah")
    changed = differing(model, physics.perturb(model, {"mass": 2}))
    assert {"body_mass", "body_subtreemass", "dof_invweight0"} <= changed
    assert "body_inertia" not in changed


def test_size_makes_mass_follow():
    """Total masses of the Hopper by radius, from the compiled models."""
    model = load("hopper")
    for radius, total in ((0.01, 0.56), (0.02, 2.32), (0.03, 5.38), (0.05, 15.82), (0.07, 32.75)):
        resized = physics.perturb(model, {"size": radius / 0.05}, asset("hopper"))
        assert resized.body_mass.sum() == pytest.approx(total, abs=0.01)
        assert resized.geom("leg_geom").size[0] == pytest.approx(0.8 * radius)
        assert resized.geom("leg_geom").size[1] == model.geom("leg_geom").size[1]
        assert resized.geom("floor").size.tolist() == model.geom("floor").size.tolist()


def test_factors_by_name_change_those_alone():
    model = load("ant")
    changed = physics.perturb(
        model,
        {
            "mass": {"torso": 2},
            "damping": {"hip_1": 20, "ankle_1": 20},
            "gear": {"hip_4": 0.5},  # Ant's motors have no names: by joint
            "friction": {"floor": 3},
            "size": {"torso_geom": 1.1},
        },
        asset("ant"),
    )
    damping = model.dof_damping.copy()
    damping[[6, 7]] *= 20
    assert np.array_equal(changed.dof_damping, damping)
    assert (changed.actuator_gear[:, 0] / model.actuator_gear[:, 0]).tolist() == [0.5] + [1] * 7
    assert (changed.geom_size != model.geom_size).any(axis=1).sum() == 1
    grown = 1.1**3 * model.geom("torso_geom").size[0] ** 3 * 4 / 3 * math.pi * 5
    legs = model.body("torso").mass - grown / 1.1**3  # the legs' first geoms belong to the torso
    assert changed.body("torso").mass == pytest.approx(2 * (grown + legs))
    assert np.array_equal(changed.body_mass[2:], model.body_mass[2:])


SHAPES = """
<mujoco>
  <worldbody>
    <body name="late">
      <freejoint/>
      <body name="child" pos="0 0 3"><joint name="hinge"/><geom type="box" size=".1 .2 .3"/></body>
      <geom name="egg" type="ellipsoid" size=".1 .2 .3"/>
      <geom type="cylinder" fromto="0 0 0 0 0 1" size=".1"/>
    </body>
    <geom name="ground" type="plane" size="9 9 1"/>
  </worldbody>
  <actuator><motor name="servo" joint="hinge"/></actuator>
</mujoco>
"""


@pytest.fixture
def shapes(tmp_path):
    path = tmp_path / "shapes.xml"
    path.write_text(SHAPES)
    return str(path)


def test_size_of_each_shape_and_by_body_name_with_geoms_declared_after_their_children(shapes):
    model = mujoco.MjModel.from_xml_path(shapes)
    kinds = {int(kind): row for row, kind in enumerate(model.geom_type)}
    box = kinds[int(mujoco.mjtGeom.mjGEOM_BOX)]
    egg = kinds[int(mujoco.mjtGeom.mjGEOM_ELLIPSOID)]
    rod = kinds[int(mujoco.mjtGeom.mjGEOM_CYLINDER)]

    late = physics.perturb(model, {"size": {"late": 2}}, shapes)
    assert late.geom_size[egg].tolist() == [0.2, 0.4, 0.6]
    assert late.geom_size[rod].tolist() == [0.2, model.geom_size[rod][1], 0]
    assert late.geom_size[box].tolist() == [0.1, 0.2, 0.3]
    child = physics.perturb(model, {"size": {"child": 2}, "gear": {"servo": 3}}, shapes)
    assert child.geom_size[box].tolist() == [0.2, 0.4, 0.6]
    assert child.body("child").mass == pytest.approx(8 * model.body("child").mass)
    assert np.array_equal(child.geom_size[[egg, rod]], model.geom_size[[egg, rod]])
    assert child.actuator_gear[0, 0] == 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"weight": 2}, "unknown quantity 'weight'"),
        ({"dampin": 2}, "unknown quantity 'dampin': did you mean damping"),
        ({"mass": 0}, "mass must be a factor above 0, got 0"),
        ({"mass": -1.5}, "mass must not be negative, got -1.5"),
        ({"damping": {"hinge": -1}}, "damping must not be negative"),
        ({"gravity": math.nan}, "gravity must be a finite factor, got nan"),
        ({"size": math.inf}, "size must be a finite factor, got inf"),
        ({"mass": "2"}, "mass must be a finite factor, got '2'"),
        ({"mass": 10**400}, "mass must be a finite factor, got 1000"),
        ({"gear": {"thigh_joint": -(10**5000)}}, "finite factor, got a number of thousands of"),
        ({"mass": True}, "mass must be a finite factor, got True"),
        ({"gravity": {"late": 2}}, "gravity takes one factor, not one per name"),
        ({"mass": {"lat": 2}}, "unknown body 'lat': did you mean late"),
        ({"size": {"eg": 2}}, "unknown geom 'eg': did you mean egg"),
        ({"gear": {"hing": 2}}, "unknown joint 'hing': did you mean hinge"),
        ({"armature": 2}, "armature is 0 there: a factor cannot change it"),
        ({"size": {"ground": 2}}, "size can scale spheres, capsules, cylinders, boxes and"),
    ],
)
def test_factors_that_make_no_sense_are_one_clear_line(shapes, changes, message):
    model = mujoco.MjModel.from_xml_path(shapes)
    with pytest.raises(UsageError, match=message) as error:
        physics.perturb(model, changes, shapes)
    assert "\n" not in str(error.value)


def test_size_needs_the_file_and_a_model_that_still_equals_it(shapes):
    model = mujoco.MjModel.from_xml_path(shapes)
    with pytest.raises(UsageError, match="size needs a robot that was read from an XML file"):
        physics.perturb(model, {"size": 2})
    model.opt.gravity[:] = (0, 0, -1.6)
    assert physics.perturb(model, {"size": 2}, shapes).opt.gravity.tolist() == [0, 0, -1.6]
    model.body_mass[1] *= 2
    with pytest.raises(UsageError, match="but the robot's body_mass differs from it"):
        physics.perturb(model, {"size": 2}, shapes)


def test_restore_brings_every_bit_back_but_leaves_colours():
    model = load("humanoid")
    saved = physics.snapshot(model)
    physics.restore(model, physics.perturb(model, {"size": 1.2, "mass": 3}, asset("humanoid")))
    physics.mark_body(model, "left_thigh")
    physics.restore(model, saved)
    assert differing(model, saved) == {"geom_rgba"}
