"""Delayed payments of logs and of the machine, put down to the steps that earned them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mcat.agents.adaptation.rewards import AdaptRewards
from mcat.agents.learner import Batch
from tests.agents.adaptation.linear import LENGTH, linear_logs


def rows(logs, start, end):
    """Transitions as a replay has them."""
    found = logs.transitions(np.arange(start, end))
    obs, action, reward, next_obs, terminal = (torch.from_numpy(np.array(c)) for c in found[1:])
    return Batch(obs, action, reward[:, None], next_obs, terminal[:, None])


@pytest.mark.parametrize("delay", [2, 5, LENGTH])
def test_late_payments_of_logs_become_what_each_step_earned(delay):
    late = AdaptRewards(linear_logs(delay=delay), delay, 1, LENGTH, credits=True)
    assert np.allclose(late.of_logs(), linear_logs().column("rewards"), atol=1e-4)


def test_rewards_that_come_at_once_are_taken_as_they_are():
    logs = linear_logs(delay=5)
    for credits, log_delay in ((True, 1), (False, 5)):
        found = AdaptRewards(logs, log_delay, 1, LENGTH, credits=credits)
        assert np.array_equal(found.of_logs(), logs.column("rewards"))
        batch = rows(logs, 0, 7)
        assert torch.equal(found.of(batch), batch.reward)


def test_prompt_logs_tell_what_the_steps_of_a_machine_that_pays_late_earned():
    found = AdaptRewards(linear_logs(), 1, 5, LENGTH, credits=True)
    late, prompt = (rows(linear_logs(seed=3, delay=d), 0, 30) for d in (5, 1))
    assert torch.allclose(found.of(late), prompt.reward, atol=1e-3)
    assert np.array_equal(found.of_logs(), linear_logs().column("rewards"))


def test_payments_of_real_episodes_are_learned_from():
    few = linear_logs(episodes=2, delay=LENGTH)
    found = AdaptRewards(few, LENGTH, LENGTH, LENGTH, credits=True)
    assert found.lacks_payments
    real, prompt = linear_logs(60, seed=5, delay=LENGTH), linear_logs(60, seed=5)
    for episode in range(60):
        part = rows(real, episode * LENGTH, (episode + 1) * LENGTH)
        assert found.take_in(part, whole=True)
    assert not found.lacks_payments
    assert torch.allclose(found.of(rows(real, 0, 100)), rows(prompt, 0, 100).reward, atol=1e-3)
    again = AdaptRewards(few, LENGTH, LENGTH, LENGTH, credits=True)
    again.load_arrays({name: array.copy() for name, array in found.arrays().items()})
    assert np.array_equal(again.of_logs(), found.of_logs())


def test_what_an_episode_that_was_cut_is_owed_was_never_paid():
    logs = linear_logs(episodes=20, delay=4)
    cut, whole = (AdaptRewards(logs, 4, 4, LENGTH, credits=True) for _ in range(2))
    before = len(cut.arrays()["wages"])
    part = rows(linear_logs(1, seed=8, delay=4), 0, 7)  # 4 steps that were paid, and 3
    cut.take_in(part, whole=False)
    whole.take_in(part, whole=True)
    assert len(cut.arrays()["wages"]) == before + 1
    assert len(whole.arrays()["wages"]) == before + 2
