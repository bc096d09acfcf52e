"""The self-imitation buffer against hand-worked cases and a naive list."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcat.agents.configs import ImitationConfig
from mcat.agents.sil import SelfImitation
from mcat.datasets import EpisodeStore
from mcat.errors import DataError, UsageError


def episodes(*rewards, tasks=0, offset=0):
    """One episode per list of rewards; observations number the rows from `offset`."""
    flat = np.concatenate(rewards)
    rows = offset + np.arange(len(flat), dtype=np.float32)[:, None]
    return EpisodeStore.from_arrays(
        observations=rows,
        actions=-rows,
        next_observations=rows + 0.5,
        rewards=flat,
        episode_ends=np.cumsum([len(r) for r in rewards]),
        tasks=tasks,
    )


def buffer(discount=0.5, **config):
    return SelfImitation(1, 1, ImitationConfig(**config), discount)


def test_returns_of_delayed_rewards_run_to_the_end_of_the_episode_and_no_further():
    made = buffer()
    # Paid at its third and fifth step; then another episode, cut off by time: no bootstrap.
    made.add(episodes([0, 0, 8, 0, -4], [0, 2]))
    # R_4 = -4, R_3 = -2, R_2 = 8 - 1, R_1 = 7 / 2, R_0 = 7 / 4.
    np.testing.assert_array_equal(made.returns, [1.75, 3.5, 7, -2, -4, 1, 2])
    assert made.returns.dtype == np.float32
    long = buffer(discount=0.99)
    long.add(episodes(np.r_[np.zeros(499), 100.0, np.zeros(499), 50.0]))
    assert long.returns[0] == pytest.approx(100 * 0.99**499 + 50 * 0.99**999, rel=1e-6)
    assert long.returns[499] == pytest.approx(100 + 50 * 0.99**500, rel=1e-6)
    assert long.returns[500] == pytest.approx(50 * 0.99**499, rel=1e-6)


def test_only_episodes_with_some_positive_reward_count():
    new = episodes([-5, 1], [-1, -2], [0, 0], [0, 3], tasks=[0, 1, 2, 3])
    made = buffer()
    made.add(new)
    assert made.episodes.tasks.tolist() == [0, 3]
    np.testing.assert_array_equal(made.episodes.observations[:, 0], [0, 1, 6, 7])
    np.testing.assert_array_equal(made.returns, [-4.5, 1, 1.5, 3])
    assert len(made) == 4
    every = buffer(positive_only=False)
    every.add(new)
    assert every.episodes.tasks.tolist() == [0, 1, 2, 3]
    np.testing.assert_array_equal(every.returns, [-4.5, 1, -2, -2, 0, 0, 1.5, 3])
    np.testing.assert_array_equal(every.priorities, np.ones(8))


def test_nothing_added_leaves_nothing_to_draw():
    made = buffer()
    made.add(episodes([-1, 0]))
    assert len(made) == 0
    with pytest.raises(UsageError, match="no episode has paid"):
        made.sample(np.random.default_rng(0), 4)


def test_probabilities_and_weights_by_hand():
    made = buffer(alpha=0.5, beta=0.25)
    made.add(episodes([1, 1, 1, 1]))
    np.testing.assert_array_equal(made.priorities, [1, 1, 1, 1])  # at first priorities are 1
    made.update(np.array([0, 1, 2]), np.array([16, 4, 0], dtype=np.float32) - np.float32(1e-6))
    made.update(np.array([2]), np.array([0.0]))
    # priority^0.5: 4, 2, 0.001, 1.
    np.testing.assert_allclose(made.priorities, [4, 2, 0.001, 1], rtol=1e-6)
    indices, weights = made.sample(np.random.default_rng(0), 100_000)
    shares = np.bincount(indices, minlength=4) / len(indices)
    np.testing.assert_allclose(shares, np.array([4, 2, 0.001, 1]) / 7.001, atol=5e-3)
    # (N p)^-β over that of row 2, the largest of the buffer: (0.001 / priority)^0.25.
    expected = (0.001 / np.array([4, 2, 0.001, 1])) ** 0.25
    np.testing.assert_allclose(weights, expected[indices], rtol=1e-5)
    few, weights = made.sample(np.random.default_rng(0), 8)
    assert 2 not in few  # it counts all the same
    np.testing.assert_allclose(weights, expected[few], rtol=1e-5)
    assert indices.dtype == np.int64
    assert weights.dtype == np.float32


def test_alpha_0_and_beta_0_are_uniform_and_unweighted():
    flat = buffer(alpha=0.0)
    flat.add(episodes([1, 1]))
    flat.update(np.array([0]), np.array([1e6]))
    indices, weights = flat.sample(np.random.default_rng(0), 10_000)
    assert indices.mean() == pytest.approx(0.5, abs=0.02)
    assert (weights == 1).all()
    unweighted = buffer(beta=0.0)
    unweighted.add(episodes([1, 1]))
    unweighted.update(np.array([0]), np.array([1e6]))
    assert (unweighted.sample(np.random.default_rng(0), 100)[1] == 1).all()


def test_new_rows_get_the_largest_priority_so_far():
    made = buffer(alpha=1.0)
    made.add(episodes([1, 1]))
    made.update(np.array([0, 1]), np.array([7.0, 0.0]))
    made.update(np.array([0]), np.array([3.0]))  # the 7 is gone but not forgotten
    made.add(episodes([1]))
    np.testing.assert_allclose(made.priorities, [3, 1e-6, 7], atol=2e-6)


def test_small_gains_never_make_new_rows_worth_less_than_1():
    made = buffer(alpha=1.0)
    made.add(episodes([1, 1]))
    made.update(np.array([0, 1]), np.array([0.1, 0.2]))
    made.add(episodes([1]))
    assert made.priorities[2] == 1


def test_the_clip_bounds_priorities():
    made = buffer(alpha=1.0, clip=1.0)
    made.add(episodes([1, 1, 1]))
    made.update(np.arange(3), np.array([50.0, 0.5, 0.0]))
    np.testing.assert_allclose(made.priorities, [1 + 1e-6, 0.5 + 1e-6, 1e-6])


def test_a_row_drawn_twice_is_updated_once():
    made = buffer(alpha=1.0)
    made.add(episodes([1, 1]))
    made.update(np.array([1, 1, 1]), np.array([4.0, 4.0, 4.0]))
    np.testing.assert_allclose(made.priorities, [1, 4], atol=2e-6)


lengths = st.integers(1, 6)
additions = st.lists(st.lists(st.tuples(lengths, st.booleans()), min_size=1, max_size=3))


@settings(max_examples=60, deadline=None)
@given(additions, st.integers(6, 20), st.integers(0, 2**32 - 1))
def test_everything_stays_aligned_with_the_rows_when_old_ones_go(batches, capacity, seed):
    rng = np.random.default_rng(seed)
    made = buffer(capacity=capacity, alpha=1.0)
    naive = []  # episodes as lists of [row, R, priority]
    offset, largest = 0, 1.0
    for batch in batches:
        rewards = [np.r_[np.zeros(n - 1), 8.0 if pays else -8.0] for n, pays in batch]
        made.add(episodes(*rewards, offset=offset))
        for n, pays in batch:
            if pays:
                naive.append([[offset + t, 8.0 * 0.5 ** (n - 1 - t), largest] for t in range(n)])
            offset += n
        while sum(map(len, naive)) > capacity:
            del naive[0]
        rows = [row for episode in naive for row in episode]
        if rows:
            indices, _ = made.sample(rng, 4)
            gains = np.arange(4) + rng.random()
            made.update(indices, gains)
            for index, gain in zip(indices, gains, strict=True):
                rows[index][2] = gain + 1e-6
            largest = max(largest, *(rows[i][2] for i in indices))
        assert len(made) == len(made.returns) == len(made.priorities) == len(rows)
        found = np.c_[made.episodes.observations[:, 0], made.returns, made.priorities]
        np.testing.assert_array_equal(found, np.array(rows).reshape(-1, 3))


def used(seed=0):
    made = buffer(capacity=30)
    rng = np.random.default_rng(seed)
    for turn in range(8):
        made.add(episodes(np.r_[0, 0, 1, 0, rng.random()], [-1, -1], offset=7 * turn))
        indices, _ = made.sample(rng, 16)
        made.update(indices, 5 * rng.random(16))
    return made


def go_on(made, seed=1):
    rng = np.random.default_rng(seed)
    seen = []
    for turn in range(4):
        indices, weights = made.sample(rng, 16)
        made.update(indices, rng.random(16))
        made.add(episodes([0, 1, 0], offset=100 + 3 * turn))
        seen.append((indices, weights, made.returns.copy(), made.priorities.copy()))
    return seen


def assert_same(first, second):
    for one, two in zip(first, second, strict=True):
        for a, b in zip(one, two, strict=True):
            np.testing.assert_array_equal(a, b)


def test_what_is_drawn_depends_on_the_contents_and_the_generator_only():
    assert_same(go_on(used()), go_on(used()))


def test_a_restored_buffer_goes_on_as_the_original():
    original = used()
    saved = {name: tensor.clone() for name, tensor in original.tensors().items()}
    restored = buffer(capacity=30)
    rng = np.random.default_rng(0)
    for turn in range(8):  # the same episodes, nothing learned
        restored.add(episodes(np.r_[0, 0, 1, 0, rng.random()], [-1, -1], offset=7 * turn))
        rng.random(32)  # what sampling and learning drew
    np.testing.assert_array_equal(restored.returns, original.returns)
    assert not np.array_equal(restored.priorities, original.priorities)
    restored.load_tensors(saved)
    assert_same(go_on(restored), go_on(original))


def test_a_state_of_other_episodes_is_refused():
    made = used()
    with pytest.raises(DataError, match="mass"):
        buffer().load_tensors(made.tensors())
    with pytest.raises(DataError, match="largest"):
        made.load_tensors({"mass": made.tensors()["mass"]})


@pytest.mark.parametrize(
    "wrong",
    [
        {"capacity": 0},
        {"batch_size": 0},
        {"alpha": -0.1},
        {"beta": -1.0},
        {"weight": float("nan")},
        {"clip": 0.0},
    ],
)
def test_what_makes_no_sense_is_refused(wrong):
    with pytest.raises(UsageError, match=next(iter(wrong))):
        ImitationConfig(**wrong)
