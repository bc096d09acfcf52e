"""LeRobot data sets, field by field, and back."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest

from mcat.datasets import EpisodeStore, export_lerobot, import_lerobot, load
from mcat.envs import Task
from mcat.errors import CannotCreateError, DataError, UsageError
from tests.datasets.test_interop import assert_same, make_store

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

DATA = "data/chunk-000/file-000.parquet"


def small_store():
    return EpisodeStore.from_arrays(
        observations=[[1, 10], [2, 20], [5, 50]],
        next_observations=[[2, 20], [3, 30], [6, 60]],
        actions=[[0.5], [-0.5], [1]],
        rewards=[1, 3, 8],
        terminals=[False, True, False],
        episode_ends=[2, 3],
    )


def exported(folder, store=None, **metadata):
    export_lerobot(store or small_store(), {"rate_hz": 10.0} | metadata, folder)
    return folder


def refusal(folder):
    with pytest.raises(DataError) as caught:
        load(folder)
    text = str(caught.value)
    assert str(folder) in text
    assert text.isprintable()
    return text


def change(folder, **columns):
    """Write the data file again with other columns; None removes one."""
    table = parquet.read_table(folder / DATA)
    content = {name: table[name] for name in table.column_names}
    content |= {name.replace("__", "."): values for name, values in columns.items()}
    content = {name: values for name, values in content.items() if values is not None}
    parquet.write_table(pyarrow.table(content), folder / DATA)


# ---- the format


def test_the_files(tmp_path):
    folder = exported(tmp_path / "set")
    found = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    assert found == [
        DATA,
        "meta/episodes/chunk-000/file-000.parquet",
        "meta/info.json",
        "meta/stats.json",
        "meta/tasks.parquet",
    ]
    assert os.listdir(tmp_path) == ["set"]


def test_info(tmp_path):
    task = Task("ant", cripple=3)
    store = make_store((5, 1, 7))
    folder = exported(tmp_path / "ant", store, task=task.to_dict())
    info = json.loads((folder / "meta" / "info.json").read_text())
    features = info.pop("features")
    assert info == {
        "codebase_version": "v3.0",
        "robot_type": "ant",
        "total_episodes": 3,
        "total_frames": 13,
        "total_tasks": 1,
        "chunks_size": 1000,
        "data_files_size_in_mb": 100,
        "video_files_size_in_mb": 200,
        "fps": 10,
        "splits": {"train": "0:3"},
        "data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
        "video_path": None,
    }
    observation = {"dtype": "float32", "shape": [27], "names": [f"obs_{n}" for n in range(27)]}
    number = {"shape": [1], "names": None}
    whole = number | {"dtype": "int64"}
    assert features == {
        "observation.state": observation,
        "next.observation.state": observation,
        "action": {"dtype": "float32", "shape": [8], "names": [f"act_{n}" for n in range(8)]},
        "next.reward": number | {"dtype": "float32"},
        "next.done": number | {"dtype": "bool"},
        "next.truncated": number | {"dtype": "bool"},
        "timestamp": number | {"dtype": "float32"},
        "frame_index": whole,
        "episode_index": whole,
        "index": whole,
        "task_index": whole,
    }


def test_data(tmp_path):
    folder = exported(tmp_path / "set")
    table = parquet.read_table(folder / DATA)
    assert {field.name: str(field.type) for field in table.schema} == {
        "observation.state": "fixed_size_list<element: float>[2]",
        "action": "float",  # a vector of one is a number
        "next.observation.state": "fixed_size_list<element: float>[2]",
        "next.reward": "float",
        "next.done": "bool",
        "next.truncated": "bool",
        "timestamp": "float",
        "frame_index": "int64",
        "episode_index": "int64",
        "index": "int64",
        "task_index": "int64",
    }
    assert table.to_pydict() == {
        "observation.state": [[1, 10], [2, 20], [5, 50]],
        "action": [0.5, -0.5, 1],
        "next.observation.state": [[2, 20], [3, 30], [6, 60]],
        "next.reward": [1, 3, 8],
        "next.done": [False, True, True],
        "next.truncated": [False, False, True],
        "timestamp": [0, np.float32(0.1), 0],
        "frame_index": [0, 1, 0],
        "episode_index": [0, 0, 1],
        "index": [0, 1, 2],
        "task_index": [0, 0, 0],
    }
    assert parquet.read_metadata(folder / DATA).num_row_groups == 2  # one for each episode


def test_episodes_and_tasks(tmp_path):
    folder = exported(tmp_path / "set", task=Task("ant", cripple=3).to_dict())
    episodes = parquet.read_table(folder / "meta/episodes/chunk-000/file-000.parquet").to_pydict()
    stats = {name: values for name, values in episodes.items() if name.startswith("stats/")}
    assert {name: episodes[name] for name in episodes.keys() - stats.keys()} == {
        "episode_index": [0, 1],
        "tasks": [["ant-cripple3"], ["ant-cripple3"]],
        "length": [2, 1],
        "data/chunk_index": [0, 0],
        "data/file_index": [0, 0],
        "dataset_from_index": [0, 2],
        "dataset_to_index": [2, 3],
        "meta/episodes/chunk_index": [0, 0],
        "meta/episodes/file_index": [0, 0],
    }
    assert stats["stats/observation.state/mean"] == [[1.5, 15], [5, 50]]
    assert stats["stats/action/std"] == [[0.5], [0]]
    assert stats["stats/next.done/max"] == [[1], [1]]
    assert stats["stats/frame_index/count"] == [[2], [1]]
    tasks = parquet.read_table(folder / "meta/tasks.parquet")
    assert tasks.to_pydict() == {"task_index": [0], "task": ["ant-cripple3"]}
    assert json.loads(tasks.schema.metadata[b"pandas"])["index_columns"] == ["task"]


def test_statistics_by_hand(tmp_path):
    folder = exported(tmp_path / "set")
    stats = json.loads((folder / "meta" / "stats.json").read_text())
    features = json.loads((folder / "meta" / "info.json").read_text())["features"]
    assert stats.keys() == features.keys()
    reward = stats["next.reward"]  # 1, 3, 8
    assert {name: reward[name] for name in ("min", "max", "mean", "count", "q50")} == {
        "min": [1], "max": [8], "mean": [4], "count": [3], "q50": [3],
    }  # fmt: skip
    assert reward["std"] == pytest.approx([np.sqrt(26 / 3)])
    assert reward["q10"] == pytest.approx([1.4])
    assert reward["q99"] == pytest.approx([7.9])
    assert {"q01", "q90"} < reward.keys()
    assert stats["observation.state"]["min"] == [1, 10]


def test_large_data_sets_have_several_files(tmp_path, monkeypatch):
    monkeypatch.setattr("mcat.datasets.lerobot_export.FILE_BYTES", 200)
    monkeypatch.setattr("mcat.datasets.lerobot_export.CHUNK_FILES", 2)
    store = make_store((2, 1, 9, 1, 1, 3), obs=2, act=1)  # 62 bytes a row: 3 rows in 200 bytes
    folder = exported(tmp_path / "set", store)
    episodes = parquet.read_table(folder / "meta/episodes/chunk-000/file-000.parquet").to_pydict()
    assert episodes["data/chunk_index"] == [0, 0, 0, 1, 1, 1]
    assert episodes["data/file_index"] == [0, 0, 1, 0, 0, 1]
    lengths = {
        str(path.relative_to(folder / "data")): parquet.read_metadata(path).num_rows
        for path in (folder / "data").rglob("*.parquet")
    }
    assert lengths == {
        "chunk-000/file-000.parquet": 3,
        "chunk-000/file-001.parquet": 9,
        "chunk-001/file-000.parquet": 2,
        "chunk-001/file-001.parquet": 3,
    }
    assert_same(load(folder)[0], store)
    (folder / "data/chunk-000/file-001.parquet").unlink()
    assert "8 steps, but its info.json says 17: files missing?" in refusal(folder)


# ---- out and in


@pytest.mark.parametrize("sizes", [{"obs": 27, "act": 8}, {"obs": 1, "act": 1}])
def test_round_trip(tmp_path, sizes):
    store = make_store((5, 1, 7), **sizes)
    loaded, metadata = load(exported(tmp_path / "set", store))
    assert_same(loaded, store)
    np.testing.assert_array_equal(loaded.lengths, store.lengths)
    assert metadata == {
        "source": "set",
        "ignored_columns": [],
        "has_rewards": True,
        "rate_hz": 10.0,
        "time_findings": [],
        "action_range": [store.actions.min(), store.actions.max()],
    }


def test_without_rewards(tmp_path):
    folder = exported(tmp_path / "set", has_rewards=False)
    assert "next.reward" not in parquet.read_schema(folder / DATA).names
    assert load(folder)[1]["has_rewards"] is False


def test_as_others_write_it(tmp_path):
    """Lists of any length, a done without a reason, other sensors, no next observation."""
    folder = exported(tmp_path / "set", make_store((3, 4), obs=2, act=2))
    before = parquet.read_table(folder / DATA).to_pydict()
    change(
        folder,
        observation__state=pyarrow.array(before["observation.state"]),
        observation__effort=pyarrow.array([[1.0]] * 7),
        next__observation__state=None,
        next__truncated=None,
    )
    store, metadata = import_lerobot(folder)
    assert store.lengths.tolist() == [2, 3]
    states = np.array(before["observation.state"], dtype=np.float32)
    np.testing.assert_array_equal(store.observations, states[[0, 1, 3, 4, 5]])
    np.testing.assert_array_equal(store.next_observations, states[[1, 2, 4, 5, 6]])
    assert store.timeouts.tolist() == [False, True, False, False, True]
    assert metadata["ignored_columns"] == ["next.done", "observation.effort"]


def test_overwrite_replaces_data_sets_only(tmp_path):
    folder = exported(tmp_path / "set")
    other = make_store((3,), obs=2, act=1)
    with pytest.raises(CannotCreateError, match="exists already"):
        export_lerobot(other, {"rate_hz": 5}, folder)
    assert_same(load(folder)[0], small_store())
    export_lerobot(other, {"rate_hz": 5}, folder, overwrite=True)
    assert_same(load(folder)[0], other)
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "mine").write_text("precious")
    with pytest.raises(CannotCreateError, match="no LeRobot data set and will not be replaced"):
        export_lerobot(other, {"rate_hz": 5}, tmp_path / "photos", overwrite=True)
    assert (tmp_path / "photos" / "mine").read_text() == "precious"


def test_the_rate_must_be_known_and_whole(tmp_path):
    for metadata, words in (
        ({}, "pass --rate"),
        ({"rate_hz": 29.97}, "not 29.97: pass --rate 30"),
        ({"rate_hz": 1e300}, r"not 1e\+300"),
    ):
        with pytest.raises(UsageError, match=words):
            export_lerobot(small_store(), metadata, tmp_path / "set")
    assert not (tmp_path / "set").exists()


def test_names_go_out_and_come_back(tmp_path):
    store = make_store((5, 7), obs=2, act=1)
    names = {"observation_names": ["q", "dq"], "action_names": ["tau"]}
    export_lerobot(store, {"rate_hz": 10, **names}, tmp_path / "set")
    info = json.loads((tmp_path / "set" / "meta" / "info.json").read_text())
    assert info["features"]["observation.state"]["names"] == ["q", "dq"]
    _, metadata = load(tmp_path / "set")
    assert {key: metadata[key] for key in names} == names
    info["features"]["action"]["names"] = {"motors": ["elbow"]}  # as some sets have it
    (tmp_path / "set" / "meta" / "info.json").write_text(json.dumps(info))
    assert load(tmp_path / "set")[1]["action_names"] == ["elbow"]
    for odd in (3, ["a", "b"], [3], {"motors": 3}):
        info["features"]["action"]["names"] = odd
        (tmp_path / "set" / "meta" / "info.json").write_text(json.dumps(info))
        assert "action_names" not in load(tmp_path / "set")[1]
