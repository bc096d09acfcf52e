"""What Minari and we make of each other's files; D4RL, CSV."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import gymnasium as gym
import h5py
import minari
import numpy as np
import pytest

from mcat.datasets import EpisodeStore, export_minari, import_minari, load, write_dataset
from mcat.datasets.views import Episodes
from mcat.envs import Task
from mcat.errors import CannotCreateError, DataError, MissingInputError, UsageError
from mcat.workplaces import new_folder

pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning:minari"),
    pytest.mark.usefixtures("minari_root"),
]

ID = "mcat/ant/cripple3-v0"
COLUMNS = ("observations", "actions", "rewards", "next_observations", "terminals", "timeouts")
DOCS = Path(__file__).parents[2] / "docs" / "datasets.md"


def make_store(lengths=(5, 1, 7), obs=27, act=8, seed=0):
    rng = np.random.default_rng(seed)
    store = EpisodeStore(obs, act)
    for number, length in enumerate(lengths):
        states = rng.normal(size=(length + 1, obs)).astype(np.float32)
        store.append_episode(
            observations=states[:-1],
            next_observations=states[1:],
            actions=rng.uniform(-1, 1, size=(length, act)).astype(np.float32),
            rewards=rng.normal(size=length).astype(np.float32),
            terminal=number == 1,
        )
    return store


def metadata_of(task=None, act=8):
    task = task or Task("ant", cripple=3, delay=500)
    return {
        "task": task.to_dict(),
        "action_low": [-1.0] * act,
        "action_high": [1.0] * act,
        "seed": 4,
    }


def assert_same(ours: Episodes, theirs: Episodes):
    for name in COLUMNS:
        np.testing.assert_array_equal(ours.column(name), theirs.column(name))
        assert ours.column(name).dtype == theirs.column(name).dtype
    assert ours.episode_ends.tolist() == theirs.episode_ends.tolist()


# -- Minari reads ours ---------------------------------------------------------------------------


def test_minari_reads_what_we_export(minari_root):
    store = make_store()
    folder = export_minari(store, metadata_of(), ID)
    assert folder == minari_root / ID
    dataset = minari.load_dataset(ID)
    assert (dataset.total_episodes, dataset.total_steps) == (3, 13)
    assert dataset.action_space == gym.spaces.Box(-1, 1, (8,), np.float32)
    assert dataset.observation_space == gym.spaces.Box(-np.inf, np.inf, (27,), np.float32)
    for number, episode in enumerate(dataset.iterate_episodes()):
        rows = store.episode(number)
        assert f"total_steps={len(rows['rewards'])}" in repr(episode)
        np.testing.assert_array_equal(episode.observations[:-1], rows["observations"])
        np.testing.assert_array_equal(episode.observations[1:], rows["next_observations"])
        np.testing.assert_array_equal(episode.actions, rows["actions"])
        np.testing.assert_array_equal(episode.rewards, rows["rewards"])
        np.testing.assert_array_equal(episode.terminations, rows["terminals"])
        np.testing.assert_array_equal(episode.truncations, rows["timeouts"])
    dataset.set_seed(0)
    assert len(dataset.sample_episodes(2)) == 2
    assert list(minari.list_local_datasets()) == [ID]


def test_minari_recovers_our_environment():
    task = Task("ant", cripple=3, delay=500)
    export_minari(make_store(), metadata_of(task), ID)
    assert gym.spec("mcat/Ant-v0").kwargs == {"robot": "ant"}, "the registration itself was changed"
    recovered, ours = minari.load_dataset(ID).recover_environment(), task.make()
    assert recovered.spec.id == "mcat/Ant-v0"
    assert recovered.unwrapped.task == task
    observations = [env.reset(seed=1)[0] for env in (recovered, ours)]
    np.testing.assert_array_equal(*observations)
    for _ in range(3):
        steps = [env.step(np.full(8, 0.5, np.float32)) for env in (recovered, ours)]
        np.testing.assert_array_equal(steps[0][0], steps[1][0])
        assert steps[0][1] == steps[1][1]


def test_minari_appends_to_what_we_export():
    """Numbering goes on, and what comes back holds both."""
    store = make_store((3, 4), obs=2, act=1)
    export_minari(store, {}, ID)
    dataset = minari.load_dataset(ID)
    buffer = minari.data_collector.EpisodeBuffer(
        observations=[np.full(2, i, np.float32) for i in range(3)],
        actions=[np.zeros(1, np.float32)] * 2,
        rewards=[0.0, 1.0],
        terminations=[False, True],
        truncations=[False, False],
    )
    dataset.update_dataset_from_buffer([buffer])
    both, metadata = import_minari(ID)
    assert both.lengths.tolist() == [3, 4, 2]
    assert_same(both.select([0, 1]), store)
    assert metadata["episodes"] == 3
    assert both.terminals[-1]


def test_export_needs_no_minari():
    code = """
import sys
import numpy as np
from mcat.datasets import EpisodeStore, export_minari, import_minari
sys.modules["minari"] = None  # importing it now fails
states = np.arange(66.0).reshape(6, 11)
rows = {"observations": states[:-1], "next_observations": states[1:], "actions": states[:-1, :3]}
store = EpisodeStore.from_arrays(**rows)
export_minari(store, {"task": {"robot": "hopper"}}, "name-v0")
print(len(import_minari("name-v0")[0]), "mujoco" in sys.modules)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["5", "False"]


def test_our_round_trip_keeps_everything(minari_root):
    store = make_store()
    folder = export_minari(store, metadata_of(), ID)
    for source in (ID, folder, folder / "data", str(folder)):
        loaded, metadata = load(source)
        assert_same(loaded, store)
        assert {name: metadata[name] for name in metadata_of()} == metadata_of()
        assert metadata["minari_id"] == ID
    os.environ.pop("MINARI_DATASETS_PATH")
    assert_same(import_minari(ID, root=minari_root)[0], store)


def test_export_refuses_an_existing_id_and_overwrites_when_asked(minari_root):
    export_minari(make_store(seed=0), {}, ID)
    with pytest.raises(CannotCreateError, match="exists already"):
        export_minari(make_store(seed=1), {}, ID)
    assert_same(load(ID)[0], make_store(seed=0))
    export_minari(make_store(seed=1), {}, ID, overwrite=True)
    assert_same(load(ID)[0], make_store(seed=1))
    assert [path.name for path in (minari_root / ID).parent.iterdir()] == ["cripple3-v0"]


def test_a_failed_export_leaves_nothing_and_spoils_nothing(minari_root):
    export_minari(make_store(seed=0), {}, ID)
    for metadata in ({"seed": np.nan}, {"seed": object()}):  # found while the files are written
        with pytest.raises((TypeError, ValueError)):
            export_minari(make_store(seed=1), metadata, ID, overwrite=True)
    assert_same(load(ID)[0], make_store(seed=0))
    assert [path.name for path in (minari_root / ID).parent.iterdir()] == ["cripple3-v0"]


def test_a_folder_that_is_no_data_set_is_never_replaced(minari_root):
    (minari_root / ID).mkdir(parents=True)
    (minari_root / ID / "thesis.txt").write_text("precious")
    with pytest.raises(CannotCreateError, match="no Minari data set"):
        export_minari(make_store(), {}, ID, overwrite=True)
    assert (minari_root / ID / "thesis.txt").read_text() == "precious"


def test_of_two_exports_of_one_id_the_later_fails(minari_root):
    """The other process is at it: ours is refused before it begins, theirs untouched."""
    with new_folder(minari_root / ID) as folder:
        with pytest.raises(CannotCreateError, match="is being written by another process"):
            export_minari(make_store(seed=0), {}, ID)
        (folder / "theirs").touch()
    assert os.listdir(minari_root / ID) == ["theirs"]
    assert [path.name for path in (minari_root / ID).parent.iterdir()] == ["cripple3-v0"]


@pytest.mark.parametrize("bad", ["name", "../up-v0", "/abs-v0", "a/x-v0", "x//y-v0", "x-v", "ü-v0"])
def test_bad_ids(bad, minari_root):
    with pytest.raises(UsageError, match="not a Minari id"):
        export_minari(make_store(), {}, bad)
    assert list(minari_root.iterdir()) == []


def test_rows_that_do_not_join_cannot_be_exported():
    states = np.arange(20.0).reshape(10, 2)
    store = EpisodeStore.from_arrays(
        observations=states, next_observations=states + 1, actions=states, episode_ends=[4, 10]
    )
    with pytest.raises(DataError, match="episode 0, step 0 is not continued"):
        export_minari(store, {}, ID)


# -- we read Minari's ----------------------------------------------------------------------------


def make_with_minari(dataset_id, env, episodes, **kwargs):
    """Minari's own API writes what one of gymnasium's environments did."""
    buffers = []
    for seed in range(episodes):
        rows = {name: [] for name in ("actions", "rewards", "terminations", "truncations")}
        observation, _ = env.reset(seed=seed)
        observations, done = [observation], False
        while not done:
            action = env.action_space.sample()
            observation, *outcome, _ = env.step(action)
            observations.append(observation)
            for values, value in zip(rows.values(), (action, *outcome), strict=True):
                values.append(value)
            done = outcome[1] or outcome[2]
        infos = {"note": np.arange(len(observations))}
        buffers.append(
            minari.data_collector.EpisodeBuffer(
                seed=seed, observations=observations, infos=infos, **rows
            )
        )
    minari.create_dataset_from_buffers(dataset_id, buffers, env=env, **kwargs)
    return buffers


def test_we_read_what_minari_writes():
    env = gym.make("Pendulum-v1", max_episode_steps=30)
    buffers = make_with_minari("pendulum/random-v0", env, 3, algorithm_name="random")
    store, metadata = load("pendulum/random-v0")
    assert store.lengths.tolist() == [30, 30, 30]
    assert store.timeouts.nonzero()[0].tolist() == [29, 59, 89]
    expected = {
        "observations": [b.observations[:-1] for b in buffers],
        "next_observations": [b.observations[1:] for b in buffers],
        "actions": [b.actions for b in buffers],
        "rewards": [b.rewards for b in buffers],
    }
    for name, values in expected.items():
        np.testing.assert_array_equal(store.column(name), np.concatenate(values).astype(np.float32))
    assert metadata["action_low"] == [-2.0]
    assert metadata["minari_id"] == "pendulum/random-v0"
    assert "task" not in metadata


def test_discrete_spaces_are_refused():
    make_with_minari("cartpole/x-v0", gym.make("CartPole-v1", max_episode_steps=5), 1)
    with pytest.raises(DataError, match=r"action space \(Discrete\) is not a Box"):
        load("cartpole/x-v0")


def test_load_takes_every_source(tmp_path):
    store = make_store()
    write_dataset(tmp_path / "ours.h5", store, metadata_of())
    loaded, metadata = load(tmp_path / "ours.h5")
    assert_same(loaded, store)
    assert metadata["task"] == metadata_of()["task"]
    with h5py.File(tmp_path / "d4rl.hdf5", "w") as file:  # as D4RL writes: gzip, extra groups
        for name in COLUMNS:
            file.create_dataset(name, data=store.column(name), compression="gzip")
        file.create_dataset("infos/qpos", data=np.zeros(3))
    loaded, metadata = load(str(tmp_path / "d4rl.hdf5"))
    assert_same(loaded, store)
    assert "task" not in metadata


def test_d4rl_without_next_observations(tmp_path):
    store = make_store((5, 7))
    with h5py.File(tmp_path / "old.hdf5", "w") as file:
        for name in ("observations", "actions", "rewards", "terminals", "timeouts"):
            file.create_dataset(name, data=store.column(name))
    loaded, _ = load(tmp_path / "old.hdf5")
    assert loaded.lengths.tolist() == [4, 6]
    np.testing.assert_array_equal(loaded.next_observations[:4], store.next_observations[:4])


@pytest.mark.parametrize(
    ("source", "error", "message"),
    [
        ("nothing.h5", MissingInputError, "nothing.h5 does not exist"),
        ("hopper/expert-v9", MissingInputError, "minari download"),
        (".", MissingInputError, "no Minari data set in"),
        ("notes.txt", UsageError, "cannot tell its format"),
    ],
)
def test_sources_that_are_none(source, error, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("notes.txt").write_text("hello")
    with pytest.raises(error, match=message):
        load(source)


# -- the documentation ---------------------------------------------------------------------------


def test_every_example_in_the_documentation_runs(tmp_path):
    """The blocks run in order; what a comment behind `print` promises is what is printed."""
    blocks = re.findall(r"```python\n(.*?)```", DOCS.read_text(), flags=re.DOTALL)
    assert len(blocks) >= 8
    code = "\n".join(blocks)
    environment = {**os.environ, "PYTHONPATH": str(DOCS.parents[1])}
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    promised = re.findall(r"print\(.*?\)  # (.*)", code)
    assert len(promised) == 5
    for line in promised:
        assert line in run.stdout.splitlines()
