"""What preset `fast` adds to the loop: CrossQ, credit in closed form, episodes of random length."""

from __future__ import annotations

import signal
from dataclasses import replace

import numpy as np
import pytest
import torch

from mcat.agents.credit.ridge import RidgeCredit
from mcat.agents.crossq import CrossQ
from mcat.agents.meta.evaluation import Evaluation
from mcat.agents.meta.mcat import MCAT
from mcat.agents.meta.rounds import load_rounds
from mcat.agents.policies.context_policy import ContextPolicy
from mcat.config import overlay
from mcat.datasets.rollout import roll_out
from mcat.errors import UsageError
from tests.agents.meta.point_mass import (
    DELAY,
    HORIZON,
    TINY,
    PointMasses,
    mcat,
    tiny_config,
    tiny_task_set,
    trainer,
)
from tests.agents.meta.test_loop import (  # noqa: F401
    contents,
    die_at_call,
    die_replacing,
    play,
    rows,
    small_and_fast,
    spawn,
)

FAST = overlay(
    TINY,
    {
        "learner": "crossq",
        "crossq.hidden": (8, 8),
        "scale_rewards": True,
        "learn_while_acting": True,
        "imitate": False,
        "credit.kind": "auto",
    },
)
CUT = replace(tiny_config(mcat=FAST), episode_lengths=(DELAY,))


@pytest.fixture(scope="module")
def clean(tmp_path_factory):
    out = tmp_path_factory.mktemp("fast") / "run"
    play(out, CUT)
    return out, contents(out)


DEATHS = {
    "in a later piece of a round": lambda: die_at_call(PointMasses, "reset", 4),
    "fitting the credit": lambda: die_at_call(RidgeCredit, "fit", 2),
    "taking in payments": lambda: die_at_call(RidgeCredit, "add", 3),
    "updating the critics": lambda: die_at_call(CrossQ, "update", 27),
    "writing a checkpoint": lambda: die_replacing("step-", 3),
}


@pytest.mark.parametrize("death", DEATHS)
def test_a_killed_run_goes_on_as_if_nothing_had_happened(tmp_path, clean, death):
    def work():
        DEATHS[death]()
        play(tmp_path / "run", CUT)

    assert spawn(work) == -signal.SIGKILL
    play(tmp_path / "run", CUT, resume=True)
    assert contents(tmp_path / "run") == clean[1]


@pytest.mark.parametrize(
    "changes",
    [
        {"learn_while_acting": False},
        {"imitate": True},
        {"credit.kind": "uniform"},
        {"credit.kind": "ridge", "transfer": False},
        {"credit.unexplained": 0.0},
    ],
    ids=str,
)
def test_every_kind_of_run_goes_on_exactly_from_its_middle(tmp_path, changes):
    config = replace(CUT, mcat=overlay(FAST, changes))
    play(tmp_path / "whole", config)
    play(tmp_path / "parts", replace(config, steps=180))
    play(tmp_path / "parts", config, resume=True)
    parts, whole = contents(tmp_path / "parts"), contents(tmp_path / "whole")
    for name in ("episodes", "policy", "step-0000000360.safetensors"):
        assert parts[name] == whole[name], name


def test_pieces_of_a_round_make_up_one_horizon_of_each_task(clean):
    out, _ = clean
    lengths = set()
    for new in load_rounds(out / "replay", [None] * 6):
        for task in range(2):
            own = new.episodes.task(task)
            assert len(own) == HORIZON
            assert (own.lengths % DELAY == 0).all()
            lengths |= set(own.lengths.tolist())
        assert len(new.drivers) == new.episodes.num_episodes
    assert len(lengths) > 2
    for row in rows(out / "metrics.csv"):
        own = [e for e in rows(out / "episodes.csv") if e["iteration"] == row["iteration"]]
        paces = [float(e["return"]) * HORIZON / int(e["length"]) for e in own]
        assert np.mean(paces) == pytest.approx(float(row["collect/return"]))


def test_the_metrics_tell_which_credit_was_used(clean):
    last = rows(clean[0] / "metrics.csv")[-1]
    linear = float(last["credit/unexplained"]) <= FAST.credit.unexplained
    assert float(last["credit/linear"]) == linear


def test_whole_episodes_are_collected_as_if_there_were_no_lengths(tmp_path):
    play(tmp_path / "run", replace(CUT, steps=60, episode_lengths=None))
    (new,) = load_rounds(tmp_path / "run" / "replay", [None])
    task_set = tiny_task_set()
    agent = MCAT(task_set, FAST, np.random.SeedSequence(0, spawn_key=(0,)))
    expected = roll_out(
        task_set.make(range(2)),
        agent.explorer(agent.plan()),
        seed=np.random.SeedSequence(0, spawn_key=(1, 0)),
        noise=(0.0, 0.0),
        episodes=2,
    )
    for number, episode in enumerate(expected):
        assert np.array_equal(new.episodes.episode(number)["actions"], episode["actions"])
        assert np.array_equal(new.episodes.episode(number)["rewards"], episode["rewards"])


def test_evaluation_runs_whole_episodes_whatever_is_collected(tmp_path, monkeypatch):
    steps = []
    real = PointMasses.step
    monkeypatch.setattr(
        PointMasses, "step", lambda self, a: (steps.append(len(a)), real(self, a))[1]
    )
    agent = mcat(FAST)
    steps.clear()
    Evaluation(tiny_task_set(), 2, seed=0).run(agent)
    assert len(steps) == HORIZON


# --- rewards for the learner --------------------------------------------------------------------


def test_rewards_are_centred_and_in_units_of_their_spread():
    agent = mcat(FAST)
    update = agent._policy_updates()
    rewards = agent.credit.rewards()
    assert update._rows.mean == pytest.approx(float(rewards.mean()), abs=0.05)
    assert update._rows.spread == pytest.approx(float(rewards.std()), rel=0.1)
    batches = np.concatenate([update._draw(64).reward.numpy() for _ in range(200)])
    assert abs(batches.mean()) < 0.1
    assert batches.std() == pytest.approx(1, rel=0.1)


def test_where_episodes_end_by_themselves_the_mean_stays():
    agent = mcat(FAST)
    assert agent._policy_updates()._rows.mean != 0.0
    agent.replay._rows.columns["terminals"] = np.ones(
        len(agent.replay._rows.columns["terminals"]), dtype=bool
    )
    assert agent._policy_updates()._rows.mean == 0.0


def test_payments_that_no_model_shares_out_need_whole_periods(tmp_path):
    task_set = replace(
        tiny_task_set(), delay=7
    )  # a round's last piece would end between two payments
    config = replace(CUT, mcat=overlay(FAST, {"credit.kind": "none"}))
    with pytest.raises(UsageError, match="episode-lengths"):
        trainer(tmp_path / "run", config, task_set)
    trainer(tmp_path / "run", replace(config, episode_lengths=None), task_set)
    trainer(tmp_path / "run", CUT, task_set)


def test_what_is_evaluated_and_saved_is_the_deployed_actor(tmp_path):
    changes = {"crossq.deployed_rate": 0.01, "learn_while_acting": False}
    agent = mcat(overlay(FAST, changes), rounds=3)
    learner = agent.learner
    assert not torch.equal(learner.deployed.layers[0], learner.actor.layers[0])
    agent.save_policy(tmp_path / "policy.safetensors", {"family": "none"})
    saved = ContextPolicy.load(tmp_path / "policy.safetensors")
    for mine, other in zip(saved.actor.layers, learner.deployed.layers, strict=True):
        assert torch.equal(mine, other)
    states, contexts = torch.ones(4, 2), torch.zeros(4, agent.config.context.context_size)
    acting = agent.acting_policy()._policy
    assert torch.equal(acting.act(states, contexts), saved.act(states, contexts))
    assert not torch.equal(acting.act(states, contexts), agent.policy.act(states, contexts))
