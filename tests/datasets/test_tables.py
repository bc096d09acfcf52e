"""Logs as CSV and Parquet."""

from __future__ import annotations

import csv
import re
import sys

import numpy as np
import pytest

from mcat.datasets import load, read_csv
from mcat.errors import DataError, UsageError
from tests.datasets.test_interop import assert_same, make_store


def write_csv(path, store, *, successors=True):
    """Every column, numbers in full, flags as pandas writes them, and one that nobody asked for."""
    vectors = {"obs": "observations", "act": "actions"}
    vectors |= {"next_obs": "next_observations"} if successors else {}
    blocks = {
        f"{name}_{i}": values
        for name, column in vectors.items()
        for i, values in enumerate(store.column(column).T)
    }
    blocks |= {"reward": store.rewards, "terminal": store.terminals, "timeout": store.timeouts}
    blocks["episode"] = store.episode_of(np.arange(len(store)))
    blocks["note"] = [f"row {i}" for i in range(len(store))]
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(blocks)
        writer.writerows(zip(*blocks.values(), strict=True))


def test_csv_round_trip(tmp_path):
    store = make_store((5, 1, 7), obs=12, act=2)  # obs_10 must come after obs_9
    write_csv(tmp_path / "log.csv", store)
    loaded, metadata = load(tmp_path / "log.csv")
    assert_same(loaded, store)
    assert metadata == {
        "source": "log.csv",
        "ignored_columns": ["note"],
        "has_rewards": True,
        "action_range": [store.actions.min(), store.actions.max()],
    }


def test_csv_without_successors(tmp_path):
    store = make_store((5, 7), obs=3, act=2)
    write_csv(tmp_path / "log.csv", store, successors=False)
    loaded, _ = read_csv(tmp_path / "log.csv")
    assert loaded.lengths.tolist() == [4, 6]
    kept = [0, 1, 2, 3, 5, 6, 7, 8, 9, 10]
    for name in ("observations", "actions", "rewards", "next_observations"):
        np.testing.assert_array_equal(loaded.column(name), store.column(name)[kept])


GOOD = "obs_0,act_0,reward,terminal,episode\n1,2,3,0,0\n2,2,3,0,0\n3,2,3,1,0\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (GOOD.replace("2,2,3,0", "2,two,3,0"), "line 3, column act_0: 'two' is not a number"),
        (GOOD.replace("2,2,3,0", "2,,3,0"), "line 3, column act_0: '' is not a number"),
        (
            GOOD.replace("3,2,3,1", "3,2,3,maybe"),
            "line 4, column terminal: 'maybe' is not a number",
        ),
        (GOOD.replace("2,2,3,0", "2,2,5,3,0"), "line 3 has 6 fields, the header has 5"),
        (GOOD.replace("2,2,3,0", "2,2,3"), "line 3 has 4 fields, the header has 5"),
        (GOOD.replace("2,2,3,0", "2,nan,3,0"), "actions: episode 0, step 1, column 0 is nan"),
        (GOOD.replace("obs_0", "obs_1"), "there is no column obs_0"),
        (GOOD.replace("act_0", "motor"), "there is no column act_0"),
        (GOOD.replace("act_0", "obs_0"), "there is no column obs_1"),
        (GOOD.replace("terminal", "reward"), "two columns are named reward"),
        (GOOD.replace("3,2,3,1", "3,2,3,2"), "terminals must hold only True and False"),
        (GOOD.split("\n")[0] + "\n", "there is no line after the header"),
        ("", "the file is empty"),
        ("\xff\xfe\x00", "not a text file in UTF-8"),
    ],
)
def test_bad_csv(text, message, tmp_path):
    path = tmp_path / "log.csv"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(DataError, match=re.escape(message)) as caught:
        load(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


def test_csv_as_spreadsheets_write_it(tmp_path):
    """A byte order mark, Windows line ends, quotes, spaces, an empty line at the end."""
    text = GOOD.replace("\n", "\r\n").replace("2,2,3,0", '"2", 2,3.0, FALSE') + "\r\n"
    (tmp_path / "log.csv").write_bytes(text.encode("utf-8-sig"))
    store, _ = load(tmp_path / "log.csv")
    assert store.observations[:, 0].tolist() == [1, 2]
    assert store.next_observations[:, 0].tolist() == [2, 3]


def test_parquet_without_pyarrow_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "log.parquet").write_bytes(b"PAR1")
    with pytest.raises(UsageError, match="pip install pyarrow"):
        load(tmp_path / "log.parquet")


def test_parquet(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    store = make_store((5, 7), obs=3, act=2)
    columns = {f"obs_{i}": values for i, values in enumerate(store.observations.T)}
    columns |= {f"next_obs_{i}": values for i, values in enumerate(store.next_observations.T)}
    columns |= {f"act_{i}": values for i, values in enumerate(store.actions.T)}
    columns |= {"reward": store.rewards, "terminal": store.terminals, "timeout": store.timeouts}
    parquet.write_table(pyarrow.table(columns), tmp_path / "log.parquet")
    assert_same(load(tmp_path / "log.parquet")[0], store)
    (tmp_path / "bad.parquet").write_bytes(b"PAR1")
    with pytest.raises(DataError, match="not a readable Parquet file"):
        load(tmp_path / "bad.parquet")
