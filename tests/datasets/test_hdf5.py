"""The data set file: what is written is read, here and by others."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import time

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcat.datasets import EpisodeStore
from mcat.datasets.hdf5 import read_dataset, write_dataset
from mcat.errors import CannotCreateError, DataError, MissingInputError
from tests.datasets.stores import content_hash

NAMES = ("observations", "actions", "rewards", "next_observations", "terminals", "timeouts")
METADATA = {"task": {"robot": "ant", "cripple": 3}, "seed": 5, "versions": {"mcat": "0.1.0"}}


def make_store(lengths=(4, 1, 7), terminal=(True, False, False), seed=0, obs=3, act=2):
    rng = np.random.default_rng(seed)
    ends = np.cumsum(lengths)
    rows = int(ends[-1])
    terminals, timeouts = np.zeros(rows, bool), np.zeros(rows, bool)
    terminals[ends - 1] = terminal
    timeouts[ends - 1] = ~np.array(terminal)
    return EpisodeStore.from_arrays(
        observations=rng.normal(size=(rows, obs)),
        actions=rng.uniform(-1, 1, size=(rows, act)),
        next_observations=rng.normal(size=(rows, obs)),
        rewards=rng.normal(size=rows),
        terminals=terminals,
        timeouts=timeouts,
        episode_ends=ends,
    )


def assert_equal(a, b):
    for name in (*NAMES, "episode_ends"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name), strict=True)


def test_round_trip(tmp_path):
    store = make_store()
    write_dataset(tmp_path / "a.h5", store, METADATA)
    episodes, metadata = read_dataset(tmp_path / "a.h5")
    assert_equal(episodes, store)
    returns = store.episode_returns()
    assert metadata == METADATA | {
        "format_version": 1,
        "observation_size": 3,
        "action_size": 2,
        "transitions": 12,
        "episodes": 3,
        "returns": {"min": returns.min(), "mean": returns.mean(), "max": returns.max()},
    }
    assert os.listdir(tmp_path) == ["a.h5"]


@settings(max_examples=40, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=6),
    obs=st.integers(1, 5),
    act=st.integers(1, 3),
    data=st.data(),
)
def test_round_trip_of_any_episodes(tmp_path_factory, lengths, obs, act, data):
    flags = data.draw(st.lists(st.booleans(), min_size=len(lengths), max_size=len(lengths)))
    store = make_store(lengths, flags, obs=obs, act=act)
    path = tmp_path_factory.mktemp("h5") / "a.h5"
    write_dataset(path, store, {})
    assert_equal(read_dataset(path)[0], store)


def test_a_view_of_some_episodes_can_be_written(tmp_path):
    store = make_store()
    write_dataset(tmp_path / "a.h5", store.select([2, 0]), {})
    episodes, _ = read_dataset(tmp_path / "a.h5")
    np.testing.assert_array_equal(episodes.rewards[:7], store.rewards[5:])
    np.testing.assert_array_equal(episodes.rewards[7:], store.rewards[:4])


def test_a_d4rl_loader_reads_our_file(tmp_path):
    store = make_store()
    write_dataset(tmp_path / "a.h5", store, METADATA)
    # The loop of d4rl.offline_env.OfflineEnv.get_dataset, in which every key is an array.
    with h5py.File(tmp_path / "a.h5", "r") as file:
        data = {key: file[key][:] for key in file}
        attribute = json.loads(file.attrs["mcat"])
        assert all(file[key].chunks is None and file[key].compression is None for key in file)
    for name in NAMES:
        np.testing.assert_array_equal(data[name], getattr(store, name), strict=True)
    assert attribute["task"] == METADATA["task"]


def test_we_read_a_d4rl_file(tmp_path):
    store = make_store()
    path = tmp_path / "halfcheetah-medium-v2.hdf5"
    with h5py.File(path, "w") as file:
        for name in NAMES:
            array = getattr(store, name)
            file.create_dataset(name, data=array, compression="gzip")
        file["infos/qpos"] = np.zeros((12, 9))
        file["metadata/algorithm"] = "SAC"
    episodes, metadata = read_dataset(path)
    assert metadata["ignored_columns"] == ["infos", "metadata"]
    assert metadata["has_rewards"]
    assert_equal(episodes, store)


def test_we_read_a_d4rl_file_without_next_observations(tmp_path):
    store = make_store(lengths=(4, 2, 7))
    with h5py.File(tmp_path / "maze.hdf5", "w") as file:
        for name in NAMES:
            if name != "next_observations":
                file[name] = getattr(store, name).astype(
                    np.float64 if name == "observations" else getattr(store, name).dtype
                )
    episodes, _ = read_dataset(tmp_path / "maze.hdf5")
    np.testing.assert_array_equal(episodes.episode_ends, [3, 4, 10])
    np.testing.assert_array_equal(episodes.next_observations[:3], store.observations[1:4])


def test_equal_contents_give_equal_bytes_and_hashes(tmp_path):
    for name in ("a", "b"):
        write_dataset(tmp_path / name, make_store(), METADATA)
        time.sleep(1.01 if name == "a" else 0)  # HDF5 times count seconds
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert content_hash(tmp_path / "a") == content_hash(tmp_path / "b")
    write_dataset(tmp_path / "c", make_store(), METADATA | {"versions": {"mcat": "0.2.0"}})
    assert content_hash(tmp_path / "a") == content_hash(tmp_path / "c")
    write_dataset(tmp_path / "d", make_store(), METADATA | {"seed": 6})
    write_dataset(tmp_path / "e", make_store(seed=1), METADATA)
    assert len({content_hash(tmp_path / name) for name in "ade"}) == 3


def test_existing_files_are_kept(tmp_path):
    path = tmp_path / "a.h5"
    write_dataset(path, make_store(), METADATA)
    before = path.read_bytes()
    with pytest.raises(CannotCreateError, match="--overwrite"):
        write_dataset(path, make_store(seed=1), METADATA)
    assert path.read_bytes() == before
    write_dataset(path, make_store(seed=1), METADATA, overwrite=True)
    assert path.read_bytes() != before


def test_missing_files_and_too_much_metadata(tmp_path):
    with pytest.raises(MissingInputError, match="No such file"):
        read_dataset(tmp_path / "none.h5")
    with pytest.raises(MissingInputError, match="directory"):
        read_dataset(tmp_path)
    with pytest.raises(DataError, match="bytes of metadata"):
        write_dataset(tmp_path / "a.h5", make_store(), {"note": "x" * 100_000})
    write_dataset(tmp_path / "b.h5", make_store(), {"note": "x" * 59_000})
    assert len(read_dataset(tmp_path / "b.h5")[1]["note"]) == 59_000


def test_reading_needs_no_lock(tmp_path):
    path = tmp_path / "a.h5"
    write_dataset(path, make_store(), METADATA)
    with open(path, "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # what an HDF5 writer holds
        with pytest.raises(BlockingIOError):
            h5py.File(path, "r", locking=True)
        episodes, _ = read_dataset(path)
    assert len(episodes) == 12


# ---- sealed files whose contents break the rules


def reseal(content):
    """The seal is a checksum, no signature: anyone can make one."""
    digest = hashlib.sha256(content[512:]).hexdigest()
    seal = f"mcat data set, sealed\nbytes {len(content)}\nsha256 {digest}\n".encode()
    return seal.ljust(512, b"\0") + content[512:]


def spoil(tmp_path, change):
    """A sealed file with `change` applied to its contents, as a faulty program might write."""
    path = tmp_path / "spoilt.h5"
    write_dataset(path, make_store(), METADATA, overwrite=True)
    with h5py.File(path, "r+") as file:
        change(file)
    path.write_bytes(reseal(path.read_bytes()))
    return path


def replace(name, array):
    def change(file):
        del file[name]
        file[name] = array

    return change


def put(name, index, value):
    def change(file):
        file[name][index] = value

    return change


def set_metadata(**changes):
    def change(file):
        metadata = json.loads(file.attrs["mcat"]) | changes
        text = json.dumps({k: v for k, v in metadata.items() if v is not None}).encode()
        file.attrs.create("mcat", text, dtype=h5py.string_dtype("utf-8", len(text)))

    return change


def raw_metadata(text):
    def change(file):
        file.attrs.create("mcat", text, dtype=h5py.string_dtype("utf-8", len(text)))

    return change


def remove_metadata(file):
    del file.attrs["mcat"]


F4 = np.float32
SPOILT = {
    "NaN observation": (put("observations", (5, 1), np.nan), "observations: episode 2, step 0"),
    "infinite action": (put("actions", (0, 0), np.inf), "actions: episode 0, step 0, column 0"),
    "NaN reward": (put("rewards", 11, np.nan), "rewards: episode 2, step 6"),
    "NaN next": (put("next_observations", (4, 2), np.nan), "episode 1, step 0, column 2"),
    "short rewards": (replace("rewards", np.zeros(11, F4)), "rewards has 11 rows"),
    "wide next": (replace("next_observations", np.zeros((12, 4), F4)), "4 columns"),
    "flat actions": (replace("actions", np.zeros(12, F4)), "1 dimensions, not 2"),
    "float64": (replace("rewards", np.zeros(12)), "rewards has type float64"),
    "float flags": (replace("timeouts", np.zeros(12, F4)), "type float32"),
    "ends short": (replace("episode_ends", np.array([4, 5])), "number of rows, 12"),
    "ends falling": (replace("episode_ends", np.array([5, 4, 12])), "must increase"),
    "ends zero": (replace("episode_ends", np.array([0, 5, 12])), "must increase"),
    "ends empty": (replace("episode_ends", np.zeros(0, np.int64)), "number of rows"),
    "no ends": (lambda file: file.__delitem__("episode_ends"), "no episode_ends"),
    "no actions": (lambda file: file.__delitem__("actions"), "no actions"),
    "no flag": (put("timeouts", 11, False), "has no flag"),
    "early flag": (put("terminals", 1, True), "terminals: episode 0, step 1"),
    "other obs size": (set_metadata(observation_size=4), "observation_size is 3"),
    "other act size": (set_metadata(action_size=1), "action_size is 2"),
    "other count": (set_metadata(transitions=13), "transitions is 12"),
    "outside": (set_metadata(action_low=[-0.1, -1], action_high=[1, 1]), "outside the action"),
    "odd bounds": (set_metadata(action_low=[-1], action_high="no"), "action bounds"),
    "half bounds": (set_metadata(action_low=[-1, -1]), "action bounds"),
    "future": (set_metadata(format_version=2, versions={"mcat": "9.1"}), "needs mcat >= '9.1'"),
    "no version": (set_metadata(format_version=None), "no format version"),
    "odd version": (set_metadata(format_version="1"), "no format version"),
    "no metadata": (remove_metadata, "no metadata"),
    "metadata list": (raw_metadata(b"[1]"), "not a JSON object"),
    "metadata broken": (raw_metadata(b'{"a": '), "JSON"),
    "metadata binary": (raw_metadata(b"\xff\xfe\x00\x01"), "utf-8"),
    "metadata NaN": (raw_metadata(b'{"a": NaN}'), "JSON"),
}


@pytest.mark.parametrize("case", SPOILT)
def test_contents_are_checked_before_they_are_believed(tmp_path, case):
    change, message = SPOILT[case]
    path = spoil(tmp_path, change)
    with pytest.raises(DataError) as caught:
        read_dataset(path)
    text = str(caught.value)
    assert message in text
    assert str(path) in text
    assert len(text.splitlines()) == 1
    assert caught.value.exit_code == 65


def test_non_finite_values_at_random_places_are_all_refused(tmp_path):
    """300 places, through the child's and the in-process reader alike."""
    rng = np.random.default_rng(0)
    path = tmp_path / "a.h5"
    write_dataset(path, make_store(lengths=(30,), terminal=(False,)), METADATA)
    good = path.read_bytes()
    with h5py.File(path, "r") as file:
        places = {name: (file[name].id.get_offset(), file[name].size) for name in NAMES[:4]}
    for _ in range(300):
        offset, size = places[NAMES[rng.integers(4)]]
        at = offset + 4 * int(rng.integers(size))
        bad = F4(rng.choice([np.nan, np.inf, -np.inf])).tobytes()
        path.write_bytes(reseal(good[:at] + bad + good[at + 4 :]))
        with pytest.raises(DataError, match=r"nan|inf"):
            read_dataset(path)
