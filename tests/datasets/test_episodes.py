"""The store against a naive list of episodes, step by step."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from mcat.datasets import Episodes, EpisodeStore
from mcat.errors import UsageError
from tests.datasets.stores import ACT, COLUMNS, OBS, append, make_episode, store_of


class NaiveStore:
    """What the store must equal: a list of episodes, each a dict of lists of rows."""

    def __init__(self, capacity=None):
        self.capacity = capacity
        self.episodes = []

    def append(self, episode):
        self.episodes.append(episode)
        while self.capacity and sum(len(e["rewards"]) for e in self.episodes) > self.capacity:
            del self.episodes[0]

    def rows(self, task=None):
        """(episode, step) of every transition."""
        return [
            (e, t)
            for e in self.episodes
            if task in (None, e["task"])
            for t in range(len(e["rewards"]))
        ]

    @staticmethod
    def history(row, k):
        episode, t = row
        differences, actions = np.zeros((k, OBS)), np.zeros((k, ACT))
        for i in range(k):
            past = t - k + i
            if past >= 0:
                after, before = episode["next_observations"][past], episode["observations"][past]
                differences[i] = after - before
                actions[i] = episode["actions"][past]
        return differences, actions


def assert_equal(store: Episodes, naive: NaiveStore, *, k=3, m=3, task=None):
    rows = naive.rows(task)
    episodes = [e for e in naive.episodes if task in (None, e["task"])]
    assert len(store) == len(rows)
    assert store.num_episodes == len(episodes)
    assert store.tasks.tolist() == [e["task"] for e in episodes]
    assert store.lengths.tolist() == [len(e["rewards"]) for e in episodes]
    assert store.episode_ends.tolist() == np.cumsum(store.lengths).tolist()
    for name in COLUMNS:
        expected = [e[name][t] for e, t in rows]
        assert np.array_equal(store.column(name), np.reshape(expected, store.column(name).shape))
    assert np.array_equal(store.episode_returns(), [e["rewards"].sum() for e in episodes])

    batch = store.transitions(np.arange(len(rows)))
    for name in COLUMNS[:5]:
        values = getattr(batch, name)
        assert values.dtype == np.float32
        assert values.flags.c_contiguous
        assert np.array_equal(values, store.column(name))
    differences, actions = store.histories(np.arange(len(rows)), k)
    assert differences.shape == (len(rows), k, OBS)
    assert actions.shape == (len(rows), k, ACT)
    if rows:
        histories = [naive.history(row, k) for row in rows]
        assert np.array_equal(differences, [h[0] for h in histories])
        assert np.array_equal(actions, [h[1] for h in histories])
    future, mask = store.futures(np.arange(len(rows)), m)
    left = [len(e["rewards"]) - t for e, t in rows]
    assert mask.tolist() == [[i < n for i in range(m)] for n in left]
    assert future.tolist() == [
        [index + min(i, n - 1) for i in range(m)] for index, n in enumerate(left)
    ]


episode_lists = st.lists(
    st.tuples(st.integers(1, 7), st.booleans(), st.integers(0, 2)), min_size=1, max_size=12
)


@settings(max_examples=1000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    patterns=episode_lists,
    capacity=st.none() | st.integers(7, 30),
    at_once=st.booleans(),
    k=st.integers(1, 4),
    m=st.integers(1, 4),
    seed=st.integers(0, 2**32 - 1),
)
@example(patterns=[(7, False, 0)] * 3, capacity=7, at_once=True, k=4, m=4, seed=0)
def test_equals_a_list_of_episodes(patterns, capacity, at_once, k, m, seed):
    """Appends, batches of appends, evictions, round the ring several times."""
    rng = np.random.default_rng(seed)
    store, naive = EpisodeStore(OBS, ACT, capacity=capacity), NaiveStore(capacity)
    arriving = [make_episode(rng, n, terminal=end, task=task) for n, end, task in patterns]
    for episode in arriving:
        naive.append(episode)
    if at_once:
        half = len(arriving) // 2
        store.extend(store_of(arriving[:half]))
        store.extend(store_of(arriving[half:]))
    else:
        for episode in arriving:
            append(store, episode)
    assert_equal(store, naive, k=k, m=m)
    task = patterns[-1][2]
    assert_equal(store.task(task), naive, k=k, m=m, task=task)

    futures = [e["rewards"][t:] for e, t in naive.rows()]
    expected = [(rewards * 0.5 ** np.arange(len(rewards))).sum() for rewards in futures]
    np.testing.assert_allclose(store.discounted_returns(0.5), expected, rtol=1e-6)
    if naive.rows(task):
        drawn = store.task(task).sample_transitions(rng, 5)
        allowed = [tuple(e["observations"][t]) for e, t in naive.rows(task)]
        assert all(tuple(row) in allowed for row in drawn.observations)


def test_history_rows():
    """Zero start, newest last, the current step excluded, no episode crossed."""
    states = np.array([[0], [1], [3], [6], [100], [110]], dtype=np.float32)
    store = EpisodeStore.from_arrays(
        observations=states[[0, 1, 2, 4]],
        next_observations=states[[1, 2, 3, 5]],
        actions=[[10], [20], [30], [40]],
        episode_ends=[3, 4],
    )
    differences, actions = store.histories([0, 1, 2, 3], 2)
    assert differences[..., 0].tolist() == [[0, 0], [0, 1], [1, 2], [0, 0]]
    assert actions[..., 0].tolist() == [[0, 0], [0, 10], [10, 20], [0, 0]]


@settings(max_examples=500, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 8), min_size=1, max_size=4),
    k=st.integers(1, 5),
    data=st.data(),
)
def test_causality(lengths, k, data):
    """Changing step t changes no history at or before t, and none of another episode."""
    rng = np.random.default_rng(0)
    episodes = [make_episode(rng, n) for n in lengths]
    number = data.draw(st.integers(0, len(lengths) - 1))
    t = data.draw(st.integers(0, lengths[number] - 1))
    index = sum(lengths[:number]) + t
    everything = np.arange(sum(lengths))
    before = store_of(episodes).histories(everything, k)
    for name in ("observations", "next_observations", "actions", "rewards"):
        changed = episodes[number][name].copy()
        changed[t] += 0.5 if name != "next_observations" else 0.25
        episodes[number][name] = changed
    after = store_of(episodes).histories(everything, k)
    affected = (everything > index) & (everything <= index + k)
    affected &= everything < sum(lengths[: number + 1])
    for old, new in zip(before, after, strict=True):
        differs = (old != new).any(axis=(1, 2))
        np.testing.assert_array_equal(differs, affected)


def test_stored_rows_do_not_follow_the_callers_buffer():
    """The reference code appended histories that were then overwritten in place."""
    store, episode = EpisodeStore(OBS, ACT), make_episode(np.random.default_rng(0), 5)
    append(store, episode)
    kept = store.observations.copy()
    episode["observations"][:] = 0
    np.testing.assert_array_equal(store.observations, kept)
    with pytest.raises(ValueError, match="read-only"):
        store.observations[0] = 0


def test_futures_give_any_column_and_any_shape():
    store = store_of([make_episode(np.random.default_rng(0), n) for n in (3, 2)])
    future, mask = store.futures([1, 4], 3)
    assert future.tolist() == [[1, 2, 2], [4, 4, 4]]
    assert mask.tolist() == [[True, True, False], [True, False, False]]
    batch = store.transitions(future)
    assert batch.observations.shape == (2, 3, OBS)
    np.testing.assert_array_equal(batch.rewards, store.rewards[future])
    assert store.episode_of(future).tolist() == [[0, 0, 0], [1, 1, 1]]
    with pytest.raises(IndexError, match="from 0 to 4"):
        store.transitions([5])


def test_sampling_is_uniform_over_transitions():
    """Chi-square over 60 transitions of episodes of very different length."""
    rng = np.random.default_rng(1)
    store = store_of([make_episode(rng, n, task=n % 2) for n in (1, 40, 2, 10, 7)])
    for view in (store, store.task(0)):
        counts = np.bincount(view.sample_transitions(rng, 200_000).indices, minlength=len(view))
        expected = 200_000 / len(view)
        chi_square = ((counts - expected) ** 2 / expected).sum()
        freedom = len(view) - 1  # mean, and standard deviation sqrt(2 * freedom)
        assert abs(chi_square - freedom) < 4 * np.sqrt(2 * freedom)


def test_sampling_depends_on_contents_only():
    """A ring that went round and a fresh copy of its contents draw the same batch."""
    rng = np.random.default_rng(2)
    ring = store_of([make_episode(rng, 6) for _ in range(9)], capacity=20)
    copy = EpisodeStore.concatenate([ring])
    ours = ring.sample_transitions(np.random.default_rng(3), 64)
    theirs = copy.sample_transitions(np.random.default_rng(3), 64)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_selection_survives_growth_and_notices_eviction():
    rng = np.random.default_rng(0)
    growing = store_of([make_episode(rng, 5)])
    view, kept = growing.task(0), growing.observations.copy()
    for _ in range(50):
        append(growing, make_episode(rng, 5))
    np.testing.assert_array_equal(view.observations, kept)
    ring = store_of([make_episode(rng, 5)], capacity=12)
    view = ring.task(0)
    append(ring, make_episode(rng, 5))
    assert len(view) == 5
    append(ring, make_episode(rng, 5))
    for use in (
        lambda: view.observations,
        lambda: view.sample_transitions(rng, 1),
        lambda: view.histories([0], 1),
        lambda: view.task(0),
    ):
        with pytest.raises(UsageError, match="select again"):
            use()


@settings(max_examples=200, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 7), min_size=1, max_size=8),
    capacity=st.none() | st.integers(7, 20),
    data=st.data(),
)
def test_a_store_can_be_extended_by_its_own_episodes(lengths, capacity, data):
    """Also by those that are dropped to make room for their copies."""
    rng = np.random.default_rng(0)
    store, naive = EpisodeStore(OBS, ACT, capacity=capacity), NaiveStore(capacity)
    for length in lengths:
        episode = make_episode(rng, length)
        append(store, episode)
        naive.append(episode)
    first = data.draw(st.integers(0, store.num_episodes - 1))
    last = data.draw(st.integers(first, store.num_episodes - 1))
    store.extend(store.select(np.arange(first, last + 1)))
    for episode in naive.episodes[first : last + 1]:
        naive.append(episode)
    assert_equal(store, naive)


def test_dropping_moves_no_row():
    """The arrays stay where they are while episodes come and go."""
    rng = np.random.default_rng(0)
    store = store_of([make_episode(rng, 10)], capacity=35)
    arrays = dict(store._rows.columns)
    for _ in range(20):
        append(store, make_episode(rng, 10))
        kept = store.select([0]).observations.copy()
        np.testing.assert_array_equal(store.observations[:10], kept)
    assert all(store._rows.columns[name] is array for name, array in arrays.items())


def test_memory_of_a_million_ant_transitions():
    """At most 1.2 times the raw arrays, as one log and as a store that grew."""
    rows, obs, act = 1_000_000, 27, 8
    raw = rows * (4 * (obs + act + 1 + obs) + 2)
    arrays = {
        "observations": np.zeros((rows, obs), np.float32),
        "next_observations": np.zeros((rows, obs), np.float32),
        "actions": np.zeros((rows, act), np.float32),
        "rewards": np.zeros(rows, np.float32),
    }
    tracemalloc.start()
    store = EpisodeStore.from_arrays(**arrays, episode_ends=np.arange(1000, rows + 1, 1000))
    extra = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert store.nbytes <= 1.01 * raw
    assert extra < 0.05 * raw  # the caller's arrays are used as they are

    tracemalloc.start()
    growing = EpisodeStore(obs, act)
    for _ in range(1000):
        episode = {name: values[:1000] for name, values in arrays.items()}
        growing.append_episode(**episode)
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert len(growing) == rows
    assert max(held, growing.nbytes) <= 1.2 * raw


def test_importing_the_store_is_light():
    heavy = "{'torch', 'mujoco', 'metaworld', 'minari', 'h5py'}"
    code = (
        f"import sys; from mcat.datasets import EpisodeStore; print(*({heavy} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == ""
