"""The learner of adaptations on hand-made numbers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from mcat.agents.adaptation.config import AnchoredConfig
from mcat.agents.adaptation.known import LogUnits
from mcat.agents.adaptation.learner import Anchored, LayerNormCritics
from mcat.agents.learner import Batch
from mcat.agents.networks import MLP

CONFIG = AnchoredConfig(hidden=(8, 8), policy_delay=1)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def batch(n=16, seed=1):
    draw = generator(seed)
    return Batch(
        obs=torch.randn(n, 3, generator=draw),
        action=torch.rand(n, 2, generator=draw) * 2 - 1,
        reward=torch.randn(n, 1, generator=draw),
        next_obs=torch.randn(n, 3, generator=draw),
        terminal=torch.zeros(n, 1),
    )


def test_critics_are_those_of_torch():
    critics = LayerNormCritics((5, 8, 8, 1), 2, generator())
    for parameter in critics.scales:
        parameter.data.add_(torch.randn(parameter.shape, generator=generator(3)))
    x = torch.randn(7, 5, generator=generator(4))
    found = critics(x)
    for member in range(2):
        out = x
        for layer in range(2):
            weight, bias = (critics.layers[2 * layer + k][member] for k in range(2))
            gain, shift = (critics.scales[2 * layer + k][member, 0] for k in range(2))
            out = nn.functional.linear(out, weight, bias[0])
            out = nn.functional.layer_norm(out, (8,), gain, shift).relu()
        out = nn.functional.linear(out, critics.layers[4][member], critics.layers[5][member, 0])
        assert torch.allclose(found[member], out, atol=1e-6)


def test_the_target_is_reward_plus_what_the_less_hopeful_critic_expects():
    config = replace(CONFIG, target_noise=0.0, discount=0.5)
    learner = Anchored(3, 2, config, generator())
    rows = batch()._replace(terminal=torch.tensor([[0.0], [1.0]] * 8))
    with torch.no_grad():
        action = torch.tanh(learner.actor(rows.next_obs)[0])
        values = learner.critics(torch.cat((rows.next_obs, action), 1)).amin(0)
        target = rows.reward + 0.5 * (1 - rows.terminal) * values
        errors = learner.critics(torch.cat((rows.obs, rows.action), 1)) - target
    loss = learner.update(rows).critic
    assert loss == pytest.approx(float(errors.square().sum() / 16), rel=1e-5)


def test_without_greed_the_actor_clones_its_anchor():
    learner = Anchored(3, 2, replace(CONFIG, greed=0.0, learning_rate=3e-3), generator())
    rows = batch()
    anchor = torch.tanh(rows.obs[:, :2])
    for _ in range(1500):
        losses = learner.update_near(rows, anchor)
    assert float(losses.actor) < 1e-3
    assert torch.allclose(torch.tanh(learner.actor(rows.obs)[0]), anchor, atol=0.1)


def test_without_an_anchor_the_actor_follows_the_critics_alone():
    one, two = (Anchored(3, 2, CONFIG, generator()) for _ in range(2))
    rows = batch()
    one.update_near(rows, None)
    two.update(rows)
    for left, right in zip(one.actor.parameters(), two.actor.parameters(), strict=True):
        assert torch.equal(left, right)
    values = one.critics(torch.cat((rows.obs, torch.tanh(one.actor(rows.obs)[0])), 1))[0]
    assert values.shape == (16, 1)


def test_the_better_of_two_actions_is_what_the_target_critics_say():
    learner = Anchored(3, 2, CONFIG, generator())
    rows = batch()
    second = -rows.action
    found = learner.better_of(rows.obs, rows.action, second)
    for row in range(16):
        values = [
            float(learner.target_critics(torch.cat((rows.obs[row], a[row]))[None]).amin())
            for a in (rows.action, second)
        ]
        better = (rows.action, second)[int(values[1] > values[0])]
        assert torch.equal(found[row], better[row])
    assert torch.equal(learner.better_of(rows.obs, rows.action, rows.action), rows.action)


def test_gradients_reach_only_what_learns():
    learner = Anchored(3, 2, replace(CONFIG, target_rate=1e-60), generator())
    before = {name: [p.clone() for p in part.parameters()] for name, part in learner.parts.items()
              if isinstance(part, nn.Module)}  # fmt: skip
    learner.update_near(batch(), batch().action)
    changed = {
        name
        for name, old in before.items()
        if any(
            not torch.equal(a, b)
            for a, b in zip(old, learner.parts[name].parameters(), strict=True)
        )
    }
    assert changed == {"actor", "critics", "deployed"}  # which follows the actor
    for left, right in zip(learner.deployed.parameters(), learner.actor.parameters(), strict=True):
        assert torch.equal(left, right)  # after one step it is a mean of one


def test_the_deployed_actor_is_a_mean_of_trained_ones():
    learner = Anchored(3, 2, replace(CONFIG, deployed_rate=0.4, learning_rate=0.1), generator())
    seen, wanted = [], torch.zeros(())
    for number in range(4):
        learner.update_near(batch(seed=number), batch().action)
        seen.append(learner.actor.layers[0].detach().clone())
        # 1 and 1/2 are more than 0.4: the plain mean, without the untrained one.
        wanted = sum(seen) / len(seen) if number < 2 else 0.6 * wanted + 0.4 * seen[-1]
        assert torch.allclose(learner.deployed.layers[0], wanted, atol=1e-6)


def test_a_folded_actor_takes_observations_as_they_come():
    actor = MLP((3, 8, 2), 1, generator()).requires_grad_(False)
    scale = LogUnits(torch.tensor([1.0, -2.0, 3.0]), torch.tensor([0.5, 2.0, 10.0]), 1.0)
    obs = torch.randn(9, 3, generator=generator(5)) * 4
    assert torch.allclose(scale.fold(actor)(obs), actor(scale.of(obs)), atol=1e-5)


def test_two_learners_of_one_seed_are_equal_and_one_can_be_saved():
    one, two, three = (Anchored(3, 2, CONFIG, generator()) for _ in range(3))
    for learner in (one, two):
        for number in range(5):
            learner.update_near(batch(seed=number), batch(seed=number).action)
    three.load_tensors({name: tensor.clone() for name, tensor in two.tensors().items()})
    one.update(batch(seed=9))
    three.update(batch(seed=9))
    for name, tensor in one.tensors().items():
        assert np.array_equal(tensor.detach().numpy(), three.tensors()[name].detach().numpy()), name


def test_the_limits_of_the_anchor_are_plain_td3_and_cloning():
    """The actor's gradient, of which Adam takes the sign: greed without end, and none at all."""
    rows = batch()
    anchor = torch.ones(16, 2)  # not where the critics of this seed lead

    def gradient(greed, near):
        learner = Anchored(3, 2, replace(CONFIG, greed=greed), generator())
        action = torch.tanh(learner.actor(rows.obs)[0])
        values = learner.critics(torch.cat((rows.obs, action), 1))[0]
        loss = learner.actor_loss(rows.obs, near)
        parts = torch.autograd.grad(loss, list(learner.actor.parameters()))
        wanted = -values.mean() / values.abs().mean().detach(), (action - anchor).square().mean()
        return parts, [
            torch.autograd.grad(part, list(learner.actor.parameters()), retain_graph=True)
            for part in wanted
        ]

    def alike(one, two):
        one, two = (torch.cat([part.flatten() for part in parts]) for parts in (one, two))
        return float(torch.nn.functional.cosine_similarity(one, two, dim=0))

    found, (plain, cloned) = gradient(1e6, anchor)
    assert alike(found, plain) == pytest.approx(1, abs=1e-5)
    found, _ = gradient(1.0, None)
    assert all(torch.equal(a, b) for a, b in zip(found, plain, strict=True))
    found, _ = gradient(0.0, anchor)
    assert all(torch.allclose(a, b, atol=1e-8) for a, b in zip(found, cloned, strict=True))
    assert alike(plain, cloned) < 0.9  # so that the above could have failed


def test_the_actor_loss_on_numbers_made_by_hand():
    """Two states of one number, an actor that answers 0, critics whose value is 2 a + s."""
    learner = Anchored(1, 1, replace(CONFIG, greed=3.0), generator())
    learner.actor = MLP((1, 1), 1)  # zeros

    class Values(nn.Module):
        def forward(self, x):
            return (2 * x[:, 1:] + x[:, :1]).expand(2, -1, -1)

    learner.critics = Values()
    obs, anchor = torch.tensor([[1.0], [-3.0]]), torch.tensor([[0.5], [1.0]])
    # Q = 1 and -3: mean -1, mean size 2; distances 0.25 and 1.
    assert float(learner.actor_loss(obs, None).detach()) == pytest.approx(3.0 * 1 / 2)
    assert float(learner.actor_loss(obs, anchor).detach()) == pytest.approx(1.5 + 0.625)
    # Only the first row has an anchor, at half its weight.
    found = learner.actor_loss(obs, anchor[:1], weight=0.5)
    assert float(found.detach()) == pytest.approx(1.5 + 0.125)
