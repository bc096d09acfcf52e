"""Runs and their policies, of `mcat train` and `mcat metatrain` alike, wherever one is taken."""

import json
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest

from mcat.agents.evaluation import Evaluator
from mcat.agents.policies.names import find_source_policy
from mcat.agents.policies.policy import load_policy
from mcat.agents.runs import folder as runs
from mcat.cli import run
from mcat.datasets import load
from mcat.envs.tasks import Task
from mcat.errors import UsageError
from mcat.tensor_files import load_safetensors, save_safetensors
from tests.reports.learning.run_folders import write_policy, write_run

TRAIN = "train --env hopper --size 0.06 --horizon 30 --start-steps 20 --quiet"


def mcat(command, capsys):
    code = run(shlex.split(command))
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    return code, out, err


@pytest.fixture(autouse=True, scope="module")
def fast():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "_tensorboard", lambda folder, until: None)  # slow to import
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run of each command: `meta` never learned anything, `trained` hardly did."""
    folder = tmp_path_factory.mktemp("runs")
    task_set = write_run(folder / "meta", family="halfcheetah-armature", horizon=40, per_task=0)
    write_policy(folder / "meta/policy.safetensors", task_set)
    write_policy(folder / "meta/policy-best.safetensors", task_set, seed=1)
    out = folder / "trained"
    assert run(shlex.split(f"{TRAIN} --steps 60 --snapshots 40 --out {out}")) == 0
    return folder


@pytest.fixture(autouse=True)
def elsewhere(folder, monkeypatch):
    monkeypatch.chdir(folder)


# --- a meta-trained policy is a policy ---------------------------------------------------------


def expected(armature, episodes=3, file="policy"):
    policy = load_policy(f"meta/{file}.safetensors")
    task = Task("halfcheetah", armature=armature, horizon=25)
    return Evaluator(task, episodes, 5).returns(policy.start_episode()).tolist()


@pytest.mark.parametrize(
    ("who", "file"),
    [
        ("--policy meta/policy.safetensors", "policy"),
        ("--policy meta", "policy"),
        ("meta", "policy"),
        ("meta --best", "policy-best"),
    ],
)
def test_it_acts_on_any_machine_of_its_sizes(who, file, capsys):
    command = f"evaluate {who} --env halfcheetah --armature 1.2 --horizon 25"
    code, out, err = mcat(f"{command} --episodes 3 --seed 5 --json", capsys)
    assert code == 0, err
    assert json.loads(out)[0]["values"] == expected(1.2, file=file)


def test_it_collects_a_data_set_with_an_empty_memory_in_each_round(capsys, tmp_path):
    command = "collect --env halfcheetah --horizon 25 --steps 1000 --policy meta --json"
    code, _, err = mcat(f"{command} --out {tmp_path / 'x.h5'}", capsys)
    assert code == 0, err
    episodes, metadata = load(tmp_path / "x.h5")
    assert len(metadata["policy"]["sha256"]) == 64
    assert episodes.num_episodes == 40  # two rounds of 20
    acting = load_policy("meta").start_episode()
    for step in range(3):  # the first of the second round
        rows = [(20 + i) * 25 + step for i in range(20)]
        assert np.allclose(acting(episodes.observations[rows]), episodes.actions[rows], atol=1e-5)


def test_it_is_not_translated():
    task, rng = Task("halfcheetah"), np.random.default_rng(0)
    with pytest.raises(UsageError, match="finds out by itself which machine it is on"):
        find_source_policy("meta", task, rng)
    assert callable(find_source_policy("random", task, rng))


# --- runs of mcat train ------------------------------------------------------------------------


def test_a_run_is_evaluated_on_its_own_task(capsys):
    code, out, err = mcat("evaluate trained --episodes 4 --seed 5 --quiet --json", capsys)
    assert code == 0, err
    (found,) = json.loads(out)
    task = Task("hopper", size=0.06, horizon=30)
    policy = load_policy("trained/policy-60.safetensors")
    assert found["values"] == Evaluator(task, 4, 5).returns(policy).tolist()
    assert (found["label"], found["split"]) == (task.label(), "train")
    code, out, _ = mcat("evaluate trained --best --episodes 4 --seed 5 --quiet --json", capsys)
    files = [f"trained/policy-{step}.safetensors" for step in (40, 60)]
    best = max(map(load_policy, files), key=lambda policy: policy.metadata["mean_return"])
    assert json.loads(out)[0]["values"] == Evaluator(task, 4, 5).returns(best).tolist()
    code, _, err = mcat("evaluate trained --split test", capsys)
    assert (code, err.splitlines()) == (2, [f"error: {task.label()} has no test tasks"])


def test_runs_of_both_commands_are_plotted_together(capsys, tmp_path):
    code, out, err = mcat(f"plot trained meta --out {tmp_path / 'p'}", capsys)
    assert code == 0, err
    assert "| hopper-size0.06-horizon30 | crossq | 0 | 60 |" in out
    assert "| halfcheetah-armature | fast | 0 |" in out
    assert (tmp_path / "p/learning-curves.png").is_file()
    assert not [line for line in err.splitlines() if "trained" in line]  # nothing is amiss


def test_the_numbers_of_a_plot_as_json(capsys, tmp_path):
    code, out, err = mcat(f"plot trained --json --out {tmp_path / 'p'}", capsys)
    assert code == 0, err
    told = json.loads(out)
    (curve,) = told["curves"]
    policies = [load_policy(f"trained/policy-{step}.safetensors") for step in (40, 60)]
    returns = [policy.metadata["mean_return"] for policy in policies]
    assert curve["final_train"] == [returns[-1]]
    assert curve["best_train"] == [max(returns)]
    assert curve["final_test"] == [None]
    assert (curve["seeds"], curve["steps"], curve["runs"]) == ([0], [60], ["trained"])
    assert all(Path(path).is_file() for path in told["files"])


def test_a_run_of_an_older_mcat_is_read_but_not_gone_on_with(capsys, tmp_path):
    """Its record did not say who made it, nor its checkpoints which run they belong to."""
    old = tmp_path / "old"
    shutil.copytree("trained", old)
    record = json.loads((old / "run.json").read_text())
    for key in ("format", "mcat", "kind"):
        del record[key]
    (old / "run.json").write_text(json.dumps(record))
    for path in (old / "checkpoints").iterdir():
        arrays, header = load_safetensors(path)
        for key in ("format", "mcat", "settings", "log", "replay_seals"):
            del header[key]
        save_safetensors(path, arrays, header, overwrite=True)
    for command in (f"evaluate {old} --episodes 1 --quiet", f"plot {old} --out {tmp_path / 'p'}"):
        code, _, err = mcat(command, capsys)
        assert code == 0, err
    before = (old / "metrics.csv").read_bytes()
    code, _, err = mcat(f"train --resume {old} --steps 80 --quiet", capsys)
    assert code == 65
    assert "only that one can go on with it" in err
    assert len(err.splitlines()) == 1
    assert (old / "metrics.csv").read_bytes() == before


def test_one_episode_has_no_standard_error(capsys):
    code, out, err = mcat("evaluate trained --episodes 1 --quiet", capsys)
    assert (code, err) == (0, "")
    assert "1 episode each" in out
    assert "–" in out
    assert " 0.0 " not in out
    code, out, _ = mcat("evaluate trained --episodes 1 --quiet --json", capsys)
    assert json.loads(out)[0]["standard_error"] is None
    code, out, _ = mcat("evaluate trained --episodes 2 --quiet --json", capsys)
    assert json.loads(out)[0]["standard_error"] > 0


# --- going on ----------------------------------------------------------------------------------


def test_train_goes_on_by_its_folder_alone(capsys, tmp_path):
    whole, halves = tmp_path / "whole", tmp_path / "halves"
    assert mcat(f"{TRAIN} --steps 80 --out {whole}", capsys)[0] == 0
    assert mcat(f"{TRAIN} --steps 50 --out {halves}", capsys)[0] == 0
    command = f"train --resume {halves} --steps 80 --snapshots 70 --quiet --json"
    code, out, err = mcat(command, capsys)
    assert (code, err) == (0, "")
    told = json.loads(out)
    paths = [halves / f"policy-{step}.safetensors" for step in (70, 80)]
    assert told["policies"] == [str(path) for path in paths]
    one, two = load_policy(whole), load_policy(halves)
    for mine, other in zip(one.actor.layers, two.actor.layers, strict=True):
        assert np.array_equal(mine, other)
    assert told["mean_return"] == two.metadata["mean_return"]
    code, again, err = mcat(f"train --resume {halves} --quiet --json", capsys)  # finished
    assert (code, json.loads(again)) == (0, told)


BAD_CALLS = [
    ("train", 2, "say what to learn by --env ROBOT, or go on with a run by --resume FOLDER"),
    ("train --resume nowhere", 66, "nowhere is no run of mcat train"),
    ("train --resume meta", 65, "meta/run.json: not the record of a run of mcat train"),
    ("train --resume trained --env ant --seed 3", 2, "leave out --seed, --env (what may change"),
    ("train --resume trained --size 0.06", 2, "leave out --size"),
    ("train --resume trained --snapshots 40 --steps 50", 2, "60 steps already"),
    (
        "metatrain --resume trained",
        65,
        "not the record of a run of mcat metatrain",
    ),
]


@pytest.mark.parametrize(("command", "code", "message"), BAD_CALLS, ids=[c[0] for c in BAD_CALLS])
def test_bad_input_is_one_clear_line(command, code, message, capsys):
    before = {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}
    found, out, err = mcat(command, capsys)
    assert message in err
    assert found == code
    assert len(err.splitlines()) == 1
    assert not out
    after = {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}
    changed = {str(path) for path in after if after[path] != before.get(path)}
    assert changed <= {"trained/.lock"}
