"""`mcat train --learner sac`: exact resume, its files, and runs made before there was SAC."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from mcat.agents.configs import FAST_SAC, SACConfig
from mcat.agents.policies.policy import load_policy
from mcat.agents.sac import SAC
from mcat.agents.single.config import PRESETS, TrainConfig
from mcat.agents.single.run import read_config, train
from mcat.agents.single.trainer import Trainer
from mcat.cli import run
from mcat.config import overlay
from mcat.errors import UsageError
from mcat.tensor_files import load_safetensors, save_safetensors
from tests.agents.meta.test_loop import die_at_call, spawn
from tests.agents.single.test_train import contents, small_and_fast  # noqa: F401
from tests.agents.single.test_train_fast import config as small_config
from tests.agents.single.test_train_fast import often  # noqa: F401

SACS = {
    "tracked": SACConfig(hidden=(16, 16)),
    "normalised": SACConfig(hidden=(16, 16), critics="normalised", deployed_rate=0.1),
}
KINDS = pytest.mark.parametrize("kind", SACS)


def config(kind: str, **changes) -> TrainConfig:
    return small_config(learner="sac", sac=SACS[kind], **changes)


@KINDS
def test_a_killed_run_goes_on_as_if_nothing_had_happened(tmp_path, kind):
    train(config(kind), tmp_path / "clean", quiet=True)

    def work():
        die_at_call(SAC, "update", 75)
        train(config(kind), tmp_path / "killed", quiet=True)

    assert spawn(work) == -9
    train(config(kind), tmp_path / "killed", resume=True, quiet=True)
    assert contents(tmp_path / "killed") == contents(tmp_path / "clean")


@KINDS
def test_the_file_acts_as_the_agent_that_was_evaluated(tmp_path, kind):
    result = train(config(kind, steps=120), tmp_path / "run", quiet=True)
    trainer = Trainer(config(kind, steps=120), tmp_path / "run")
    trainer.restore()
    policy = load_policy(result.policies[-1])
    assert policy.actor.sizes == (17, 16, 16, 6)
    obs = np.random.default_rng(0).standard_normal((9, 17))
    assert np.array_equal(policy(obs), trainer.learner.act(obs, deployed=True))
    assert trainer.evaluator.returns(policy).mean() == pytest.approx(result.mean_return)


def test_it_explores_by_its_own_spread(tmp_path):
    trainer = Trainer(config("tracked", exploration=0.0, start_steps=0), tmp_path / "run")
    trainer.step = 1
    actions = np.stack([trainer._choose_action() for _ in range(300)])
    assert actions.std(0).min() > 0.4  # tanh of a spread near 1
    assert np.abs(actions).max() <= 1


def test_presets_have_the_critics_that_belong_to_them():
    small = small_config()
    assert TrainConfig(task=small.task).sac == FAST_SAC
    paper = overlay(TrainConfig(task=small.task), PRESETS["paper"] | {"learner": "sac"})
    assert paper.sac == paper.numbers == SACConfig()
    assert TrainConfig(task=small.task, **PRESETS["paper"]).sac == SACConfig()


def without_sac(folder: Path) -> None:
    """Make a run one of before there was SAC."""
    record = json.loads((folder / "run.json").read_text())
    del record["config"]["sac"]
    (folder / "run.json").write_text(json.dumps(record))
    for path in (folder / "checkpoints").iterdir():
        arrays, header = load_safetensors(path)
        assert not any(key.startswith("sac") for key in header["settings"])
        save_safetensors(path, arrays, header, overwrite=True)


def test_runs_made_before_there_was_sac_go_on(tmp_path):
    train(small_config(), tmp_path / "clean", quiet=True)
    train(small_config(steps=160), tmp_path / "old", quiet=True)
    without_sac(tmp_path / "old")
    assert read_config(tmp_path / "old") == small_config(steps=160)
    assert run(f"train --resume {tmp_path / 'old'} --steps 240 --quiet".split()) == 0
    ours, theirs = (tmp_path / name / "policy-240.safetensors" for name in ("old", "clean"))
    for name, array in load_safetensors(ours)[0].items():
        assert np.array_equal(array, load_safetensors(theirs)[0][name])


def test_a_run_of_sac_does_not_go_on_with_other_numbers_of_it(tmp_path):
    train(config("tracked", steps=80), tmp_path / "run", quiet=True)
    with pytest.raises(UsageError, match=r"sac\.critics: tracked there, normalised here"):
        train(config("normalised", steps=80), tmp_path / "run", resume=True, quiet=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--learner sac --set exploration=0.5", "exploration changes nothing with the learner sac"),
        ("--learner sac --set td3.discount=0.9", "settings of td3 change nothing with the learner"),
        ("--set sac.discount=0.9", "settings of sac change nothing with the learner crossq"),
        ("--learner sax", "learner takes crossq or sac or td3, not 'sax'"),
        ("--learner sac --set sac.critics=wild", "sac.critics takes tracked or normalised"),
    ],
)
def test_what_makes_no_sense_is_told_in_a_line(options, message, capsys):
    assert run(f"train --env halfcheetah {options} --print-config".split()) == 2
    assert message in capsys.readouterr().err
