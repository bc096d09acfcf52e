"""One translator for every pair of several machines, and translations that mind the reward."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from mcat.datasets import EpisodeStore
from mcat.errors import UsageError
from mcat.translator import (
    ActionConfig,
    ContextConfig,
    TransferredPolicy,
    Translator,
    fit_many,
    fit_pair,
)
from tests.translator.systems import ACTIONS, CHANGES, PUSH, STATES, linear_system, step

MACHINES = [np.eye(ACTIONS), CHANGES["swapped"], CHANGES["reversed"]]
QUICK = ContextConfig(
    encoder_hidden=(64,), forward_hidden=(128, 128), context_size=4, batch_size=128, max_steps=2500,
    evaluate_every=2500,
)  # fmt: skip
QUICK_H = ActionConfig(hidden=(128, 128), embedding=32, steps=1500, proximity=0.0, batch_size=128,
                       learning_rate=1e-3)  # fmt: skip
# Motors of other strengths are told apart more easily than exchanged ones.
QUICKER = replace(QUICK, history=4, forward_hidden=(64, 64), max_steps=1200, evaluate_every=1200)
QUICKER_H = replace(QUICK_H, hidden=(64, 64), steps=800)


@pytest.fixture(scope="module")
def many():
    tasks = [linear_system(motors, seed) for seed, motors in enumerate(MACHINES)]
    return fit_many(tasks, context=QUICK, action=QUICK_H, quiet=True)


@pytest.mark.parametrize("source", range(3))
@pytest.mark.parametrize("target", range(3))
def test_every_ordered_pair_is_recovered(many, source, target):
    """a · source motors = right · target motors; on the diagonal that is the action itself."""
    rng = np.random.default_rng(9)
    states, actions = rng.normal(size=(500, STATES)), rng.uniform(-0.9, 0.9, (500, ACTIONS))
    right = actions @ MACHINES[source] @ np.linalg.inv(MACHINES[target])
    found = many.between(source, target).translate(states, actions)
    assert np.abs(found - right).mean() / 2 < 0.05


def test_pairs_it_was_never_trained_on():
    """Motors of five strengths: some of the translations between them are new."""
    strengths = [1.0, 1.2, 1.4, 1.6, 1.8]
    tasks = [linear_system(g * np.eye(ACTIONS), seed) for seed, g in enumerate(strengths)]
    held_out = {(0, 4), (1, 3), (3, 1)}
    pairs = set(itertools.product(range(5), range(5))) - held_out
    translator = fit_many(tasks, pairs=pairs, context=QUICKER, action=QUICKER_H, quiet=True)
    rng = np.random.default_rng(9)
    for source, target in sorted(held_out):
        states, actions = rng.normal(size=(500, STATES)), rng.uniform(-0.5, 0.5, (500, ACTIONS))
        right = actions * strengths[source] / strengths[target]
        found = translator.between(source, target).translate(states, actions)
        assert np.abs(found - right).mean() / 2 < 0.05
        assert np.abs(found - right).mean() < 0.5 * np.abs(actions - right).mean()


def test_it_is_told_which_machines(many, tmp_path):
    states, actions = np.zeros((5, STATES)), np.full((5, ACTIONS), 0.5)
    with pytest.raises(UsageError, match=r"say which by between\(\)"):
        many.translate(states, actions)
    with pytest.raises(UsageError, match="machines 0 to 2, not 3"):
        many.between(0, 3)
    with pytest.raises(UsageError, match="at least 2 machines"):
        fit_many([linear_system(np.eye(ACTIONS), 0)], quiet=True)
    many.save(tmp_path / "many.safetensors")
    again = Translator.load(tmp_path / "many.safetensors")
    expected = many.between(2, 1).translate(states, actions)
    assert np.array_equal(again.between(2, 1).translate(states, actions), expected)
    policy = TransferredPolicy(lambda obs: actions, again.between(2, 1))
    assert np.array_equal(policy(states), expected)


def test_a_pair_has_one_direction():
    tasks = [linear_system(motors, seed, 5) for seed, motors in enumerate(MACHINES[:2])]
    short = ContextConfig(encoder_hidden=(8,), forward_hidden=(8,), max_steps=5)
    pair = fit_pair(*tasks, context=short, action=ActionConfig(steps=2), quiet=True)
    with pytest.raises(UsageError, match="one pair"):
        pair.between(0, 1)


def redundant(seed, episodes=40, steps=50):
    """Two motors push the same way; only the second one costs: r = -|a2|."""
    rng = np.random.default_rng(seed)
    actions = rng.uniform(-1, 1, (episodes, steps, 2))
    states = np.zeros((episodes, steps + 1, 1))
    for t in range(steps):
        states[:, t + 1] = 0.8 * states[:, t] + actions[:, t].sum(axis=1, keepdims=True)
    return EpisodeStore.from_arrays(
        observations=states[:, :-1].reshape(-1, 1),
        actions=actions.reshape(-1, 2),
        next_observations=states[:, 1:].reshape(-1, 1),
        rewards=-np.abs(actions[..., 1]).reshape(-1),
        episode_ends=np.arange(1, episodes + 1) * steps,
    )


def test_only_the_reward_aware_loss_sees_what_an_action_costs():
    """The source never uses the motor that costs. H starts where it is used; both losses find the
    same push, one of them the cheap way.
    """
    target = redundant(1)
    cheap = redundant(0)
    actions = np.stack([cheap.actions[:, 0], np.zeros(len(cheap))], axis=1)
    states = np.zeros(len(cheap) + 1)
    starts = np.append(0, cheap.episode_ends[:-1])
    for t in range(len(cheap)):
        now = 0.0 if t in starts else states[t]
        states[t], states[t + 1] = now, 0.8 * now + actions[t, 0]
    source = EpisodeStore.from_arrays(
        observations=states[:-1, None],
        actions=actions,
        next_observations=(0.8 * states[:-1] + actions[:, 0])[:, None],
        rewards=np.zeros(len(cheap)),
        episode_ends=cheap.episode_ends,
    )
    cost, push = {}, {}
    for aware in (False, True):
        config = ActionConfig(hidden=(64, 64), embedding=32, steps=500, proximity=0.0,
                              residual=False, batch_size=128, learning_rate=1e-3,
                              reward_aware=aware)  # fmt: skip
        context = ContextConfig(encoder_hidden=(32,), forward_hidden=(64, 64), max_steps=400,
                                history=4, batch_size=128, evaluate_every=400,
                                contrastive_weight=0.0)  # fmt: skip
        translator = fit_pair(source, target, context=context, action=config, quiet=True)
        obs, act = source.observations[:500], source.actions[:500]
        found = translator.translate(obs, act)
        cost[aware] = np.abs(found[:, 1]).mean()
        push[aware] = np.abs(found.sum(axis=1) - act.sum(axis=1)).mean()
    assert push[True] < 0.1 > push[False]
    assert cost[True] < 0.05
    assert cost[False] > 0.15


def test_systems_agree_with_their_description():
    """The machines of the tests do what their translations assume."""
    rng = np.random.default_rng(0)
    state, action = rng.normal(size=(7, STATES)), rng.uniform(-1, 1, (7, ACTIONS))
    right = action @ np.linalg.inv(CHANGES["swapped"])
    assert np.allclose(step(state, action), step(state, right @ CHANGES["swapped"], PUSH))
