"""TD rows of several steps, against sums by hand and against each other."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mcat.agents.learner import Batch
from mcat.agents.meta.multistep import RunningRows, look_ahead
from mcat.config import overlay
from mcat.errors import UsageError
from tests.agents.meta.point_mass import TINY, mcat

GAMMA = 0.5


def one_step_rows(lengths, *, room=0, ended=()):
    """Episodes of rewards 1, 2, 4 …; state t of episode e is 10 e + t, every context 9."""
    states = np.concatenate([10.0 * e + np.arange(n) for e, n in enumerate(lengths)])
    context = np.full_like(states, 9)
    terminal = np.isin(np.arange(len(states)), ended)
    columns = (
        np.stack((states, context), 1),
        np.zeros((len(states), 1)),
        (2.0 ** np.arange(len(states)))[:, None],
        np.stack((states + 1, context), 1),
        terminal[:, None],
    )
    return Batch(
        *(torch.tensor(np.pad(x, ((0, room), (0, 0))), dtype=torch.float32) for x in columns)
    )


def test_rewards_of_three_steps_by_hand_and_fewer_near_an_end():
    rows = one_step_rows((4, 2), ended=(5,))
    look_ahead(rows, np.array([4, 2]), 3, GAMMA, 1)
    # 1 + 2/2 + 4/4, 2 + 4/2 + 8/4, 4 + 8/2, 8; then 16 + 32/2, 32
    assert rows.reward[:, 0].tolist() == [3, 6, 8, 8, 32, 32]
    assert rows.next_obs[:, 0].tolist() == [3, 4, 4, 4, 12, 12]
    # What follows counts γ^3, γ^3, γ^2, γ, and nothing where the task ended.
    assert (GAMMA * (1 - rows.terminal[:, 0])).tolist() == [1 / 8, 1 / 8, 1 / 4, 1 / 2, 0, 0]
    assert rows.obs[:, 0].tolist() == [0, 1, 2, 3, 10, 11]
    assert rows.next_obs[:, 1].tolist() == [9] * 6  # the context stays


def test_one_step_ahead_changes_nothing():
    rows, same = one_step_rows((4, 2), ended=(5,)), one_step_rows((4, 2), ended=(5,))
    look_ahead(rows, np.array([4, 2]), 1, GAMMA, 1)
    assert all(map(torch.equal, rows, same))


@pytest.mark.parametrize("n", [2, 3, 5])
def test_step_by_step_it_becomes_what_whole_episodes_give(n):
    """Two tasks take turns; the first begins another episode on the way."""
    lengths, ended = np.array([4, 2, 5]), (5,)
    stored = one_step_rows(lengths, ended=ended)
    wanted = one_step_rows(lengths, ended=ended)
    look_ahead(wanted, lengths, n, GAMMA, 1)
    rows = Batch(*(torch.zeros(11, x.shape[1]) for x in stored))
    running, order = RunningRows(n, GAMMA, 1), []
    first, second = [0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 10]  # episodes 0 and 1; episode 2
    for step in range(6):
        new = [k[step] for k in (first, second) if step < len(k)]
        for column, source in zip(rows, stored, strict=True):
            column[len(order) : len(order) + len(new)] = source[new]
        running.extend(rows, len(order), range(len(new)))
        order += new
    for found, right in zip(rows, wanted, strict=True):
        torch.testing.assert_close(found, right[order])


def test_a_run_learns_from_rows_of_several_steps_in_the_learners_units():
    settings = {"scale_rewards": True, "credit.kind": "uniform"}
    plain = mcat(overlay(TINY, settings))
    agent = mcat(overlay(TINY, settings | {"td_steps": 3}))
    found, single = (a._policy_updates()._rows.columns for a in (agent, plain))
    count = len(plain.replay)
    wanted = Batch(*(x[:count].clone() for x in single))
    states = plain.replay.observation_size
    look_ahead(wanted, plain.replay.lengths, 3, plain.config.discount, states)
    assert not torch.allclose(found.reward[:count], single.reward[:count])
    for column, right in zip(found, wanted, strict=True):
        torch.testing.assert_close(column[:count], right)


def test_steps_below_one_are_refused():
    with pytest.raises(UsageError, match="td_steps must be at least 1"):
        overlay(TINY, {"td_steps": 0})
