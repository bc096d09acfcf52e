"""`metatrain` itself: starting runs, going on with them, and refusing what cannot be."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mcat.agents.meta import run as entry
from mcat.agents.meta.algorithm import TaskSet
from mcat.agents.meta.config import PRESETS
from mcat.agents.meta.run import metatrain, read_config
from mcat.agents.policies.context_policy import ContextPolicy
from mcat.agents.runs.record import read_record
from mcat.config import overlay, to_json
from mcat.errors import CannotCreateError, MissingInputError, UsageError
from mcat.progress import ignore
from mcat.tensor_files import content_digest, digest, load_safetensors
from tests.agents.meta.point_mass import (
    PointMasses,
    tiny_config,
    tiny_task_set,
)
from tests.agents.meta.test_loop import clean, contents, play, rows, small_and_fast  # noqa: F401


def go_on(out: Path, changes=(), notify=ignore):
    """`metatrain`, with the run that is in `out`."""
    config = overlay(read_config(out), dict(changes))
    return metatrain(config, out, resume=True, quiet=True, notify=notify)


@pytest.fixture
def point_masses(monkeypatch):
    """`metatrain` itself, with point masses in place of the family's robots."""
    monkeypatch.setattr(TaskSet, "of", staticmethod(lambda family: tiny_task_set()))
    monkeypatch.setattr("mcat.agents.meta.mcat.GOOD_ENOUGH", {})


def test_metatrain_in_two_parts_makes_the_run_of_the_trainer(tmp_path, clean, point_masses):  # noqa: F811
    out = tmp_path / "run"
    result = metatrain(tiny_config(steps=180), out, preset="tiny", quiet=True)
    assert result.policy == out / "policy.safetensors"
    assert result.train_return == float(rows(out / "metrics.csv")[-1]["eval/train"])
    assert result.test_return == float(rows(out / "metrics.csv")[-1]["eval/test"])
    stale = out / f"checkpoints/.step-7.safetensors.part-{'0' * 32}"
    stale.write_bytes(b"what a killed process left")
    said: list[str] = []
    go_on(out, {"steps": 360}, said.append)
    assert said == []
    assert not stale.exists()
    assert contents(out)["episodes"] == clean[1]["episodes"]
    assert contents(out)["policy"] == clean[1]["policy"]
    record = json.loads((out / "run.json").read_text())
    assert record["config"] == to_json(tiny_config())
    assert (record["kind"], record["preset"]) == ("metatrain", "tiny")
    assert record["arena"]["train"] == list(tiny_task_set().train)
    assert {"command", "commit", "dirty", "versions", "host"} <= record.keys()
    assert read_record(out).test == tiny_task_set().test


def test_the_result_comes_last_and_goes_when_the_run_goes_on(tmp_path, point_masses, monkeypatch):
    out, result = tmp_path / "run", tmp_path / "run/result.json"
    found = metatrain(tiny_config(steps=60), out, quiet=True)
    assert all(result.stat().st_mtime_ns >= path.stat().st_mtime_ns for path in out.rglob("*.*"))
    told = json.loads(result.read_text())
    assert told["train_return"] == found.train_return
    assert told["test_return"] == found.test_return
    assert told["step"] == 60
    assert told["policies"] == {"policy.safetensors": content_digest(found.policy)}
    policy, _ = load_safetensors(found.policy)
    assert content_digest(found.policy) != digest(policy)  # it is of the header too

    def die(self, monitor):
        assert not result.exists()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(entry.MetaTrainer, "_iterate", die)
        with pytest.raises(KeyboardInterrupt):
            go_on(out, {"steps": 120})
    assert not result.exists()
    go_on(out, {"steps": 120})
    assert json.loads(result.read_text())["step"] == 120


def test_a_finished_run_is_not_trained_again(tmp_path, point_masses):
    metatrain(tiny_config(steps=60), tmp_path / "run", quiet=True)
    before = contents(tmp_path / "run")
    result = go_on(tmp_path / "run")
    assert result.train_return == float(rows(tmp_path / "run/metrics.csv")[-1]["eval/train"])
    with pytest.raises(UsageError, match="60 steps already"):
        go_on(tmp_path / "run", {"steps": 59})
    assert json.loads((tmp_path / "run/run.json").read_text())["config"]["steps"] == 60
    with pytest.raises(CannotCreateError, match="exists already"):
        metatrain(tiny_config(steps=60), tmp_path / "run", quiet=True)
    assert contents(tmp_path / "run") == before
    (tmp_path / "run/policy.safetensors").unlink()  # by somebody: it comes back
    go_on(tmp_path / "run")
    assert contents(tmp_path / "run") == before


OTHER_VALUES = {
    "family": "hopper-size",
    "delay": 3,
    "seed": 1,
    "evaluate_every": 3,
    "evaluation_episodes": 1,
    "threads": 2,
    "mcat.transfer": False,
    "mcat.imitate": False,
    "mcat.translator": "cycle",
    "mcat.exploration": 0.3,
    "mcat.batch_size": 17,
    "mcat.td3.discount": 0.5,
    "mcat.td3.hidden": [8, 9],
    "mcat.context.history": 9,
    "mcat.action.loss": "nll",
    "mcat.credit.kind": "none",
    "mcat.selection.margin": 0.5,
}


def test_resuming_with_other_values_names_them(tmp_path, point_masses):
    metatrain(tiny_config(steps=60), tmp_path / "run", quiet=True)
    for key, value in OTHER_VALUES.items():
        words = re.escape(f"{value} here): start another run")
        with pytest.raises(UsageError, match=rf"otherwise \({key}: .* there, {words}$"):
            go_on(tmp_path / "run", {key: value, "steps": 120})
    with pytest.raises(UsageError, match="did you mean"):
        go_on(tmp_path / "run", {"sead": 1})
    with pytest.raises(MissingInputError, match="no run"):
        go_on(tmp_path / "nothing")
    assert len(rows(tmp_path / "run/metrics.csv")) == 1


def test_a_run_made_by_other_code_says_so_and_goes_on(tmp_path, point_masses):
    out = tmp_path / "run"
    metatrain(tiny_config(steps=60), out, quiet=True)
    record = json.loads((out / "run.json").read_text())
    versions = record["versions"] | {"torch": "1.0"}
    (out / "run.json").write_text(json.dumps(record | {"commit": "abc", "versions": versions}))
    said: list[str] = []
    go_on(out, {"steps": 120}, said.append)
    assert [line for line in said if "other code" in line and "commit: abc there" in line]
    assert [line for line in said if "versions.torch: 1.0 there" in line]
    assert len(said) == 2


def test_only_one_process_works_on_a_run(tmp_path, point_masses):
    out = tmp_path / "run"
    ready, release = os.pipe(), os.pipe()

    def hold(self, actions, real=PointMasses.step):
        os.write(ready[1], b"x")
        os.read(release[0], 1)
        PointMasses.step = real
        return real(self, actions)

    child = os.fork()
    if child == 0:
        PointMasses.step = hold
        try:
            metatrain(tiny_config(steps=60), out, quiet=True)
            os._exit(0)
        finally:
            os._exit(99)
    os.read(ready[0], 1)
    for attempt in (
        lambda: go_on(out),
        lambda: metatrain(tiny_config(), out, quiet=True),
    ):
        with pytest.raises(CannotCreateError, match=r"another process|exists already"):
            attempt()
    os.write(release[1], b"x")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(rows(out / "metrics.csv")) == 1


def test_the_smoke_preset_runs_on_real_robots_and_resumes(tmp_path):
    """A round of random actions, then one after which everything learns."""
    config = replace(PRESETS["smoke"], family="hopper-size")
    task_set = TaskSet.of(config.tasks)
    per_round = len(task_set.train) * task_set.horizon
    config = overlay(config, {"steps": per_round, "mcat.start_steps": 2 * per_round})
    out = tmp_path / "run"
    metatrain(config, out, preset="smoke", quiet=True)
    go_on(out, {"steps": 2 * per_round})
    last = rows(out / "metrics.csv")[-1]
    assert np.isfinite(float(last["eval/test"]))
    assert np.isfinite(float(last["losses/critic"]))
    policy = ContextPolicy.load(out / "policy.safetensors")
    assert policy.observation_size == task_set.observation_size
