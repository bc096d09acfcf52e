"""Facts about other people's libraries that our code leans on, as executable checks.

When one of these fails after an upgrade, the comment says which part of mcat to look at.
"""

import copy
import importlib.metadata
import re
import weakref
from pathlib import Path

import gymnasium as gym
import mujoco
import numpy as np
import pytest
from gymnasium.envs.registration import WrapperSpec
from gymnasium.wrappers import TimeLimit

import mcat.envs.physics  # noqa: F401 (keeps MuJoCo's warnings off the terminal)

ASSETS = Path(gym.__file__).parent / "envs" / "mujoco" / "assets"


def load(robot):
    return mujoco.MjModel.from_xml_path(str(ASSETS / f"{robot}.xml"))


def states(model, steps=100):
    """States under fixed random controls."""
    data, rng = mujoco.MjData(model), np.random.default_rng(0)
    found = []
    for _ in range(steps):
        data.ctrl[:] = rng.uniform(-1, 1, model.nu)
        mujoco.mj_step(model, data)
        found.append(np.concatenate([data.qpos, data.qvel]))
    return np.array(found)


# --- versions -------------------------------------------------------------------------------------


def test_metaworld_pins_mujoco_to_the_version_installed():
    # pyproject.toml: no feature of mujoco 3.4 or later may be used.
    pins = [r for r in importlib.metadata.requires("metaworld") if r.startswith("mujoco")]
    assert pins == [f"mujoco=={mujoco.__version__}"]
    assert mujoco.__version__ == "3.3.0"


def test_gymnasium_with_the_mujoco_extra_brings_packaging_and_imageio():
    # pyproject.toml depends on gymnasium[mujoco]; metaworld alone depends on plain gymnasium.
    extra = [r for r in importlib.metadata.requires("gymnasium") if 'extra == "mujoco"' in r]
    assert any(r.startswith("packaging") for r in extra)
    assert any(r.startswith("imageio") for r in extra)


# --- the robots -----------------------------------------------------------------------------------


def test_actuators_of_ant_are_not_in_leg_order():
    # physics.actuators_below goes through the joints because of this.
    model = load("ant")
    driven = [model.joint(joint).name for joint in model.actuator_trnid[:, 0]]
    assert driven == [f"{part}_{leg}" for leg in (4, 1, 2, 3) for part in ("hip", "ankle")]
    assert [model.actuator(index).name for index in range(8)] == [""] * 8
    dofs = [model.joint(f"hip_{leg}").dofadr[0] for leg in (1, 2, 3, 4)]
    assert dofs == [6, 8, 10, 12]


def test_leg_bodies_of_ant_carry_the_joints_the_paper_numbers():
    # locomotion.ANT_LEGS: T-MCL's leg k moves hip_{k+1} and ankle_{k+1}.
    model = load("ant")
    legs = ("front_left_leg", "front_right_leg", "back_leg", "right_back_leg")
    for number, leg in enumerate(legs, start=1):
        hip = model.joint(f"hip_{number}")
        assert model.body(model.body_parentid[hip.bodyid[0]]).name == leg


def test_armature_and_damping_of_the_stock_robots():
    # The defaults declared in robots.py and the meaning of "armature 0.1" and "damping 1".
    cheetah, ant, hopper = load("half_cheetah"), load("ant"), load("hopper")
    assert cheetah.dof_armature.tolist() == [0, 0, 0] + [0.1] * 6
    assert cheetah.dof_damping.tolist() == [0, 0, 0, 6, 4.5, 3, 4.5, 3, 1.5]
    assert ant.dof_armature.tolist() == [0] * 6 + [1] * 8
    assert ant.dof_damping.tolist() == [0] * 6 + [1] * 8
    radii = [hopper.geom(f"{part}_geom").size[0] for part in ("torso", "thigh", "leg", "foot")]
    assert radii == [0.05, 0.05, 0.04, 0.06]


# --- MuJoCo ---------------------------------------------------------------------------------------


def armature_recompiled():
    spec = mujoco.MjSpec.from_file(str(ASSETS / "half_cheetah.xml"))
    for joint in spec.joints:
        if joint.armature:
            joint.armature = 0.5
    return spec.compile()


def test_mj_setconst_is_needed_after_an_edit_and_is_enough():
    # physics.refresh_constants, called wherever a model is edited in place.
    model = load("half_cheetah")
    model.dof_armature[3:] = 0.5
    assert not np.array_equal(states(model), states(armature_recompiled()))
    mujoco.mj_setConst(model, mujoco.MjData(model))
    assert np.array_equal(states(model), states(armature_recompiled()))


def test_mj_setconst_overwrites_the_state_it_is_given():
    # physics.refresh_constants hands it scratch data.
    model = load("half_cheetah")
    data = mujoco.MjData(model)
    data.qpos[:] = 0.3
    mujoco.mj_setConst(model, data)
    assert not (data.qpos == 0.3).all()


@pytest.mark.parametrize("robot", ["hopper", "half_cheetah", "ant", "walker2d_v5", "humanoid"])
def test_mj_setconst_changes_nothing_on_an_untouched_model(robot):
    # physics.perturb refreshes always; PerturbPhysics with factor 1 stays bit-identical.
    model, stock = load(robot), load(robot)
    mujoco.mj_setConst(model, mujoco.MjData(model))
    assert np.array_equal(states(model), states(stock))
    assert model.stat.meaninertia == stock.stat.meaninertia


def test_damping_needs_no_refresh():
    # Ant's damping task edits dof_damping alone.
    model = load("ant")
    model.dof_damping[6:] *= 3
    refreshed = copy.deepcopy(model)
    mujoco.mj_setConst(refreshed, mujoco.MjData(refreshed))
    assert np.array_equal(states(model), states(refreshed))


def test_editing_geom_size_alone_leaves_the_mass():
    # physics.perturb recompiles for "size".
    model = load("hopper")
    model.geom_size[1:, 0] *= 2
    mujoco.mj_setConst(model, mujoco.MjData(model))
    assert model.body_mass.sum() == pytest.approx(15.82, abs=0.01)


def test_to_xml_drops_the_total_mass():
    # Never go through spec.to_xml(): physics._resize hands over compiled arrays.
    spec = mujoco.MjSpec.from_file(str(ASSETS / "half_cheetah.xml"))
    assert spec.compile().body_mass.sum() == pytest.approx(14)
    again = mujoco.MjModel.from_xml_string(spec.to_xml())
    assert again.body_mass.sum() == pytest.approx(21.2, abs=0.1)


def test_a_spec_can_be_edited_and_compiled_again():
    # physics._resize compiles the same spec before and after scaling.
    spec = mujoco.MjSpec.from_file(str(ASSETS / "hopper.xml"))
    light = spec.compile()
    for geom in spec.geoms:
        geom.size = np.array(geom.size) * [2, 1, 1]
    assert spec.compile().body_mass.sum() > 2 * light.body_mass.sum()


def test_models_are_hashed_by_identity_and_can_be_held_weakly():
    # wrappers._PRISTINE is a WeakKeyDictionary of models.
    model = load("hopper")
    twin = copy.deepcopy(model)
    assert model != twin
    held = weakref.WeakKeyDictionary({model: 1})
    assert twin not in held
    del model
    assert not held


def test_warning_counters_and_state_are_live_views_that_survive_a_reset():
    # simulation.Simulation and wrappers.StabilityGuard keep such views.
    model = load("half_cheetah")
    data = mujoco.MjData(model)
    counters, qpos = data.warning.number, data.qpos
    data.qvel[2] = np.nan
    mujoco.mj_step(model, data)
    assert counters[mujoco.mjtWarning.mjWARN_BADQVEL] == 1
    assert data.warning.lastinfo[mujoco.mjtWarning.mjWARN_BADQVEL] == 2
    mujoco.mj_resetData(model, data)
    assert not counters.any()
    data.qpos[1] = 7
    assert qpos[1] == 7


def test_autoreset_hides_a_divergence():
    # Why simulation.Simulation.step and StabilityGuard look at clock and counters, not for NaN.
    model = load("half_cheetah")
    model.actuator_gear *= 1000
    data, rng, went_back = mujoco.MjData(model), np.random.default_rng(0), 0
    for _ in range(2000):
        before = data.time
        data.ctrl[:] = rng.uniform(-1, 1, 6)
        mujoco.mj_step(model, data)
        assert np.isfinite(data.qpos).all()
        assert np.isfinite(data.qvel).all()
        went_back += data.time < before
    assert went_back > 10
    assert data.warning.number[mujoco.mjtWarning.mjWARN_BADQACC] > 0


def test_a_divergence_in_the_first_substep_does_not_show_in_the_clock():
    # Why the warning counters must be read as well as the clock.
    model = load("half_cheetah")
    data = mujoco.MjData(model)
    data.ctrl[:] = 1
    model.actuator_gear *= 1e12
    mujoco.mj_step(model, data)
    assert data.time == model.opt.timestep
    assert data.warning.number[mujoco.mjtWarning.mjWARN_BADQACC] == 1


def continued(env, save, load_state):
    """Observations after a saved state, once going on and once from the loaded state."""
    env.reset(seed=0)
    rng = np.random.default_rng(0)
    actions = rng.uniform(-1, 1, (60, *env.action_space.shape))
    for action in actions[:30]:
        env.step(action)
    saved = save(env.unwrapped)
    going_on = [env.step(action)[0] for action in actions[30:]]
    env.reset(seed=1)
    load_state(env.unwrapped, saved)
    return np.array_equal(going_on, [env.step(action)[0] for action in actions[30:]])


def test_only_the_whole_integration_state_resumes_ant_bit_for_bit():
    # Exact resume saves mjSTATE_INTEGRATION (it holds the solver's warm start), not qpos and qvel.
    spec = mujoco.mjtState.mjSTATE_INTEGRATION

    def save(env):
        state = np.empty(mujoco.mj_stateSize(env.model, spec))
        mujoco.mj_getState(env.model, env.data, state, spec)
        return state

    def restore(env, state):
        mujoco.mj_setState(env.model, env.data, state, spec)

    def copied(env):
        return env.data.qpos.copy(), env.data.qvel.copy()

    kwargs = {"include_cfrc_ext_in_observation": False, "terminate_when_unhealthy": False}
    assert continued(gym.make("Ant-v5", **kwargs), save, restore)
    assert not continued(gym.make("Ant-v5", **kwargs), copied, lambda env, s: env.set_state(*s))


# --- gymnasium ------------------------------------------------------------------------------------


def test_a_step_of_gymnasium_is_mj_step_and_nothing_a_later_step_reads():
    # locomotion.Locomotion steps with mj_step alone; gymnasium adds mj_rnePostConstraint.
    env = gym.make("HalfCheetah-v5").unwrapped
    env.reset(seed=0)
    data = copy.copy(env.data)
    rng = np.random.default_rng(0)
    for _ in range(100):
        action = rng.uniform(-1, 1, 6)
        env.step(action)
        data.ctrl[:] = action
        mujoco.mj_step(env.model, data, env.frame_skip)
        assert np.array_equal(env.data.qpos, data.qpos)
        assert np.array_equal(env.data.qvel, data.qvel)


def test_a_wrapper_inside_the_time_limit_does_not_see_the_truncation():
    # env.make puts DelayedReward outside of TimeLimit.
    seen = []

    class Spy(gym.Wrapper):
        def step(self, action):
            result = super().step(action)
            seen.append(result[3])
            return result

    env = TimeLimit(Spy(gym.make("HalfCheetah-v5", max_episode_steps=-1)), 3)
    env.reset(seed=0)
    truncated = [env.step(np.zeros(6))[3] for _ in range(3)]
    assert truncated == [False, False, True]
    assert seen == [False, False, False]


def test_additional_wrappers_do_not_get_the_keywords_of_make():
    # Why delay= is handled by a factory entry point and not by additional_wrappers.
    delayed = WrapperSpec("DelayedReward", "mcat.envs.wrappers:DelayedReward", {"delay": 3})
    entry_point = gym.spec("HalfCheetah-v5").entry_point
    gym.register("Delayed-v0", entry_point, additional_wrappers=(delayed,))
    try:
        assert gym.make("Delayed-v0").get_wrapper_attr("delay") == 3
        with pytest.raises(TypeError, match="delay"):
            gym.make("Delayed-v0", delay=5)
    finally:
        gym.registry.pop("Delayed-v0")


def test_gymnasium_has_no_entry_point_loader():
    # `import mcat` registers the ids; nothing in the package metadata could.
    source = (Path(gym.__file__).parent / "envs" / "registration.py").read_text()
    assert not re.search(r"entry_points\(|importlib.metadata|importlib_metadata", source)


def test_healthy_bonus_of_hopper_is_lost_when_it_falls_even_without_termination():
    # locomotion pays `alive` every step itself: the switch alone would not.
    env = gym.make("Hopper-v5", terminate_when_unhealthy=False)
    env.reset(seed=0)
    bonuses = [env.step(np.zeros(3))[4]["reward_survive"] for _ in range(200)]
    assert bonuses[0] == 1
    assert bonuses[-1] == 0


def test_ant_has_27_observations_without_contact_forces():
    # The observation of mcat/Ant-v0, and tests that compare against Ant-v5.
    assert gym.make("Ant-v5").observation_space.shape == (105,)
    env = gym.make("Ant-v5", include_cfrc_ext_in_observation=False)
    assert env.observation_space.shape == (27,)
    observation, _ = env.reset(seed=0)
    data = env.unwrapped.data
    assert np.array_equal(observation, np.concatenate([data.qpos[2:], data.qvel]))


def test_position_of_the_torso_of_ant_lags_its_joint():
    # locomotion takes Ant's x from the body, as gymnasium does; after RK4 the joint is ahead.
    env = gym.make("Ant-v5").unwrapped
    env.reset(seed=0)
    env.step(np.ones(8))
    assert env.data.body("torso").xpos[0] != env.data.qpos[0]


# --- Meta-World -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def push():
    import metaworld  # noqa: F401 (registers its ids)

    return gym.make("Meta-World/MT1", env_name="push-v3", seed=0)


@pytest.mark.filterwarnings("ignore:.*not within the observation space")
def test_metaworld_ignores_the_seed_of_reset(push):
    # manipulation.Manipulation seeds by itself.
    first, second = push.reset(seed=5)[0], push.reset(seed=5)[0]
    assert not np.array_equal(first, second)


def test_metaworld_observations_are_outside_of_their_space(push):
    # manipulation declares its own observation bounds.
    observation, _ = push.reset()
    assert not push.observation_space.contains(observation)


def test_metaworld_specs_cannot_be_serialised(push):
    # The ids of mcat are its own; a spec of Meta-World's cannot go into a file.
    with pytest.raises((ValueError, TypeError)):
        push.spec.to_json()


@pytest.mark.parametrize(("name", "dofs"), [("push-v3", [7, 8]), ("coffee-push-v3", [13, 14])])
def test_gripper_joints_have_names_but_no_fixed_place(name, dofs):
    # The ×0.1 gripper looks r_close and l_close up by name.
    from metaworld.env_dict import ALL_V3_ENVIRONMENTS

    model = ALL_V3_ENVIRONMENTS[name]().model
    found = [model.joint(joint).dofadr[0] for joint in ("r_close", "l_close")]
    assert found == dofs
    assert model.dof_armature[found].tolist() == [100, 100]
    assert model.dof_damping[found].tolist() == [1000, 1000]
