"""What methods learn from: rows by task, seen at once, imitated, with credit."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mcat.agents.meta.methods.configs import MethodConfig
from mcat.agents.meta.methods.experience import Experience
from mcat.config import overlay
from mcat.datasets.rollout import Taken
from mcat.errors import UsageError
from tests.agents.meta.point_mass import random_round, tiny_task_set


def experience(**changes) -> Experience:
    """Of two rounds of two tasks, 30 steps each."""
    small = {"start_steps": 120, "batch_size": 8, "replay_capacity": 240}
    config = overlay(MethodConfig(), {**small, **changes})
    made = Experience(
        tiny_task_set(), config, 0.9, torch.Generator().manual_seed(0), np.random.default_rng(0)
    )
    for number in range(2):
        made.remember(random_round(tiny_task_set(), number))
    return made


def owners(made: Experience) -> np.ndarray:
    return np.repeat(made.replay.tasks, made.replay.lengths)


def test_rows_are_drawn_by_task_as_many_of_each():
    made = experience()
    made.begin()
    numbers = made.draw(500)
    assert numbers.shape == (2, 500)
    assert (owners(made)[numbers] == np.array([[0], [1]])).all()
    assert all(len(set(own)) == 60 for own in numbers.tolist())  # all of them, sooner or later
    rows = made.rows(numbers)
    assert rows.obs.shape == (2, 500, 2)
    stored = made.replay.transitions(numbers)
    assert np.array_equal(rows.obs, stored.observations)
    assert np.array_equal(rows.reward[..., 0], stored.rewards)


def test_it_is_warm_once_every_task_has_an_episode_and_random_actions_are_over():
    assert experience().warm
    assert not experience(start_steps=121).warm
    made = experience()
    made.replay.extend(made.replay.task(0))  # until only one task is left
    for _ in range(3):
        made.replay.extend(made.replay.task(0))
    assert set(made.replay.tasks.tolist()) == {0}
    assert not made.warm


def step(running) -> Taken:
    states = np.array([[1, 2], [3, 4]], np.float32)
    actions, rewards = np.full((2, 2), 0.5, np.float32), np.array([7, 8], np.float32)
    no = np.zeros(2, dtype=bool)
    return Taken(states, actions, rewards, states + 1, no, np.array(running), no)


def test_a_step_is_learned_from_at_once():
    made = experience()
    made.begin(room=30)
    assert made.see(step([True, True])).tolist() == [0, 1]
    assert made.see(step([False, True])).tolist() == [1]
    numbers = made.draw(4000)
    assert set(numbers[0][numbers[0] >= 120]) == {120}
    assert set(numbers[1][numbers[1] >= 120]) == {121, 122}
    rows = made.rows(np.array([[120], [122]]))
    assert rows.obs.tolist() == [[[1, 2]], [[3, 4]]]
    assert rows.reward.tolist() == [[[7]], [[8]]]
    assert rows.next_obs.tolist() == [[[2, 3]], [[4, 5]]]


def test_a_share_of_a_payment_is_not_known_at_once():
    made = experience(**{"credit.kind": "uniform"})
    made.begin(room=30)
    assert made.see(step([True, True])).tolist() == []
    assert made.draw(1000).max() < 120
    stretch = np.arange(5)  # a payment comes every five steps
    shares = made.rows(stretch).reward.ravel()
    assert torch.allclose(shares, shares[0].expand(5))
    assert float(shares.sum()) == pytest.approx(float(made.replay.rewards[:5].sum()), rel=1e-5)
    assert torch.equal(made.rows_of(made.replay, stretch).reward.ravel(), shares)


@pytest.mark.parametrize("kind", ["none", "ridge", "learned"])
def test_rows_of_other_episodes_have_rewards_made_alike(kind):
    made = experience(**{"credit.kind": kind, "credit.hidden": (8,), "scale_rewards": True})
    made.begin()
    assert made.credit.used in (kind, "none")  # too few payments for a linear model
    numbers = np.arange(40)
    assert torch.allclose(made.rows_of(made.replay, numbers).reward, made.rows(numbers).reward)


def test_rewards_are_scaled_by_what_is_stored():
    made = experience(scale_rewards=True)
    made.begin()
    plain = made.replay.rewards
    scaled = made.rows(np.arange(120)).reward.ravel()
    assert np.corrcoef(plain, scaled)[0, 1] == pytest.approx(1)
    assert float(scaled.std()) == pytest.approx(1, rel=0.1)
    assert abs(float(scaled.mean())) < 0.1
    imitating = experience(scale_rewards=True, imitate=True)  # returns would be of other rewards
    imitating.begin()
    assert float(imitating.rows(np.arange(120)).reward.mean()) > 0.2


def test_imitated_rows_are_of_every_task_and_weigh_nothing_where_there_are_none():
    made = experience(imitate=True, **{"imitation.batch_size": 40})
    made.begin()
    found = made.imitated()
    kept = made.imitation.episodes
    tasks = np.repeat(kept.tasks, kept.lengths)
    assert found.indices.shape == (2, 20)
    assert (tasks[found.indices] == np.array([[0], [1]])).all()
    assert found.rows.obs.shape == (2, 20, 2)
    assert (found.rows.weights > 0).all()
    assert np.array_equal(found.rows.returns[..., 0], made.imitation.returns[found.indices])

    made._imitated = np.zeros_like(tasks)  # as if nothing of task 1 were there
    found = made.imitated()
    assert (found.rows.weights[0] > 0).all()
    assert not found.rows.weights[1].any()
    before = made.imitation.priorities.copy()
    made.learned_from(found, torch.arange(40.0))
    changed = np.flatnonzero(made.imitation.priorities != before)
    assert set(changed) <= set(found.indices[0])
    assert len(changed)


def test_what_cannot_work_is_refused():
    with pytest.raises(UsageError, match="replay_capacity must be at least a round, 60 steps"):
        experience(replay_capacity=59)
    with pytest.raises(UsageError, match="batch_size must be at least 1 for each of 2 tasks"):
        experience(batch_size=1)
