"""Credit for delayed payments: sums kept, a known reward found, nothing seen before it was paid."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mcat.agents.configs import CreditConfig
from mcat.agents.credit.network import CreditModel, sample_steps
from mcat.agents.credit.segments import Segments, paid_segments, uniform_rewards
from mcat.datasets import EpisodeStore
from mcat.errors import DataError, UsageError

OBS, ACT = 3, 2


def pay_later(dense, delay):
    """The delay wrapper's rule, one step at a time."""
    paid, owed = np.zeros(len(dense)), 0.0
    for t, reward in enumerate(dense, start=1):
        owed += reward
        if t % delay == 0 or t == len(dense):
            paid[t - 1], owed = owed, 0.0
    return paid


def true_reward(obs, action, next_obs):
    """Linear in s, a and s' - s, each in its own unit."""
    change = next_obs - obs
    return 2 + obs @ [1, 0.05, -10] + action @ [1, -0.5] + change @ [10, -1, 0]


def logs(lengths, delay, seed=0, scale=1.0):
    """Random episodes with delayed rewards, and the dense ones."""
    rng = np.random.default_rng(seed)
    n = sum(lengths)
    obs = scale * (rng.normal(size=(n, OBS)) * [1, 20, 0.1] + [0, 50, 0])
    action = rng.uniform(-1, 1, (n, ACT))
    next_obs = obs + 0.1 * scale * rng.normal(size=(n, OBS))
    dense = true_reward(obs, action, next_obs)
    ends = np.cumsum(lengths)
    paid = np.concatenate([pay_later(part, delay) for part in np.split(dense, ends[:-1])])
    columns = {"observations": obs, "actions": action, "next_observations": next_obs}
    return store(columns, paid, ends), dense


def store(columns, rewards, ends):
    return EpisodeStore.from_arrays(**columns, rewards=rewards, episode_ends=ends)


def with_rewards(episodes, rewards):
    names = ("observations", "actions", "next_observations")
    columns = {name: episodes.column(name) for name in names}
    return store(columns, rewards, episodes.episode_ends)


def model(seed=0, **config):
    config = CreditConfig(**{"kind": "learned", "hidden": (32, 32), **config})
    return CreditModel(OBS, ACT, config, torch.Generator().manual_seed(seed))


def columns_of(episodes):
    batch = episodes.transitions(np.arange(len(episodes)))
    columns = (batch.observations, batch.actions, batch.next_observations)
    return tuple(torch.from_numpy(column) for column in columns)


def trained(episodes, delay, updates, *, learner=None, seed=0, **config):
    learner = learner or model(**config)
    segments = paid_segments(episodes, delay)
    learner.fit_scales(episodes, segments)
    rng = np.random.default_rng(seed)
    losses = [learner.step(episodes, segments, rng) for _ in range(updates)]
    return learner, torch.stack(losses)


# --- segments and even shares ---------------------------------------------------------------


def test_segments_by_hand():
    rewards = [0, 0, 6, 0, 0, -3, 8, 0, 5]
    columns = {
        "observations": np.zeros((9, 1)),
        "actions": np.zeros((9, 1)),
        "next_observations": np.zeros((9, 1)),
    }
    episodes = store(columns, rewards, [7, 9])  # 7 and 2 steps, paid every 3 and at the end
    segments = paid_segments(episodes, 3)
    assert segments.starts.tolist() == [0, 3, 6, 7]
    assert segments.lengths.tolist() == [3, 3, 1, 2]
    assert segments.payments.tolist() == [6, -3, 8, 5]
    assert uniform_rewards(episodes, 3).tolist() == [2, 2, 2, -1, -1, -1, 8, 2.5, 2.5]


@given(
    st.lists(st.integers(1, 30), min_size=1, max_size=6),
    st.integers(1, 35),
    st.integers(0, 1000),
)
def test_even_shares_keep_every_sum_and_a_delay_of_1_is_the_dense_task(lengths, delay, seed):
    episodes, dense = logs(lengths, delay, seed)
    shares = uniform_rewards(episodes, delay)
    segments = paid_segments(episodes, delay)
    assert shares.shape == (len(episodes),)
    assert shares.dtype == np.float32
    assert segments.lengths.sum() == len(episodes)
    spread = with_rewards(episodes, shares)
    # The sum of each episode, and of each segment, is what was paid: that is, the dense sum.
    np.testing.assert_allclose(spread.episode_returns(), episodes.episode_returns(), atol=1e-3)
    for start, length, payment in zip(*segments, strict=True):
        part = slice(start, start + length)
        assert payment == pytest.approx(dense[part].sum(), abs=1e-3)
        assert payment == episodes.rewards[start + length - 1]  # received with the last step
        np.testing.assert_allclose(shares[part], payment / length, rtol=1e-6)
    if delay == 1:
        np.testing.assert_allclose(shares, dense, rtol=1e-5, atol=1e-4)


def test_segments_of_a_selection_and_of_a_ring_use_its_own_numbers():
    episodes, _ = logs([7, 5, 9], 4)
    ring = EpisodeStore(OBS, ACT, capacity=16)
    for number in range(3):  # the first goes when the last comes, which runs over the ring's end
        ring.extend(episodes.select([number]))
    for late in (episodes.select([1, 2]), ring):
        segments = paid_segments(late, 4)
        assert segments.starts.tolist() == [0, 4, 5, 9, 13]
        np.testing.assert_array_equal(segments.payments, paid_segments(episodes, 4).payments[2:])


def test_no_episodes_no_segments():
    nothing = EpisodeStore(OBS, ACT)
    assert [len(part) for part in paid_segments(nothing, 5)] == [0, 0, 0]
    assert len(uniform_rewards(nothing, 5)) == 0
    with pytest.raises(UsageError, match="without episodes"):
        model().fit_scales(nothing, paid_segments(nothing, 5))


# --- nothing before it is paid --------------------------------------------------------------


def test_a_later_payment_changes_nothing_of_earlier_segments():
    episodes, _ = logs([20, 20], 8)
    rewards = episodes.rewards.copy()
    rewards[15] += 100  # pays for steps 8 to 15
    richer = with_rewards(episodes, rewards)
    before, after = paid_segments(episodes, 8), paid_segments(richer, 8)
    assert np.flatnonzero(before.payments != after.payments).tolist() == [1]
    changed = uniform_rewards(episodes, 8) != uniform_rewards(richer, 8)
    assert np.flatnonzero(changed).tolist() == list(range(8, 16))


def test_what_is_known_of_earlier_episodes_is_the_same_without_the_later_ones():
    episodes, _ = logs([20, 13, 20], 8)
    earlier = episodes.select([0, 1])
    known, all_known = paid_segments(earlier, 8), paid_segments(episodes, 8)
    for part, whole in zip(known, all_known, strict=True):
        np.testing.assert_array_equal(part, whole[:5])
    np.testing.assert_array_equal(uniform_rewards(earlier, 8), uniform_rewards(episodes, 8)[:33])


def test_the_model_learns_from_the_segments_it_is_given_and_from_no_other_row_or_reward():
    episodes, _ = logs([40, 40], 10)
    segments = paid_segments(episodes, 10)
    paid_so_far = Segments(*(part[:5] for part in segments))  # to step 49

    scrambled = {name: episodes.column(name).copy() for name in ("observations", "actions")}
    scrambled["next_observations"] = episodes.next_observations.copy()
    for values in scrambled.values():
        values[50:] = 1e3
    other = store(scrambled, np.full(80, 1e6), [40, 80])

    found = []
    for rows in (episodes, other):
        learner = model(steps=4)
        learner.fit_scales(episodes, paid_so_far)
        rng = np.random.default_rng(0)
        for _ in range(30):
            learner.step(rows, paid_so_far, rng)
        found.append(learner.tensors()["network/layers.0"].clone())
    assert torch.equal(*found)


# --- the reward model -----------------------------------------------------------------------


def relative_error(learner):
    """Of r̂ on fresh rows: root mean square, in units of the reward's spread."""
    fresh, dense = logs([500], 20, seed=1)
    error = learner.rewards(*columns_of(fresh))[:, 0].numpy() - dense
    return np.sqrt(np.mean(error**2)) / dense.std()


@pytest.mark.parametrize(("delay", "steps"), [(1, 1), (20, 32)])
def test_the_model_finds_a_linear_reward_from_sums(delay, steps):
    episodes, _ = logs([110] * 200, delay)
    learner, losses = trained(
        episodes, delay, 1000, learning_rate=5e-3, segments=256 // steps, steps=steps
    )
    assert relative_error(learner) < 0.05
    assert losses[-100:].mean() < 0.01 * losses[:10].mean()


def test_the_loss_by_hand():
    """A model that says 0 of everything in units of the spread, and two payments ±1 of it away."""
    episodes, _ = logs([10, 10], 10)
    segments = paid_segments(with_rewards(episodes, np.repeat([0, 30, 0, 50], [9, 1, 9, 1])), 10)
    assert segments.step_rewards.tolist() == [3, 5]  # mean 4, spread 1
    learner = model(steps=4)
    for name, tensor in learner.tensors().items():
        if name.startswith("network/"):
            tensor.zero_()
    learner.fit_scales(episodes, segments)
    assert torch.allclose(learner.rewards(*columns_of(episodes)), torch.tensor(4.0))
    assert learner.step(episodes, segments, np.random.default_rng(0)).item() == pytest.approx(1.0)


@pytest.mark.parametrize("length", [1, 5, 16])
def test_a_short_segment_is_taken_whole(length):
    episodes, _ = logs([length], length)
    whole = paid_segments(episodes, length)
    learner = model(segments=3, steps=16)
    learner.fit_scales(episodes, whole)
    expected = (learner.rewards(*columns_of(episodes)).mean() - whole.step_rewards.item()) ** 2
    loss = learner.step(episodes, whole, np.random.default_rng(0))
    torch.testing.assert_close(loss, expected)  # the spread of a single step reward counts as 1


def test_a_long_segment_gives_one_step_of_each_part_and_each_step_in_the_end():
    rng = np.random.default_rng(0)
    places, shares = sample_steps(np.full(2000, 10), 4, rng)
    np.testing.assert_array_equal(shares, np.full((2000, 4), 0.25, dtype=np.float32))
    assert [(part.min(), part.max()) for part in places.T] == [(0, 2), (2, 4), (5, 7), (7, 9)]
    np.testing.assert_allclose(np.bincount(places.ravel()) / 8000, 0.1, atol=0.01)


def test_payments_in_any_currency_are_learned_alike():
    episodes, _ = logs([50] * 20, 10)
    cents, _ = trained(episodes, 10, 50)
    richer = with_rewards(episodes, 1024 * episodes.rewards)
    euros, _ = trained(richer, 10, 50)
    rows = columns_of(episodes)
    torch.testing.assert_close(euros.rewards(*rows), 1024 * cents.rewards(*rows), rtol=1e-3, atol=1)


def test_new_scales_do_not_change_what_was_learned():
    learner, _ = trained(logs([50] * 20, 10)[0], 10, 200)
    other, _ = logs([50] * 4, 10, seed=5)
    shifted = EpisodeStore.from_arrays(
        observations=3 * other.observations + 7,
        actions=0.1 * other.actions,
        next_observations=3 * other.observations + 7,  # nothing moves: that spread is 0
        rewards=10 * other.rewards - 5,
        episode_ends=other.episode_ends,
    )
    rows = columns_of(other)
    before = learner.rewards(*rows)
    inputs = learner.tensors()["input/std"].clone()
    learner.fit_scales(shifted, paid_segments(shifted, 10))
    assert not torch.allclose(inputs, learner.tensors()["input/std"])
    torch.testing.assert_close(learner.rewards(*rows), before, rtol=1e-3, atol=1e-3)


def test_it_goes_on_learning_while_the_data_grows():
    narrow, wide = (logs([110] * 100, 20, scale=scale)[0] for scale in (0.1, 1))
    learner = model(learning_rate=5e-3)
    trained(narrow, 20, 300, learner=learner)
    trained(wide, 20, 1000, learner=learner)
    assert relative_error(learner) < 0.1


def test_equal_payments_and_constant_inputs_are_no_trouble():
    episodes = EpisodeStore.from_arrays(
        observations=np.full((40, OBS), 3.0),
        actions=np.zeros((40, ACT)),
        next_observations=np.full((40, OBS), 3.0),
        rewards=pay_later(np.full(40, 0.5), 10),
        episode_ends=[40],
    )
    learner, _ = trained(episodes, 10, 300, learning_rate=3e-3)
    torch.testing.assert_close(
        learner.rewards(*columns_of(episodes)), torch.full((40, 1), 0.5), rtol=0.05, atol=0
    )


def test_the_same_seeds_give_the_same_model_and_another_seed_another():
    episodes, _ = logs([50] * 4, 10)
    runs = [trained(episodes, 10, 20, seed=seed)[0].tensors() for seed in (0, 0, 1)]
    assert all(torch.equal(runs[0][name], runs[1][name]) for name in runs[0])
    assert not torch.equal(runs[0]["network/layers.0"], runs[2]["network/layers.0"])


def test_a_restored_model_goes_on_as_the_original():
    episodes, _ = logs([50] * 4, 10)
    segments = paid_segments(episodes, 10)
    original, _ = trained(episodes, 10, 20)
    saved = {name: tensor.clone() for name, tensor in original.tensors().items()}
    restored = model(seed=9)
    restored.load_tensors(saved)
    for learner in (original, restored):
        rng = np.random.default_rng(3)
        for _ in range(10):
            learner.step(episodes, segments, rng)
        learner.fit_scales(episodes.select([0, 1]), paid_segments(episodes.select([0, 1]), 10))
        learner.step(episodes, segments, rng)
    ours, theirs = original.tensors(), restored.tensors()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert not torch.equal(ours["network/layers.0"], saved["network/layers.0"])


def test_a_state_of_another_model_is_refused_and_changes_nothing():
    learner = model()
    before = learner.tensors()["network/layers.0"].clone()
    with pytest.raises(DataError, match="network"):
        learner.load_tensors(model(hidden=(8,)).tensors())
    incomplete = {**model(seed=1).tensors()}
    del incomplete["wage/std"]
    with pytest.raises(DataError, match="wage/std"):
        learner.load_tensors(incomplete)
    assert torch.equal(learner.tensors()["network/layers.0"], before)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"kind": "learnt"}, "did you mean learned"),
        ({"hidden": ()}, "hidden"),
        ({"learning_rate": 0.0}, "learning_rate"),
        ({"segments": 0}, "segments"),
        ({"steps": 0}, "steps"),
    ],
)
def test_what_makes_no_sense_is_refused(wrong, says):
    with pytest.raises(UsageError, match=says):
        CreditConfig(**wrong)


def test_a_delay_of_0_is_refused():
    with pytest.raises(UsageError, match="delay"):
        paid_segments(logs([5], 1)[0], 0)
