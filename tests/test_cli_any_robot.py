"""Robots that are not mcat's, on the command line: ids, their arguments, and families in files."""

import json
import shlex
import sys
from pathlib import Path

import pytest

from mcat.agents import open_policy
from mcat.cli import run
from mcat.datasets.hdf5 import read_dataset, write_dataset
from mcat.envs import Task
from mcat.envs.gym_robots import inspected
from mcat.transfer.logs import load_logs

COUNT = "--env tests.count_env:Count-v0"  # the module in front is imported


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("counts.toml").write_text(
        'env = "tests.count_env:Count-v0"\nvaries = "arguments.ends_at"\ntrain = [6, 9]\n'
        "test = [12]\ndelay = 2\n"
    )
    Path("typo.toml").write_text(
        'env = "tests.count_env:Count-v0"\nvaries = "arguments.ends_at"\ntrain = [6]\ndelays = 2\n'
    )
    Path("broken.toml").write_text(
        'env = "tests.count_env:Count-v0"\nvaries = "arguments.fault"\ntrain = ["deaf"]\n'
    )


def mcat(command, capsys):
    code = run(shlex.split(command))
    out, err = capsys.readouterr()
    return code, out, err


def test_an_id_with_arguments_is_collected_and_evaluated(capsys):
    code, out, err = mcat(
        f"collect {COUNT} --env-arg ends_at=7 --env-arg fault=none --delay 3 --steps 30 --quiet",
        capsys,
    )
    assert (code, out) == (0, "count-ends_at7-faultnone-delay3.h5\n")
    assert "35 transitions in 5 episodes" in err
    store, metadata = read_dataset(out.strip())
    assert store.terminals.sum() == 5
    assert metadata["policy"]["name"] == "random"
    assert metadata["task"] == {
        "robot": "tests.count_env:Count-v0",
        "arguments": {"ends_at": 7, "fault": "none"},
        "delay": 3,
        "horizon": 20,
    }
    code, out, _ = mcat(
        f"evaluate {COUNT} --env-arg ends_at=7 --policy random --episodes 2 --quiet --json", capsys
    )
    assert code == 0
    assert json.loads(out)[0]["values"] == [7.0, 7.0]


def test_families_in_files_are_shown_checked_and_collected(capsys):
    code, out, _ = mcat("envs show counts.toml", capsys)
    assert code == 0
    assert out.count("tests.count_env:Count-v0") == 3
    code, out, _ = mcat("envs check counts.toml", capsys)
    assert code == 0
    assert "ok   count-ends_at6-delay2" in out
    assert "note: 10 of 10 random episodes end by themselves, after 6 to 6 of 20 steps" in out
    code, out, _ = mcat("envs check counts.toml broken.toml", capsys)
    assert code == 1
    assert "FAIL count-faultdeaf\n     actions change nothing that is observed" in out
    code, out, _ = mcat(
        "collect --family counts.toml --split all --steps 20 --out d --quiet", capsys
    )
    assert code == 0
    assert out.splitlines() == [f"d/count-ends_at{n}-delay2.h5" for n in (6, 9, 12)]


def test_an_id_shows_what_can_be_changed_in_it(capsys):
    code, out, _ = mcat("envs show Walker2d-v5", capsys)
    assert code == 0
    assert "17 observations, 6 actions in [-1, 1], 1000 steps per episode at most" in out
    assert "multiplies the damping of joints" in out
    assert "Bodies: world, torso, thigh, leg, foot, thigh_left, leg_left, foot_left" in out
    code, out, _ = mcat("envs show tests.count_env:Endless-v0", capsys)
    assert "3 observations, 1 actions in [-1, 1], unlimited steps" in out
    assert "Bodies" not in out
    code, out, _ = mcat("envs show Walker2d-v5 --json", capsys)
    assert json.loads(out)["parts"]["joints"][-1] == "foot_left_joint"
    assert json.loads(out)["parameters"]["mass"]["values"] == "a factor, or NAME=FACTOR,…"


def test_a_run_is_called_after_its_family_and_evaluated_without_the_file(capsys):
    code, out, _ = mcat("metatrain --family counts.toml --preset smoke --steps 20 --quiet", capsys)
    assert (code, out) == (0, "runs/counts-smoke-seed0\n")
    Path("counts.toml").unlink()
    code, out, _ = mcat(f"evaluate {out.strip()} --episodes 1 --quiet --json", capsys)
    assert code == 0
    assert [(row["label"], row["mean"]) for row in json.loads(out)] == [
        ("count-ends_at6", 6.0), ("count-ends_at9", 9.0), ("count-ends_at12", 12.0)
    ]  # fmt: skip


WALKER = "--env Walker2d-v5 --mass 1.5 --horizon 40"


def test_a_policy_is_adapted_on_an_id_with_wrappers_and_says_what_its_numbers_are(capsys):
    """Its episodes end early, in the logs and under way; rewards are late in both."""
    code, _, _ = mcat(f"collect {WALKER} --delay 5 --steps 200 --out log.h5 --quiet", capsys)
    assert code == 0
    assert read_dataset("log.h5")[0].terminals.any()
    small = "--offline-updates 5 --set learner.hidden=8,8 --set batch_size=8 --quiet"
    command = f"adapt --logs log.h5 {WALKER} --delay 5 --episodes 2 {small} --out run"
    code, out, err = mcat(f"{command} --steps 30 --evaluate-every 15", capsys)
    assert code == 0, err
    assert out == "run/policy.safetensors\n"
    header, *rows = [row.split(",") for row in Path("run/metrics.csv").read_text().split()]
    assert [row[0] for row in rows] == ["0", "15", "30"]
    assert float(rows[-1][header.index("charts/episodes")]) >= 1
    code, out, _ = mcat("evaluate run --episodes 2 --quiet --json", capsys)
    assert json.loads(out)[0]["label"] == "walker2d-mass1.5"
    assert mcat("export onnx run --out run.onnx", capsys)[0] == 0
    card = open_policy("run.onnx").card
    assert card.rate_hz == 125
    assert [card.observations[0].name, card.observations[8].name] == ["rootz position",
                                                                      "rootx velocity"]  # fmt: skip
    assert [channel.name for channel in card.actions][-1] == "foot_left_joint"
    code, _, err = mcat(f"adapt --logs log.h5 {small} --env Hopper-v5 --out other", capsys)
    assert (code, "hopper is another machine with 11 and 3" in err) == (2, True)


def test_one_task_is_checked_with_its_parameters(capsys):
    code, out, _ = mcat(f"envs check {COUNT} --env-arg ends_at=7 --delay 9", capsys)
    assert code == 0
    assert "ok   count-ends_at7-delay9" in out
    assert "each is paid at its end" in out
    code, out, _ = mcat(f"envs check {COUNT} --env-arg fault=deaf", capsys)
    assert (code, "actions change nothing" in out) == (1, True)
    code, out, err = mcat("envs check Walker2d-v5 --mass 2", capsys)
    assert (code, "name a robot by --env" in err) == (2, True)


MISTAKES = [
    ("collect --env Wolker2d-v5", "did you mean Walker2d-v"),
    ("collect --env nowhere:X-v0", "there is no module 'nowhere'"),
    (f"collect {COUNT} --env-arg ends_at", "--env-arg takes KEY=VALUE"),
    (f"collect {COUNT} --env-arg end=3 --steps 5", "cannot be made: TypeError"),
    (f"collect {COUNT} --mass heavy", "mass must be a number"),
    (f"collect {COUNT} --control-cost 1", "of tests.count_env:Count-v0 'control_cost'"),
    ("collect --env ant --friction 2", "unknown parameter of ant 'friction'"),
    ("collect --env ant --env-arg x=1", "takes parameters, no arguments"),
    ("collect --family counts.toml --env-arg x=1", "a family brings its own parameters"),
    (f"train {COUNT} --horizon 0", "horizon must be a whole number"),
    (f"evaluate {COUNT}", "no packaged good policy for count"),
    ("evaluate runs/none --env-arg x=1", "leave out --env-arg"),
    ("metatrain --family typo.toml", "typo.toml: unknown parameter of tests.count_env:Count-v0"),
    ("metatrain --family typo.toml", "(did you mean delay?)"),
]


@pytest.mark.parametrize(("command", "told"), MISTAKES)
def test_mistakes_are_told_in_a_line(command, told, capsys):
    code, out, err = mcat(command, capsys)
    assert (code, out) == (2, "")
    assert told in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("task", "told"),
    [
        ({"robot": "nowhere:X-v0", "horizon": 5}, "in the module nowhere, which a file may not"),
        ({"robot": "Nowhere-v0", "horizon": 5}, "unknown robot or gymnasium id 'Nowhere-v0'"),
        (
            {"robot": "Walker2d-v5", "horizon": 5, "arguments": {"xml_file": "/etc/passwd"}},
            "text, which a file may not choose (xml_file)",
        ),
    ],
)
def test_logs_of_a_machine_that_is_nobodys_here_are_learned_from_all_the_same(task, told, capsys):
    mcat(f"collect {COUNT} --env-arg ends_at=15 --steps 60 --out log.h5 --quiet", capsys)
    store, metadata = read_dataset("log.h5")
    assert load_logs(["log.h5"], history=5).task == Task(
        "tests.count_env:Count-v0", arguments={"ends_at": 15}
    )
    write_dataset("strange.h5", store, {**metadata, "task": task})
    logs = load_logs(["strange.h5"], history=5)
    assert logs.task is None
    assert told in " ".join(logs.notes)


def test_logs_of_an_id_are_learned_from_where_no_simulator_is(capsys, monkeypatch):
    mcat(f"collect {COUNT} --env-arg ends_at=14 --steps 60 --out log.h5 --quiet", capsys)
    inspected.cache_clear()
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    logs = load_logs(["log.h5"], history=5)
    assert (logs.task, logs.sizes) == (None, (3, 1))
    assert "cannot be simulated here" in " ".join(logs.notes)
