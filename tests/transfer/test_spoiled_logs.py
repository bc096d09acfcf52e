"""Logs that nothing can be learned from are named before anything is trained on them."""

import pickle
import re
import time

import numpy as np
import pytest

from mcat.datasets import EpisodeStore, write_dataset
from mcat.errors import DataError, McatError, UsageError
from mcat.transfer.config import TransferConfig
from mcat.transfer.run import translate
from tests.transfer.transfer_logs import own_robot

CSV = "obs_0,obs_1,obs_2,act_0,act_1,episode\n"
ROWS = "".join(f"{k % 7},{k % 5},{k % 3},{k % 2 / 2},{k % 4 / 4},{k // 30}\n" for k in range(60))


def changed(store, **columns):
    names = ("observations", "actions", "next_observations")
    kept = {name: np.array(store.column(name)) for name in names} | columns
    return EpisodeStore.from_arrays(**kept, episode_ends=store.episode_ends)


def in_csv(old, new):
    """A CSV in which one piece of text is another."""
    return lambda path: path.write_text((CSV + ROWS).replace(old, new, 1))


def in_hdf5(store, metadata=None):
    return lambda path: write_dataset(path, store, metadata or {})


def with_bytes(change):
    def spoil(path):
        write_dataset(path, own_robot(5), {})
        path.write_bytes(change(bytearray(path.read_bytes())))

    return spoil


def flipped(content):
    content[-100:-50] = b"\xff" * 50
    return content


GOOD, OTHER = own_robot(1), own_robot(5)
STILL = np.zeros_like(GOOD.observations)
SPOILED = {
    "nan.csv": (in_csv("6,1,0,", "nan,1,0,"), "episode 0, step 6, .* is nan"),
    "inf.csv": (in_csv("6,1,0,", "6,inf,0,"), "episode 0, step 6, .* is inf"),
    "word.csv": (in_csv("6,1,0,", "up,1,0,"), "line 8, .*'up'"),
    "blank.csv": (in_csv("6,1,0,", ",1,0,"), "line 8, column obs_0"),
    "ragged.csv": (in_csv("6,1,0,", "6,1,0,0,0,"), "line 8 has 8 fields"),
    "no-state.csv": (in_csv(CSV, CSV.replace("obs", "q")), "obs_0"),
    "no-action.csv": (in_csv(CSV, CSV.replace("act", "tau")), "act_0"),
    "header.csv": (lambda path: path.write_text(CSV), "no line|no row"),
    "empty.csv": (lambda path: path.write_text(""), "no column|empty"),
    "one-episode.csv": (lambda path: path.write_text(CSV + ROWS[: len(ROWS) // 2]), "one episode"),
    "loud.csv": (in_csv("6,1,0,0.0", "6,1,0,8.5"), r"an action is 8\.5, outside \[-1, 1\]"),
    "loud.h5": (in_hdf5(own_robot(5, scale=3.0)), r"an action is [\d.]+, outside \[-1, 1\]"),
    "one-episode.h5": (in_hdf5(own_robot(5, episodes=1)), "one episode only"),
    "short.h5": (in_hdf5(own_robot(5, steps=4)), "20 of 20 episodes have fewer than 11 steps"),
    "still-states.h5": (
        in_hdf5(changed(GOOD, observations=STILL, next_observations=STILL)),
        "none of its observations ever changes",
    ),
    "still-actions.h5": (
        in_hdf5(changed(GOOD, actions=np.zeros_like(GOOD.actions))),
        "none of its actions ever changes",
    ),
    "more-states.h5": (in_hdf5(own_robot(5, states=4)), "3 states and 2 actions, .* has 4 and 2"),
    "more-actions.h5": (in_hdf5(own_robot(5, actions=3)), "3 states and 2 actions, .* has 3 and 3"),
    "same.h5": (in_hdf5(own_robot(0)), "source.h5 and .* hold the same transitions"),
    "flipped.h5": (with_bytes(flipped), "damaged"),
    "cut.h5": (with_bytes(lambda content: content[: len(content) // 2]), "damaged"),
    "pickle.h5": (lambda path: path.write_bytes(pickle.dumps({"x": 1})), "not an HDF5 file"),
    "text.h5": (lambda path: path.write_text("dear diary"), "not an HDF5 file"),
    "unicorn.h5": (in_hdf5(GOOD, {"task": {"robot": "unicorn"}}), "unknown robot 'unicorn'"),
    "hopper.h5": (in_hdf5(GOOD, {"task": {"robot": "hopper"}}), "sizes are not those of its task"),
    "missing.h5": (lambda path: None, "does not exist"),
}


@pytest.mark.parametrize("name", SPOILED)
def test_a_spoiled_log_is_named_before_training(name, tmp_path, monkeypatch):
    spoil, message = SPOILED[name]
    monkeypatch.chdir(tmp_path)
    write_dataset("source.h5", own_robot(0), {})
    spoil(tmp_path / name)
    config = TransferConfig(sources=("source.h5",), targets=(name,), preset="smoke")
    before, started = sorted(tmp_path.iterdir()), time.process_time()
    with pytest.raises(McatError) as caught:
        translate(config, quiet=True)
    assert time.process_time() - started < 2  # a tenth of it is usual
    told = str(caught.value)
    assert name in told
    assert re.search(message, told.replace(name, ""))
    assert len(told.splitlines()) == 1
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({}, "source.h5: every reward is 0"),
        ({"rewards": np.full(600, 2.5)}, "source.h5: every reward is 2.5, so there is nothing"),
    ],
)
def test_rewards_that_are_not_there_are_not_matched(columns, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_dataset("source.h5", changed(OTHER, **columns), {})
    write_dataset("target.h5", GOOD, {})
    files = {"sources": ("source.h5",), "targets": ("target.h5",)}
    with pytest.raises(DataError, match=message):
        translate(TransferConfig(**files, preset="smoke", reward_aware=True), quiet=True)


def test_a_policy_that_would_not_be_used_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_dataset("source.h5", OTHER, {})
    write_dataset("target.h5", GOOD, {})
    files = {"sources": ("source.h5",), "targets": ("target.h5",)}
    with pytest.raises(UsageError, match=r"cannot simulate the machine of source\.h5"):
        translate(TransferConfig(**files, preset="smoke", policy="good"), quiet=True)
    assert len(list(tmp_path.iterdir())) == 2
