"""F as several networks: what they say together, and that each learns by itself."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from mcat.errors import UsageError
from mcat.translator import ActionConfig, ContextConfig, Translator, fit_pair
from mcat.translator.action import ActionTranslator
from mcat.translator.context import ContextModel, joint_losses, mixture
from mcat.translator.fit import LearnedTranslator
from mcat.translator.recipes import RECIPES
from tests.translator.systems import ACTIONS, CHANGES, STATES, linear_system

THREE = ContextConfig(
    encoder_hidden=(8,), forward_hidden=(16,), context_size=2, members=3, max_steps=30
)


def test_an_even_mixture_by_hand():
    """Means 0 and 2, variances 1 and 3: mean 1, variance (1 + 3) / 2 + 1."""
    one = torch.tensor([[0.0]]), torch.tensor([[0.0]])
    two = torch.tensor([[2.0]]), torch.tensor([[math.log(3.0)]])
    mean, log_variance = mixture([one, two])
    assert mean.item() == 1.0
    assert log_variance.exp().item() == pytest.approx(3.0)
    assert mixture([one]) is one


def test_what_f_says_is_the_mean_of_its_members():
    model = ContextModel(STATES, ACTIONS, 1, THREE)
    asked = (torch.randn(5, STATES), torch.randn(5, ACTIONS), torch.randn(5, 3, STATES),
             torch.randn(5, 2))  # fmt: skip
    means = [mean for mean, _ in model.predictions(*asked)]
    assert len(means) == 3
    assert not torch.equal(means[0], means[1])
    torch.testing.assert_close(model.predict(*asked)[0], sum(means) / 3)


def test_a_member_learns_from_its_own_mistakes_alone():
    task = linear_system(np.eye(ACTIONS), 1, 5)
    model = ContextModel(STATES, ACTIONS, 1, THREE)

    def gradients():
        model.zero_grad()
        joint_losses(model, [task], np.random.default_rng(0))[0].backward()
        return [layer.grad.clone() for layer in model.dynamics.parameters()]

    before = gradients()
    with torch.no_grad():
        for weight in model.others.parameters():
            weight.add_(1.0)
    assert all(map(torch.equal, before, gradients()))
    assert any(gradient.abs().max() > 0 for gradient in before)


def test_all_members_are_trained_saved_and_loaded(tmp_path):
    tasks = [linear_system(np.eye(ACTIONS), 1, 5), linear_system(CHANGES["swapped"], 2, 5)]
    made = fit_pair(*tasks, context=THREE, action=ActionConfig(steps=5), quiet=True)
    first = [member[0].weight for member in (made.model.dynamics, *made.model.others)]
    assert not torch.equal(first[0], first[1])
    assert not torch.equal(first[1], first[2])
    made.save(tmp_path / "t.safetensors")
    again = Translator.load(tmp_path / "t.safetensors")
    for name, tensor in made.model.state_dict().items():
        assert torch.equal(again.model.state_dict()[name], tensor)


def test_a_file_of_before_there_were_members_has_one():
    model = ContextModel(STATES, ACTIONS, 1, replace(THREE, members=1))
    action = ActionConfig(hidden=(8,), embedding=4)
    made = LearnedTranslator(model, ActionTranslator(STATES, ACTIONS, action))
    header = made.header()
    del header["context"]["members"]
    built = LearnedTranslator.build(header)
    assert built.model.state_dict().keys() == model.state_dict().keys()
    assert not built.model.others


def test_fitting_without_numbers_is_preset_cpu(monkeypatch):
    tiny = replace(
        RECIPES["cpu"],
        context=replace(THREE, members=2, max_steps=2),
        action=ActionConfig(steps=2),
    )
    monkeypatch.setitem(RECIPES, "cpu", tiny)
    tasks = [linear_system(np.eye(ACTIONS), seed, 5) for seed in (1, 2)]
    made = fit_pair(*tasks, quiet=True)
    assert (made.model.config, made.network.config) == (tiny.context, tiny.action)


def test_no_member_is_refused_in_one_line():
    with pytest.raises(UsageError, match="members must be at least 1"):
        ContextConfig(members=0)
