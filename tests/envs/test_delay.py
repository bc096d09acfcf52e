"""DelayedReward: sums are kept, payments come when they should."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.wrappers import TimeLimit
from hypothesis import given, settings
from hypothesis import strategies as st

from mcat.envs.wrappers import DelayedReward
from mcat.errors import UsageError


class Scripted(gym.Env):
    """Pays the given rewards and terminates after the last one, if told to."""

    observation_space = gym.spaces.Discrete(2)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, rewards, terminates):
        self.rewards, self.terminates, self.steps = rewards, terminates, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return 0, {}

    def step(self, action):
        self.steps += 1
        last = self.steps == len(self.rewards)
        return 0, self.rewards[self.steps - 1], last and self.terminates, False, {}


def play(env, steps):
    """The rewards of one episode of at most `steps` steps, and whether it ended."""
    env.reset()
    paid, ended = [], False
    while len(paid) < steps and not ended:
        _, reward, terminated, truncated, _ = env.step(0)
        assert type(reward) is float
        paid.append(reward)
        ended = terminated or truncated
    return paid, ended


@st.composite
def episodes(draw, numbers):
    """(rewards, terminates, time limit or None, delay)"""
    rewards = draw(st.lists(numbers, min_size=1, max_size=60))
    limit = draw(st.one_of(st.none(), st.integers(1, 70)))
    return rewards, draw(st.booleans()), limit, draw(st.integers(1, 80))


def delayed_and_dense(episode):
    rewards, terminates, limit, delay = episode
    env = Scripted(rewards, terminates)
    env = DelayedReward(env if limit is None else TimeLimit(env, limit), delay)
    paid, ended = play(env, len(rewards))
    assert ended == (terminates or (limit is not None and limit <= len(rewards)))
    again, _ = play(env, len(rewards))
    assert again == paid  # nothing is carried into the next episode
    return paid, rewards[: len(paid)], ended, delay


@settings(max_examples=1000, deadline=None)
@given(episodes(st.integers(-(10**9), 10**9)))
def test_whole_rewards_are_paid_exactly_and_only_at_n_2n_and_the_end(episode):
    paid, dense, ended, delay = delayed_and_dense(episode)
    expected, owed = [], 0
    for step, reward in enumerate(dense, start=1):
        owed += reward
        due = step % delay == 0 or (ended and step == len(dense))
        expected.append(owed if due else 0)
        owed = 0 if due else owed
    assert paid == expected
    if ended:
        assert sum(paid) == sum(dense)


@settings(max_examples=1000, deadline=None)
@given(episodes(st.floats(-1e6, 1e6)))
def test_sum_of_fractional_rewards_is_kept(episode):
    paid, dense, ended, delay = delayed_and_dense(episode)
    if ended:
        assert sum(paid) == pytest.approx(sum(dense), rel=1e-9, abs=1e-9 * sum(map(abs, dense)))
    if delay == 1:
        assert paid == dense


def test_delay_350_at_horizon_1000_pays_at_350_700_1000():
    env = DelayedReward(TimeLimit(Scripted([1.0] * 2000, False), 1000), 350)
    paid, _ = play(env, 2000)
    assert {t: r for t, r in enumerate(paid, start=1) if r} == {350: 350.0, 700: 350.0, 1000: 300.0}


def test_reset_in_mid_episode_forgets_what_was_owed():
    env = DelayedReward(Scripted([5.0] * 10, True), 4)
    play(env, 3)
    paid, _ = play(env, 10)
    assert paid == [0, 0, 0, 20, 0, 0, 0, 20, 0, 10]


def test_delay_1_is_the_plain_environment_bit_for_bit():
    plain, delayed = gym.make("HalfCheetah-v5"), DelayedReward(gym.make("HalfCheetah-v5"), 1)
    rng = np.random.default_rng(0)
    assert np.array_equal(plain.reset(seed=0)[0], delayed.reset(seed=0)[0])
    for _ in range(200):
        action = rng.uniform(-1, 1, 6)
        a, b = plain.step(action), delayed.step(action)
        assert np.array_equal(a[0], b[0])
        assert a[1:4] == b[1:4]


def test_inside_of_the_time_limit_the_remainder_is_lost_as_the_docstring_warns():
    inside = TimeLimit(DelayedReward(Scripted([1.0] * 100, False), 15), 50)
    outside = DelayedReward(TimeLimit(Scripted([1.0] * 100, False), 50), 15)
    assert sum(play(inside, 100)[0]) == 45
    assert sum(play(outside, 100)[0]) == 50


def test_pays_when_ant_falls():
    env = DelayedReward(gym.make("Ant-v5"), 500)
    env.reset(seed=0)
    env.action_space.seed(0)
    paid, done = [], False
    while not done:
        _, reward, terminated, truncated, _ = env.step(env.action_space.sample())
        paid.append(reward)
        done = terminated or truncated
    assert terminated
    assert len(paid) < 500
    assert paid[-1] != 0
    assert not any(paid[:-1])


@pytest.mark.parametrize("delay", [0, -3, 2.5, 500.0, True, "5", None, float("nan")])
def test_bad_delay_is_one_clear_line(delay):
    with pytest.raises(
        UsageError, match=r"^delay must be a whole number of steps, at least 1, got"
    ):
        DelayedReward(Scripted([1.0], True), delay)
