"""The reusable wrappers on gymnasium's robots and on a robot of the user's own."""

import re
from functools import partial
from pathlib import Path

import gymnasium as gym
import mujoco
import numpy as np
import pytest
from gymnasium.envs.mujoco import MujocoEnv
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv
from gymnasium.wrappers import TimeLimit

from mcat.envs import physics
from mcat.envs.wrappers import (
    CrippleLeg,
    DelayedReward,
    MaskActuators,
    PerturbPhysics,
    StabilityGuard,
)
from mcat.errors import UsageError

OWN_XML = """
<mujoco>
  <option timestep="0.01"/>
  <default><joint damping="0.5" armature="0.1"/><geom density="500" friction="1 .1 .1"/></default>
  <worldbody>
    <geom type="plane" size="10 10 1"/>
    <body name="cart" pos="0 0 .3">
      <joint name="slide" type="slide" axis="1 0 0"/>
      <joint name="fall" type="slide" axis="0 0 1"/>
      <geom type="box" size=".2 .1 .1"/>
      <body name="pole" pos="0 0 .1">
        <joint name="swing" axis="0 1 0"/>
        <geom type="capsule" fromto="0 0 0 0 0 .6" size=".05"/>
      </body>
    </body>
  </worldbody>
  <actuator>
    <motor joint="slide" gear="20" ctrlrange="-1 1"/>
    <motor joint="swing" gear="5" ctrlrange="-1 1"/>
  </actuator>
</mujoco>
"""


class OwnEnv(MujocoEnv):
    """What a user with an XML file writes."""

    metadata = {"render_modes": ["human", "rgb_array", "depth_array", "rgbd_tuple"]}  # noqa: RUF012

    def __init__(self, xml_file, **kwargs):
        space = gym.spaces.Box(-np.inf, np.inf, (6,), np.float64)
        super().__init__(xml_file, 4, space, **kwargs)
        self.metadata = {**self.metadata, "render_fps": round(1 / self.dt)}

    def step(self, action):
        self.do_simulation(action, self.frame_skip)
        return self._observe(), float(self.data.qvel[0]), False, False, {}

    def reset_model(self):
        noise = self.np_random.uniform(-0.05, 0.05, size=self.model.nv)
        self.set_state(self.init_qpos, self.init_qvel + noise)
        return self._observe()

    def _observe(self):
        return np.concatenate([self.data.qpos, self.data.qvel])


@pytest.fixture(scope="session")
def own_xml(tmp_path_factory):
    path = tmp_path_factory.mktemp("robot") / "own.xml"
    path.write_text(OWN_XML)
    return str(path)


LIMBS = {
    "HalfCheetah-v5": "bthigh",
    "Ant-v5": "front_left_leg",
    "Walker2d-v5": "thigh_left",
    "Humanoid-v5": "right_thigh",
    "OwnRobot-v0": "pole",
}
ROBOTS = list(LIMBS)


@pytest.fixture(scope="session", autouse=True)
def _registered(own_xml):
    entry_point = f"{OwnEnv.__module__}:OwnEnv"
    gym.register("OwnRobot-v0", entry_point, max_episode_steps=200, kwargs={"xml_file": own_xml})
    yield
    gym.registry.pop("OwnRobot-v0")


def wrappings(robot):
    """One of each wrapper, made to fit the robot."""
    return {
        "delay": partial(DelayedReward, delay=7),
        "mask": partial(MaskActuators, joints=[driven_joints(robot)[0]]),
        "cripple": partial(CrippleLeg, body=LIMBS[robot]),
        "perturb": partial(PerturbPhysics, mass=1.5, damping={driven_joints(robot)[0]: 0.5}),
        "guard": StabilityGuard,
    }


def driven_joints(robot):
    model = gym.make(robot).unwrapped.model
    return [model.joint(joint).name for joint in model.actuator_trnid[:, 0]]


def rollout(env, steps=200, seed=0, change_action=None):
    """Observations, rewards and flags under fixed random actions, resetting when done."""
    rng = np.random.default_rng(seed)
    low, high = env.action_space.low, env.action_space.high
    observation, _ = env.reset(seed=seed)
    rows = [observation]
    for _ in range(steps):
        action = rng.uniform(low, high).astype(np.float32)
        if change_action is not None:
            action = change_action(action)
        observation, reward, terminated, truncated, _ = env.step(action)
        rows.append(np.append(observation, [reward, terminated, truncated]))
        if terminated or truncated:
            rows.append(env.reset()[0])
    return np.concatenate(rows)


def same(one, other):
    return one.shape == other.shape and np.array_equal(one, other)


def physics_of(env):
    return {name: getattr(env.unwrapped.model, name).copy() for name in physics._ARRAYS}


def equal(one, other):
    return all(np.array_equal(one[name], other[name]) for name in one)


# --- nothing changed is nothing changed -----------------------------------------------------------


@pytest.mark.parametrize("steps", [200, pytest.param(1000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("robot", ROBOTS)
def test_factor_1_no_mask_delay_1_and_guard_are_the_plain_environment_bit_for_bit(robot, steps):
    plain = rollout(gym.make(robot), steps)
    ones = dict.fromkeys(
        ("mass", "inertia", "damping", "armature", "friction", "gear", "gravity", "size"), 1.0
    )
    for wrap in (
        partial(PerturbPhysics),
        partial(PerturbPhysics, **ones),
        partial(MaskActuators, joints=[]),
        partial(DelayedReward, delay=1),
        StabilityGuard,
    ):
        assert same(plain, rollout(wrap(gym.make(robot)), steps)), wrap


# --- PerturbPhysics -------------------------------------------------------------------------------


@pytest.mark.parametrize("robot", ROBOTS)
@pytest.mark.parametrize("quantity", physics.QUANTITIES)
def test_every_quantity_changes_the_dynamics(robot, quantity):
    plain = rollout(gym.make(robot), steps=60)
    env = PerturbPhysics(gym.make(robot), **{quantity: 1.3})
    assert not same(plain, rollout(env, steps=60))


def test_context_is_in_info_from_reset_on_and_merges_with_inner_wrappers():
    env = MaskActuators(gym.make("Ant-v5"), joints=["hip_2"])
    env = PerturbPhysics(env, mass=2, damping={"hip_1": 0.5})
    env = CrippleLeg(env, "back_leg")
    expected = {
        "control.hip_2": 0.0,
        "mass": 2.0,
        "damping.hip_1": 0.5,
        "control.hip_3": 0.0,
        "control.ankle_3": 0.0,
    }
    _, info = env.reset(seed=0)
    assert info["context"] == expected
    info = env.step(np.zeros(8, np.float32))[4]
    assert info["context"] == expected
    assert "x_position" in info  # what the environment says is still there
    assert all(type(value) is float for value in info["context"].values())
    assert env.get_wrapper_attr("context") == expected


def test_context_of_an_mcat_task_is_kept():
    import mcat  # noqa: F401 (registers the ids)

    env = PerturbPhysics(gym.make("mcat/HalfCheetah-v0", armature=0.3), gravity=0.5)
    _, info = env.reset(seed=0)
    assert info["context"]["armature"] == 0.3
    assert info["context"]["gravity"] == 0.5
    assert "gravity" not in env.unwrapped.context


def test_set_takes_effect_at_the_next_reset():
    env = PerturbPhysics(gym.make("HalfCheetah-v5"), mass=2)
    env.reset(seed=0)
    before = physics_of(env)
    env.set(gravity=0.5)
    assert equal(before, physics_of(env))
    assert env.step(np.zeros(6))[4]["context"] == {"mass": 2.0}
    _, info = env.reset(seed=0)
    assert info["context"] == {"gravity": 0.5}
    assert env.unwrapped.model.body_mass.sum() == pytest.approx(14)
    assert env.unwrapped.model.opt.gravity[2] == -9.81 / 2
    fresh = PerturbPhysics(gym.make("HalfCheetah-v5"), gravity=0.5)
    assert same(rollout(env), rollout(fresh))


@pytest.mark.parametrize("turns", [200, pytest.param(1000, marks=pytest.mark.slow)])
def test_pristine_through_random_sets_and_resets(turns):
    """No drift, no compounding: the model is always pristine × the last factors."""
    rng = np.random.default_rng(0)
    env = PerturbPhysics(gym.make("Walker2d-v5"))
    pristine = physics.snapshot(env.unwrapped.model)
    original = physics_of(env)
    xml, changes = env.unwrapped.fullpath, {}
    env.reset(seed=0)
    for _ in range(turns):
        act = rng.choice(["set", "reset", "step"])
        if act == "set":
            chosen = rng.choice(list(physics.QUANTITIES), size=rng.integers(0, 4), replace=False)
            changes = {str(quantity): float(rng.uniform(0.5, 2)) for quantity in chosen}
            env.set(**changes)
            env.reset()
        elif act == "reset":
            env.reset()
        else:
            env.step(rng.uniform(-1, 1, 6))
        expected = physics.perturb(pristine, changes, xml)
        assert all(
            np.array_equal(getattr(expected, name), value)
            for name, value in physics_of(env).items()
        )
        assert np.array_equal(env.unwrapped.model.opt.gravity, expected.opt.gravity)
    env.close()
    assert equal(original, physics_of(env))


def test_wrapping_the_same_environment_twice_in_turn_does_not_compound():
    base = gym.make("HalfCheetah-v5")
    first = PerturbPhysics(base, mass=2)
    first.reset(seed=0)
    second = PerturbPhysics(base, mass=3)
    second.reset(seed=0)
    assert base.unwrapped.model.body_mass.sum() == pytest.approx(42)
    first.reset(seed=0)
    assert base.unwrapped.model.body_mass.sum() == pytest.approx(28)


def test_one_inside_another_is_refused_with_what_to_do():
    env = DelayedReward(PerturbPhysics(gym.make("HalfCheetah-v5"), mass=2), 5)
    with pytest.raises(UsageError, match=r"has a PerturbPhysics already: use its set\(\.\.\.\)"):
        PerturbPhysics(env, mass=2)
    env.get_wrapper_attr("set")(mass=4)
    env.reset(seed=0)
    assert env.unwrapped.model.body_mass.sum() == pytest.approx(56)


def test_a_bad_set_leaves_the_physics_as_it_was():
    env = PerturbPhysics(gym.make("HalfCheetah-v5"), mass=2)
    with pytest.raises(UsageError):
        env.set(mass={"torzo": 3})
    assert env.reset(seed=0)[1]["context"] == {"mass": 2.0}
    assert env.unwrapped.model.body_mass.sum() == pytest.approx(28)


@pytest.mark.parametrize("robot", ROBOTS)
def test_size_in_place_equals_an_environment_made_from_the_resized_model(robot):
    """The model object stays, so data and renderers made before remain right."""
    env = PerturbPhysics(gym.make(robot), size=1.2)
    model, data = env.unwrapped.model, env.unwrapped.data
    env.reset(seed=3)
    assert env.unwrapped.model is model
    assert env.unwrapped.data is data
    recompiled = physics.perturb(
        gym.make(robot).unwrapped.model, {"size": 1.2}, env.unwrapped.fullpath
    )
    fresh = gym.make(robot)
    fresh.unwrapped.model = recompiled
    fresh.unwrapped.data = mujoco.MjData(recompiled)
    assert same(rollout(env, steps=100), rollout(fresh, steps=100))


# --- MaskActuators, CrippleLeg --------------------------------------------------------------------


@pytest.mark.parametrize("robot", ROBOTS)
def test_masked_actuators_have_no_effect_and_the_others_are_unchanged(robot):
    check_masks(robot, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("robot", ROBOTS)
def test_masked_actuators_have_no_effect_in_20_trials(robot):
    for seed in range(2, 22):
        check_masks(robot, seed)


def check_masks(robot, seed):
    joints = driven_joints(robot)
    for wrap, dead in (
        (partial(MaskActuators, joints=joints[:1]), [0]),
        (partial(CrippleLeg, body=LIMBS[robot]), None),
    ):
        env = wrap(gym.make(robot))
        dead = env.actuators if dead is None else dead
        rng = np.random.default_rng(seed)

        def scrambled(action, dead=dead, rng=rng):
            action = action.copy()
            action[dead] = rng.uniform(-1, 1, len(dead))
            return action

        def zeroed(action, dead=dead):
            action = action.copy()
            action[dead] = 0
            return action

        masked = rollout(env, 100, seed)
        assert same(masked, rollout(env, 100, seed, change_action=scrambled))
        assert same(masked, rollout(gym.make(robot), 100, seed, change_action=zeroed))
        assert not same(masked, rollout(gym.make(robot), 100, seed))
        action = np.ones(env.action_space.shape, np.float32)
        env.step(action)
        live = np.setdiff1d(np.arange(len(action)), dead)
        assert not env.unwrapped.data.ctrl[dead].any()
        assert (env.unwrapped.data.ctrl[live] == 1).all()
        assert (action == 1).all()  # the caller's array is left alone


def test_crippled_leg_is_red_and_stays_so_under_perturbation():
    env = PerturbPhysics(CrippleLeg(gym.make("Ant-v5"), "front_left_leg"), mass=2)
    other = CrippleLeg(PerturbPhysics(gym.make("Ant-v5"), mass=2), "front_left_leg")
    for each in (env, other):
        each.reset(seed=0)
        red = (each.unwrapped.model.geom_rgba[:, 0] > 0.85).nonzero()[0]
        bodies = {each.unwrapped.model.geom_bodyid[geom] for geom in red}
        leg = each.unwrapped.model.body("front_left_leg").id
        assert bodies == {leg, leg + 1, leg + 2}
    assert same(rollout(env, steps=50), rollout(other, steps=50))


# --- gymnasium's conventions ----------------------------------------------------------------------


def everything(robot):
    env = gym.make(robot)
    for wrap in wrappings(robot).values():
        env = wrap(env)
    return env


@pytest.mark.parametrize("robot", ROBOTS)
def test_spec_round_trip_of_every_wrapper(robot):
    singles = [wrap(gym.make(robot)) for wrap in wrappings(robot).values()]
    for env in [*singles, everything(robot)]:
        spec = EnvSpec.from_json(env.spec.to_json())
        again = gym.make(spec)
        assert str(again) == str(env)  # the same chain of wrappers
        assert same(rollout(env, steps=60), rollout(again, steps=60))
        context = env.reset(seed=0)[1].get("context")
        assert again.reset(seed=0)[1].get("context") == context


@pytest.mark.filterwarnings("ignore:.*")
@pytest.mark.parametrize("robot", ROBOTS)
def test_check_env_passes_with_every_wrapper(robot):
    for wrap in wrappings(robot).values():
        check_env(wrap(gym.make(robot)), skip_render_check=True)


@pytest.mark.parametrize("robot", ["Ant-v5", "OwnRobot-v0"])
def test_wrappers_and_time_limit_in_either_order(robot):
    """Only DelayedReward must be outside (see test_delay); the others do not mind."""
    for name in ("mask", "cripple", "perturb", "guard"):
        wrap = wrappings(robot)[name]
        limits = {"terminate_when_unhealthy": False} if robot == "Ant-v5" else {}
        inside = TimeLimit(wrap(gym.make(robot, max_episode_steps=-1, **limits)), 30)
        outside = wrap(gym.make(robot, max_episode_steps=30, **limits))
        one, other = rollout(inside, steps=70), rollout(outside, steps=70)
        assert same(one, other), name


def make_wrapped(index):
    """Top level, so that a process of its own can import it."""
    env = gym.make("HalfCheetah-v5", max_episode_steps=40)
    env = PerturbPhysics(env, mass=1 + index, armature={"bfoot": 0.5 + index})
    env = CrippleLeg(env, ["bthigh", "fthigh"][index])
    return StabilityGuard(DelayedReward(env, 15))


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_sync_and_async_vector_environments_agree(context):
    thunks = [partial(make_wrapped, index) for index in range(2)]
    vectors = SyncVectorEnv(thunks), AsyncVectorEnv(thunks, context=context)
    rng = np.random.default_rng(0)
    try:
        (one, info), (other, other_info) = [vector.reset(seed=5) for vector in vectors]
        assert np.array_equal(one, other)
        assert np.array_equal(info["context"]["mass"], [1, 2])
        assert np.array_equal(other_info["context"]["mass"], [1, 2])
        for _ in range(60):
            actions = rng.uniform(-1, 1, (2, 6)).astype(np.float32)
            results = [vector.step(actions) for vector in vectors]
            for one, other in zip(results[0][:4], results[1][:4], strict=True):
                assert np.array_equal(one, other)
    finally:
        for vector in vectors:
            vector.close()


@pytest.mark.parametrize(
    ("wrap", "message"),
    [
        (
            partial(PerturbPhysics, mass=2),
            "PerturbPhysics needs a MuJoCo environment, got CartPole",
        ),
        (partial(CrippleLeg, body="leg"), "CrippleLeg needs a MuJoCo environment, got CartPole"),
        (partial(MaskActuators, joints=["hip"]), "MaskActuators needs a MuJoCo environment"),
        (StabilityGuard, "StabilityGuard needs a MuJoCo environment"),
    ],
)
def test_other_environments_are_refused_in_one_line(wrap, message):
    with pytest.raises(UsageError, match=message) as error:
        wrap(gym.make("CartPole-v1"))
    assert "\n" not in str(error.value)


def test_masking_refuses_actions_that_are_not_controls():
    env = gym.wrappers.TransformAction(
        gym.make("HalfCheetah-v5"), lambda a: np.repeat(a, 2), gym.spaces.Box(-1, 1, (3,))
    )
    with pytest.raises(UsageError, match="needs one action per motor: 6 motors, action space"):
        MaskActuators(env, joints=["bfoot"])


def test_size_on_a_robot_without_a_file_is_refused():
    import mcat  # noqa: F401 (registers the ids)

    with pytest.raises(UsageError, match="size needs a robot that was read from an XML file"):
        PerturbPhysics(gym.make("mcat/HalfCheetah-v0"), size=2)


# --- the guide ------------------------------------------------------------------------------------


def test_every_block_of_the_guide_runs_and_prints_what_it_says(tmp_path, monkeypatch, capsys):
    guide = (Path(__file__).parents[2] / "docs" / "wrappers.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec("\n".join(blocks), {})
    shown = re.findall(r"\n\n((?:    .+\n)+)", re.sub(r"```.*?```", "", guide, flags=re.DOTALL))
    assert "".join(shown).split() == capsys.readouterr().out.split()
    assert len(blocks) == 4
    assert len(shown) == 2
