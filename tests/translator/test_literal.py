"""Switches between what the paper prints and what we do otherwise, by hand on small numbers.

Why the two differ is in docs/decisions.md.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from mcat.errors import UsageError
from mcat.translator import ActionConfig, ContextConfig, Translator, fit_pair
from mcat.translator import context as context_module
from mcat.translator.action import ActionTraining, SourceTargets, distances
from mcat.translator.configs import CycleConfig
from mcat.translator.context import (
    ContextModel,
    bounded_log_variance,
    contrastive_loss,
    forward_loss,
    joint_losses,
    objective,
    train_context,
    weighed_norms,
)
from mcat.translator.recipes import RECIPES
from tests.translator.systems import ACTIONS, STATES, linear_system

TINY = ContextConfig(
    encoder_hidden=(8,), forward_hidden=(8,), context_size=2, batch_size=16, decay=False,
    shared_only=False, max_steps=30, evaluate_every=10,
)  # fmt: skip
TINY_H = ActionConfig(hidden=(8,), embedding=8, batch_size=16, steps=4, proximity=0.0)


@pytest.fixture(scope="module")
def task():
    return linear_system(np.eye(ACTIONS), 1, 6, 20)


# --- Eq. 2


@pytest.mark.parametrize(
    ("hinge", "apart", "wide"), [("printed", 0.75, 1.75), ("squared", 0.5625, 3.0625)]
)
def test_the_hinge_at_a_quarter(hinge, apart, wide):
    here = torch.zeros(3, 2)
    near, far = here + torch.tensor([0.15, 0.2]), here + torch.tensor([3.0, 0.0])

    def loss(other, margin=1.0, *, same=False):
        return contrastive_loss(here, other, same=same, margin=margin, hinge=hinge).item()

    assert loss(near) == pytest.approx(apart)
    assert loss(near, 2.0) == pytest.approx(wide)
    assert loss(far) == 0
    assert loss(near, same=True) == pytest.approx(0.0625)


def test_the_hinge_that_is_asked_for_is_used(task):
    """Contexts of two tasks at distance 0, with a margin of 3."""
    losses = []
    for hinge in ("squared", "printed"):
        model = ContextModel(STATES, ACTIONS, 2, replace(TINY, hinge=hinge, margin=3.0))
        for parameter in model.encoder.parameters():
            torch.nn.init.zeros_(parameter)
        model.encoder[-1].bias.data.fill_(0.5)  # all contexts are one
        found = [
            joint_losses(model, [task, task], np.random.default_rng(seed))[1].item()
            for seed in range(6)
        ]
        losses.append(max(found))
    assert losses == pytest.approx([9.0, 3.0], abs=1e-4)
    assert ContextConfig().hinge == "squared"


# --- Eq. 1


def test_the_sum_of_log_likelihoods_by_hand():
    """Two histories, one with two steps ahead and one with one; two dimensions."""
    mean = torch.tensor([[1.0, 2.0], [0.0, 1.0], [3.0, 0.0]])
    log_variance = torch.log(torch.tensor([[4.0, 2.0], [1.0, 1.0], [9.0, 1.0]]))
    change = torch.zeros(3, 2)
    by_hand = (1 / 4 + math.log(4) + 4 / 2 + math.log(2)) + 1 + (9 / 9 + math.log(9))
    found = forward_loss(mean, log_variance, change, histories=2)
    assert found.item() == pytest.approx(by_hand / 2 / 2)
    normal = torch.distributions.Normal(mean, torch.exp(log_variance / 2))
    constant = 0.5 * math.log(2 * math.pi) * 6
    assert found.item() == pytest.approx((-normal.log_prob(change).sum() - constant).item() / 2)
    assert forward_loss(mean, log_variance, change).item() == pytest.approx(by_hand / 6)


def test_the_sum_weighs_as_much_more_as_there_are_dimensions_and_steps(task):
    """With M = 1 every history has one step: the sum is S/2 times the mean."""
    losses = {}
    for likelihood in ("mean", "sum"):
        config = replace(TINY, all_future=True, future=1, evenness=0.0, likelihood=likelihood)
        torch.manual_seed(0)
        model = ContextModel(STATES, ACTIONS, 1, config)
        losses[likelihood] = joint_losses(model, [task], np.random.default_rng(0))
    assert losses["sum"][0].item() == pytest.approx(STATES / 2 * losses["mean"][0].item())
    assert losses["sum"][1].item() == losses["mean"][1].item()  # L_cont is as it was


# --- what is withheld, and when to stop


def test_with_nothing_held_out_all_is_learned_from_to_the_end(task, monkeypatch):
    seen = []

    def watched(model, tasks, rng):
        seen.append(tasks)
        return joint_losses(model, tasks, rng)

    monkeypatch.setattr(context_module, "joint_losses", watched)
    config = replace(TINY, hold_out=False, patience=1, evaluate_every=1, max_steps=25,
                     learning_rate=0.3)  # fmt: skip
    _, report = train_context([task.select([0])], config, quiet=True)  # one episode will do
    assert {len(tasks[0]) for tasks in seen} == {20}
    ((title, curve),) = report.curves.items()
    assert title == "error of the forward model on what it learned from"
    assert report.numbers["forward steps"] == len(curve) == 25  # though the error rose in between
    errors = [error for _, error in curve]
    assert errors != sorted(errors, reverse=True)
    assert report.numbers["forward error"] == errors[-1]  # the last model, not the best
    _, held_out = train_context([task], replace(config, hold_out=True), quiet=True)
    assert held_out.numbers["forward steps"] < 25
    assert next(iter(held_out.curves)).startswith("held-out")


def test_a_tenth_of_the_steps_once_the_error_is_small(task):
    config = replace(TINY, max_steps=100, evaluate_every=20, patience=100)
    for cut, steps in ((0.0, [20, 40, 60, 80, 100]), (1e9, [20, 22, 24, 26, 28])):
        _, report = train_context([task], replace(config, cut_below=cut), quiet=True)
        (curve,) = report.curves.values()
        assert [step for step, _ in curve] == steps
        assert report.numbers["forward steps"] == steps[-1]


def test_norms_by_hand():
    """One number of each kind: C is 2-1-1, F is 3-1-(1, 1), and every parameter is 2."""
    config = replace(TINY, history=1, recent=0, context_size=1, encoder_hidden=(1,),
                     forward_hidden=(1,))  # fmt: skip
    model = ContextModel(1, 1, 1, config)
    for parameter in model.parameters():
        torch.nn.init.constant_(parameter, 2.0)
    encoder = 1 * (math.sqrt(8) + 2) + 3 * (2 + 2)
    forward = 1 * (math.sqrt(12) + 2) + 4 * (2 + 2) * 2  # two heads at the end
    assert weighed_norms(model).item() == pytest.approx(encoder + forward)
    one = torch.ones(())
    assert objective(model, one, one).item() == 2
    model.config = replace(config, norm_penalty=0.1, contrastive_weight=0.5)
    assert objective(model, one, one).item() == pytest.approx(1.5 + 0.1 * (encoder + forward))


# --- Eq. 3


def hand_model(log_variance=-1.0):
    """F says: every change is half the first action."""
    config = ContextConfig(forward_hidden=(), encoder_hidden=(), context_size=1, recent=0)
    model = ContextModel(STATES, ACTIONS, 1, config)
    layer = model.dynamics[0]
    with torch.no_grad():
        layer.weight.zero_(), layer.bias.zero_()
        layer.weight[:STATES, STATES] = 0.5
        layer.bias[STATES:] = log_variance
    return model.requires_grad_(False)


def test_the_likelihood_of_a_translation_by_hand(task):
    variance = bounded_log_variance(torch.tensor(-1.0)).item()
    mean, spread = torch.tensor([[0.5, 1.0]]), torch.tensor([[math.log(4), 0.0]])
    assert distances(mean, spread, torch.zeros(1, 2), "l1").tolist() == [[0.5, 1.0]]
    found = distances(mean, spread, torch.zeros(1, 2), "nll")[0].tolist()
    assert found == pytest.approx([0.25 / 4 + math.log(4), 1.0])
    for loss in ("l1", "nll"):
        config = replace(TINY_H, weighed=False, loss=loss)
        training = ActionTraining(hand_model(), [SourceTargets(0, task, [0])], config)
        batch = training.sample(training.sources[0], 50)
        action = torch.full((50, ACTIONS), 0.4)
        off = 0.2 - batch.rows.change
        wanted = off.abs() if loss == "l1" else off.square() * math.exp(-variance) + variance
        found = training.state_error(batch, action).item()
        assert found == pytest.approx(wanted.mean().item(), rel=1e-5)


def test_dimensions_count_alike_as_printed_or_by_how_far_actions_move_them(task):
    """F says: an action moves the first number, the second half as far, the others not at all."""
    model = hand_model()
    model.dynamics[0].weight[:STATES, STATES] = torch.tensor([1.0, 0.5, 0.0, 0.0])
    for weighed, wanted in ((False, [1 / 4] * 4), (True, [2 / 3, 1 / 3, 0, 0])):
        config = replace(TINY_H, weighed=weighed)
        training = ActionTraining(model, [SourceTargets(0, task, [0])], config)
        assert training.weights.tolist() == pytest.approx(wanted, abs=1e-6)


@pytest.mark.parametrize(("loss", "share"), [("l1", 3 / 10), ("nll", 3 / 10 / (STATES / 2))])
def test_rewards_weigh_as_printed_beside_a_likelihood(task, loss, share):
    """|r - R| - λ log F, divided by λ and, as L_trans is a mean of -2 log F, by S/2."""

    class Reward:
        def error(self, *_):
            return torch.tensor(3.0)

    config = replace(TINY_H, loss=loss, weighed=False, state_weight=10.0)
    trainings = [
        ActionTraining(hand_model(), [SourceTargets(0, task, [0])], config, reward=reward)
        for reward in (None, Reward())
    ]
    batch = trainings[0].sample(trainings[0].sources[0], 20)
    trainings[1].network.load_state_dict(trainings[0].network.state_dict())
    plain, aware = (training.loss(batch).item() for training in trainings)
    assert aware - plain == pytest.approx(share, rel=1e-4)


# --- rates of H


def test_rates_are_those_of_their_part():
    config = ActionConfig(rates=(3.0, 2.0, 2.0, 1.0, 1.0, 1.0), steps=12)
    assert [config.rate(step) for step in range(12)] == [3, 3, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1]
    assert [ActionConfig(rates=(0.5,), steps=3).rate(step) for step in range(3)] == [0.5] * 3
    falling = ActionConfig(learning_rate=0.4, steps=4)
    assert [falling.rate(step) for step in range(4)] == pytest.approx([0.4, 0.3, 0.2, 0.1])


def test_the_printed_steps_of_a_pair():
    """Of 30 epochs of 3,000 steps: 5 at the first rate, 10 at the second, 15 at the third."""
    rate = RECIPES["paper"].action.rate
    ends = {0: 3e-4, 14_999: 3e-4, 15_000: 5e-5, 44_999: 5e-5, 45_000: 1e-5, 89_999: 1e-5}
    assert {step: rate(step) for step in ends} == ends


def test_h_learns_at_these_rates_and_starts_afresh(task, monkeypatch):
    def told(config):
        rates, optimisers = [], []
        training = ActionTraining(hand_model(), [SourceTargets(0, task, [0])], config)

        def step():
            rates.append(training.adam.param_groups[0]["lr"])
            optimisers.append(training.adam)
            return torch.zeros(())

        monkeypatch.setattr(training, "step", step)
        training.run(quiet=True)
        return rates, [optimisers.index(adam) for adam in optimisers]

    assert told(replace(TINY_H, rates=(1e-3, 1e-4))) == ([1e-3, 1e-3, 1e-4, 1e-4], [0, 0, 0, 0])
    assert told(replace(TINY_H, rates=(1e-3,), fresh_starts=2))[1] == [0, 0, 2, 2]


# --- what H sees


def test_h_sees_states_as_they_are_if_told_so(task, tmp_path):
    other = linear_system(np.diag([2.0, 1.0, 1.0]), 2, 6, 20)
    obs, action = task.observations[:5], task.actions[:5]
    for raw in (False, True):
        config = replace(TINY_H, raw_states=raw, residual=False)
        translator = fit_pair(task, other, context=TINY, action=config, quiet=True)
        states, actions = torch.tensor(obs), torch.tensor(action)
        seen = states if raw else translator.model.scaled(states)
        wanted = translator.network(seen, actions).numpy()
        assert np.array_equal(translator.translate(obs, action), wanted)
        translator.save(tmp_path / f"{raw}.safetensors")
        loaded = Translator.load(tmp_path / f"{raw}.safetensors")
        assert np.array_equal(loaded.translate(obs, action), wanted)
    with pytest.raises(UsageError, match="raw_states shows H what shared_only hides"):
        fit_pair(task, other, context=replace(TINY, shared_only=True), action=config, quiet=True)


# --- what makes no sense


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        (ContextConfig, {"likelihood": "sum"}, "set all_future=true too"),
        (ContextConfig, {"likelihood": "sum", "all_future": True}, "set evenness=0 too"),
        (ContextConfig, {"hinge": "cubed"}, "unknown hinge 'cubed'"),
        (ContextConfig, {"likelihood": "product"}, "unknown likelihood 'product'"),
        (ContextConfig, {"norm_penalty": -1.0}, "must not be negative"),
        (ContextConfig, {"cut_below": -1.0}, "must not be negative"),
        (ActionConfig, {"loss": "l2"}, "unknown transfer loss 'l2'"),
        (ActionConfig, {"rates": (1e-3, 0.0)}, "rates must be positive, not 0.0"),
        (ActionConfig, {"fresh_starts": 0}, "fresh_starts must be at least 1"),
    ],
)
def test_switches_that_make_no_sense_are_refused_in_one_line(kind, changes, message):
    with pytest.raises(UsageError, match=message) as refused:
        kind(**changes)
    assert "\n" not in str(refused.value)


def test_the_baseline_as_printed_and_as_its_authors_have_it():
    printed, original = CycleConfig.paper(), CycleConfig.original()
    assert (printed.hidden, printed.forward_steps, printed.steps) == ((256, 256), 300_000, 300_000)
    assert (original.hidden, original.forward_steps, original.steps) == ((256,), 90_000, 90_000)
    kept = {"hidden": (256,), "forward_steps": 90_000, "steps": 90_000}
    assert replace(printed, **kept) == original
