"""Past actions in H's own words, and H through several steps of F in a row."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from mcat.agents.meta.config import MCATConfig
from mcat.datasets import EpisodeStore
from mcat.errors import DataError, UsageError
from mcat.transfer.config import TransferConfig
from mcat.translator import ActionConfig, ContextConfig, Translator, fit_many, fit_pair
from mcat.translator import action as action_module
from mcat.translator.configs import StateConfig
from mcat.translator.context import ContextModel
from mcat.translator.rollout import Stretches, sample_stretches
from mcat.translator.windows import recent_steps, sample_windows, translated_past
from tests.translator.systems import ACTIONS, CHANGES, STATES, linear_system

SMALL = ContextConfig(
    encoder_hidden=(32,), forward_hidden=(64, 64), context_size=4, max_steps=1500, patience=4
)
SMALL_H = ActionConfig(hidden=(64, 64), embedding=32, steps=600, proximity=0.0, batch_size=256)


def lagging(gain, seed, episodes=40, steps=50):
    """Half of what an action does comes a step later, and nothing that is seen tells it."""
    rng = np.random.default_rng(seed)
    actions = rng.uniform(-1, 1, (episodes, steps, 2))
    late = np.concatenate((np.zeros((episodes, 1, 2)), actions[:, :-1]), axis=1)
    start = rng.normal(size=(episodes, 1, 2))
    after = start + np.cumsum(gain * (actions + late) / 2, axis=1)
    before = np.concatenate((start, after[:, :-1]), axis=1)
    return EpisodeStore.from_arrays(
        observations=before.reshape(-1, 2),
        actions=actions.reshape(-1, 2),
        next_observations=after.reshape(-1, 2),
        episode_ends=np.arange(1, episodes + 1) * steps,
    )


def error_of(translator, gain):
    """Mean |translated - action / gain|."""
    rng = np.random.default_rng(9)
    states, actions = rng.normal(size=(500, 2)), rng.uniform(-1, 1, (500, 2))
    return float(np.abs(translator.translate(states, actions) - actions / gain).mean())


def test_what_comes_late_is_translated_right_only_in_h_s_own_words(monkeypatch):
    """On the target actions do four times as much, at once and a step later."""
    source, target = lagging(1.0, 1), lagging(4.0, 2)
    seeing = replace(SMALL, recent_actions=True)
    own = fit_pair(source, target, context=seeing, action=SMALL_H, quiet=True)
    blind = fit_pair(source, target, context=SMALL, action=SMALL_H, quiet=True)
    assert own.report.numbers["forward error"] < 0.1 < blind.report.numbers["forward error"]
    assert error_of(own, 4.0) < 0.03
    monkeypatch.setattr(action_module, "translated_past", lambda past, *others: past)
    foreign = fit_pair(source, target, context=seeing, action=SMALL_H, quiet=True)
    assert error_of(foreign, 4.0) > 3 * error_of(own, 4.0)


def test_a_past_is_translated_but_for_what_never_was():
    store = lagging(1.0, 1, episodes=2, steps=5)
    config = replace(SMALL, recent=3, recent_actions=True)
    past, before = recent_steps(store, np.array([1, 4]), config)
    assert (past.shape, before.shape) == ((2, 3, 4), (2, 3, 2))
    np.testing.assert_allclose(past[1, :, 2:], store.actions[1:4], rtol=1e-6)
    np.testing.assert_allclose(before[1], store.observations[1:4], rtol=1e-6)
    new = translated_past(past, before, lambda obs, action: 10 * action + obs)
    torch.testing.assert_close(new[..., :2], past[..., :2])
    torch.testing.assert_close(new[1, :, 2:], 10 * past[1, :, 2:] + before[1])
    assert not new[0, :2].any()  # one step of the first episode went before
    plain, nothing = recent_steps(store, np.array([1, 4]), SMALL)
    assert nothing is None
    assert translated_past(plain, nothing, None) is plain


def test_a_segment_followed_by_hand(monkeypatch):
    """F says that the state moves by the action, and H halves it: of 4 steps 2 are missed."""
    model = ContextModel(2, 2, 1, replace(SMALL, recent=2, recent_actions=True))
    model.change_scale.std.fill_(2.0)
    told = []

    def predict(obs, action, past, context):
        told.append(past)
        return action / 2.0, None

    monkeypatch.setattr(model, "predict", predict)
    segment = Stretches(
        obs=torch.zeros(1, 2), actions=torch.ones(1, 4, 2), reached=torch.full((1, 2), 4.0),
        past=torch.full((1, 2, 4), 7.0), before=torch.ones(1, 2, 2),
    )  # fmt: skip
    missed, left = segment.follow(model, lambda obs, action: action / 2, torch.zeros(4))
    torch.testing.assert_close(missed, torch.full((1, 2), 2.0 / 2.0 / 4))
    assert left.item() == pytest.approx(0.5)
    torch.testing.assert_close(told[0], torch.tensor([[[7, 7, 3.5, 3.5]] * 2]))
    torch.testing.assert_close(told[3], torch.full((1, 2, 4), 0.5))


def test_gradients_reach_h_through_all_steps():
    store = linear_system(np.eye(ACTIONS), 1, 5)
    model = ContextModel(STATES, ACTIONS, 1, SMALL)
    weight = torch.ones((), requires_grad=True)
    stretches = sample_stretches(store, SMALL, np.random.default_rng(0), 32, 5)
    missed, _ = stretches.follow(model, lambda obs, action: weight * action, torch.zeros(4))
    missed.sum().backward()
    assert weight.grad.abs() > 0


def test_segments_stay_in_their_episode():
    store = lagging(1.0, 3, episodes=6, steps=7)
    found = sample_stretches(store, SMALL, np.random.default_rng(0), 200, 5)
    assert 0 < len(found.obs) < 200
    total = (found.actions + torch.cat((torch.zeros(len(found.obs), 1, 2),
                                        found.actions[:, :-1]), 1)).sum(1) / 2  # fmt: skip
    # What the action before the segment left is not in the sum.
    assert float((found.reached - found.obs - total).abs().max()) <= 0.5 + 1e-5
    with pytest.raises(DataError, match="horizon is 8, and the longest episode of the source 7"):
        sample_stretches(store, SMALL, np.random.default_rng(0), 200, 8)
    with pytest.raises(DataError, match="horizon is 8"):  # before anything is learned
        fit_pair(store, store, context=replace(SMALL, max_steps=10**6), quiet=True,
                 action=replace(SMALL_H, horizon=8))  # fmt: skip


@pytest.mark.parametrize("recent", [0, 3])
def test_several_steps_find_what_the_motors_do(recent):
    source, target = linear_system(np.eye(ACTIONS), 1), linear_system(CHANGES["swapped"], 2)
    context = replace(SMALL, recent=recent)
    made = fit_pair(source, target, context=context, action=replace(SMALL_H, horizon=3), quiet=True)
    rng = np.random.default_rng(0)
    actions = rng.uniform(-0.9, 0.9, (300, ACTIONS))
    right = actions @ np.linalg.inv(CHANGES["swapped"])
    inside = (np.abs(right) <= 0.95).all(axis=1)
    found = made.translate(rng.normal(size=(300, STATES)), actions)
    assert np.abs(found - right)[inside].mean() < 0.1


def test_a_translator_that_sees_past_actions_is_saved_and_loaded(tmp_path):
    tasks = [lagging(1.0, 1, 4), lagging(2.0, 2, 4)]
    context = replace(SMALL, recent_actions=True, max_steps=3)
    made = fit_pair(*tasks, context=context, action=replace(SMALL_H, steps=3), quiet=True)
    made.save(tmp_path / "t.safetensors")
    again = Translator.load(tmp_path / "t.safetensors")
    rows = sample_windows(tasks[1], context, np.random.default_rng(0), 8)
    asked = rows.obs, rows.action, rows.past, made.model.features.expand(8, -1)
    assert torch.equal(made.model.predict(*asked)[0], again.model.predict(*asked)[0])


def test_what_is_of_a_pair_is_refused_elsewhere_in_one_line():
    seeing, far = {"recent_actions": True}, ActionConfig(horizon=10)
    tasks = [lagging(1.0, seed, 3) for seed in (1, 2)]
    with pytest.raises(UsageError, match="recent_actions is of one machine"):
        fit_many(tasks, context=replace(SMALL, **seeing), quiet=True)
    short = replace(SMALL, max_steps=2)
    with pytest.raises(UsageError, match="a horizon beyond 1 is of a pair"):
        fit_many(tasks, context=short, action=far, quiet=True)
    for changes in ({"context.recent_actions": True}, {"action.horizon": 10}):
        with pytest.raises(UsageError, match="take a pair"):
            TransferConfig(tasks=("a", "b"), recipe_changes=tuple(changes.items()))
    with pytest.raises(UsageError, match="are of a pair of machines"):
        MCATConfig(action=replace(MCATConfig().action, horizon=10))
    with pytest.raises(UsageError, match="not of state maps"):
        StateConfig(context=ContextConfig(**seeing))
    with pytest.raises(UsageError, match="set recent too"):
        ContextConfig(recent=0, **seeing)
    with pytest.raises(UsageError, match="a horizon beyond 1 goes with loss l1"):
        ActionConfig(horizon=2, reward_aware=True)
