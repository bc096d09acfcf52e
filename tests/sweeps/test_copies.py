"""Sweeps that move: slim copies, and what an earlier version finished."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from mcat.cli import run as mcat
from mcat.errors import UsageError
from mcat.sweeps import copies
from mcat.sweeps.copies import copy_finished
from mcat.sweeps.earlier import with_earlier_names
from mcat.sweeps.endings import write_ending
from mcat.sweeps.folder import DRIVER_LOCK, open_sweep
from mcat.sweeps.state import look
from mcat.workplaces import BusyError, claimed
from tests.sweeps.small import planned, small_sweep, write_run


def states(folder):
    return {state.run.name: state.state for state in look(open_sweep(folder))}


def files(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.fixture
def sweep(tmp_path):
    """An input, a run that is done, one that diverged, one under way and one not begun."""
    runs = (
        planned("log", variant=""),
        *(planned(name, needs=("log",)) for name in ("done", "diverged", "half", "new")),
    )
    sweep = small_sweep(tmp_path / "whole", *runs)
    for run, step in zip(runs, (10, 10, 7, 5), strict=False):
        write_run(sweep.out(run), step=step, done=step == 10)
        (sweep.out(run) / "run.json").write_text("{}")
        for large in ("policy.safetensors", "checkpoints/step-1.safetensors", "replay/round-1"):
            path = sweep.out(run) / large
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(b"large")
    write_ending(sweep, sweep.run("done"), 0, made=True)
    write_ending(sweep, sweep.run("diverged"), 4, made=False)
    return sweep


def test_a_copy_has_the_small_files_of_what_is_finished(sweep, tmp_path):
    copy = tmp_path / "copy"
    assert copy_finished(sweep, copy) == ["done", "diverged"]
    assert set(files(copy)) == {
        "plan.toml", "plan.lock.json", "plan.configs.json",
        "endings/done.json", "endings/diverged.json",
        "runs/done/metrics.csv", "runs/done/run.json", "runs/done/result.json",
        "runs/diverged/metrics.csv", "runs/diverged/run.json",
    }  # fmt: skip
    assert states(copy) == {
        "log": "waiting", "done": "done", "diverged": "diverged", "half": "blocked",
        "new": "blocked",
    }  # fmt: skip


def test_again_only_what_is_new_is_copied(sweep, tmp_path):
    copy = tmp_path / "copy"
    copy_finished(sweep, copy)
    before = files(copy)
    assert copy_finished(sweep, copy) == []
    assert files(copy) == before
    write_run(sweep.out(sweep.run("half")), step=10, done=True)
    assert copy_finished(sweep, copy) == ["half"]
    assert files(copy).keys() - before.keys() == {
        f"runs/half/{name}" for name in ("metrics.csv", "run.json", "result.json")
    }
    assert copy_finished(open_sweep(copy), tmp_path / "copy of a copy") == [
        "done", "diverged", "half"
    ]  # fmt: skip


def test_a_copy_that_is_cut_short_counts_nothing_as_done_that_is_not(sweep, tmp_path, monkeypatch):
    copy, whole = tmp_path / "copy", files(sweep.folder)
    for stop_at in range(8):
        left = [stop_at]

        def until(source, target, left=left, real=copies.shutil.copyfile):
            if not left[0]:
                raise KeyboardInterrupt
            left[0] -= 1
            return real(source, target)

        with monkeypatch.context() as patch:
            patch.setattr(copies.shutil, "copyfile", until)
            with pytest.raises(KeyboardInterrupt):
                copy_finished(sweep, copy)
        if (copy / "runs/done/result.json").is_file():
            assert files(copy).items() <= whole.items()
            assert (copy / "runs/done/metrics.csv").is_file()
        shutil.rmtree(copy, ignore_errors=True)


def test_more_steps_replace_fewer(sweep, tmp_path):
    copy = tmp_path / "copy"
    copy_finished(sweep, copy)
    write_run(sweep.out(sweep.run("done")), step=20, steps=20, done=True)
    assert copy_finished(sweep, copy) == ["done"]
    assert json.loads((copy / "runs/done/result.json").read_text()) == {"step": 20}


def test_inputs_of_what_is_all_done_are_not_made_again(sweep, tmp_path):
    copy = tmp_path / "copy"
    for run in sweep.runs[1:]:
        write_run(sweep.out(run), step=10, done=True)
    copy_finished(sweep, copy)
    assert not (copy / "runs/log").exists()
    assert set(states(copy).values()) == {"done"}


def test_other_sweeps_and_driven_ones_are_left_alone(sweep, tmp_path):
    with pytest.raises(UsageError, match="is the sweep itself"):
        copy_finished(sweep, sweep.folder)
    copy = tmp_path / "copy"
    copy_finished(sweep, copy)
    with claimed(copy / DRIVER_LOCK, "it"), pytest.raises(BusyError):
        copy_finished(sweep, copy)
    lock = copy / "plan.lock.json"
    lock.write_text(lock.read_text().replace('"small"', '"other"'))
    with pytest.raises(UsageError, match="is of the sweep other, not small"):
        copy_finished(sweep, copy)


class Defaults:
    """In place of the commands: what their settings are by default."""

    def defaults(self, command, config):
        return {"new": 0, "group.new": False}


def run_of(name, needs=(), **config):
    out = f"runs/{name}"
    return replace(
        planned(name, needs=needs), config=config, out=out, arguments=(f"{{sweep}}/{out}",)
    )


@pytest.mark.parametrize(
    ("config", "name"),
    [
        ({"seed": 0, "new": 0, "group": {"new": False}}, "a-old"),  # at their defaults
        ({"seed": 0, "new": 0, "steps": 5, "threads": 2}, "a-old"),  # what makes it no other
        ({"seed": 0, "new": 1}, "a-now"),
        ({"seed": 0, "group": {"new": True}}, "a-now"),
        ({"seed": 1, "new": 0}, "a-now"),
        ({"new": 0}, "a-now"),  # it named a setting that there is no more
    ],
)
def test_finished_runs_of_an_earlier_version_keep_their_names(tmp_path, config, name):
    old = run_of("a-old", seed=0)
    sweep = small_sweep(tmp_path, old)
    write_run(sweep.out(old), step=10, done=True)
    (found,) = with_earlier_names([run_of("a-now", **config)], tmp_path, Defaults())
    assert (found.name, found.out) == (name, f"runs/{name}")
    assert found.config == config


def test_unfinished_runs_of_an_earlier_version_are_begun_again(tmp_path):
    old = run_of("a-old", seed=0)
    sweep = small_sweep(tmp_path, old)
    write_run(sweep.out(old), step=5)
    now = run_of("a-now", seed=0, new=0)
    assert with_earlier_names([now], tmp_path, Defaults()) == [now]
    write_run(sweep.out(old), step=10, done=True)
    longer = replace(now, steps=11)
    assert with_earlier_names([longer], tmp_path, Defaults()) == [longer]
    assert with_earlier_names([now], tmp_path / "nothing", Defaults()) == [now]


def test_what_takes_an_earlier_input_is_told_its_name(tmp_path):
    log, old = run_of("log-old", seed=0), run_of("a-old", ("log-old",), seed=1)
    sweep = small_sweep(tmp_path, log, old)
    now = [
        run_of("log-now", seed=0, new=0),
        replace(run_of("a-now", ("log-now",), seed=1, new=0), arguments=("{sweep}/runs/log-now",)),
    ]
    assert with_earlier_names(now, tmp_path, Defaults()) == now  # nothing is finished
    write_run(sweep.out(log), step=10, done=True)
    found = with_earlier_names(now, tmp_path, Defaults())
    assert [run.name for run in found] == ["log-old", "a-now"]
    assert (found[1].needs, found[1].arguments) == (("log-old",), ("{sweep}/runs/log-old",))
    shutil.rmtree(sweep.out(log))
    write_run(sweep.out(old), step=10, done=True)
    found = with_earlier_names(now, tmp_path, Defaults())
    assert [run.name for run in found] == ["log-now", "a-old"]


SMOKE = ["--set", "preset=smoke", "--set", "steps=5000", "--name", "tiny", "--jobs", "1", "--plain"]


def as_format_1(folder):
    """The files of a sweep as they were when the configs of runs were not apart."""
    configs = json.loads((folder / "plan.configs.json").read_text())["configs"]
    (folder / "plan.configs.json").unlink()
    lock = folder / "plan.lock.json"
    content = json.loads(lock.read_text()) | {"format": 1}
    for run in content["runs"]:
        del run["of"]
        run["config"] = configs[run["name"]]
    lock.write_text(json.dumps(content))


def forget(settings, *keys):
    """Settings as a version without some of them wrote them down."""
    for group, key in (key.split(".") for key in keys):
        del settings["mcat"][group][key]


def test_real_runs_are_gone_on_with_from_a_copy_by_a_later_version(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert mcat(["sweep", "run", *SMOKE, "--grid", "seed=0"]) == 0
    assert mcat(["sweep", "copy", "tiny", "kept"]) == 0
    (run,) = Path("kept/runs").iterdir()
    as_format_1(Path("kept"))
    for path in (run / "run.json", Path("kept/plan.lock.json")):
        content = json.loads(path.read_text())
        for item in content.get("runs", [content]):
            forget(item["config"], "context.hold_out", "action.rates")
        path.write_text(json.dumps(content))
    lock = Path("kept/plan.lock.json")
    lock.write_text(lock.read_text().replace(run.name, f"{run.name[:-8]}00000000"))
    run = run.rename(run.with_name(f"{run.name[:-8]}00000000"))
    kept = files(run)
    capsys.readouterr()
    assert mcat(["sweep", "run", "kept", "--grid", "seed=0-1", "--jobs", "1", "--json"]) == 0
    first, second = json.loads(capsys.readouterr().out)
    assert (first["run"], first["state"], second["state"]) == (run.name, "done", "done")
    assert [path.name for path in sorted(Path("kept/logs").iterdir())] == [f"{second['run']}.log"]
    assert files(run) == kept

    again = f"metatrain --preset smoke --steps 5000 --out {run} --resume --quiet --json".split()
    assert mcat(again) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["train_return"] == json.loads(kept["result.json"])["train_return"]
    assert mcat(f"metatrain --resume {run} --quiet".split()) == 0
    capsys.readouterr()
    for change, code, words in (
        ("--seed 1", 2, "seed: 0 there, 1 here"),
        ("--set mcat.action.raw_states=true", 2, "mcat.action.raw_states: False there, True here"),
        ("--steps 6000", 66, "a copy of 5,000 steps without the checkpoint to make 6,000"),
    ):
        assert mcat([*again, *change.split()]) == code
        assert words in capsys.readouterr().err
    assert {name: files(run)[name] for name in kept} == kept


def test_adaptations_are_made_found_done_and_copied(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("plan.toml").write_text(
        """
        name = "adapting"
        command = "adapt"
        [common]
        env = "hopper"
        horizon = 50
        logs = ["@log"]
        steps = 100
        offline_updates = 20
        evaluation_episodes = 1
        [[input]]
        name = "log"
        command = "collect"
        env = "hopper"
        horizon = 50
        steps = 500
        policy = "random"
        """
    )
    assert mcat(["sweep", "run", "plan.toml", "--jobs", "1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(item["state"], item["attempts"]) for item in found] == [("done", 1)] * 2
    assert mcat(["sweep", "run", "plan.toml", "--jobs", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == found
    assert mcat(["sweep", "copy", "adapting", "kept"]) == 0
    assert mcat(["sweep", "run", "kept", "--jobs", "1", "--json"]) == 0
    assert list(Path("kept/logs").iterdir()) == []  # nothing was made again, not even the log
