"""What a log gives by itself, on logs whose answer is known."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mcat.agents.adaptation.config import AnchoredConfig
from mcat.agents.adaptation.known import known_of
from mcat.agents.adaptation.offline import clone, offline_rl
from mcat.datasets import EpisodeStore

CONFIG = AnchoredConfig(hidden=(32, 32), learning_rate=3e-3, deployed_rate=0.05)
ROWS = 2000


def one_step_log(action, reward):
    """Episodes of one step from random states, far from zero and in other units."""
    rng = np.random.default_rng(0)
    states = rng.normal(100, 5, (ROWS, 2))
    actions = action(states, rng)
    return EpisodeStore.from_arrays(
        observations=states,
        actions=actions,
        next_observations=states,
        rewards=reward(actions),
        terminals=np.ones(ROWS, dtype=bool),
        episode_ends=np.arange(1, ROWS + 1),
    )


def answers(actor, states):
    return torch.tanh(actor(torch.as_tensor(states, dtype=torch.float32))[0]).numpy()


def test_a_clone_does_what_was_done():
    def act(states, rng):
        return np.tanh((states[:, :1] - 100) / 5)

    logs = one_step_log(act, lambda actions: np.zeros(len(actions)))
    actor = clone(known_of(logs, logs.rewards), CONFIG, updates=400, quiet=True)
    states = np.random.default_rng(1).normal(100, 5, (200, 2))
    assert np.abs(answers(actor, states) - act(states, None)).mean() < 0.05


def test_offline_rl_does_what_paid():
    """Actions are random, and 0.5 pays best: a clone does the mean of what was done."""
    logs = one_step_log(
        lambda states, rng: rng.uniform(-1, 1, (len(states), 1)),
        lambda actions: 1 - np.abs(actions[:, 0] - 0.5),
    )
    known = known_of(logs, logs.rewards)
    states = np.random.default_rng(1).normal(100, 5, (200, 2))
    cloned, learned = (
        answers(learn(known, CONFIG, updates=600, quiet=True), states)
        for learn in (clone, offline_rl)
    )
    assert abs(cloned.mean()) < 0.1
    assert learned.mean() == pytest.approx(0.4, abs=0.15)  # drawn to the mean a little


@pytest.mark.parametrize("learn", [clone, offline_rl])
def test_a_seed_gives_one_actor(learn):
    logs = one_step_log(
        lambda states, rng: rng.uniform(-1, 1, (len(states), 1)), lambda actions: actions[:, 0]
    )
    known = known_of(logs, logs.rewards)
    first, again, other = (
        learn(known, CONFIG, updates=5, seed=seed, quiet=True) for seed in (0, 0, 1)
    )
    pairs = list(zip(first.parameters(), again.parameters(), other.parameters(), strict=True))
    assert all(torch.equal(one, same) for one, same, _ in pairs)
    assert not all(torch.equal(one, another) for one, _, another in pairs)
