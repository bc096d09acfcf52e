"""Hopper, HalfCheetah, Ant and the three-legged cheetah: models, rewards, spaces."""

import gymnasium as gym
import mujoco
import numpy as np
import pytest

from mcat.envs import ROBOTS, Task
from mcat.envs import locomotion as loco
from mcat.envs.env import simulate

INF = float("inf")
STOCK = {
    "hopper": (
        "Hopper-v5",
        {
            "healthy_z_range": (-INF, INF),
            "healthy_angle_range": (-INF, INF),
            "healthy_state_range": (-INF, INF),
        },
    ),
    "halfcheetah": ("HalfCheetah-v5", {}),
    "ant": (
        "Ant-v5",
        {
            "include_cfrc_ext_in_observation": False,
            "ctrl_cost_weight": 0,
            "contact_cost_weight": 0,
            "healthy_reward": 0.05,
            "healthy_z_range": (-INF, INF),
        },
    ),
}
LOCOMOTION = ("hopper", "halfcheetah", "ant", "halfcheetah3leg")

# For each parameter a value that is not the stock one.
OTHER_VALUES = {
    ("hopper", "size"): 0.03,
    ("halfcheetah", "armature"): 0.4,
    ("halfcheetah", "mass"): 1.5,
    ("halfcheetah", "inertia"): 1.5,
    ("ant", "cripple"): 2,
    ("ant", "damping"): 10.0,
    ("ant", "control_cost"): 0.01,
    ("halfcheetah3leg", "armature"): 0.4,
}


def trajectory(task, steps=40, seed=5):
    """Observations and rewards under fixed random actions."""
    env = task.make()
    rng = np.random.default_rng(7)
    observations, rewards = [env.reset(seed=seed)[0]], []
    for _ in range(steps):
        observation, reward, *_ = env.step(rng.uniform(-1, 1, env.action_space.shape))
        observations.append(observation)
        rewards.append(reward)
    return np.array(observations), np.array(rewards)


@pytest.mark.parametrize("robot", STOCK)
def test_stock_robot_equals_gymnasium_step_for_step(robot):
    stock_id, kwargs = STOCK[robot]
    stock, ours = gym.make(stock_id, **kwargs), Task(robot).make()
    rng = np.random.default_rng(0)
    for seed in (3, 4):
        assert np.array_equal(stock.reset(seed=seed)[0], ours.reset(seed=seed)[0])
        for _ in range(300):
            action = rng.uniform(-1, 1, ours.action_space.shape)
            theirs, mine = stock.step(action), ours.step(action)
            assert np.array_equal(theirs[0], mine[0])
            assert theirs[1] == pytest.approx(mine[1], abs=1e-12)


@pytest.mark.parametrize("robot", LOCOMOTION)
def test_nothing_terminates_and_episodes_last_1000_steps(robot):
    env = Task(robot).make()
    for act in (lambda: env.action_space.sample(), lambda: np.zeros(env.action_space.shape)):
        env.action_space.seed(1)
        env.reset(seed=1)
        for step in range(1, 1001):
            *_, terminated, truncated, _ = env.step(act())
            assert not terminated
            assert truncated == (step == 1000)


@pytest.mark.parametrize("size", [0.02, 0.05, 0.07])
def test_a_hopper_that_does_nothing_is_still_paid_for_being_alive(size):
    env = Task("hopper", size=size).make()
    env.reset(seed=0)
    total = sum(env.step(np.zeros(3))[1] for _ in range(1000))
    assert 800 < total < 1050


@pytest.mark.parametrize(
    ("size", "mass"),
    [(0.01, 0.56), (0.02, 2.32), (0.03, 5.38), (0.04, 9.84), (0.05, 15.82), (0.06, 23.42),
     (0.07, 32.75)],
)  # fmt: skip
def test_hopper_size_scales_radii_and_mass(size, mass):
    model = simulate(Task("hopper", size=size)).model
    radii = {name: model.geom(f"{name}_geom").size[0] for name in ("torso", "thigh", "leg", "foot")}
    assert radii == pytest.approx(
        {"torso": size, "thigh": size, "leg": 0.8 * size, "foot": 1.2 * size}
    )
    assert model.body_mass.sum() == pytest.approx(mass, abs=1e-2)
    stock = gym.make("Hopper-v5").unwrapped.model
    assert np.array_equal(model.geom_size[1:, 1], stock.geom_size[1:, 1])  # lengths stay


def test_hopper_size_005_is_the_stock_model():
    model = simulate(Task("hopper")).model
    stock = gym.make("Hopper-v5").unwrapped.model
    for name in ("geom_size", "body_mass", "body_inertia", "body_ipos", "dof_invweight0"):
        assert np.array_equal(getattr(model, name), getattr(stock, name)), name


@pytest.mark.parametrize("leg", range(4))
def test_a_crippled_leg_has_no_torque_and_looks_red(leg):
    task = Task("ant", cripple=leg)
    simulation = simulate(task)
    model, stock = simulation.model, simulate(Task("ant")).model
    dead = {0: [2, 3], 1: [4, 5], 2: [6, 7], 3: [0, 1]}[leg]
    rng = np.random.default_rng(leg)
    simulation.reset(rng)
    for _ in range(20):
        simulation.advance(rng.uniform(-1, 1, 8))
        assert not simulation.data.actuator_force[dead].any()
        alive = np.delete(simulation.data.ctrl, dead)
        assert alive.all()
    assert np.array_equal(model.geom_size, stock.geom_size)
    red = np.isclose(model.geom_rgba, (0.9, 0.1, 0.1, 1.0)).all(axis=1)
    bodies = {model.body(body).name for body in model.geom_bodyid[red]}
    assert loco.ANT_LEGS[leg] in bodies
    assert red.sum() == 3


def test_what_is_sent_to_a_dead_leg_does_not_matter_but_the_others_do():
    one, two, other = (Task("ant", cripple=3).make() for _ in range(3))
    for env in (one, two, other):
        env.reset(seed=0)
    rng = np.random.default_rng(0)
    for _ in range(50):
        action = rng.uniform(-1, 1, 8)
        changed, steered = action.copy(), action.copy()
        changed[:2] = rng.uniform(-1, 1, 2)
        steered[2] = -steered[2]
        first, second, third = one.step(action)[0], two.step(changed)[0], other.step(steered)[0]
        assert np.array_equal(first, second)
    assert not np.allclose(first, third)


def test_ant_legs_0_and_3_are_mirror_images():
    """Mirrored in y, with hips reversed, the two crippled ants walk mirrored paths."""
    mirror_index = [2, 3, 0, 1, 6, 7, 4, 5]
    mirror_sign = np.array([-1, 1, -1, 1, -1, 1, -1, 1])
    left, right = (simulate(Task("ant", cripple=leg)) for leg in (0, 3))
    for simulation in (left, right):
        mujoco.mj_resetData(simulation.model, simulation.data)
        mujoco.mj_forward(simulation.model, simulation.data)
    rng = np.random.default_rng(3)
    for _ in range(60):
        action = rng.uniform(-1, 1, 8)
        left.advance(action)
        right.advance(mirror_sign * action[mirror_index])
        x, y, z = left.data.qpos[:3]
        assert right.data.qpos[:3] == pytest.approx([x, -y, z], abs=1e-9)


@pytest.mark.parametrize(
    ("semantics", "multiplied"), [("paper", [6, 7, 8, 9]), ("released", [6, 7])]
)
def test_ant_damping_multiplies_some_legs_and_divides_the_others(semantics, multiplied):
    model = simulate(Task("ant", damping=20, semantics=semantics)).model
    expected = np.full(14, 1 / 20)
    expected[:6] = 0
    expected[multiplied] = 20
    assert model.dof_damping == pytest.approx(expected)
    stock = simulate(Task("ant")).model
    assert np.array_equal(simulate(Task("ant", semantics=semantics)).model.dof_damping,
                          stock.dof_damping)  # fmt: skip


def test_ant_control_cost_is_subtracted():
    _, free = trajectory(Task("ant"))
    _, costly = trajectory(Task("ant", control_cost=0.01))
    rng = np.random.default_rng(7)
    squares = [np.square(rng.uniform(-1, 1, 8)).sum() for _ in range(40)]
    assert free - costly == pytest.approx(0.01 * np.array(squares))


@pytest.mark.parametrize("armature", [0.2, 0.6])
def test_armature_equals_a_recompiled_model(armature):
    spec = mujoco.MjSpec.from_file(loco._asset("half_cheetah.xml"))
    for joint in spec.joints:
        if not joint.name.startswith("root"):
            joint.armature = armature
    recompiled = spec.compile()
    simulation = simulate(Task("halfcheetah", armature=armature))
    assert not simulation.model.dof_armature[:3].any()
    assert (simulation.model.dof_armature[3:] == armature).all()
    simulation.reset(np.random.default_rng(0))
    data = mujoco.MjData(recompiled)
    data.qpos[:], data.qvel[:] = simulation.data.qpos, simulation.data.qvel
    mujoco.mj_forward(recompiled, data)
    rng = np.random.default_rng(1)
    for _ in range(50):
        action = rng.uniform(-1, 1, 6)
        simulation.advance(action)
        data.ctrl[:] = action
        mujoco.mj_step(recompiled, data, 5)
        assert np.abs(simulation.data.qpos - data.qpos).max() < 1e-10


def test_mass_and_inertia_are_scaled_after_compilation():
    stock = simulate(Task("halfcheetah")).model
    heavy = simulate(Task("halfcheetah", mass=2.5)).model
    assert heavy.body_mass.sum() == pytest.approx(2.5 * 14)
    assert np.array_equal(heavy.body_inertia, stock.body_inertia)
    stiff = simulate(Task("halfcheetah", inertia=2.0)).model
    assert np.allclose(stiff.body_inertia, 2 * stock.body_inertia)
    assert np.array_equal(stiff.body_mass, stock.body_mass)
    assert not np.allclose(heavy.body_invweight0[1:], stock.body_invweight0[1:])  # refreshed


@pytest.mark.parametrize("key", OTHER_VALUES, ids="-".join)
def test_every_parameter_changes_the_task_and_leaves_the_start_alone(key):
    robot, name = key
    stock = trajectory(Task(robot))
    changed = trajectory(Task(robot, **{name: OTHER_VALUES[key]}))
    assert np.array_equal(stock[0][0], changed[0][0])  # same initial state
    if name == "control_cost":
        assert np.array_equal(stock[0], changed[0])  # rewards only
        assert not np.array_equal(stock[1], changed[1])
    else:
        assert np.abs(stock[0] - changed[0]).max() > 1e-3


def test_semantics_matters_only_with_damping():
    paper, released = (Task("ant", damping=5, semantics=s) for s in ("paper", "released"))
    assert not np.allclose(trajectory(paper)[0], trajectory(released)[0])
    stock, stock_released = (Task("ant", semantics=s) for s in ("paper", "released"))
    assert np.array_equal(trajectory(stock)[0], trajectory(stock_released)[0])


def test_parameters_of_a_robot_do_not_touch_each_other():
    """Changing one parameter changes only the model fields that belong to it."""
    fields = {
        "armature": {"dof_armature"},
        "mass": {"body_mass"},
        "inertia": {"body_inertia"},
        "damping": {"dof_damping"},
        "cripple": set(),
        "control_cost": set(),
    }
    watched = set().union(*fields.values()) | {"actuator_gear", "geom_size", "geom_friction"}
    for (robot, name), value in OTHER_VALUES.items():
        if name == "size":
            continue
        stock, changed = simulate(Task(robot)).model, simulate(Task(robot, **{name: value})).model
        differing = {
            f for f in watched if not np.array_equal(getattr(stock, f), getattr(changed, f))
        }
        assert differing == fields[name], (robot, name)


def test_every_locomotion_parameter_is_covered_above():
    declared = {(r, p.name) for r in LOCOMOTION for p in ROBOTS[r].parameters}
    assert declared - set(OTHER_VALUES) == {("ant", "semantics"), ("ant", "view")}


def test_three_legs():
    simulation = simulate(Task("halfcheetah3leg"))
    model = simulation.model
    assert (model.nq, model.nv, model.nu) == (12, 12, 9)
    assert model.body_mass.sum() == pytest.approx(14)
    motors = [model.actuator(i).name for i in range(9)]
    assert motors == ["bthigh", "bshin", "bfoot", "bthigh2", "bshin2", "bfoot2",
                      "fthigh", "fshin", "ffoot"]  # fmt: skip
    assert [model.joint(i).name for i in range(3, 12)] == motors
    assert model.actuator_gear[:, 0].tolist() == [120, 90, 60, 120, 90, 60, 120, 60, 30]
    left, right = model.geom("bfoot").pos, model.geom("bfoot2").pos
    assert left[1] == pytest.approx(-right[1])
    mujoco.mj_forward(model, simulation.data)  # the initial pose, without noise
    assert simulation.data.ncon == 0


def test_equal_legs_move_alike_under_duplicated_actions():
    """The doubled rear leg is a mirror twin: equal torques keep both rear legs equal."""
    simulation = simulate(Task("halfcheetah3leg"))
    mujoco.mj_resetData(simulation.model, simulation.data)
    mujoco.mj_forward(simulation.model, simulation.data)
    rng = np.random.default_rng(0)
    for _ in range(20):
        rear, front = rng.uniform(-1, 1, 3), rng.uniform(-1, 1, 3)
        simulation.advance(np.concatenate((rear, rear, front)))
    assert simulation.data.qpos[3:6] == pytest.approx(simulation.data.qpos[6:9], abs=1e-8)
