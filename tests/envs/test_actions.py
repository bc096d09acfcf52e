"""Actions far outside of [-1, 1], and things that are no actions, do no harm."""

import gymnasium as gym
import numpy as np
import pytest

from mcat.envs import Task, TaskVectorEnv
from mcat.envs.wrappers import StabilityGuard
from mcat.errors import UsageError

ROBOTS = ("hopper", "halfcheetah", "halfcheetah3leg", "ant", "push")
PAYING = ("hopper", "halfcheetah", "halfcheetah3leg")  # for control, by its square
LARGE = (1e7, 1e12, 1e100, 1e160, 1e300, np.finfo(float).max)


@pytest.mark.filterwarnings("error:.*:RuntimeWarning")
@pytest.mark.parametrize("robot", ROBOTS)
def test_no_absurd_reward_is_ever_paid(robot):
    """The motors only give what they can; what such an action costs has no bound."""
    task = Task(robot, delay=2)
    single, vector = task.make(), TaskVectorEnv([task] * 2)
    for size in LARGE:
        start, _ = single.reset(seed=0)
        vector.reset(seed=0)
        action = np.full(task.spec.action_size, size)
        observation, reward, terminated, truncated, info = single.step(action)
        both = vector.step(np.stack([action, 0 * action]))
        assert np.isfinite(observation).all()
        assert abs(reward) < 1e10
        assert not terminated
        assert truncated == info.get("unstable", False)
        if truncated:
            assert info["fault"].startswith("reward")
            assert reward == 0
            assert np.array_equal(observation, start)
            # The episode is over: whoever goes on is told so again, and paid nothing.
            again = single.unwrapped.step(0 * action)
            assert (again[1], again[3], again[4]["fault"]) == (0.0, True, info["fault"])
            assert np.array_equal(again[0], start)
        assert truncated or robot not in PAYING
        # The vector environment says the same of this one, and nothing of the other.
        assert np.array_equal(both[0][0], observation)
        assert both[1][0] == reward
        assert both[3].tolist() == [truncated, False]
        expected = [info["fault"], None] if truncated else None
        faults = both[4].get("fault")
        assert (faults if faults is None else faults.tolist()) == expected


@pytest.mark.parametrize("size", [1.5, 30.0])
@pytest.mark.parametrize(
    ("ours", "stock"), [("mcat/HalfCheetah-v0", "HalfCheetah-v5"), ("mcat/Hopper-v0", "Hopper-v5")]
)
def test_ordinary_actions_outside_of_the_space_cost_what_they_cost_in_gymnasium(ours, stock, size):
    healthy = {} if stock != "Hopper-v5" else {"terminate_when_unhealthy": False}
    envs = gym.make(ours), gym.make(stock, **healthy)
    for env in envs:
        env.reset(seed=0)
    action = np.full(envs[0].action_space.shape, -size)
    for _ in range(20):
        one, other = (env.step(action) for env in envs)
        assert np.array_equal(one[0], other[0])
        if not healthy:  # gymnasium pays a hopper that fell nothing for living
            assert one[1] == other[1]
        assert not one[3]


def test_the_guard_flags_an_absurd_reward_of_any_robot():
    env = StabilityGuard(gym.make("HalfCheetah-v5"))
    start, _ = env.reset(seed=0)
    observation, reward, _, truncated, info = env.step(np.full(6, 1e12))
    assert (reward, truncated, info["fault"]) == (0.0, True, "reward -6e+23")
    assert np.array_equal(observation, start)
    env.reset(seed=0)
    assert "unstable" not in env.step(np.full(6, 30.0))[4]


NO_ACTIONS = {
    "a word": "forward",
    "words": ["left"] * 3,
    "digits": ["0.5"] * 3,
    "nothing": None,
    "nothings": [None] * 3,
    "too many digits": [10**400] * 3,
    "ragged": [[0.0], [0.0, 1.0], 2.0],
    "a mapping": {"hip": 1.0},
    "complex": np.ones(3, complex),
    "dates": np.array(["2026-01-01"] * 3, "datetime64[D]"),
}


@pytest.mark.parametrize("action", NO_ACTIONS.values(), ids=NO_ACTIONS)
def test_what_is_not_numbers_is_one_clear_line(action):
    single, vector = Task("hopper").make().unwrapped, TaskVectorEnv([Task("hopper")])
    guarded = StabilityGuard(gym.make("Hopper-v5"))
    for env in (single, vector, guarded):
        env.reset(seed=0)
        with pytest.raises(UsageError, match=r"actions must be numbers of shape \(.*3,?\), got"):
            env.step(action)
        with pytest.raises(UsageError) as caught:
            env.step(action)
        assert len(str(caught.value)) < 200
        assert "\n" not in str(caught.value)


def test_whole_numbers_and_truth_values_are_numbers():
    env = Task("hopper").make().unwrapped
    outcomes = []
    for action in (np.ones(3), [1, 1, 1], (True, True, True), np.ones(3, np.float16)):
        env.reset(seed=0)
        outcomes.append(env.step(action)[0])
    assert all(np.array_equal(outcome, outcomes[0]) for outcome in outcomes)
