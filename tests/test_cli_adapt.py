"""`mcat adapt`: from logs to a policy that other commands take, or one line that says why not."""

import contextlib
import json
import os
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest

from mcat.cli import run
from mcat.datasets import EpisodeStore, load, write_dataset
from mcat.envs.tasks import Task
from mcat.errors import UsageError
from mcat.safe_io import read_json
from mcat.tensor_files import load_safetensors
from mcat.transfer.config import TransferConfig
from mcat.transfer.run import translate
from tests.transfer.transfer_logs import HORIZON, collect_logs, own_robot

TARGET = f"--env halfcheetah --armature 0.5 --horizon {HORIZON}"
QUICK = "--quiet --offline-updates 20 --set learner.hidden=8,8 --set batch_size=8"
CHEETAH = f"adapt --logs cheetah0.5.h5 {QUICK}"
OWN_POLICY = """
import numpy as np
def make():
    return lambda obs: np.tanh(np.asarray(obs)[:, :2]).astype(np.float32)
"""


def mcat(command, capsys):
    code = run(shlex.split(command))
    out, err = capsys.readouterr()
    return code, out, err


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Logs, two translators, a policy as code; nothing of it is ever written to."""
    folder = collect_logs(tmp_path_factory.mktemp("made"))
    (folder / "own_policy.py").write_text(OWN_POLICY)
    with contextlib.chdir(folder):
        for pair, source, target in (
            ("pair", "cheetah0.1.h5", "cheetah0.5.h5"), ("own", "own-a.h5", "own-b.h5")
        ):  # fmt: skip
            config = TransferConfig(
                sources=(source,), targets=(target,), preset="smoke", episodes=0
            )
            translate(config, Path(pair), quiet=True)
        own = own_robot(1)
        columns = {n: own.column(n) for n in ("observations", "actions", "next_observations")}
        rewards = -np.abs(own.column("observations")[:, 0])
        paid = EpisodeStore.from_arrays(**columns, rewards=rewards, episode_ends=own.episode_ends)
        write_dataset("own-paid.h5", paid, {})
        write_dataset("unpaid.h5", own, {"has_rewards": False})
        hand = own_robot(2, states=14, actions=4)
        write_dataset("reach.h5", hand, {"task": Task("reach").to_dict()})
        Path("nan.csv").write_text("episode,o0,a0\n0,nan,0.1\n0,1,0.2\n1,1,0.2\n1,2,0.2\n")
        Path("taken").mkdir()
        Path("taken/notes.txt").write_text("mine")
    return folder


@pytest.fixture(autouse=True)
def here(made, tmp_path, monkeypatch):
    """A folder of the test's own, with links to all that is there."""
    for path in made.iterdir():
        (tmp_path / path.name).symlink_to(path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "own_policy", raising=False)


def test_the_policy_of_an_adaptation_needs_no_translator(capsys):
    code, out, err = mcat(
        f"{CHEETAH} --translator pair {TARGET} --steps 12 --evaluate-every 6 --episodes 2"
        " --out run",
        capsys,
    )
    assert code == 0, err
    assert out.splitlines() == ["run/policy.safetensors"]
    assert "after 12 real steps" in err
    assert [row.split(",")[0] for row in Path("run/metrics.csv").read_text().split()] == [
        "step", "0", "6", "12"
    ]  # fmt: skip
    assert Path("run/report.html").stat().st_mtime_ns <= Path("run/result.json").stat().st_mtime_ns
    assert read_json("run/result.json")["step"] == 12
    for command in (
        "evaluate run --episodes 2 --quiet",
        f"evaluate --policy run/policy.safetensors {TARGET} --episodes 2 --quiet",
        f"collect --policy run {TARGET} --steps 60 --out again.h5 --quiet",
        "export onnx run --out policy.onnx",
    ):
        assert mcat(command, capsys)[0] == 0, command
    assert len(load("again.h5")[0]) == 60


def test_a_run_is_begun_gone_on_with_or_found_done(capsys):
    command = f"{CHEETAH} --translator pair --out run"  # the logs say which task it is
    assert mcat(f"{command} --resume", capsys)[0] == 0
    first = load_safetensors("run/policy.safetensors")[0]
    code, _, err = mcat(command, capsys)
    assert (code, "exists already" in err) == (73, True)
    code, out, _ = mcat(f"{command} --resume --json", capsys)
    assert (code, json.loads(out)["step"]) == (0, 0)
    assert all(
        np.array_equal(first[name], array)
        for name, array in load_safetensors("run/policy.safetensors")[0].items()
    )
    assert mcat("evaluate run --episodes 1 --quiet", capsys)[0] == 0
    for change, said in (
        ("--seed 1", "seed: 0 there, 1 here"),
        ("--policy mediocre", "policy: "),
        ("--logs cheetah0.5.h5", "log 1: unknown there"),
    ):
        code, _, err = mcat(f"{command} {change} --resume", capsys)
        assert code == 2
        assert said in err


def test_a_machine_without_simulator(capsys):
    """Its source policy is code or ONNX, and what comes out is a policy of that machine."""
    for policy in ("own_policy:make", "made.onnx"):
        out = policy.partition(".")[0].partition(":")[0]
        code, _, err = mcat(
            f"adapt --logs own-paid.h5 --translator own --policy {policy} {QUICK} --out {out}",
            capsys,
        )
        assert code == 0, err
        assert "not measured" in Path(out, "report.html").read_text()
        if policy == "own_policy:make":
            assert mcat(f"export onnx {out} --out made.onnx", capsys)[0] == 0
    code, _, err = mcat(f"evaluate own_policy {TARGET}", capsys)
    assert (code, "does not fit" in err) == (2, True)
    code, _, err = mcat("evaluate own_policy", capsys)
    assert (code, "cannot simulate" in err) == (2, True)
    code, _, err = mcat(f"adapt --logs own-paid.h5 --translator own {QUICK} --out x", capsys)
    assert (code, "name yours by --policy" in err) == (2, True)


def test_a_translator_is_learned_if_only_logs_are_there(capsys, monkeypatch):
    asked = []

    def note(config, out, **kwargs):
        asked.append((config.sources, config.targets, out, kwargs["resume"]))
        out.symlink_to("pair")

    monkeypatch.setattr("mcat.transfer.run.translate", note)
    code, _, err = mcat(f"{CHEETAH} --src cheetah0.1.h5 --out run", capsys)
    assert code == 0, err
    assert asked == [(("cheetah0.1.h5",), ("cheetah0.5.h5",), Path("run-translator"), True)]
    assert "policy" in read_json("run/run.json")["made_of"]


def test_logs_without_rewards_can_still_be_cloned(capsys):
    unpaid = f"adapt --logs unpaid.h5 {QUICK}"
    code, _, err = mcat(f"{unpaid} --out run", capsys)
    assert code == 65
    assert "--clone --anchor logged makes a policy of what was done there" in err
    assert not Path("run").exists()
    assert mcat(f"{unpaid} --clone --anchor logged --out run", capsys)[0] == 0
    code, _, err = mcat(f"{unpaid} --policy own_policy:make --clone --out other", capsys)
    assert (code, "--clone --anchor policy" in err) == (65, True)
    code, _, err = mcat(
        f"{unpaid} --policy own_policy:make --clone --anchor policy --out other", capsys
    )
    assert code == 0, err


def test_any_gymnasium_environment_can_be_the_live_machine(capsys):
    """That of HalfCheetah's own logs: the stock robot, whose actions are in [-1, 1]."""
    live = f"{CHEETAH} --translator pair --live HalfCheetah-v5 --live-arg ctrl_cost_weight=0.2"
    code, _, err = mcat(f"{live} --steps 7 --out run", capsys)
    assert code == 0, err
    assert Path("run/steps.bin").stat().st_size == 7 * (17 + 6 + 1 + 17 + 3) * 8
    assert mcat(f"{live} --steps 9 --out run --resume", capsys)[0] == 0
    assert Path("run/steps.bin").stat().st_size == 9 * (17 + 6 + 1 + 17 + 3) * 8


BASELINES = {"scratch", "fine-tuned", "logs", "cloning"}


def test_baselines_have_the_same_budget_and_stand_in_the_report(capsys):
    command = (
        f"{CHEETAH} --translator pair {TARGET} --steps 10 --episodes 2 --evaluate-every 5"
        " --baselines --out run"
    )
    code, _, err = mcat(command, capsys)
    assert code == 0, err
    folder = Path("run/baselines")
    assert {path.name for path in folder.iterdir()} == BASELINES | {"policies.json"}
    steps = {name: read_json(folder / name / "result.json")["step"] for name in BASELINES}
    assert steps == dict.fromkeys(BASELINES - {"cloning"}, 10) | {"cloning": 0}
    lines = read_json(folder / "policies.json")
    assert set(lines) == {"translated, not adapted", "source policy as it is"}
    page = Path("run/report.html").read_text()
    for label in ("from scratch", "source policy, fine-tuned", "cloning of the logs",
                  "logs alone", *lines):  # fmt: skip
        assert label in page
    assert Path("run/adaptation.png").read_bytes().startswith(b"\x89PNG")
    assert "http://" not in page.replace("http://www.w3.org", "")
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("metrics.csv")}
    assert mcat(f"{command} --resume", capsys)[0] == 0
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("metrics.csv")} == before


BAD_CALLS = [
    ("adapt", 2, "--logs"),
    (f"{CHEETAH} --env unicorn", 2, "unknown robot"),
    (f"{CHEETAH} --steps 5", 2, "real steps need a machine"),
    (f"{CHEETAH} {TARGET} --live HalfCheetah-v5", 2, "one machine"),
    (f"{CHEETAH} --armature 0.5", 2, "--armature is of --env"),
    (f"{CHEETAH} {TARGET} --set delay=5", 2, "delay is that of a live machine"),
    (f"{CHEETAH} --live-arg a=1", 2, "--live-arg is of --live"),
    (f"{CHEETAH} {TARGET} --steps -1", 2, "steps must not be negative"),
    (f"{CHEETAH} --baselines", 2, "--baselines needs a simulator"),
    (f"{CHEETAH} {TARGET} --baselines", 2, "say by --episodes"),
    (f"{CHEETAH} --episodes 3", 2, "an evaluation needs a simulator"),
    (f"{CHEETAH} --anchor best", 2, "anchor takes better or logged or policy"),
    (f"{CHEETAH} --set learner.greet=1", 2, "did you mean learner.greed"),
    (f"{CHEETAH} --set learner.greed=-1", 2, "greed must not be negative, not -1.0"),
    (f"{CHEETAH} --set learner.discount=5", 2, "discount must be in [0, 1], not 5.0"),
    (f"{CHEETAH} --from halfcheetah", 2, "give --translator too"),
    (f"{CHEETAH} --translator own --policy own_policy:make", 2, "does not fit halfcheetah"),
    (f"{CHEETAH} --translator pair --src cheetah0.1.h5", 2, "leave it out, or --translator"),
    (f"{CHEETAH} --translator nowhere", 66, "nowhere is not there"),
    (f"{CHEETAH} --policy nowhere.onnx", 66, "nowhere.onnx"),
    (f"{CHEETAH} --out taken", 73, "taken exists already"),
    (f"{CHEETAH} --env ant", 2, "ant is another machine with"),
    (f"adapt --logs reach.h5 {QUICK} --env push", 2, "log of reach with 14 observations and 4"),
    (f"{CHEETAH} --live Ant-v5 --steps 5", 2, "Ant-v5 has 105 observations and 8 actions"),
    (f"{CHEETAH} --live Nowhere-v0 --steps 5", 2, "no live machine Nowhere-v0"),
    (f"{CHEETAH} --live HalfCheetah-v5 --live-arg a --steps 5", 2, "takes NAME=VALUE"),
    (f"adapt --logs cheetah0.5.h5 --logs cheetah0.1.h5 {QUICK}", 65, "of one task"),
    (f"adapt --logs nowhere.h5 {QUICK}", 66, "nowhere.h5"),
    (f"adapt --logs nan.csv {QUICK}", 65, "nan.csv"),
    (f"adapt --logs unpaid.h5 {QUICK} --live Own-v0 --steps 5", 65, "--log-share 0"),
]  # fmt: skip


@pytest.mark.parametrize(("command", "code", "message"), BAD_CALLS, ids=[c[0] for c in BAD_CALLS])
def test_bad_input_is_one_clear_line_and_nothing_is_made(command, code, message, capsys):
    before = sorted(os.listdir())
    found, out, err = mcat(command, capsys)
    assert message in err
    assert found == code
    (line,) = (line for line in err.splitlines() if not line.startswith("note:"))
    assert line.startswith("error: ")
    assert not out
    assert [name for name in sorted(os.listdir()) if name != "__pycache__"] == before


def test_settings_are_printed_and_taken_back(capsys):
    code, out, _ = mcat(f"{CHEETAH} {TARGET} --clone --print-config", capsys)
    assert code == 0
    Path("mine.toml").write_text(out)
    _, again, _ = mcat(f"adapt --logs x.h5 {TARGET} --config mine.toml --print-config", capsys)
    assert again == out
    assert "greed = 0.0" in out


def test_adaptations_are_runs_of_a_sweep():
    import tomllib

    from mcat.commands.planned import Commands
    from mcat.sweeps.plan import plan_of
    from mcat.sweeps.runs import resolve

    text = """
    name = "adapting"
    command = "adapt"
    [[input]]
    name = "logs"
    command = "collect"
    env = "halfcheetah"
    armature = 0.5
    steps = 2000
    [common]
    env = "halfcheetah"
    armature = 0.5
    logs = ["@logs"]
    steps = 1000
    [grid]
    seed = "0-1"
    [[variant]]
    name = "adapted"
    policy = "good"
    [[variant]]
    name = "logs alone"
    [[variant]]
    name = "cloning"
    clone = true
    """
    runs = resolve(plan_of(tomllib.loads(text)), Commands())
    adaptations = [item for item in runs if item.command == "adapt"]
    assert len(adaptations) == 6
    assert len({item.name for item in runs}) == 7
    assert {item.steps for item in adaptations} == {1000}
    line = adaptations[0].command_line(Path("/sweep"), 1)
    assert line[-4:] == ["--quiet", "--threads", "1", "--resume"]
    assert f"/sweep/{runs[0].out}" in line
    with pytest.raises(UsageError, match="unknown key"):
        resolve(plan_of(tomllib.loads(text.replace("clone", "klone"))), Commands())
