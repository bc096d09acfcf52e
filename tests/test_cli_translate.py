"""`mcat translate` and `mcat evaluate`: from logs to a report, or one line that says why not."""

import contextlib
import io
import json
import os
import shlex
import shutil
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from ctypes.util import find_library
from pathlib import Path

import numpy as np
import pytest

from mcat.cli import run
from mcat.datasets import EpisodeStore, read_dataset, write_dataset
from mcat.reports.translation.verdict import verdict
from mcat.safe_io import read_json
from mcat.transfer.collectors import collector_policy
from mcat.transfer.config import TransferConfig
from mcat.transfer.result import POLICY_FILES, TransferResult
from mcat.transfer.run import translate
from mcat.translator import Translator
from tests.transfer.transfer_logs import HORIZON, cheetah, collect_logs, own_robot

SMOKE = "--preset smoke --threads 1 --episodes 3"
PAIR = "translate --src cheetah0.1.h5 --tgt cheetah0.5.h5"
TARGET = f"--env halfcheetah --armature 0.5 --horizon {HORIZON}"


def mcat(command, capsys):
    code = run(shlex.split(command))
    out, err = capsys.readouterr()
    return code, out, err


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Logs, among them bad ones, and two results; never written to."""
    folder = collect_logs(tmp_path_factory.mktemp("made"))
    _write_bad_logs(folder)
    tasks = tuple(str(folder / f"cheetah{a}.h5") for a in (0.1, 0.5))
    config = TransferConfig(tasks=tasks, preset="smoke", episodes=3)
    translate(config, folder / "many", quiet=True)
    return folder


@pytest.fixture(scope="module")
def told(made):
    """What `mcat translate` says while it makes the pair's result."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.chdir(made), redirect_stdout(out), redirect_stderr(err):
        assert run(shlex.split(f"{PAIR} {SMOKE}")) == 0, err.getvalue()
        Path(out.getvalue().strip()).rename("pair")
    return out.getvalue(), err.getvalue()


def _write_bad_logs(folder):
    good = own_robot(0)
    write_dataset(folder / "loud.h5", own_robot(5, scale=3.0), {})
    paid = _changed(good, rewards=np.arange(len(good), dtype=np.float32))
    write_dataset(folder / "rewarded.h5", paid, {})
    write_dataset(folder / "unpaid.h5", own_robot(4), {"has_rewards": False})
    write_dataset(folder / "one-episode.h5", own_robot(5, episodes=1), {})
    write_dataset(folder / "short.h5", own_robot(5, steps=4), {})
    write_dataset(folder / "wide.h5", own_robot(5, states=4), {})
    write_dataset(folder / "still.h5", _changed(good, actions=np.zeros_like(good.actions)), {})
    store, metadata = read_dataset(folder / "cheetah0.1.h5")
    write_dataset(folder / "copy.h5", store, metadata | {"policy": "another name"})
    shutil.copy(folder / "cheetah0.1.h5", folder / "damaged.h5")
    with open(folder / "damaged.h5", "r+b") as file:
        file.seek(-100, os.SEEK_END)
        file.write(b"\xff" * 50)
    (folder / "nan.csv").write_text("obs_0,act_0,episode\n1,0.5,0\nnan,0.5,0\n2,0.1,1\n3,0.2,1\n")
    (folder / "notes").mkdir()
    (folder / "notes" / "thesis.txt").write_text("precious")


def _changed(store, **columns):
    names = ("observations", "actions", "next_observations")
    kept = {name: store.column(name) for name in names} | columns
    return EpisodeStore.from_arrays(**kept, episode_ends=store.episode_ends)


@pytest.fixture(autouse=True)
def elsewhere(made, told, tmp_path, monkeypatch):
    """Every command runs in a folder of its own, with links to what was made before."""
    monkeypatch.chdir(tmp_path)
    for path in made.iterdir():
        (tmp_path / path.name).symlink_to(path)


def test_translate_leaves_a_folder_with_a_report(made):
    names = {path.name for path in (made / "pair").iterdir()}
    assert {"translator.safetensors", "result.json", "report.html"} <= names
    assert "halfcheetah-armature0.5" in (made / "pair" / "report.html").read_text()
    assert not list(made.glob(".*"))  # no half-made folder is left


def test_the_outcome_is_told_and_the_folder_is_on_stdout(told):
    out, err = told
    names = [f"halfcheetah-armature{a}-horizon{HORIZON}" for a in (0.1, 0.5)]
    assert out == f"{'-to-'.join(names)}\n"
    result = TransferResult.from_json(read_json("pair/result.json"))
    for returns in result.returns:
        assert f"{returns.label}  " in err
        assert f"{returns.mean:,.1f} " in err
    for returns in result.logged:
        assert f"{returns.label}: {returns.mean:,.1f} on average" in err
    answer = verdict(result)
    assert answer.headline in err
    assert answer.details in err
    assert "How far can I trust this transfer?" in err
    assert all(sentence in err for sentence in result.trust.sentences())
    assert f"Report: {out.strip()}/report.html" in err


def test_own_logs_need_no_simulator_and_replace_an_earlier_result(made, capsys, tmp_path):
    shutil.copytree(made / "pair", "mine")
    before = _contents(tmp_path / "mine")
    use = f"{SMOKE} --out mine --overwrite --quiet --json"
    assert mcat(f"{PAIR} {use} --policy scripted:push", capsys)[0] == 2
    assert _contents(tmp_path / "mine") == before  # kept, as the new one failed

    code, out, err = mcat(f"translate --src own-a.h5 --tgt own-b.h5 {use}", capsys)
    assert code == 0, err
    told = json.loads(out)
    result = TransferResult.from_json(read_json("mine/result.json"))
    assert [machine.name for machine in result.machines] == ["own-a", "own-b"]
    assert told["folder"] == "mine"
    assert told["returns"] == [] == list(result.returns)
    assert "mcat cannot simulate the machine of own-a.h5" in told["skipped"]
    assert told["trust"]["untranslated"] == result.trust.untranslated
    assert told["verdict"] == result.trust.verdict()
    assert "no policy, method ours" in Path("mine/report.html").read_text()
    assert np.shape(result.scatter["translated"]) == (500, 2)
    assert "cannot simulate" in Path("mine/report.html").read_text()
    assert not list(tmp_path.glob(".*"))
    translator = Translator.load("mine/translator.safetensors")
    assert translator.translate(np.zeros((4, 3)), np.zeros((4, 2))).shape == (4, 2)
    code, _, err = mcat("evaluate --translator mine --env push", capsys)
    assert code == 2
    assert "is for own-b and does not fit push: 3 observations" in err


def test_evaluate_agrees_with_translate(capsys):
    result = TransferResult.from_json(read_json("pair/result.json"))
    code, out, err = mcat(f"evaluate --translator pair {TARGET} --episodes 3 --json", capsys)
    assert code == 0, err
    found = json.loads(out)
    assert [tuple(item["values"]) for item in found] == [r.values for r in result.returns[1:3]]
    assert [item["label"] for item in found] == [r.label for r in result.returns[1:3]]
    for returns in result.returns[3:]:  # what the target's logs gave has files of its own
        policy = f"--policy pair/{POLICY_FILES[returns.label]}"
        code, out, err = mcat(f"evaluate {policy} {TARGET} --episodes 3 --json", capsys)
        assert code == 0, err
        assert tuple(json.loads(out)[0]["values"]) == returns.values
    plain = "evaluate --policy good --env halfcheetah --armature 0.1 --episodes 3 --json"
    code, out, err = mcat(f"{plain} --horizon {HORIZON}", capsys)
    assert code == 0, err
    assert tuple(json.loads(out)[0]["values"]) == result.returns[0].values


def test_the_translator_is_found_by_its_folder_or_its_file(capsys):
    found = [
        mcat(f"evaluate --translator {path} {TARGET} --episodes 2 --json", capsys)
        for path in ("pair", "pair/translator.safetensors")
    ]
    assert found[0][0] == found[1][0] == 0, found[1][2]
    assert found[0][1] == found[1][1]
    assert "note:" not in found[0][2]
    command = "collect --translator pair/translator.safetensors --policy good --steps 30"
    assert mcat(f"{command} {TARGET} --out by-file.h5", capsys)[0] == 0


@pytest.mark.parametrize(
    "command",
    ["evaluate --episodes 1", "collect --policy good --steps 30 --out other.h5"],
)
def test_another_machine_than_the_learned_one_is_told(command, capsys):
    other = f"--env halfcheetah --armature 0.4 --horizon {HORIZON}"
    code, _, err = mcat(f"{command} --translator pair {other}", capsys)
    assert code == 0, err
    name = f"halfcheetah-armature0.5-horizon{HORIZON}"
    assert f"note: this translator was learned from logs of {name}; nothing is known" in err
    delayed = f"{command} --translator pair {TARGET} --delay 10".replace("other.h5", "delayed.h5")
    assert "note:" not in mcat(delayed, capsys)[2]  # the same machine


def test_evaluate_prints_a_table(capsys):
    code, out, _ = mcat(f"evaluate --policy random {TARGET} --episodes 2", capsys)
    assert code == 0
    assert "2 episodes each" in out
    assert "random" in out
    assert "± standard error" in out


def test_many_tasks_print_a_matrix_and_take_a_source(capsys):
    result = TransferResult.from_json(read_json("many/result.json"))
    source = result.machines[0].name
    code, out, err = mcat(
        f"evaluate --translator many --from {source} {TARGET} --episodes 3 --json", capsys
    )
    assert code == 0, err
    assert json.loads(out)[1]["mean"] == result.matrix.transferred[0][1]
    code, _, err = mcat(
        f"evaluate --translator many --from halfcheetah-armature0.2 {TARGET}", capsys
    )
    assert code == 2
    assert "did you mean halfcheetah-armature0.1" in err
    code, _, err = mcat(f"evaluate --translator many {TARGET}", capsys)
    assert code == 2
    assert f"--from {source}" in err


def test_a_transferred_policy_collects(capsys):
    command = f"collect --policy good --translator pair {TARGET} --steps 60 --out more.h5"
    code, _, err = mcat(command, capsys)
    assert code == 0, err
    store, metadata = read_dataset("more.h5")
    name = f"good of halfcheetah-armature0.1-horizon{HORIZON}, translated"
    assert metadata["policy"]["name"] == name
    actor = collector_policy("good", cheetah(0.5), translator=Path("pair"))
    assert metadata["policy"]["sha256"] == actor.sha256
    assert np.allclose(actor.act(np.array(store.observations)), store.actions, atol=1e-5)
    plain = collector_policy("good", cheetah(0.1)).act(np.array(store.observations))
    assert np.abs(plain - store.actions).max() > 1e-3


@pytest.mark.skipif(
    not find_library("OSMesa") and not os.environ.get("DISPLAY"),
    reason="no OSMesa: apt-get install libosmesa6",
)
def test_a_transferred_policy_is_filmed(tmp_path):
    command = f"render --translator pair {TARGET} --steps 5 --width 64 --height 64 --out a.png"
    done = subprocess.run(  # the GL backend is chosen once per process
        [sys.executable, "-m", "mcat", *command.split()],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "a.png\n"), done.stderr
    assert (tmp_path / "a.png").stat().st_size > 100


def test_every_number_of_a_recipe_can_be_set_and_printed(made, capsys, monkeypatch):
    monkeypatch.setenv("MCAT_TRANSLATE_SEED", "4")
    monkeypatch.setenv("MCAT_TRANSLATE_SET", "recipe.action.steps=7")
    changed = "--preset paper --set recipe.context.history=5 --set recipe.context.recent=2"
    code, out, err = mcat(f"{PAIR} {changed} --episodes 3 --print-config", capsys)
    assert (code, err) == (0, "")
    Path("my.toml").write_text(out)
    monkeypatch.delenv("MCAT_TRANSLATE_SEED")
    monkeypatch.delenv("MCAT_TRANSLATE_SET")
    for logs in (PAIR, "translate --task cheetah0.1.h5 --task cheetah0.5.h5"):
        code, again, err = mcat(f"{logs} --config my.toml --print-config", capsys)
        assert (code, again, err) == (0, out, "")
    _, text, _ = mcat(f"{PAIR} --config my.toml --seed 5 --print-config --json", capsys)
    found = json.loads(text)
    assert (found["preset"], found["seed"], found["episodes"]) == ("paper", 5, 3)
    assert found["recipe"]["context"]["history"] == 5
    assert found["recipe"]["action"]["steps"] == 7
    assert found["recipe"]["action"]["loss"] == "nll"  # the preset's, which nobody changed
    usual = TransferConfig(sources=("a",), targets=("b",), preset="paper").to_json()["recipe"]
    assert found["recipe"].keys() == usual.keys() - {"many_context", "many_action"}


def test_a_recipe_of_ones_own_is_learned_and_told_from_others(made, capsys):
    own = f"{PAIR} {SMOKE} --episodes 0 --set recipe.action.steps=20 --out own --resume"
    assert mcat(own, capsys)[0] == 0
    assert read_json("own/result.json")["config"]["recipe"]["action"]["steps"] == 20
    assert mcat(own, capsys)[0] == 0
    code, _, err = mcat(own.replace("=20", "=30"), capsys)
    assert code == 2
    assert "recipe.action.steps: 20 there, 30 here" in err


BAD_CALLS = [
    ("translate", 2, "give logs either as --src and --tgt or"),
    ("translate --src cheetah0.1.h5", 2, "logs of both machines"),
    ("translate --task cheetah0.1.h5", 2, "at least two --task"),
    (f"{PAIR} --task own-a.h5", 2, "give logs either as"),
    (f"{PAIR} --preset fast", 2, "unknown preset 'fast'"),
    (f"{PAIR} --method magic", 2, "method takes ours or cycle, not 'magic'"),
    (f"{PAIR} --episodes -1", 2, "--episodes"),
    (f"{PAIR} --out notes", 73, "notes exists already"),
    (f"{PAIR} --out notes --overwrite", 73, "not the result of a translation"),
    (f"{PAIR} --out pair", 73, "pass --overwrite"),
    (f"{PAIR} --policy scripted:push", 2, "does not fit halfcheetah"),
    (f"{PAIR} --policy unicorn", 2, "unknown policy or file 'unicorn'"),
    ("translate --src own-a.h5 --tgt own-b.h5 --policy good", 2, "leave out --policy, which would"),
    ("translate --src own-a.h5 --tgt own-b.h5 --policy nan.csv", 2, "cannot simulate the machine"),
    ("translate --task own-a.h5 --task own-b.h5 --policy good", 2, "leave out --policy"),
    (f"{PAIR} --method cycle --episodes 0 --policy good", 2, "would not be used: --episodes 0"),
    ("translate --src own-a.h5 --tgt own-b.h5 --reward-aware", 65, "own-a.h5: every reward is 0"),
    ("translate --src rewarded.h5 --tgt own-b.h5 --reward-aware", 65, "own-b.h5: every reward"),
    ("translate --src unpaid.h5 --tgt own-b.h5 --reward-aware", 65, "unpaid.h5 has no rewards"),
    (f"{PAIR} --policy mediocre.safetensors", 66, "mediocre.safetensors"),
    (f"{PAIR} --map mirror-y", 2, "unknown map or file 'mirror-y'"),
    (f"{PAIR} --map mirror-x", 2, "but the machines have"),
    (f"{PAIR} --map mirror-x --reward-aware", 2, "--reward-aware goes with"),
    (f"{PAIR} --transfer-loss l2", 2, "transfer_loss takes l1 or nll or none, not 'l2'"),
    (f"{PAIR} --set action.steps=5", 2, "did you mean recipe.action.steps"),
    (f"{PAIR} --set recipe_changes=5", 2, "unknown key 'recipe_changes'"),
    (f"{PAIR} --set recipe.action.steps=0", 2, "steps must be at least 1, not 0"),
    (f"{PAIR} --set recipe.context.context_size=99999", 2, "must be at most 4,096, not 99,999"),
    (f"{PAIR} --set recipe.action.reward_aware=true", 2, "use --reward-aware"),
    (f"{PAIR} --config nowhere.toml", 66, "nowhere.toml"),
    (f"{PAIR} --method cycle --transfer-loss nll", 2, "--transfer-loss is of H"),
    ("translate --src cheetah0.1.h5 --tgt missing.h5", 66, "missing.h5 does not exist"),
    ("translate --src cheetah0.1.h5 --tgt damaged.h5", 65, "damaged.h5: damaged"),
    ("translate --src cheetah0.1.h5 --tgt nan.csv", 65, "nan.csv"),
    ("translate --src cheetah0.1.h5 --tgt cheetah0.1.h5", 65, "hold the same transitions"),
    ("translate --src cheetah0.1.h5 --tgt copy.h5", 65, "cheetah0.1.h5 and copy.h5 hold the same"),
    ("translate --src cheetah0.1.h5 --src cheetah0.35.h5 --tgt cheetah0.5.h5", 65, "of one task"),
    ("translate --src own-a.h5 --src wide.h5 --tgt own-b.h5", 65, "must be of one machine"),
    ("translate --src cheetah0.1.h5 --src own-a.h5 --tgt cheetah0.5.h5", 65, "unknown machine"),
    ("translate --src own-a.h5 --tgt wide.h5", 65, "--map NAME|FILE"),
    ("translate --src cheetah0.1.h5 --tgt own-a.h5", 65, "17 states and 6 actions"),
    ("translate --src own-a.h5 --tgt loud.h5", 65, "outside [-1, 1]"),
    ("translate --src own-a.h5 --tgt one-episode.h5", 65, "one episode only"),
    ("translate --src own-a.h5 --tgt short.h5", 65, "no full history of 10"),
    ("translate --src own-b.h5 --tgt still.h5", 65, "none of its actions ever changes"),
    ("translate --task own-a.h5 --task own-b.h5 --task loud.h5", 65, "loud.h5: an action is"),
    (f"evaluate --translator nowhere {TARGET}", 66, "nowhere is not there"),
    (f"evaluate --translator notes {TARGET}", 66, "notes is no folder"),
    ("evaluate --translator pair --env ant", 2, "does not fit ant"),
    (f"evaluate --translator pair --from halfcheetah {TARGET}", 2, "unknown source"),
    (f"evaluate --from halfcheetah {TARGET}", 2, "give --translator too"),
    ("evaluate --policy good --env halfcheetah --armature 0.7", 2, "no packaged good policy"),
    (f"evaluate --episodes 0 {TARGET}", 2, "--episodes"),
    ("evaluate --policy scripted:push --env ant", 2, "does not fit ant"),
    ("collect --env ant --translator pair", 2, "does not fit ant"),
    ("collect --env ant --from ant", 2, "give --translator too"),
    ("render --policy good --env hopper --out a.png", 2, "no packaged good policy"),
    ("render --env ant --translator nowhere --out a.png", 66, "nowhere"),
]  # fmt: skip


@pytest.mark.parametrize(("command", "code", "message"), BAD_CALLS, ids=[c[0] for c in BAD_CALLS])
def test_bad_input_is_one_clear_line_before_any_training(command, code, message, made, capsys):
    before = _contents(made), sorted(os.listdir())
    quick = command.replace("translate", f"translate {SMOKE}", 1)  # should it train after all
    found, out, err = mcat(quick if command.startswith("translate") else command, capsys)
    assert message in err
    assert found == code
    (line,) = (line for line in err.splitlines() if not line.startswith("note:"))
    assert line.startswith("error: ")
    assert "learning" not in err
    assert not out
    assert (_contents(made), sorted(os.listdir())) == before


def _contents(folder):
    return {path: path.stat().st_mtime_ns for path in sorted(folder.rglob("*"))}


@pytest.mark.parametrize("command", ["translate", "evaluate"])
def test_help_says_how(command, capsys):
    code, out, _ = mcat(f"{command} --help", capsys)
    assert code == 0
    assert f"mcat {command} --" in out
