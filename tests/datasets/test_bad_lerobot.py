"""LeRobot data sets that are damaged, incomplete, made to harm or not for us."""

from __future__ import annotations

import json

import numpy as np
import pytest

from mcat.datasets import load
from mcat.errors import MissingInputError
from tests.datasets.test_interop import make_store
from tests.datasets.test_lerobot import DATA, change, exported, refusal

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")


def describe(folder, **changes):
    path = folder / "meta" / "info.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_images_and_other_versions(tmp_path):
    folder = exported(tmp_path / "set")
    camera = {"observation.images.top": {"dtype": "video", "shape": [480, 640, 3], "names": None}}
    describe(folder, features=camera)
    assert "holds images (observation.images.top), mcat learns from vectors" in refusal(folder)
    describe(folder, features={}, codebase_version="v2.1")
    assert "LeRobot's format v2.1, mcat reads v3.0: convert it with LeRobot" in refusal(folder)


@pytest.mark.parametrize(
    "changes",
    [
        {"features": None},
        {"features": {"action": "float32"}},
        {"total_frames": "3"},
        {"fps": 0},
        {"fps": [10]},
        {"fps": "ten"},
    ],
)
def test_nonsense_in_info(tmp_path, changes):
    folder = exported(tmp_path / "set")
    describe(folder, **changes)
    assert "info.json: not what LeRobot writes" in refusal(folder)
    (folder / "meta" / "info.json").write_text("[]")
    assert "not what LeRobot writes" in refusal(folder)


def test_no_path_is_taken_from_info(tmp_path):
    folder = exported(tmp_path / "set")
    describe(folder, data_path="../../../etc/passwd")
    assert len(load(folder)[0]) == 3


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"action": None}, "have no action, which mcat needs"),
        ({"action": ["a", "b", "c"]}, "column action holds string, not numbers"),
        ({"action": [[0.5], [0.5, 1], [1]]}, "column action has lists of different lengths"),
        ({"action": [0.5, None, 1]}, "column action has empty cells"),
        ({"action": [[0.5], None, [1]]}, "column action has empty cells"),
        ({"action": [[0.5], [None], [1]]}, "column action has empty cells"),
        ({"action": [0.5, np.nan, 1]}, "actions: episode 0, step 1, column 0 is nan"),
        ({"action": [[[1.0]], [[1.0]], [[1.0]]]}, "not numbers"),
        ({"next__reward": [[1.0, 2.0]] * 3}, "column next.reward holds 2 numbers a row, not one"),
        ({"frame_index": [0, 2, 0]}, "episode 0, step 1 has the frame_index 2: steps missing"),
        ({"next__done": [True] * 3}, "terminals: episode 0, step 0 is set"),
    ],
)
def test_wrong_columns(tmp_path, columns, words):
    folder = exported(tmp_path / "set")
    change(folder, **columns)
    assert words in refusal(folder)


def test_files_that_do_not_fit_together(tmp_path):
    folder = exported(tmp_path / "set")
    other = exported(tmp_path / "other", make_store((3,), obs=3, act=1))
    (other / DATA).rename(folder / "data/chunk-000/file-001.parquet")
    assert "its data files have different columns" in refusal(folder)
    (folder / DATA).unlink()
    (folder / "data/chunk-000/file-001.parquet").unlink()
    with pytest.raises(MissingInputError, match="has no data files"):
        load(folder)


def test_bombs_and_damage(tmp_path):
    folder = exported(tmp_path / "set")
    content = bytearray((folder / DATA).read_bytes())
    content[-8:-4] = b"\xff" * 4  # the length of the footer
    (folder / DATA).write_bytes(content)
    assert "not a readable LeRobot file" in refusal(folder)
    zeros = pyarrow.array(np.zeros(2_000_000, dtype=np.float32))
    lists = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(np.zeros(20_000_000)), 10)
    table = pyarrow.table({"observation.state": lists, "action": zeros})
    parquet.write_table(table, folder / DATA)
    assert (folder / DATA).stat().st_size < 3e6
    assert "176 MB, far above its size" in refusal(folder)
