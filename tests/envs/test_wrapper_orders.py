"""Wrappers in every order, and copies of them, are the same environment."""

import copy
import itertools
import pickle
from functools import partial

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.env_checker import check_env

import mcat  # noqa: F401  (registers the ids)
from mcat.envs import Task, TaskVectorEnv
from mcat.envs.wrappers import (
    CrippleLeg,
    DelayedReward,
    MaskActuators,
    PerturbPhysics,
    StabilityGuard,
)

LIMBS = {
    "HalfCheetah-v5": "bthigh",
    "Ant-v5": "front_left_leg",
    "Walker2d-v5": "thigh_left",
    "Humanoid-v5": "right_thigh",
    "Hopper-v5": "leg",
    "mcat/HalfCheetah-v0": "bthigh",
}
ORDERS = list(itertools.permutations(range(4)))


def wrapped(robot, order):
    """All the wrappers around the robot, from the inside out."""
    wrappers = (
        partial(DelayedReward, delay=7),
        partial(CrippleLeg, body=LIMBS[robot]),
        partial(PerturbPhysics, mass=1.5, gravity=0.9),
        StabilityGuard,
    )
    env = gym.make(robot)
    for number in order:
        env = wrappers[number](env)
    return env


def rollout(env, steps=25, seed=0):
    rng = np.random.default_rng(seed)
    observation, info = env.reset(seed=seed)
    rows, contexts = [observation], [info.get("context")]
    for _ in range(steps):
        action = rng.uniform(env.action_space.low, env.action_space.high).astype(np.float32)
        observation, reward, terminated, truncated, info = env.step(action)
        rows.append(np.append(observation, [reward, terminated, truncated]))
        contexts.append(info.get("context"))
        if terminated or truncated:
            rows.append(env.reset()[0])
    return np.concatenate(rows), contexts


def assert_same(one, other):
    assert np.array_equal(one[0], other[0])
    assert one[1] == other[1]


def check_order(robot, order, expected):
    env = wrapped(robot, order)
    copies = pickle.loads(pickle.dumps(env)), copy.deepcopy(env)
    rebuilt = gym.make(EnvSpec.from_json(env.spec.to_json()))
    for each in (env, *copies, rebuilt):
        assert_same(rollout(each), expected)
    assert rebuilt.spec == env.spec
    # In the middle of an episode as well: a copy starts anew, the original goes on.
    assert_same(rollout(pickle.loads(pickle.dumps(env))), expected)
    check_env(env, skip_render_check=True)


@pytest.mark.filterwarnings("ignore:.*")
@pytest.mark.parametrize("robot", LIMBS)
def test_any_order_is_the_same_environment(robot):
    expected = rollout(wrapped(robot, ORDERS[0]))
    check_order(robot, ORDERS[5 + 3 * list(LIMBS).index(robot)], expected)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*")
@pytest.mark.parametrize("robot", LIMBS)
def test_all_orders_are_the_same_environment(robot):
    expected = rollout(wrapped(robot, ORDERS[0]))
    for order in ORDERS:
        check_order(robot, order, expected)


@pytest.mark.parametrize("how", ["pickle", "deepcopy"])
def test_a_copied_guard_guards_the_copy(how):
    """It looked at the original's simulation, in which nothing happens any more."""
    env = StabilityGuard(PerturbPhysics(gym.make("HalfCheetah-v5"), gear=1e12))
    env = pickle.loads(pickle.dumps(env)) if how == "pickle" else copy.deepcopy(env)
    env.reset(seed=0)
    *_, truncated, info = env.step(np.ones(6))
    assert truncated
    assert info["unstable"]


def test_a_copied_perturbation_starts_from_the_same_original():
    env = PerturbPhysics(gym.make("HalfCheetah-v5"), mass=2)
    env.reset(seed=0)
    twin = copy.deepcopy(env)
    twin.set(mass=3)
    twin.reset(seed=0)
    assert twin.unwrapped.model.body_mass.sum() == pytest.approx(42)
    assert env.unwrapped.model.body_mass.sum() == pytest.approx(28)
    twin.close()
    assert twin.unwrapped.model.body_mass.sum() == pytest.approx(14)


@pytest.mark.parametrize("task", [Task("ant", cripple=3, delay=5), Task("push", gripper=0.1)])
def test_copies_of_our_own_environments(task):
    env = task.make()
    expected = rollout(env)
    for twin in (pickle.loads(pickle.dumps(env)), copy.deepcopy(env)):
        assert twin.unwrapped.task == task
        assert twin.spec == env.spec
        assert_same(rollout(twin), expected)


def test_copies_of_vector_environments():
    tasks = [Task("hopper", size=size, horizon=4) for size in (0.03, 0.05)]
    env = TaskVectorEnv(tasks, 2, autoreset_mode="SameStep")
    twin = pickle.loads(pickle.dumps(env))
    assert (twin.tasks, twin.metadata) == (env.tasks, env.metadata)
    assert len(twin.simulations) == 1
    for each in (env, twin):
        each.reset(seed=0)
    for _ in range(9):
        actions = np.full((2, 3), 0.4)
        assert np.array_equal(env.step(actions)[0], twin.step(actions)[0])
    env.close()
    twin.close()


def test_a_single_joint_is_enough():
    """Not its letters."""
    one = MaskActuators(gym.make("Walker2d-v5"), joints="thigh_joint")
    other = MaskActuators(gym.make("Walker2d-v5"), joints=["thigh_joint"])
    assert one.actuators == other.actuators
    assert one.spec == other.spec
    assert one.context == {"control.thigh_joint": 0.0}
