"""StabilityGuard: every silent reset of MuJoCo is flagged, and every absurd reward."""

import logging

import gymnasium as gym
import mujoco
import numpy as np
import pytest

from mcat.envs.wrappers import PerturbPhysics, StabilityGuard
from mcat.errors import UsageError

UNSTABLE = [
    ("HalfCheetah-v5", {"gear": 10}, 2000),
    ("HalfCheetah-v5", {"gear": 100}, 1000),
    ("HalfCheetah-v5", {"gear": 1000}, 1000),
    ("HalfCheetah-v5", {"damping": 0, "armature": 0}, 1000),
    ("Ant-v5", {"gear": 1000}, 500),
    ("Ant-v5", {"damping": 0, "armature": 0}, 500),
    ("Walker2d-v5", {"gear": 1000}, 2000),
]


@pytest.mark.parametrize(("robot", "changes", "steps"), UNSTABLE)
def test_flags_equal_the_resets_mujoco_wrote_to_its_log(robot, changes, steps, caplog):
    """The log and the clock are evidence of MuJoCo's own resets that the guard does not look at.

    Unhealthy robots go on, so that the episodes are long enough to diverge.
    """
    caplog.set_level(logging.DEBUG, logger="mcat.mujoco")
    keep_going = {} if robot == "HalfCheetah-v5" else {"terminate_when_unhealthy": False}
    env = StabilityGuard(PerturbPhysics(gym.make(robot, **keep_going), **changes))
    data = env.unwrapped.data
    due = env.unwrapped.dt - 0.5 * env.unwrapped.model.opt.timestep
    rng = np.random.default_rng(0)
    good, _ = env.reset(seed=0)
    flagged = 0
    for _ in range(steps):
        caplog.clear()
        started = data.time
        action = rng.uniform(-1, 1, env.action_space.shape)
        observation, reward, terminated, truncated, info = env.step(action)
        unstable = info.get("unstable", False)
        # What is about to be reset may have paid 1e15 the step before.
        absurd = info.get("fault", "").startswith("reward")
        assert unstable == (bool(caplog.records) or absurd)
        assert not (caplog.records and absurd)
        assert unstable or data.time > started + due
        if unstable:
            flagged += not absurd
            assert np.array_equal(observation, good)
            assert (reward, terminated, truncated) == (0.0, False, True)
            faults = ("BADQACC@dof ", "BADQVEL@dof ", "BADQPOS@dof ")
            assert absurd or info["fault"].startswith(faults)
        good = observation
        if terminated or truncated:
            good, _ = env.reset()
    assert flagged > 0


@pytest.mark.parametrize("robot", ["HalfCheetah-v5", "Ant-v5", "Walker2d-v5", "Humanoid-v5"])
def test_no_false_flags_on_normal_robots(robot):
    env = StabilityGuard(gym.make(robot))
    rng = np.random.default_rng(0)
    env.reset(seed=0)
    for _ in range(500):
        _, _, terminated, truncated, info = env.step(rng.uniform(-1, 1, env.action_space.shape))
        assert "unstable" not in info
        if terminated or truncated:
            env.reset()


def test_a_fault_in_the_very_first_substep_is_flagged():
    """There the clock shows nothing: it goes back from 0 to 0."""
    env = StabilityGuard(PerturbPhysics(gym.make("HalfCheetah-v5"), gear=1e12))
    start, _ = env.reset(seed=0)
    observation, _, _, truncated, info = env.step(np.ones(6))
    assert env.unwrapped.data.time == pytest.approx(env.unwrapped.dt)
    assert truncated
    assert info["fault"] == "BADQACC@dof 0"
    assert np.array_equal(observation, start)
    env.reset(seed=0)
    assert "unstable" not in env.step(np.zeros(6))[4]  # old faults are forgotten


def test_what_an_environment_does_within_its_own_reset_is_not_flagged():
    class Shaky(gym.Wrapper):
        def reset(self, **kwargs):
            result = super().reset(**kwargs)
            self.unwrapped.data.warning.number[mujoco.mjtWarning.mjWARN_BADQACC] = 1
            return result

    short = gym.make("HalfCheetah-v5", max_episode_steps=5)
    for inner in (Shaky(short), gym.wrappers.Autoreset(short)):
        env = StabilityGuard(inner)
        env.reset(seed=0)
        assert not any("unstable" in env.step(np.ones(6))[4] for _ in range(20))


def test_a_reward_that_is_not_finite_is_flagged():
    class Broken(gym.RewardWrapper):
        def reward(self, reward):
            return np.nan

    env = StabilityGuard(Broken(gym.make("HalfCheetah-v5")))
    env.reset(seed=0)
    _, reward, _, truncated, info = env.step(np.zeros(6))
    assert (reward, truncated, info["fault"]) == (0.0, True, "reward nan")


@pytest.mark.parametrize(
    "action",
    [
        [0, 0, np.nan, 0, 0, 0],
        [np.inf, 0, 0, 0, 0, 0],
        [0, 0, 0, 0, 0, -np.inf],
        np.zeros(5),
        np.zeros((1, 6)),
        0.0,
    ],
)
def test_bad_actions_never_reach_the_simulator(action):
    env = StabilityGuard(gym.make("HalfCheetah-v5"))
    env.reset(seed=0)
    before = env.unwrapped.data.qpos.copy()
    with pytest.raises(UsageError, match="action"):
        env.step(action)
    assert env.unwrapped.data.time == 0
    assert np.array_equal(env.unwrapped.data.qpos, before)
