"""A run that diverged says so in its folder, until it goes on."""

from __future__ import annotations

import json

import pytest

from mcat.agents.runs.claim import claimed_run
from mcat.agents.runs.record import FAILURE_FILE, Failure, read_failure
from mcat.agents.single.config import TrainConfig
from mcat.envs.tasks import Task
from mcat.errors import DivergedError, StorageError, UnstableError
from mcat.progress import ignore


def begin(out, ending=None):
    config = TrainConfig(task=Task("hopper"))
    with claimed_run(out, "train", config, resume=True, may_change=(), notify=ignore) as claim:
        claim.write_record()
        if ending is not None:
            raise ending


@pytest.mark.parametrize("kind", [DivergedError, UnstableError])
def test_it_leaves_a_mark_that_goes_when_it_goes_on(tmp_path, kind):
    with pytest.raises(kind):
        begin(tmp_path / "run", kind("a loss is NaN"))
    assert read_failure(tmp_path / "run") == Failure(kind.exit_code, "a loss is NaN")
    begin(tmp_path / "run")
    assert not (tmp_path / "run" / FAILURE_FILE).exists()
    assert read_failure(tmp_path / "run") is None


def test_other_errors_leave_none(tmp_path):
    with pytest.raises(StorageError):
        begin(tmp_path / "run", StorageError("the disk is full"))
    assert read_failure(tmp_path / "run") is None


@pytest.mark.parametrize("text", ["{", "[]", "{}", json.dumps({"code": "x", "line": ""})])
def test_a_damaged_mark_is_none(tmp_path, text):
    (tmp_path / FAILURE_FILE).write_text(text)
    assert read_failure(tmp_path) is None
