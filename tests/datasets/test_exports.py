"""Data sets as CSV and Parquet tables, and back."""

from __future__ import annotations

import csv
import os

import numpy as np
import pytest

from mcat.datasets import Card, EpisodeStore, check, export_lerobot, export_table, load
from mcat.errors import CannotCreateError, UsageError
from tests.datasets.test_interop import assert_same, make_store

FORMATS = ["a.csv", "a.parquet"]
# Neighbours that eight digits cannot tell apart, the smallest and the largest float32, minus zero.
HARD = np.array(
    [16777217 / 2**24, np.nextafter(np.float32(0.1), np.float32(1)), 1e-45, 3.4028235e38, -0.0, 9],
    dtype=np.float32,
)


def hard_store():
    values = np.concatenate([HARD, -HARD])
    return EpisodeStore.from_arrays(
        observations=values[:, None],
        next_observations=values[::-1, None],
        actions=np.stack([values, values[::-1]], axis=1),
        rewards=values,
        terminals=np.arange(12) == 4,
        episode_ends=[5, 6, 12],
    )


@pytest.mark.parametrize("name", FORMATS)
def test_all_bits_come_back(tmp_path, name):
    for number, store in enumerate((hard_store(), make_store((5, 1, 7), obs=12, act=2))):
        path = tmp_path / f"{number}{name}"
        export_table(store, {}, path)
        loaded, metadata = load(path)
        assert_same(loaded, store)
        np.testing.assert_array_equal(loaded.lengths, store.lengths)
        for column in ("observations", "actions", "rewards", "next_observations"):
            bits = loaded.column(column).view(np.int32), store.column(column).view(np.int32)
            np.testing.assert_array_equal(*bits)
        assert "rate_hz" not in metadata


def test_the_table_by_hand(tmp_path):
    store = EpisodeStore.from_arrays(
        observations=[[1.5], [2], [4]],
        next_observations=[[2], [3], [5]],
        actions=[[0.1, -1], [0, 1], [0.5, 0.25]],
        rewards=[10, 20, 30],
        terminals=[False, True, False],
        episode_ends=[2, 3],
    )
    export_table(store, {"rate_hz": 50.0}, tmp_path / "a.csv")
    assert (tmp_path / "a.csv").read_text().splitlines() == [
        "episode,step,time,obs_0,act_0,act_1,next_obs_0,reward,terminal,timeout",
        "0,0,0,1.5,0.100000001,-1,2,10,0,0",
        "0,1,0.02,2,0,1,3,20,1,0",
        "1,0,0,4,0.5,0.25,5,30,0,1",
    ]
    parquet = pytest.importorskip("pyarrow.parquet")
    export_table(store, {"rate_hz": 50.0}, tmp_path / "a.parquet")
    table = parquet.read_table(tmp_path / "a.parquet")
    assert table.column_names == (tmp_path / "a.csv").read_text().split("\n")[0].split(",")
    assert [str(kind) for kind in table.schema.types] == (
        ["int64", "int64", "double", *["float"] * 5, "bool", "bool"]
    )
    assert table["time"].to_pylist() == [0, 1 / 50, 0]
    assert table["terminal"].to_pylist() == [False, True, False]


@pytest.mark.parametrize("name", FORMATS)
def test_rate_and_missing_rewards_come_back(tmp_path, name):
    store = make_store((30, 40), obs=3, act=2)
    export_table(store, {"rate_hz": 30.0, "has_rewards": False}, tmp_path / name)
    loaded, metadata = load(tmp_path / name)
    assert metadata["rate_hz"] == 30
    assert metadata["time_findings"] == []
    assert metadata["has_rewards"] is False
    assert not loaded.rewards.any()
    assert [str(problem) for problem in check(loaded, metadata)] == [
        "note: 1 column not read: step"
    ]


@pytest.mark.parametrize("name", FORMATS)
def test_more_rows_than_one_block(tmp_path, name, monkeypatch):
    monkeypatch.setattr("mcat.datasets.exports._BLOCK", 4)
    store = make_store((5, 1, 7), obs=3, act=2)  # 13 rows: the last block has one
    export_table(store, {}, tmp_path / name)
    assert_same(load(tmp_path / name)[0], store)


@pytest.mark.parametrize("name", FORMATS)
def test_whole_or_nothing(tmp_path, name, monkeypatch):
    store = make_store((5, 7), obs=3, act=2)
    (tmp_path / name).write_text("precious")
    with pytest.raises(CannotCreateError, match="exists already"):
        export_table(store, {}, tmp_path / name)
    with monkeypatch.context() as patch:
        patch.setattr("mcat.datasets.exports.Progress.advance", stop)
        with pytest.raises(KeyboardInterrupt):
            export_table(store, {}, tmp_path / name, overwrite=True)
    assert (tmp_path / name).read_text() == "precious"
    assert os.listdir(tmp_path) == [name]
    export_table(store, {}, tmp_path / name, overwrite=True)
    assert_same(load(tmp_path / name)[0], store)


def stop(*args, **kwargs):
    raise KeyboardInterrupt


def test_equal_data_give_equal_bytes(tmp_path):
    for name in FORMATS:
        for folder in ("one", "two"):
            (tmp_path / folder).mkdir(exist_ok=True)
            export_table(make_store(), {"rate_hz": 20}, tmp_path / folder / name)
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_other_endings_are_refused(tmp_path):
    with pytest.raises(UsageError, match=r"name it \.csv or \.parquet"):
        export_table(make_store(), {}, tmp_path / "a.xlsx")


def test_without_pyarrow(tmp_path, monkeypatch):
    monkeypatch.setattr("mcat.datasets.exports.find_spec", lambda name: None)
    with pytest.raises(UsageError, match="pip install pyarrow"):
        export_table(make_store(), {}, tmp_path / "a.parquet")
    export_table(make_store(), {}, tmp_path / "a.csv")
    assert os.listdir(tmp_path) == ["a.csv"]
    with open(tmp_path / "a.csv", newline="") as file:
        assert len(list(csv.reader(file))) == 14


CARD = {
    "observation_names": ["q", "dq", "i"],
    "observation_units": ["rad", "rad/s", ""],
    "observation_low": [-3.0, None, None],
    "observation_high": [3.0, None, None],
    "action_names": ["tau", "grip"],
    "action_units": ["N·m", ""],
    "action_low": [-8.0, 0.0],
    "action_high": [8.0, 0.7],
}


@pytest.mark.parametrize("name", ["a.parquet", "a-folder"])
def test_names_units_and_bounds_come_back(tmp_path, name):
    pytest.importorskip("pyarrow")
    store = make_store((30, 40), obs=3, act=2)
    write = export_table if name.endswith("parquet") else export_lerobot
    write(store, {"rate_hz": 50.0, **CARD}, tmp_path / name)
    loaded, metadata = load(tmp_path / name)
    assert_same(loaded, store)
    assert {key: metadata[key] for key in CARD} == CARD
    assert Card.of_metadata(metadata, (3, 2)).limits.high.tolist() == [8, 0.7]


@pytest.mark.parametrize("odd", [b"\xff", b"[", b"[1]", b'{"action_low": ["x", 2]}'])
def test_a_table_that_says_nonsense_of_its_numbers_is_read_all_the_same(tmp_path, odd):
    parquet = pytest.importorskip("pyarrow.parquet")
    store = make_store((30, 40), obs=3, act=2)
    export_table(store, {"rate_hz": 50.0, **CARD}, tmp_path / "a.parquet")
    table = parquet.read_table(tmp_path / "a.parquet")
    parquet.write_table(table.replace_schema_metadata({"mcat": odd}), tmp_path / "b.parquet")
    loaded, metadata = load(tmp_path / "b.parquet")
    assert_same(loaded, store)
    assert Card.of_metadata(metadata, (3, 2)).limits is None
