"""The replay memory against a plain list, in memory and on disk."""

from __future__ import annotations

import numpy as np
import pytest

from mcat.agents import replay as module
from mcat.agents.replay import Replay
from mcat.errors import DataError, UsageError

OBS, ACT = 3, 2


@pytest.fixture(autouse=True)
def small_segments(monkeypatch):
    monkeypatch.setattr(module, "SEGMENT", 10)


def fill(replay: Replay, count: int, folder=None) -> list[tuple[np.ndarray, ...]]:
    """Adds `count` transitions whose values say which they are."""
    added = []
    for i in range(replay.added, replay.added + count):
        row = (np.full(OBS, i), np.full(ACT, i + 0.25), i + 0.5, np.full(OBS, i + 1.0), i % 7 == 0)
        replay.add(*row)
        if folder is not None:
            replay.save_segment(folder)
        added.append(row)
    return added


@pytest.mark.parametrize("count", [1, 7, 40, 41, 97])
def test_samples_are_whole_rows_of_the_newest_transitions(count):
    replay = Replay(OBS, ACT, 40)
    rows = fill(replay, count)[-40:]
    batch = replay.sample(np.random.default_rng(0), 2000)
    seen = set()
    for obs, action, reward, next_obs, terminal in zip(*(t.numpy() for t in batch), strict=True):
        index = int(obs[0]) - (count - len(rows))
        expected = rows[index]
        seen.add(index)
        found = (obs, action, reward, next_obs, terminal)
        assert all(
            np.array_equal(np.atleast_1d(e), f) for e, f in zip(expected, found, strict=True)
        )
    assert seen == set(range(len(rows)))  # uniform: 2000 draws miss none of 40
    assert batch.reward.shape == batch.terminal.shape == (2000, 1)


def test_a_row_of_the_wrong_length_is_refused():
    replay = Replay(OBS, ACT, 40)
    with pytest.raises(ValueError):
        replay.add(np.zeros(OBS + 1), np.zeros(ACT), 0.0, np.zeros(OBS), False)


@pytest.mark.parametrize("count", [3, 10, 25, 40, 57, 93])
def test_restoring_from_segments_and_tail_gives_the_same_memory(tmp_path, count):
    replay = Replay(OBS, ACT, 40)
    fill(replay, count, tmp_path)
    tail = replay.tail().copy()
    assert len(tail) == count % 10
    restored = Replay(OBS, ACT, 40)
    restored.load(tmp_path, count, tail, replay.seals)
    for more in (0, 15):
        fill(replay, more, tmp_path)
        fill(restored, more, tmp_path)
        ours, theirs = (r.sample(np.random.default_rng(1), 500) for r in (replay, restored))
        assert all((a == b).all() for a, b in zip(ours, theirs, strict=True))
    recent = min(15 + count, 30)
    assert np.array_equal(*(memory.latest(recent).action for memory in (restored, replay)))


def test_a_damaged_or_foreign_segment_is_named(tmp_path):
    replay = Replay(OBS, ACT, 40)
    fill(replay, 25, tmp_path)
    path = tmp_path / "segment-00001.safetensors"
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match="segment-00001"):
        Replay(OBS, ACT, 40).load(tmp_path, 25, replay.tail(), replay.seals)
    with pytest.raises(DataError, match="segment-00000"):
        Replay(OBS + 1, ACT, 40).load(tmp_path, 25, replay.tail(), replay.seals)
    with pytest.raises(DataError, match="1 seals of 2 segments"):
        Replay(OBS, ACT, 40).load(tmp_path, 25, replay.tail(), replay.seals[:1])


def test_capacity_must_fit_segments():
    with pytest.raises(UsageError, match="multiple of 10"):
        Replay(OBS, ACT, 45)
