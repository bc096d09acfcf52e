"""MCAT: who acts and what is remembered in an iteration, against the definitions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from mcat.agents.meta.algorithm import RANDOM, SHARED
from mcat.agents.meta.exploration import Exploration
from mcat.agents.meta.mcat import HELD_OUT, MCAT
from mcat.errors import UsageError
from mcat.translator.action import ActionTraining
from mcat.translator.online import TranslatorLearner
from tests.agents.meta.point_mass import (
    HORIZON,
    STRONG,
    TINY,
    WEAK,
    Gain,
    mcat,
    no_progress,
    point_mass_task_set,
    random_round,
)

# --- who acts ---------------------------------------------------------------------------------


def exploration(agent: MCAT, sources, translate, online: bool = False, noise: float = 0.0):
    return Exploration(
        agent.policy,
        translate,
        agent.models.model.features,
        sources,
        rng=np.random.default_rng(0),
        noise=noise,
        online=online,
    )


@pytest.mark.parametrize("online", [False, True])
def test_shared_rows_act_in_their_own_context_and_transferred_ones_by_h(online):
    agent = mcat(task_set=point_mass_task_set((STRONG, WEAK, Gain(1.5, 90.0))))
    features, policy = agent.models.model.features, agent.policy
    asked = []

    def translate(states, actions, source, target):
        asked.append((states, actions, source, target))
        return -0.5 * actions

    acting = exploration(agent, [None, 0, 1], translate, online)
    started = policy.start_episode()  # its window sees the same states, and is told what was done
    for step in range(4):
        states = np.random.default_rng(step).normal(size=(3, 2))
        inputs = torch.from_numpy(states).float()
        started(states)
        own = started.contexts
        taken = acting(states)
        started.took(taken)
        torch.testing.assert_close(torch.from_numpy(taken[0]), policy.act(inputs, own)[0])
        source_actions = policy.act(inputs[1:], features[[0, 1]])
        torch.testing.assert_close(torch.from_numpy(taken[1:]), -0.5 * source_actions)
        states_asked, actions_asked, source, target = asked[-1]
        assert torch.equal(states_asked, inputs[1:])
        torch.testing.assert_close(actions_asked, source_actions)
        assert torch.equal(source, features[[0, 1]])
        torch.testing.assert_close(target, own[1:] if online else features[[1, 2]])


def test_noise_is_as_wide_as_told_and_actions_stay_in_the_box():
    agent = mcat()
    for layer in agent.learner.actor.layers:
        layer.data.zero_()  # says 0

    def never(*inputs):
        raise AssertionError("translated without a source")

    acting = exploration(agent, [None, None], never, noise=0.1)
    taken = np.concatenate([acting(np.zeros((2, 2))) for _ in range(300)])
    assert taken.std() == pytest.approx(0.1, rel=0.1)
    assert abs(taken.mean()) < 0.02
    wild = exploration(agent, [None, None], never, noise=100.0)
    taken = np.concatenate([wild(np.zeros((2, 2))) for _ in range(20)])
    assert taken.min() == -1
    assert taken.max() == 1


def test_plans_are_random_then_shared_then_transferred():
    agent = mcat(rounds=0)
    names = agent.task_set.train
    assert agent.plan() == (RANDOM, RANDOM)
    agent.remember(random_round(agent.task_set, 0))  # start_steps are over
    agent.learn(no_progress)
    assert agent.plan() == (SHARED, SHARED)  # returns of random actions do not count
    agent.selection.add(80, 0, None, 10.0)
    agent.selection.add(80, 1, None, 2.0)
    assert agent.plan() == (SHARED, names[0])
    agent.config = replace(agent.config, transfer=False)
    assert agent.plan() == (SHARED, SHARED)


def test_a_transferred_round_asks_h_and_its_return_counts_for_the_pair():
    agent = mcat()
    names = agent.task_set.train
    drivers = (SHARED, names[0])
    acting = agent.explorer(drivers)
    assert acting(np.zeros((2, 2))).shape == (2, 2)
    round_ = replace(random_round(agent.task_set, 2), drivers=drivers)
    agent.remember(round_)
    assert agent.selection.mean(0) == pytest.approx(round_.returns[0])
    assert agent.selection.mean(1, 0) == pytest.approx(round_.returns[1])
    assert agent.selection.mean(1) is None


def test_without_transfer_h_is_never_made_nor_asked(monkeypatch):
    def never(*args, **kwargs):
        raise AssertionError("H was asked")

    for owner, names in ((TranslatorLearner, ("learn", "translate")), (ActionTraining, ("step",))):
        for name in names:
            monkeypatch.setattr(owner, name, never)
    agent = mcat(replace(TINY, transfer=False))
    agent.selection.add(80, 0, None, 10.0)
    agent.selection.add(80, 1, None, 2.0)
    found = agent.learn(no_progress)
    agent.explorer(agent.plan())(np.zeros((2, 2)))
    assert np.isnan(found["model/mismatch_translated"])
    assert not [name for name in agent.tensors() if name.startswith("translator")]
    with pytest.raises(AssertionError, match="H was asked"):
        mcat(TINY)


# --- what is remembered -----------------------------------------------------------------------


def test_features_follow_the_episodes_of_their_task():
    agent = mcat()
    model, k = agent.models.model, agent.config.context.history
    for task in range(2):
        own = agent.replay.task(task)
        with torch.no_grad():
            contexts = agent.policy.encode(tuple(map(
                torch.from_numpy, own.histories(np.arange(HORIZON), k)
            )))  # fmt: skip
        spread = contexts.std(0) / agent.config.context.feature_samples**0.5
        assert ((model.features[task] - contexts.mean(0)).abs() < 5 * spread + 1e-6).all()


def test_a_round_of_ten_is_held_out_and_never_trained_on(monkeypatch):
    agent = mcat(replace(TINY, replay_capacity=10**6), rounds=0)
    seen = []
    monkeypatch.setattr(agent.models, "learn", lambda training, held_out, on_progress: seen.append(
        (training, held_out)) or _progress())  # fmt: skip
    rounds = [random_round(agent.task_set, number) for number in range(2 * HELD_OUT)]
    for new in rounds:
        agent.remember(new)
    agent._learn_dynamics(no_progress)
    ((training, held_out),) = seen
    for task in range(2):
        starts = [new.episodes.task(task).observations[0] for new in rounds]
        assert np.array_equal(held_out[task].observations[::HORIZON], [starts[1], starts[11]])
        others = [start for number, start in enumerate(starts) if number % 10 != 1]
        assert np.array_equal(training[task].observations[::HORIZON], others)


def test_nothing_is_held_out_if_told_so(monkeypatch):
    """As printed: C and F see every round; their error is then of nothing."""
    config = replace(TINY, good_enough=0.0, context=replace(TINY.context, hold_out=False),
                     replay_capacity=10**6)  # fmt: skip
    agent = mcat(config, rounds=0)
    rounds = [random_round(agent.task_set, number) for number in range(3)]
    for new in rounds:
        agent.remember(new)
    seen = []
    real = agent.models.learn
    monkeypatch.setattr(agent.models, "learn", lambda training, held_out, on_progress: seen.append(
        (training, held_out)) or real(training, held_out, on_progress))  # fmt: skip
    found = agent._learn_dynamics(no_progress)
    ((training, held_out),) = seen
    assert held_out == []
    assert [len(episodes) for episodes in training] == [3 * HORIZON] * 2
    assert found["model/forward_steps"] == config.context.max_steps
    assert np.isnan(found["model/forward_error"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"context": replace(TINY.context, hold_out=False)}, "whether F is good_enough"),
        ({"context": replace(TINY.context, cut_below=0.1)}, "good_enough is its like here"),
        ({"action": replace(TINY.action, rates=(3e-4, 1e-5))}, "of a training with an end"),
        ({"action": replace(TINY.action, fresh_starts=3)}, "of a training with an end"),
    ],
)
def test_switches_that_make_no_sense_while_acting_are_refused(changes, message):
    with pytest.raises(UsageError, match=message):
        replace(TINY, good_enough=None, **changes)


def _progress():
    from mcat.translator.online import ForwardProgress

    return ForwardProgress(steps=0, forward=0.0, contrastive=0.0, error=0.0)


def test_the_oldest_rounds_go_when_the_memory_is_full():
    agent = mcat(rounds=0)  # room for four
    for number in range(6):
        agent.remember(random_round(agent.task_set, number))
        agent.learn(no_progress)
    assert agent.replay.num_episodes == 8
    assert agent.rounds.tolist() == [2, 2, 3, 3, 4, 4, 5, 5]
    wanted = random_round(agent.task_set, 2).episodes
    assert np.array_equal(agent.replay.observations[: 2 * HORIZON], wanted.observations)
    assert len(agent.imitation) <= 100


def test_a_memory_of_less_than_two_rounds_is_refused():
    with pytest.raises(UsageError, match="at least two rounds, 120 steps"):
        mcat(replace(TINY, replay_capacity=79), rounds=0)


def test_tasks_whose_episodes_diverged_are_waited_for():
    agent = mcat(rounds=0)
    for number in (0, 1):
        new = random_round(agent.task_set, number)
        agent.remember(replace(new, episodes=new.episodes.task(0), drivers=new.drivers[:1]))
        found = agent.learn(no_progress)
        assert all(np.isnan(value) for value in found.values())
        assert agent.plan() == (RANDOM, RANDOM)
    agent.remember(random_round(agent.task_set, 2))
    assert np.isfinite(agent.learn(no_progress)["model/forward_error"])  # of the task that has one
    assert agent.plan() == (SHARED, SHARED)
