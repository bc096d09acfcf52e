"""`mcat export onnx`, `mcat policies import`, and their files wherever a policy is taken."""

import json
import shlex
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from torch import nn

from mcat.agents.evaluation import Evaluator
from mcat.agents.policies.foreign.onnx_policy import load_onnx
from mcat.agents.policies.names import find_policy, open_policy, packaged_path
from mcat.cli import run
from mcat.datasets import load
from mcat.envs.tasks import Task
from mcat.tensor_files import content_digest
from mcat.transfer.config import TransferConfig
from mcat.transfer.run import translate
from mcat.translator import TransferredPolicy, Translator
from mcat.types import started
from tests.reports.learning.run_folders import write_policy, write_run
from tests.transfer.transfer_logs import cheetah, collect_logs

GOOD = "good --env halfcheetah --armature 0.1"
CHEETAH = Task("halfcheetah", armature=0.1, horizon=25)
EPISODES = "--env halfcheetah --armature 0.1 --horizon 25 --episodes 2 --seed 5 --json"
MODULE = """
import numpy as np

def waving():
    return lambda states: np.tanh(states[:, :6])
"""


def mcat(command, capsys):
    code = run(shlex.split(command))
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    return code, out, err


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run, results of translations, a file of CleanRL and a module."""
    folder = tmp_path_factory.mktemp("made")
    task_set = write_run(folder / "meta", family="halfcheetah-armature", horizon=40, per_task=0)
    write_policy(folder / "meta/policy.safetensors", task_set)
    collect_logs(folder)
    for name, first, second in (("pair", "cheetah0.1", "cheetah0.5"), ("own", "own-a", "own-b")):
        logs = [(str(folder / f"{stem}.h5"),) for stem in (first, second)]
        config = TransferConfig(sources=logs[0], targets=logs[1], preset="smoke", episodes=0)
        translate(config, folder / name, quiet=True)
    tasks = tuple(str(folder / f"cheetah{a}.h5") for a in (0.1, 0.5))
    translate(TransferConfig(tasks=tasks, preset="smoke", episodes=0), folder / "many", quiet=True)
    torch.manual_seed(0)
    agent = nn.ModuleDict(
        {"actor_mean": nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))}
    )
    torch.save({**agent.state_dict(), "actor_logstd": torch.zeros(1, 2)}, folder / "agent.pt")
    (folder / "waving_cheetah.py").write_text(MODULE)
    return folder


@pytest.fixture(autouse=True)
def elsewhere(folder, monkeypatch):
    monkeypatch.chdir(folder)


def read(path):
    store, _ = load(path)
    return store


def notes(path):
    return {item.key: item.value for item in onnx.load(path).metadata_props}


def exported(command, capsys, path):
    code, out, err = mcat(f"export onnx {command} --out {path}", capsys)
    assert code == 0, err
    assert out == f"{path}\n"
    assert "onnxruntime and torch differ by at most" in err
    return load_onnx(path)


def test_a_packaged_policy(capsys, tmp_path):
    policy = exported(GOOD, capsys, tmp_path / "p.onnx")
    obs = np.random.default_rng(0).normal(size=(20, 17)).astype(np.float32)
    good = find_policy("good", CHEETAH, np.random.default_rng(0))
    np.testing.assert_allclose(policy(obs), good(obs), atol=1e-4)
    told = notes(tmp_path / "p.onnx")
    assert told["task"] == "halfcheetah"
    assert told["control_rate_hz"] == "20.0"
    assert json.loads(told["action_names"]) == ["bthigh", "bshin", "bfoot",
                                                "fthigh", "fshin", "ffoot"]  # fmt: skip
    names = json.loads(told["observation_names"])
    assert len(names) == 17
    assert (names[0], names[2], names[8]) == (
        "rootz position", "bthigh position", "rootx velocity",
    )  # fmt: skip
    assert float(told["mean_return"]) == pytest.approx(6265.8, abs=0.1)
    assert told["source_sha256"] == content_digest(packaged_path("good", CHEETAH))
    command = f"export onnx {GOOD} --out {tmp_path / 'p.onnx'}"
    code, out, err = mcat(command, capsys)
    assert (code, out) == (73, "")
    assert "exists already" in err
    code, out, err = mcat(f"{command} --overwrite --json", capsys)
    assert (code, err) == (0, "")
    assert 0 < json.loads(out)["difference"] < 1e-4


def test_a_run_with_a_memory_acts_in_its_place(capsys, tmp_path):
    exported("meta", capsys, tmp_path / "m.onnx")
    told = notes(tmp_path / "m.onnx")
    assert told["kind"] == "context policy"
    assert json.loads(told["memory"])
    code, out, err = mcat(f"evaluate --policy {tmp_path / 'm.onnx'} {EPISODES}", capsys)
    assert code == 0, err
    wanted = Evaluator(CHEETAH, 2, 5).returns(started(load_onnx(tmp_path / "m.onnx")))
    assert json.loads(out)[0]["values"] == wanted.tolist()
    # Over one and the same episode: actions that differ in the last bit soon lead elsewhere.
    one, other = started(open_policy("meta")), started(load_onnx(tmp_path / "m.onnx"))
    for obs in read("cheetah0.1.h5").observations[:30]:
        np.testing.assert_allclose(other(obs), one(obs), atol=1e-5)


@pytest.mark.parametrize(
    ("options", "source", "target"),
    [
        ("--translator pair", None, None),
        ("--translator pair/translator.safetensors", None, None),
        ("--translator many --from {0} --to {1}", 0, 1),
        ("--translator many --from {0} --to {0}", 0, 0),
    ],
)
def test_a_translator_and_its_policy_are_one_file(options, source, target, capsys, tmp_path):
    if "many" in options:
        names = [m["name"] for m in json.loads(Path("many/result.json").read_text())["machines"]]
        options = options.format(*names)
    policy = exported(f"good {options}", capsys, tmp_path / "b.onnx")
    translator = Translator.load("pair" if source is None else "many")
    if source is not None:
        translator = translator.between(source, target)
    good = find_policy("good", cheetah(0.1), np.random.default_rng(0))
    obs = read("cheetah0.5.h5").observations[:100]
    wanted = TransferredPolicy(good, translator)(obs)
    np.testing.assert_allclose(policy(obs), wanted, atol=1e-4)
    told = notes(tmp_path / "b.onnx")
    assert told["kind"] == "translated policy"
    assert told["control_rate_hz"] == "20.0"
    assert told["source_sha256"] == content_digest(packaged_path("good", CHEETAH))


def test_a_machine_of_ones_own_from_logs_to_onnx(capsys, tmp_path):
    """Nobody here can simulate it: logs, a policy of CleanRL, and a file for the robot."""
    command = f"policies import agent.pt --out {tmp_path / 'own.safetensors'}"
    code, out, err = mcat(command, capsys)
    assert (code, out) == (0, f"{tmp_path / 'own.safetensors'}\n")
    assert err == "CleanRL PPO: layers 3-8-2, tanh between them, actions clipped to [-1, 1]\n"
    assert mcat(command, capsys)[0] == 73
    own = f"{tmp_path / 'own.safetensors'} --translator own"
    policy = exported(own, capsys, tmp_path / "robot.onnx")
    wanted = TransferredPolicy(open_policy(tmp_path / "own.safetensors"), "own")
    obs = read("own-b.h5").observations[:50]
    np.testing.assert_allclose(policy(obs), wanted(obs), atol=1e-5)
    assert notes(tmp_path / "robot.onnx")["task"] == "own-b"
    assert "control_rate_hz" not in notes(tmp_path / "robot.onnx")


def test_files_and_code_act_wherever_a_policy_is_taken(capsys, tmp_path):
    exported(GOOD, capsys, tmp_path / "p.onnx")
    for name in (str(tmp_path / "p.onnx"), "waving_cheetah:waving"):
        code, out, err = mcat(f"evaluate --policy {name} {EPISODES}", capsys)
        assert code == 0, err
        policy = find_policy(name, CHEETAH, np.random.default_rng(0))
        assert json.loads(out)[0]["values"] == Evaluator(CHEETAH, 2, 5).returns(policy).tolist()
        command = "collect --env halfcheetah --armature 0.1 --horizon 25 --steps 50 --quiet"
        data = tmp_path / f"{len(name)}.h5"
        code, _, err = mcat(f"{command} --policy {name} --out {data}", capsys)
        assert code == 0, err
        rows = read(data)
        np.testing.assert_allclose(rows.actions, policy(rows.observations), atol=1e-4)
        code, out, err = mcat(
            f"evaluate --policy {name} --translator pair --env halfcheetah --armature 0.5"
            " --horizon 25 --episodes 2 --seed 5 --json",
            capsys,
        )
        assert code == 0, err
        assert [item["label"] for item in json.loads(out)] == [
            "source policy on target", "transferred policy on target",
        ]  # fmt: skip
        picture, folder = tmp_path / f"{len(name)}.png", tmp_path / f"{len(name)}-moved"
        command = "render --env halfcheetah --armature 0.1 --steps 3 --width 32 --height 32"
        code, _, err = mcat(f"{command} --policy {name} --out {picture}", capsys)
        assert code == 0, err
        command = "translate --src cheetah0.1.h5 --tgt cheetah0.5.h5 --preset smoke --episodes 2"
        code, _, err = mcat(f"{command} --quiet --policy {name} --out {folder}", capsys)
        assert code == 0, err
        returns = json.loads((folder / "result.json").read_text())["returns"]
        assert [len(item["values"]) for item in returns][:3] == [2, 2, 2]


BAD_CALLS = [
    ("export onnx nope.safetensors --out x.onnx", 66, "nope.safetensors is not there"),
    ("export onnx good --out x.onnx", 2, "name it by --env"),
    ("export onnx scripted --env push --out x.onnx", 2, "is code"),
    ("export onnx random --env ant --out x.onnx", 2, "is code"),
    ("export onnx waving_cheetah:waving --out x.onnx", 2, "is code"),
    ("export onnx waving_cheetah:waving --translator pair --out x.onnx", 2, "is no file"),
    (f"export onnx {GOOD} --out x.pt", 2, "name it x.onnx"),
    (f"export onnx {GOOD} --from a --out x.onnx", 2, "give --translator too"),
    (f"export onnx {GOOD} --translator pair --out x.onnx", 2, "leave out --env"),
    ("export onnx good --armature 0.1 --out x.onnx", 2, "name a robot by --env"),
    ("export onnx meta --env ant --out x.onnx", 2, "does not fit ant"),
    ("export onnx meta --translator pair --out x.onnx", 2, "nothing to translate"),
    ("export onnx good --translator many --out x.onnx", 2, "--from"),
    ("export onnx good --translator pair --to unicorn --out x.onnx", 2, "unknown task 'unicorn'"),
    ("export onnx good --translator own --out x.onnx", 2, "is no file"),
    (
        "export onnx meta --translator own --out x.onnx",
        2,
        "does not fit own-a: 17 observations",
    ),
    ("export onnx agent.pt --out x.onnx", 65, "pickles and zips are never loaded"),
    ("export onnx good --translator meta --out x.onnx", 66, "no folder that mcat translate wrote"),
    ("policies import nope.zip --out x.safetensors", 66, "nope.zip is not there"),
    ("policies import agent.pt --out x.zip", 2, "name it x.safetensors"),
    ("policies import agent.pt --bounds wide --out x.safetensors", 2, "two numbers as in -2,2"),
    ("policies import agent.pt --bounds 2,-2 --out x.safetensors", 2, "the smaller first"),
    ("policies import meta/run.json --out x.safetensors", 65, "no zip"),
    ("evaluate --policy no_module:f --env ant", 2, "there is no module 'no_module'"),
    ("evaluate --policy waving_cheetah:waving --env ant --episodes 1 --quiet", 2, "shape (1, 6)"),
]


@pytest.mark.parametrize(("command", "code", "message"), BAD_CALLS, ids=[c[0] for c in BAD_CALLS])
def test_bad_input_is_one_clear_line(command, code, message, capsys):
    before = sorted(Path().rglob("*"))
    found, out, err = mcat(command, capsys)
    assert message in err
    assert (found, out) == (code, "")
    assert len(err.splitlines()) == 1
    assert [path for path in sorted(Path().rglob("*")) if "__pycache__" not in str(path)] == [
        path for path in before if "__pycache__" not in str(path)
    ]
