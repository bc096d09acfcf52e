"""`mcat train` as it comes: CrossQ, credit for delayed rewards, episodes of random length."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from mcat.agents.configs import CrossQConfig
from mcat.agents.credit.ridge import RidgeCredit
from mcat.agents.crossq import CrossQ
from mcat.agents.single.config import PRESETS, TrainConfig
from mcat.agents.single.run import train
from mcat.agents.single.trainer import Trainer
from mcat.envs.tasks import Task
from mcat.errors import UsageError
from tests.agents.meta.test_loop import die_at_call, spawn
from tests.agents.single.test_train import contents, small_and_fast  # noqa: F401

TASK = Task("halfcheetah", horizon=60, delay=10)


def config(**changes) -> TrainConfig:
    small = {
        "steps": 240,
        "start_steps": 60,
        "batch_size": 16,
        "replay_capacity": 100,  # wraps around twice
        "evaluate_every": 40,
        "evaluation_episodes": 2,
        "checkpoint_every": 50,
        "episode_lengths": (10,),
        "crossq": CrossQConfig(hidden=(16, 16)),
    }
    return TrainConfig(task=TASK, **(small | changes))


def go(out: Path, *, resume: bool = False, **changes):
    """A run to its end."""
    return train(config(**changes), out, resume=resume, quiet=True)


def at_rest(out: Path, **changes) -> Trainer:
    """A run before its first step."""
    return Trainer(config(**changes), out)


@pytest.fixture(scope="module", autouse=True)
def often(small_and_fast):  # noqa: F811
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mcat.agents.single.trainer.RESCALE_EVERY", 20)
        yield


@pytest.fixture(scope="module")
def clean(tmp_path_factory, often):
    out = tmp_path_factory.mktemp("clean") / "run"
    go(out)
    return contents(out)


DEATHS = {
    "updating the critics": lambda: die_at_call(CrossQ, "update", 75),
    "fitting the credit": lambda: die_at_call(RidgeCredit, "fit", 4),
    "taking in an episode": lambda: die_at_call(RidgeCredit, "add", 8),
    "in the middle of an episode": lambda: die_at_call(Trainer, "_choose_action", 163),
}


@pytest.mark.parametrize("death", DEATHS)
def test_a_killed_run_goes_on_as_if_nothing_had_happened(tmp_path, clean, death):
    def work():
        DEATHS[death]()
        go(tmp_path / "run")

    assert spawn(work) == -9
    go(tmp_path / "run", resume=True)
    assert contents(tmp_path / "run") == clean


def test_episodes_have_random_lengths_of_whole_payments(tmp_path):
    trainer = at_rest(tmp_path / "run")
    limits = set()
    for _ in range(200):
        trainer._begin_episode()
        limits.add(trainer.limit)
    assert limits == {10, 20, 30, 40, 50, 60}
    whole = at_rest(tmp_path / "run", episode_lengths=None)
    whole._begin_episode()
    assert whole.limit == 60


def test_a_cut_episode_is_followed_by_another_and_evaluation_runs_whole_ones(tmp_path):
    run = tmp_path / "run"
    go(run, steps=120)
    with (run / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert int(rows[-1]["charts/episodes"]) > 120 / 60
    trainer = at_rest(run, steps=120)
    trainer.restore()
    seen = []
    trainer.evaluator.returns(trainer.learner.act, lambda obs: seen.append(len(obs)))
    assert len(seen) == 60 + 1


def test_the_credit_is_of_what_was_paid_and_its_rewards_are_scaled(tmp_path):
    go(tmp_path / "run", steps=60)
    trainer = at_rest(tmp_path / "run", steps=60)
    trainer.restore()
    credit = trainer.rewards._credit
    assert credit is not None
    done = trainer.replay.added - trainer.episode.length  # in episodes that ended
    assert len(credit) == done // 10
    rng = np.random.default_rng(0)
    trainer.rewards.measure(rng)
    seen = trainer.rewards.of(trainer.replay.sample(rng, 5000)).reward
    assert abs(float(seen.mean())) < 0.1
    assert float(seen.std()) == pytest.approx(1, rel=0.1)


def test_as_received_means_as_received(tmp_path):
    plain = {"steps": 60, "credit": "none", "scale_rewards": False}
    go(tmp_path / "run", **plain)
    trainer = at_rest(tmp_path / "run", **plain)
    trainer.restore()
    trainer.rewards.measure(np.random.default_rng(0))
    batch = trainer.replay.sample(np.random.default_rng(1), 50)
    assert np.array_equal(trainer.rewards.of(batch).reward, batch.reward)


def test_where_an_episode_ends_by_itself_the_mean_stays(tmp_path):
    trainer = at_rest(tmp_path / "run", credit="none")
    size = TASK.spec.observation_size, TASK.spec.action_size
    for number in range(50):
        trainer.replay.add(
            np.zeros(size[0]), np.zeros(size[1]), 3.0 + number % 2, np.zeros(size[0]), number == 7
        )
    trainer.rewards.measure(np.random.default_rng(0))
    assert trainer.rewards._mean == 0
    assert trainer.rewards._spread == pytest.approx(0.5, rel=0.05)


def test_the_papers_preset_is_td3_on_whole_episodes():
    task = Task("hopper")
    printed = TrainConfig(task=task, **PRESETS["paper"])
    assert (printed.learner, printed.batch_size, printed.start_steps) == ("td3", 256, 25_000)
    assert printed.episode_lengths is None
    assert not printed.scale_rewards


def test_senseless_lengths_are_refused(tmp_path):
    with pytest.raises(UsageError, match="episode lengths"):
        config(episode_lengths=(50, 10))
