"""Settings no machine could bear are refused in a line, before memory is taken."""

import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from mcat.agents.limits import LIMITS, require_bearable, require_room
from mcat.agents.meta.config import PRESETS
from mcat.agents.single.config import TrainConfig
from mcat.cli import run
from mcat.config import flatten, overlay, to_json
from mcat.envs.tasks import Task
from mcat.errors import UsageError
from mcat.transfer.config import TransferConfig

HUGE = [
    ("mcat.batch_size", "1000000000000"),
    ("mcat.td3.hidden", "1000000,1000000"),
    ("mcat.td3.hidden", ",".join(["8"] * 1000)),
    ("mcat.context.history", "100000000"),
    ("mcat.context.encoder_hidden", "1e9"),
    ("mcat.context.batch_size", "1e9"),
    ("mcat.action.embedding", "1e9"),
    ("mcat.credit.hidden", "1e9"),
    ("mcat.imitation.capacity", "1e15"),
    ("mcat.replay_capacity", "1e15"),
    ("mcat.td_steps", "1e6"),
    ("evaluation_episodes", "1000000000"),
    ("threads", "1000000000000"),
    ("threads", "1000000"),
    ("threads", "20000"),
    ("threads", "1" + "0" * 400),
]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def refused(command, key, capsys):
    assert run(shlex.split(command)) == 2
    out, err = capsys.readouterr()
    assert err.startswith(f"error: {key} must be at most ")
    assert len(err.splitlines()) == 1
    assert len(err) < 300
    assert not out
    assert not Path("run").exists()


@pytest.mark.parametrize(("key", "value"), HUGE, ids=lambda value: value[:30])
def test_metatrain_refuses_them_wherever_they_come_from(key, value, capsys, monkeypatch):
    start = "metatrain --preset smoke --out run"
    refused(f"{start} --set {key}={value}", key, capsys)
    number = f"[{value}]" if "hidden" in key else value
    Path("huge.toml").write_text(f"{key} = {number}")
    refused(f"{start} --config huge.toml", key, capsys)
    monkeypatch.setenv("MCAT_METATRAIN_SET", f"{key}={value}")
    refused(start, key, capsys)


def test_the_other_commands_refuse_them_too(capsys, monkeypatch):
    refused("evaluate --env hopper --policy random --episodes 1000000000", "episodes", capsys)
    for key in ("threads", "episodes"):
        refused(f"translate --src a.h5 --tgt b.h5 --{key} 1000000000", key, capsys)
    monkeypatch.setenv("MCAT_TRANSLATE_THREADS", "20000")
    refused("translate --src a.h5 --tgt b.h5", "threads", capsys)


@pytest.mark.parametrize(
    "change",
    [
        {"threads": 10**6},
        {"batch_size": 10**12},
        {"replay_capacity": 10**15},
    ],
    ids=str,
)
def test_train_refuses_them(change):
    (key,) = change
    with pytest.raises(UsageError, match=f"^{key} must be at most"):
        TrainConfig(task=Task("hopper"), **change)


def test_all_presets_and_every_limit_itself_will_do():
    keys = set()
    for config in PRESETS.values():
        require_bearable(to_json(config))
        keys |= flatten(to_json(config)).keys()
    for end, limit in LIMITS.items():
        found = [key for key in keys if f".{key}".endswith(f".{end}")]
        assert found or end == "episodes", end  # or the limit would be of nothing
        for key in found:
            value = (limit,) if "hidden" in key else limit
            require_bearable(to_json(overlay(PRESETS["fast"], {key: value})))
    require_bearable(TransferConfig(sources=("a",), targets=("b",), threads=256).to_json())
    require_room(Task("reach"), 100)


def test_a_run_is_refused_too_when_its_record_says_so(tmp_path):
    from mcat.agents.meta.run import metatrain

    config = replace(PRESETS["smoke"], threads=10**6)
    with pytest.raises(UsageError, match="threads must be at most 256, not 1,000,000"):
        metatrain(config, tmp_path / "run")
