"""Stores made from arrays: where episodes end, what is refused, joining."""

from __future__ import annotations

import numpy as np
import pytest

from mcat.datasets import EpisodeStore, check
from mcat.errors import DataError, UsageError
from tests.datasets.stores import ACT, COLUMNS, OBS, append, make_episode, rows, store_of


def test_without_flags_an_episode_ends_where_the_states_jump():
    log = rows(10)
    log["observations"][4] += 0.5  # row 4 does not go on where row 3 ended
    store = EpisodeStore.from_arrays(**log)
    assert store.episode_ends.tolist() == [4, 10]
    assert store.timeouts.nonzero()[0].tolist() == [3, 9]
    assert not store.terminals.any()
    assert store.rewards.tolist() == [0] * 10


def test_time_limits_that_were_not_marked_are_found():
    """D4RL #77: terminals are there, timeouts are not."""
    log = rows(10, terminals=np.arange(10) == 2)
    log["observations"][6] += 0.5
    store = EpisodeStore.from_arrays(**log)
    assert store.episode_ends.tolist() == [3, 6, 10]
    assert store.terminals.nonzero()[0].tolist() == [2]
    assert store.timeouts.nonzero()[0].tolist() == [5, 9]


def test_marked_time_limits_are_believed():
    log = rows(10, timeouts=np.arange(10) == 4)
    log["observations"][7] += 0.5  # a lost row, not an episode end: a finding of `check`
    store = EpisodeStore.from_arrays(**log)
    assert store.episode_ends.tolist() == [5, 10]
    assert any("episode 1, step 1" in str(f) and "not continued" in str(f) for f in check(store))


def test_missing_next_observations_are_the_following_rows():
    log = rows(10, terminals=np.arange(10) == 6)
    del log["next_observations"]
    store = EpisodeStore.from_arrays(**log, timeouts=np.arange(10) == 0)
    # Rows 0 (an episode of one row), 6 and 9 have no known successor.
    assert store.observations[:, 0].tolist() == [2, 4, 6, 8, 10, 14, 16]
    assert store.next_observations[:, 0].tolist() == [4, 6, 8, 10, 12, 16, 18]
    assert store.episode_ends.tolist() == [5, 7]
    assert store.timeouts.nonzero()[0].tolist() == [4, 6]
    assert not store.terminals.any()


def test_shuffled_rows_are_not_taken_for_episodes():
    log = rows(10)
    order = np.random.default_rng(0).permutation(10)
    shuffled = {name: values[order] for name, values in log.items()}
    with pytest.raises(DataError, match="pass timeouts= or episode_ends="):
        EpisodeStore.from_arrays(**shuffled)
    assert EpisodeStore.from_arrays(**shuffled, timeouts=np.ones(10)).num_episodes == 10


def spoiled(name, index, value, n=10):
    log = rows(n, rewards=np.zeros(n))
    log[name][index] = value
    return log


@pytest.mark.parametrize(
    ("log", "message"),
    [
        (
            spoiled("observations", (7, 1), np.nan),
            "observations: episode 1, step 2, column 1 is nan",
        ),
        (spoiled("actions", (4, 0), np.inf), "actions: episode 0, step 4, column 0 is inf"),
        (
            spoiled("next_observations", (0, 0), 1e300),
            "next_observations: episode 0, step 0, column 0",
        ),
        (spoiled("rewards", 9, np.nan), "rewards: episode 1, step 4 is nan"),
        (rows(10, actions=np.ones((9, ACT))), "actions has 9 rows but observations has 10"),
        (
            rows(10, actions=np.ones(10)),
            r"actions must have the shape \(rows, columns\), got \(10,\)",
        ),
        (rows(10, rewards=np.ones((10, 1))), r"rewards must have the shape \(rows,\)"),
        (rows(10, next_observations=np.ones((10, 3))), "3 columns but observations has 2"),
        (rows(10, actions=np.full((10, 1), "a")), "actions must be an array of numbers"),
        (rows(10, actions=[[1, 2], [1]]), "actions must be an array of numbers"),
        (rows(10, terminals=np.full(10, 2)), "terminals must hold only True and False"),
        (rows(10, terminals=np.arange(10) == 2), "terminals: episode 0, step 2 is set"),
        (rows(10, episode_ends=[5, 9]), "must end with the number of rows, 10, got 9"),
        (rows(10, episode_ends=[5, 5, 10]), "entry 1 is 5"),
        (rows(10, episode_ends=[0, 10]), "entry 0 is 0"),
        (rows(10, episode_ends=[]), "got nothing"),
        (rows(10, episode_ends=[5.0, 10.0]), "whole numbers"),
        (rows(10, tasks=[1]), "2 of them, one per episode"),
        (rows(0), "observations are empty"),
    ],
)
def test_bad_arrays_are_named(log, message):
    log.setdefault("episode_ends", [5, 10])
    with pytest.raises(DataError, match=message):
        EpisodeStore.from_arrays(**log)


def test_nan_never_enters_a_growing_store():
    """1,000 places, 1,000 refusals, nothing stored."""
    rng = np.random.default_rng(0)
    store = store_of([make_episode(rng, 4)], capacity=10)
    for _ in range(1000):
        episode = make_episode(rng, 5)
        name = rng.choice(["observations", "actions", "rewards", "next_observations"])
        values = episode[name] = episode[name].copy()
        values.flat[rng.integers(values.size)] = rng.choice([np.nan, np.inf, -np.inf])
        with pytest.raises(DataError, match=name):
            append(store, episode)
    assert store.lengths.tolist() == [4]


def test_misuse_is_named():
    rng = np.random.default_rng(0)
    with pytest.raises(UsageError, match="capacity"):
        EpisodeStore(OBS, ACT, capacity=0)
    with pytest.raises(UsageError, match="exceeds the capacity 4"):
        append(EpisodeStore(OBS, ACT, capacity=4), make_episode(rng, 5))
    with pytest.raises(UsageError, match="without transitions"):
        EpisodeStore(OBS, ACT).sample_transitions(rng, 1)
    with pytest.raises(DataError, match="actions have 1 columns but the store has 3"):
        append(EpisodeStore(OBS, 3), make_episode(rng, 5))
    with pytest.raises(UsageError, match="at least one"):
        EpisodeStore.concatenate([])


def test_concatenate_keeps_or_renumbers_tasks():
    rng = np.random.default_rng(0)
    first, second = (store_of([make_episode(rng, 2, task=t) for t in (0, 1)]) for _ in range(2))
    assert EpisodeStore.concatenate([first, second]).tasks.tolist() == [0, 1, 0, 1]
    joined = EpisodeStore.concatenate([first, second], tasks=[4, 7])
    assert joined.tasks.tolist() == [4, 4, 7, 7]
    np.testing.assert_array_equal(joined.task(7).observations, second.observations)
    assert set(joined.episode(0)) == set(COLUMNS)
