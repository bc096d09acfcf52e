"""The folder beside an output: ours or somebody's own, and what resuming may believe of it."""

from __future__ import annotations

import dataclasses
import os
import shutil
import signal

import h5py
import numpy as np
import pytest

from mcat.datasets import collect as collecting
from mcat.datasets.collect import CollectConfig, collect
from mcat.datasets.hdf5 import read_dataset, write_dataset
from mcat.datasets.rollout import roll_out
from mcat.envs.tasks import Task
from mcat.errors import CannotCreateError, UsageError
from mcat.interrupts import StoppedError
from tests.datasets.stores import content_hash

TASK = Task("hopper", horizon=12)
CONFIG = CollectConfig(task=TASK, steps=400, seed=2, noise=(0.0, 0.4), envs=3)
PART = f".shard-00000.h5.part-{'0' * 32}"


def policy(observations):
    return np.cos(9 * observations[:, : TASK.spec.action_size])


def uneven(*args, **options):
    """Episodes of which some end early, as no robot's do in so few steps."""
    for episode in roll_out(*args, **options):
        length = 4 + int(1e6 * abs(episode["observations"][0, 0])) % 9
        columns = {n: values[:length] for n, values in episode.items() if n != "terminal"}
        yield columns | {"terminal": length < 12}


@pytest.fixture(autouse=True)
def small_collections(monkeypatch):
    monkeypatch.setattr(collecting, "SHARD_TRANSITIONS", 60)
    monkeypatch.setattr(collecting, "roll_out", uneven)


def run(path, config=CONFIG, **options):
    return collect(config, policy, path, quiet=True, **options)


def stopped(path, rounds, config=CONFIG):
    """A collection that a signal stopped after some rounds; returns its folder."""
    real, done = collecting.roll_out, []

    def signalled(*args, **options):
        done.append(1)
        if len(done) == rounds:
            os.kill(os.getpid(), signal.SIGTERM)
        return real(*args, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(collecting, "roll_out", signalled)
        with pytest.raises(StoppedError):
            run(path, config)
    return path.with_name(f"{path.name}.shards")


def tree(folder):
    return {
        str(path.relative_to(folder)): (
            os.readlink(path) if path.is_symlink() else path.is_file() and path.read_bytes()
        )
        for path in sorted(folder.rglob("*"))
    }


# ---- somebody's own


def a_file(place):
    place.mkdir()
    (place / "thesis.txt").write_text("precious")


def a_file_beside_shards(place):
    stopped(place.with_suffix(""), 5)
    (place / "thesis.txt").write_text("precious")


def a_folder(place):
    (place / "shard-00000.h5").mkdir(parents=True)


def a_link_to_a_folder(place):
    (place.parent / "target").mkdir()
    place.symlink_to("target")


def a_link_inside(place):
    place.mkdir()
    (place.parent / "mine.h5").write_text("precious")
    (place / "shard-00000.h5").symlink_to("../mine.h5")


def a_link_as_the_lock(place):
    place.mkdir()
    (place.parent / "mine").write_text("precious")
    (place / "lock").symlink_to("../mine")


def a_plain_file(place):
    place.write_text("precious")


def a_nearly_unfinished_file(place):
    place.mkdir()
    (place / PART[:-1]).write_text("precious")


def another_unfinished_file(place):
    place.mkdir()
    (place / f".thesis.txt.part-{'0' * 32}").write_text("precious")


OWN = [
    a_file,
    a_file_beside_shards,
    a_folder,
    a_link_to_a_folder,
    a_link_inside,
    a_link_as_the_lock,
    a_plain_file,
    a_nearly_unfinished_file,
    another_unfinished_file,
]


@pytest.mark.parametrize("options", [{"resume": True}, {"overwrite": True}], ids=str)
@pytest.mark.parametrize("make", OWN, ids=lambda make: make.__name__)
def test_a_folder_that_is_not_ours_is_refused_and_untouched(tmp_path, make, options):
    make(tmp_path / "a.h5.shards")
    before = tree(tmp_path)
    with pytest.raises(CannotCreateError, match=r"a\.h5\.shards is needed.*move it away") as caught:
        run(tmp_path / "a.h5", **options)
    assert len(str(caught.value).splitlines()) == 1
    assert tree(tmp_path) == before


def test_a_finished_collection_leaves_somebodys_folder_alone(tmp_path):
    run(tmp_path / "a.h5")
    a_file(tmp_path / "a.h5.shards")
    before = tree(tmp_path)
    run(tmp_path / "a.h5", resume=True)
    assert tree(tmp_path) == before


@pytest.mark.parametrize(
    "left", [[], ["lock"], ["lock", PART], ["shard-00000.h5", "lock"]], ids=str
)
def test_what_a_killed_process_leaves_is_ours(tmp_path, left):
    place = tmp_path / "a.h5.shards"
    place.mkdir()
    for name in left:
        (place / name).touch()
    run(tmp_path / "a.h5", resume=True)
    assert os.listdir(tmp_path) == ["a.h5"]


@pytest.mark.parametrize("options", [{"resume": True}, {"overwrite": True}], ids=str)
@pytest.mark.parametrize("content", ["a data set", "a text", "HDF5"])
def test_what_only_has_the_name_of_a_shard_is_refused(tmp_path, content, options):
    place = tmp_path / "a.h5.shards"
    place.mkdir()
    path = place / "shard-00001.h5"
    if content == "a data set":
        run(path)
    elif content == "HDF5":
        with h5py.File(path, "w") as file:
            file["thesis"] = [1, 2, 3]
    else:
        path.write_text("precious")
    before = tree(tmp_path)
    with pytest.raises(CannotCreateError, match=r"shard-00001\.h5 is no part of a collection"):
        run(tmp_path / "a.h5", **options)
    assert tree(tmp_path) | {"a.h5.shards/lock": b""} == before | {"a.h5.shards/lock": b""}


# ---- what resuming believes


def reseal(path, **changes):
    """The shard with another text about itself, under a seal that is right."""
    episodes, metadata = read_dataset(path)
    metadata["shard"] |= changes
    write_dataset(path, episodes, metadata, overwrite=True)


def test_shards_in_the_wrong_place_are_collected_again(tmp_path):
    run(tmp_path / "clean.h5")
    folder = stopped(tmp_path / "a.h5", 12)
    shards = sorted(folder.glob("*.h5"))
    assert len(shards) >= 4
    shutil.copy(shards[0], shards[1])
    shards[2].unlink()
    run(tmp_path / "a.h5", resume=True)
    assert content_hash(tmp_path / "a.h5") == content_hash(tmp_path / "clean.h5")


@pytest.mark.parametrize(
    "change", [{"unstable": "1"}, {"next_round": 2.0}, {"next_round": -7}, {"file": 5}], ids=str
)
def test_a_shard_that_says_nonsense_is_refused(tmp_path, change):
    folder = stopped(tmp_path / "a.h5", 12)
    reseal(folder / "shard-00000.h5", **change)
    before = tree(tmp_path)
    with pytest.raises(CannotCreateError, match="no part of a collection"):
        run(tmp_path / "a.h5", resume=True)
    assert tree(tmp_path).keys() == before.keys()


def test_another_configuration_is_noticed_even_if_the_first_shard_is_damaged(tmp_path):
    folder = stopped(tmp_path / "a.h5", 12)
    (folder / "shard-00000.h5").write_bytes(b"rubbish")
    before = tree(folder).keys()
    with pytest.raises(UsageError, match="seed: 2 there, 3 here"):
        run(tmp_path / "a.h5", dataclasses.replace(CONFIG, seed=3), resume=True)
    assert tree(folder).keys() == before


# ---- another number of steps


def check_other_steps(tmp_path, rounds, steps):
    rolled = []

    def counted(*args, **options):
        rolled.append(1)
        return uneven(*args, **options)

    path, other = tmp_path / "a.h5", dataclasses.replace(CONFIG, steps=steps)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(collecting, "roll_out", counted)
        run(tmp_path / "clean.h5", other)
        fresh = len(rolled)
        stopped(path, rounds)
        rolled.clear()
        run(path, other, resume=True)
    assert path.read_bytes() == (tmp_path / "clean.h5").read_bytes()
    assert sorted(os.listdir(tmp_path)) == ["a.h5", "clean.h5"]
    if rounds == 12 and steps > 390:
        assert len(rolled) <= fresh - 8  # most of it was there


@pytest.mark.parametrize(("rounds", "steps"), [(12, 137), (12, 401), (4, 100)])
def test_a_collection_is_closed_or_extended_as_if_begun_so(tmp_path, rounds, steps):
    check_other_steps(tmp_path, rounds, steps)


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [1, 4, 12])
@pytest.mark.parametrize("steps", [1, 24, 25, 36, 137, 290, 399, 500])
def test_a_collection_is_closed_or_extended_as_if_begun_so_24(tmp_path, rounds, steps):
    check_other_steps(tmp_path, rounds, steps)


def test_a_collection_of_full_episodes_is_closed_without_another_step(tmp_path, monkeypatch):
    """40,000 of 200,000 in small: nothing has to be collected again."""
    monkeypatch.setattr(collecting, "roll_out", roll_out)
    task = Task("halfcheetah", horizon=5)
    config = dataclasses.replace(CONFIG, task=task, envs=4, steps=2000, noise=(0.0, 0.0))
    calls = iter(range(10**6))

    def act(observations):
        if next(calls) == 99:
            os.kill(os.getpid(), signal.SIGTERM)
        return np.zeros((4, 6))

    with pytest.raises(StoppedError, match="after 400 of 2,000"):
        collect(config, act, tmp_path / "a.h5", quiet=True)

    def never(observations):
        raise AssertionError("stepped")

    closed = dataclasses.replace(config, steps=400)
    assert collect(closed, never, tmp_path / "a.h5", resume=True, quiet=True).transitions == 400
    collect(closed, lambda observations: np.zeros((4, 6)), tmp_path / "b.h5", quiet=True)
    assert (tmp_path / "a.h5").read_bytes() == (tmp_path / "b.h5").read_bytes()


def test_shards_with_diverged_episodes_are_not_taken_for_other_steps(tmp_path, monkeypatch):
    """How many may diverge depends on the number of steps: a fresh run might have failed."""
    config = dataclasses.replace(CONFIG, max_unstable=0.2)
    rounds = iter(range(10**6))

    def diverging(*args, **rest):
        episodes = list(uneven(*args, **rest))
        return [None, *episodes[1:]] if next(rounds) == 0 else episodes

    monkeypatch.setattr(collecting, "roll_out", diverging)
    folder = stopped(tmp_path / "a.h5", 6, config)
    assert read_dataset(folder / "shard-00000.h5")[1]["shard"]["unstable"] == 1
    monkeypatch.setattr(collecting, "roll_out", uneven)
    summary = run(tmp_path / "a.h5", dataclasses.replace(config, steps=200), resume=True)
    assert summary.unstable_episodes == 0
