"""`mcat evaluate --out`: a file that is made once, found done, or refused for another request."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from mcat.agents import evaluation, trained_run
from mcat.agents.policies.names import PACKAGED
from mcat.cli import run
from mcat.commands import evaluations
from mcat.safe_io import sha256_of, write_json
from mcat.tensor_files import content_digest, load_safetensors, save_safetensors
from mcat.transfer import deploy
from mcat.transfer.config import TransferConfig
from mcat.transfer.run import translate
from tests.reports.learning.run_folders import write_policy, write_run
from tests.transfer.transfer_logs import HORIZON, collect_logs

RANDOM = "evaluate --policy random --env hopper --horizon 20 --episodes 3 --out r.json"
RUN = "evaluate meta --episodes 2 --out m.json"
TARGET = f"--env halfcheetah --armature 0.5 --horizon {HORIZON}"


def mcat(command, capsys):
    code = run(shlex.split(f"{command} --quiet"))
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    return code, out, err


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A run that never learned anything, and two translators that hardly did."""
    folder = collect_logs(tmp_path_factory.mktemp("made"))
    task_set = write_run(folder / "meta", family="halfcheetah-armature", horizon=15, per_task=0)
    write_policy(folder / "meta/policy.safetensors", task_set)
    write_policy(folder / "meta/policy-best.safetensors", task_set, seed=1)
    logs = tuple(str(folder / f"cheetah{a}.h5") for a in (0.1, 0.5))
    pair = TransferConfig(sources=logs[:1], targets=logs[1:], preset="smoke", episodes=0)
    translate(pair, folder / "pair", quiet=True)
    translate(TransferConfig(tasks=logs, preset="smoke", episodes=0), folder / "many", quiet=True)
    return folder


@pytest.fixture(autouse=True)
def elsewhere(made, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("meta", "pair", "many"):
        shutil.copytree(made / name, name)


def no_more_episodes(monkeypatch):
    def fail(*args, **options):
        pytest.fail("ran episodes")

    monkeypatch.setattr(evaluation, "run_episodes", fail)
    monkeypatch.setattr(trained_run, "evaluate_run", fail)


@pytest.fixture
def idle(monkeypatch):
    """No episode is run."""
    no_more_episodes(monkeypatch)


def saved_otherwise(path, changes=None):
    """The same contents in other bytes, or others."""
    arrays, metadata = load_safetensors(path)
    for name, change in (changes or {}).items():
        arrays[name] = arrays[name] + change
    before = sha256_of(path)
    for _ in range(100):  # safetensors writes its map in any order
        save_safetensors(path, arrays, metadata, overwrite=True)
        if sha256_of(path) != before:
            return
    pytest.fail("always the same bytes")


# ---- what is written


def test_how_long_an_action_takes_is_said_but_not_written(capsys):
    assert run(shlex.split(f"{RANDOM} --json")) == 0
    out, err = capsys.readouterr()
    assert re.search(r"^the policy: [\d,]+ µs for an action \(99 of 100 within", err, re.MULTILINE)
    assert "µs" not in out + Path("r.json").read_text()


@pytest.mark.parametrize("command", [RANDOM, RUN])
def test_the_file_says_what_was_printed_and_asked_for(capsys, command):
    bare = command.partition(" --out")[0]
    code, out, err = mcat(f"{command} --json", capsys)
    assert code == 0, err
    assert (code, out, err) == mcat(f"{bare} --json", capsys)  # as without a file
    file = Path(shlex.split(command)[-1])
    content = json.loads(file.read_text())
    assert content["returns"] == json.loads(out)
    assert (content["kind"], content["format"]) == ("evaluate", 1)
    assert {"python", "mcat", "torch", "mujoco"} <= content["versions"].keys()
    assert {"commit", "dirty", "command", "host"} <= content.keys()
    if command == RANDOM:
        assert content["config"] == {
            "policy": "random", "translator": None, "from": None,
            "task": {"robot": "hopper", "horizon": 20}, "episodes": 3, "seed": 0,
        }  # fmt: skip
    else:
        split = {item["label"]: item["split"] for item in content["returns"]}
        assert content["config"] == {
            "policy": content_digest("meta/policy.safetensors"), "tasks": split,
            "horizon": 15, "delay": 500, "episodes": 2, "seed": 0,
        }  # fmt: skip
    assert not list(Path().glob(".*"))


def test_the_table_is_printed_as_without_a_file(capsys):
    code, out, _ = mcat(RUN, capsys)
    assert code == 0
    assert "all 4 test tasks" in out
    assert out == mcat("evaluate meta --episodes 2", capsys)[1]
    assert out == mcat(f"{RUN} --resume", capsys)[1]


# ---- one meaning of "make this exist"


@pytest.mark.parametrize("command", [RANDOM, RUN])
def test_what_exists_is_refused_before_any_episode(capsys, command, idle):
    file = Path(shlex.split(command)[-1])
    file.write_text("precious")
    code, out, err = mcat(command, capsys)
    assert (code, out) == (73, "")
    assert err.splitlines() == [
        f"error: {file} exists already: pass --overwrite (or --resume to go on with it)"
    ]
    assert file.read_text() == "precious"


@pytest.mark.parametrize("command", [RANDOM, RUN])
@pytest.mark.parametrize("form", ["", "--json"])
def test_resume_makes_it_once_and_then_finds_it(capsys, command, form, monkeypatch):
    first = mcat(f"{command} {form} --resume --workers 1", capsys)
    assert first[0] == 0
    file = Path(shlex.split(command)[-1])
    before = file.read_bytes(), file.stat().st_ino
    no_more_episodes(monkeypatch)
    assert mcat(f"{command} {form} --resume --workers 2", capsys) == first
    assert mcat(f"{command} {form} --resume --overwrite", capsys) == first
    assert (file.read_bytes(), file.stat().st_ino) == before


def test_what_is_done_is_found_without_torch_or_a_simulator(capsys):
    commands = [
        RUN, RANDOM, f"evaluate --policy good {TARGET} --episodes 1 --out g.json",
        f"evaluate --translator pair {TARGET} --episodes 1 --out p.json",
    ]  # fmt: skip
    printed = [mcat(command, capsys)[1] for command in commands]
    code = """
import json, shlex, sys
from mcat.cli import run
for command in json.loads(sys.argv[1]):
    assert run(shlex.split(f"{command} --resume")) == 0
heavy = {"torch", "mujoco", "metaworld", "matplotlib"} & set(sys.modules)
assert not heavy, heavy
"""
    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps(commands)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "".join(printed)


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        ("--seed 1", "seed: 0 there, 1 here"),
        ("--episodes 4", "episodes: 3 there, 4 here"),
        ("--size 0.06", "task.size: unknown there, 0.06 here"),
        ("--policy good --env halfcheetah --armature 0.1", "task.robot: hopper there, halfcheetah"),
    ],
)
def test_another_request_is_refused_with_the_difference(capsys, monkeypatch, change, difference):
    file = Path("r.json")
    assert mcat(RANDOM, capsys)[0] == 0
    no_more_episodes(monkeypatch)
    before = file.read_bytes()
    for more in ("", "--overwrite"):
        code, out, err = mcat(f"{RANDOM} {change} --resume {more}", capsys)
        assert (code, out) == (2, "")
        assert difference in err
        assert err.startswith("error: r.json was started otherwise (")
        assert len(err.splitlines()) == 1
        assert file.read_bytes() == before


def test_other_tasks_of_a_run_are_another_request(capsys):
    assert mcat(RUN, capsys)[0] == 0
    code, _, err = mcat(f"{RUN} --split test --resume", capsys)
    assert code == 2
    assert "tasks.halfcheetah-armature0.2-horizon15: train there, unknown here" in err


def test_overwrite_replaces_it(capsys):
    assert mcat(RANDOM, capsys)[0] == 0
    assert mcat(f"{RANDOM} --seed 1 --overwrite", capsys)[0] == 0
    assert json.loads(Path("r.json").read_text())["config"]["seed"] == 1
    assert mcat(f"{RANDOM} --seed 1 --resume", capsys)[0] == 0


def test_of_two_that_make_it_at_once_both_end_well_if_they_ask_for_the_same(capsys, monkeypatch):
    real = evaluations.ensure_writable_output
    other = partial(run, shlex.split(f"{RANDOM} --quiet"))
    calls = []

    def late(path, **options):
        real(path, **options)
        if not calls:
            calls.append(path)
            assert other() == 0  # it was quicker

    monkeypatch.setattr(evaluations, "ensure_writable_output", late)
    assert mcat(f"{RANDOM} --resume", capsys)[0] == 0
    for more in ("", "--resume --seed 1"):
        Path("r.json").unlink()
        calls.clear()
        code, _, err = mcat(f"{RANDOM} {more}", capsys)
        assert code == (2 if more else 73), err


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "{}", '{"kind": "train"}', "number", "mean", "label", "split", "none", "config",
     "missing", "later"],
)  # fmt: skip
def test_a_damaged_file_is_refused(capsys, content):
    assert mcat(RANDOM, capsys)[0] == 0
    file = Path("r.json")
    whole = json.loads(file.read_text())
    first = whole["returns"][0]
    if content == "number":
        first["values"][0] += 1
    elif content == "mean":
        first["mean"] += 1
    elif content == "label":
        first["label"] = 7
    elif content == "split":
        first["split"] = ["train"]
    elif content == "none":
        first["values"], whole["config"]["episodes"] = [], 0
    elif content == "config":
        whole["config"] = []
    elif content == "missing":
        del first["values"]
    elif content == "later":
        whole |= {"format": 2, "mcat": "99.0"}
    if content[:1] in ("", "{", "["):
        file.write_text(content)
    else:
        write_json(file, whole, overwrite=True)
    before = file.read_bytes()
    code, out, err = mcat(f"{RANDOM} --resume", capsys)
    assert (code, out) == (65, "")
    assert err.startswith("error: r.json: ")
    assert len(err.splitlines()) == 1
    assert ("needs mcat >= 99.0" in err) == (content == "later")
    assert file.read_bytes() == before


def test_other_code_is_told_of_and_no_reason_to_run_again(capsys, monkeypatch):
    _, printed, _ = mcat(RANDOM, capsys)
    no_more_episodes(monkeypatch)
    content = json.loads(Path("r.json").read_text())
    content["versions"]["torch"] = "0.1"
    write_json("r.json", content, overwrite=True)
    code, out, err = mcat(f"{RANDOM} --resume", capsys)
    assert (code, out) == (0, printed)
    assert "made by other code" in err
    assert "versions.torch: 0.1 there" in err


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        ("--resume", 2, "need --out"),
        ("--overwrite", 2, "need --out"),
        ("--out r.csv", 2, "name it r.json"),
        ("--out nowhere/r.json", 73, "folder nowhere does not exist"),
        ("--out folder.json", 73, "is a folder"),
        ("--out folder.json --resume", 73, "is a folder"),
    ],
)
def test_mistakes_are_told_before_any_episode(capsys, idle, options, code, said):
    Path("folder.json").mkdir()
    for command in (RANDOM, RUN):
        found, out, err = mcat(f"{command.partition(' --out')[0]} {options}", capsys)
        assert (found, out) == (code, "")
        assert said in err
        assert len(err.splitlines()) == 1


# ---- the same policy is one of the same contents


@pytest.mark.parametrize(
    ("command", "file"),
    [
        (RUN, "meta/policy.safetensors"),
        (f"{RUN} --best", "meta/policy-best.safetensors"),
        (f"evaluate meta {TARGET} --episodes 2 --out m.json", "meta/policy.safetensors"),
        (f"evaluate --policy meta {TARGET} --episodes 2 --out m.json", "meta/policy.safetensors"),
        (f"evaluate --policy meta/policy.safetensors {TARGET} --episodes 2 --out m.json",
         "meta/policy.safetensors"),
        (f"evaluate --translator pair {TARGET} --episodes 2 --out m.json",
         "pair/translator.safetensors"),
    ],
)  # fmt: skip
def test_other_bytes_of_the_same_contents_are_the_same_and_other_contents_are_not(
    capsys, command, file
):
    code, printed, err = mcat(command, capsys)
    assert code == 0, err
    key = "translator" if "translator" in command else "policy"
    assert json.loads(Path("m.json").read_text())["config"][key] == content_digest(file)
    saved_otherwise(file)
    assert mcat(f"{command} --resume", capsys)[:2] == (0, printed)
    weights = next(name for name in load_safetensors(file)[0] if name.endswith("weight"))
    saved_otherwise(file, {weights: 0.5})
    code, _, err = mcat(f"{command} --resume", capsys)
    assert code == 2
    assert f"{key}: " in err
    assert content_digest(file) in err


def test_a_policy_is_the_same_wherever_it_lies(capsys, monkeypatch):
    """By default, by name, or as a file elsewhere."""
    good = f"{TARGET} --episodes 2 --out g.json"
    _, printed, _ = mcat(f"evaluate --policy good {good} --json", capsys)
    no_more_episodes(monkeypatch)
    file = PACKAGED / "halfcheetah-armature0.5-good.safetensors"
    assert json.loads(Path("g.json").read_text())["config"]["policy"] == content_digest(file)
    shutil.copy(file, "mine.safetensors")
    for policy in ("", "--policy good", "--policy mine.safetensors"):
        code, out, err = mcat(f"evaluate {policy} {good} --json --resume", capsys)
        assert (code, out) == (0, printed), err
    code, _, err = mcat(f"evaluate --policy mediocre {good} --resume", capsys)
    assert code == 2
    assert err.count(" there, ") == 1  # the policy and nothing else


def test_the_policy_of_a_translator_is_the_source_s(capsys):
    command = f"evaluate {TARGET} --episodes 1 --out t.json"
    assert mcat(f"{command} --translator pair", capsys)[0] == 0
    config = json.loads(Path("t.json").read_text())["config"]
    source = PACKAGED / "halfcheetah-armature0.1-good.safetensors"
    assert config["policy"] == content_digest(source)
    for same in ("pair", "pair/translator.safetensors"):
        assert mcat(f"{command} --translator {same} --policy {source} --resume", capsys)[0] == 0
    code, _, err = mcat(f"{command} --translator pair --policy mediocre --resume", capsys)
    assert (code, err.count(" there, ")) == (2, 1)


def test_a_translator_of_several_tasks_is_asked_for_with_its_source(capsys):
    names = [f"halfcheetah-armature{a}-horizon{HORIZON}" for a in (0.1, 0.5)]
    command = f"evaluate --translator many {TARGET} --episodes 1 --out t.json"
    assert mcat(f"{command} --from {names[0]}", capsys)[0] == 0
    assert mcat(f"{command} --from {names[0]} --resume", capsys)[0] == 0
    code, _, err = mcat(f"{command} --from {names[1]} --resume", capsys)
    assert code == 2
    assert f"from: {names[0]} there, {names[1]} here" in err
    code, _, err = mcat(f"{command} --from halfcheetah --resume", capsys)
    assert code == 2
    assert "unknown source" in err


@pytest.mark.parametrize("content", ["[]", '{"machines": []}', '{"machines": [{}]}', "{"])
def test_a_damaged_translation_is_one_line(capsys, content):
    Path("pair/result.json").write_text(content)
    code, _, err = mcat(f"evaluate --translator pair {TARGET} --out t.json", capsys)
    assert code == 65
    assert len(err.splitlines()) == 1
    assert not Path("t.json").exists()


def test_a_policy_that_is_replaced_while_it_is_read_is_not_evaluated(capsys, idle, monkeypatch):
    """As by a run that still learns; whose returns would they be?"""
    file = "meta/policy.safetensors"
    weights = next(name for name in load_safetensors(file)[0] if name.endswith("weight"))

    def replacing(real, *args, **options):
        opened = real(*args, **options)
        saved_otherwise(file, {weights: 0.1})
        return opened

    monkeypatch.setattr(trained_run, "open_run", partial(replacing, trained_run.open_run))
    monkeypatch.setattr(deploy, "evaluation_trials", partial(replacing, deploy.evaluation_trials))
    for command in (RUN, f"evaluate meta {TARGET} --out m.json"):
        code, out, err = mcat(command, capsys)
        assert (code, out) == (75, "")
        assert "replaced while it was read" in err
        assert not os.path.exists("m.json")


def test_a_video_is_made_even_if_the_rest_is_done(capsys, monkeypatch):
    filmed = []
    monkeypatch.setattr(trained_run, "film_run", lambda run, path, seed: filmed.append(path))
    code, printed, err = mcat(f"{RUN} --video a.gif", capsys)
    no_more_episodes(monkeypatch)
    assert (code, printed.splitlines()[-1]) == (0, "a.gif"), err
    assert mcat(f"{RUN} --video a.gif --resume", capsys)[:2] == (0, printed)
    assert filmed == [Path("a.gif")] * 2
