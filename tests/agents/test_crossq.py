"""CrossQ against numbers worked out by hand, an independent implementation, and tasks to solve."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from mcat.agents.configs import CrossQConfig
from mcat.agents.critics import NormalisedMLP, Values
from mcat.agents.crossq import CrossQ
from mcat.agents.learner import Batch, Imitation
from mcat.errors import DataError, UsageError
from tests.agents.test_td3 import column, generator, network, random_batch, weights

SMALL = CrossQConfig(hidden=(8, 8))


def as_modules(critics: NormalisedMLP) -> list[nn.Sequential]:
    """Each critic as ordinary torch modules, with the statistics it has now."""
    modules = []
    for member in range(critics.members):
        layers: list[nn.Module] = []
        for number, norm in enumerate(critics.norms):
            weight = critics.layers[2 * number].detach()[member]
            bias = critics.layers[2 * number + 1].detach()[member, 0]
            own = nn.BatchNorm1d(weight.shape[1], eps=norm.eps, momentum=norm.momentum)
            part = slice(None) if number == 0 else slice(member * len(own.weight), None)
            for name in ("weight", "bias", "running_mean", "running_var"):
                values = getattr(norm, name).detach()[part][: len(own.weight)]
                getattr(own, name).data.copy_(values)
            layer = nn.Linear(weight.shape[1], weight.shape[0])
            layer.weight.data.copy_(weight)
            layer.bias.data.copy_(bias)
            layers += [own, layer, nn.ReLU()]
        modules.append(nn.Sequential(*layers[:-1]))
    return modules


def shuffled(critics: NormalisedMLP) -> NormalisedMLP:
    """With statistics and scales that are not the initial ones."""
    g = generator(7)
    for norm in critics.norms:
        for values in (norm.weight.data, norm.bias.data, norm.running_mean):
            values.copy_(torch.randn(values.shape, generator=g))
        norm.running_var.copy_(torch.rand(norm.running_var.shape, generator=g) + 0.5)
    return critics


# --- critics ----------------------------------------------------------------------------------


def test_a_normalised_batch_by_hand():
    """One critic that is linear: (x - mean) / sqrt(variance + eps), and averages that follow."""
    critics = NormalisedMLP((1, 1), 1, 0.25, generator())
    critics.layers[0].data.fill_(2.0)
    critics.layers[1].data.fill_(10.0)
    found = critics(column(1.0, 3.0))  # mean 2, variance 1
    expected = 10 + 2 * np.array([-1, 1]) / np.sqrt(1 + 1e-3)
    np.testing.assert_allclose(found.detach().numpy()[0, :, 0], expected, rtol=1e-6)
    norm = critics.norms[0]
    assert norm.running_mean.item() == pytest.approx(0.25 * 2)
    assert norm.running_var.item() == pytest.approx(0.75 + 0.25 * 2)  # of a sample: n - 1
    critics.eval()
    held = critics(column(1.0, 3.0)).detach().numpy()[0, :, 0]
    assert held == pytest.approx(10 + 2 * (np.array([1, 3]) - 0.5) / np.sqrt(1.25 + 1e-3))
    assert norm.running_mean.item() == pytest.approx(0.5)  # looking changes nothing


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("sizes", [(3, 8, 8, 1), (4, 5, 1), (2, 1)])
def test_critics_and_their_gradients_equal_torch_modules(sizes, training):
    critics = shuffled(NormalisedMLP(sizes, 2, 0.01, generator())).train(training)
    modules = [module.train(training) for module in as_modules(critics)]
    x = torch.randn(11, sizes[0], generator=generator(1)).requires_grad_()
    found, expected = critics(x), torch.stack([module(x) for module in modules])
    torch.testing.assert_close(found, expected)
    ours = torch.autograd.grad(found.square().sum(), [x, *critics.layers])
    linear = [[p for m in module if isinstance(m, nn.Linear) for p in m.parameters()]
              for module in modules]  # fmt: skip
    theirs = torch.autograd.grad(expected.square().sum(), [x, *linear[0], *linear[1]])
    torch.testing.assert_close(ours[0], theirs[0], rtol=1e-4, atol=1e-5)
    for index, gradient in enumerate(ours[1:]):
        for member in range(2):
            wanted = theirs[1 + member * len(linear[0]) + index]
            torch.testing.assert_close(
                gradient[member].view_as(wanted), wanted, rtol=1e-4, atol=1e-5
            )
    for number, norm in enumerate(critics.norms):  # running averages moved alike
        both = [module[3 * number].running_mean for module in modules]
        torch.testing.assert_close(norm.running_mean, both[0] if number == 0 else torch.cat(both))


def test_contexts_are_seen_as_they_are_behind_state_and_action():
    """Two inputs of which the second is a context: it enters neither the averages nor the scale."""
    critics = NormalisedMLP((2, 1), 1, 0.25, generator(), as_is=1)
    critics.layers[0].data.copy_(torch.tensor([[[2.0, 3.0]]]))
    critics.layers[1].data.fill_(10.0)
    rows = torch.tensor([[1.0, 0.01], [3.0, 0.02]])
    expected = 10 + 2 * np.array([-1, 1]) / np.sqrt(1 + 1e-3) + 3 * np.array([0.01, 0.02])
    np.testing.assert_allclose(critics(rows).detach().numpy()[0, :, 0], expected, rtol=1e-6)
    assert critics.norms[0].running_mean.tolist() == pytest.approx([0.5])

    agent = CrossQ(4, 2, SMALL, generator(), context_size=3)
    obs, action = torch.arange(8.0).view(2, 4), -torch.ones(2, 2)
    assert agent.twins.rows(obs, action).tolist() == [[0, -1, -1, 1, 2, 3], [4, -1, -1, 5, 6, 7]]
    before = agent.critics.norms[0].running_var.clone()
    agent.update(random_batch(16, 4, 2))
    assert before.shape == (3,)  # a state and two actions
    assert not torch.equal(agent.critics.norms[0].running_var, before)


# --- the update -------------------------------------------------------------------------------


def reference_losses(agent: CrossQ, batch: Batch) -> tuple[torch.Tensor, list[nn.Sequential]]:
    """The critics' loss as one would write it down, with modules of their own."""
    critics = [module.train() for module in as_modules(agent.critics)]
    noise_source = torch.Generator()
    noise_source.set_state(agent.generator.get_state())
    noise = (torch.randn(batch.action.shape, generator=noise_source) * 0.2).clamp(-0.5, 0.5)
    own = torch.from_numpy(agent.act(batch.next_obs.numpy()))
    later = torch.cat((batch.next_obs, (own + noise).clamp(-1, 1)), 1)
    rows = torch.cat((torch.cat((batch.obs, batch.action), 1), later))
    values = torch.stack([critic(rows) for critic in critics])
    now, after = values[:, : len(batch.obs)], values[:, len(batch.obs) :].detach()
    target = batch.reward + agent.config.discount * (1 - batch.terminal) * after.amin(0)
    return (now - target).square().mean(1).sum(), critics


def test_both_halves_share_statistics_and_only_the_first_is_taught():
    agent = CrossQ(3, 2, SMALL, generator())
    shuffled(agent.critics)
    batch = random_batch(16, 3, 2)
    expected, critics = reference_losses(agent, batch)
    expected.backward()
    losses = agent.update(batch)
    torch.testing.assert_close(losses.critic, expected.detach())
    state = agent.critic_adam.state  # Adam's mean is half the gradient after one step: β1 = 0.5
    wanted = [[p.grad for m in q if isinstance(m, nn.Linear) for p in m.parameters()]
              for q in critics]  # fmt: skip
    for index, parameter in enumerate(agent.critics.layers):
        for member in range(2):
            found = state[parameter]["exp_avg"][member]
            torch.testing.assert_close(
                found.view_as(wanted[member][index]),
                0.5 * wanted[member][index],
                rtol=1e-4,
                atol=1e-6,
            )


@pytest.mark.parametrize(("terminal", "after"), [(0.0, 3.0), (1.0, 0.0)])
def test_the_target_goes_on_with_the_smaller_value_unless_the_task_ended(terminal, after):
    agent = CrossQ(1, 1, CrossQConfig(hidden=(4,), discount=0.9), generator())
    for parameter in agent.critics.layers:
        parameter.data.zero_()
    agent.critics.layers[-1].data[:, 0, 0] = torch.tensor([3.0, 5.0])  # all that they ever say
    nothing = column(0.0, 0.0)
    losses = agent.update(
        Batch(nothing, nothing, column(1.0, 1.0), nothing, column(*[terminal] * 2))
    )
    target = 1 + 0.9 * after
    assert losses.critic.item() == pytest.approx((3 - target) ** 2 + (5 - target) ** 2)


def test_the_actor_moves_every_third_update_and_touches_no_critic():
    agent = CrossQ(3, 2, SMALL, generator())
    batch = random_batch(16, 3, 2)
    for update in range(1, 7):
        before = weights(agent)
        agent.update(batch)
        moved = not torch.equal(network(before, "actor"), network(weights(agent), "actor"))
        assert moved == (update % 3 == 0)

    often, never = (
        CrossQ(3, 2, CrossQConfig(hidden=(8, 8), policy_delay=delay), generator())
        for delay in (1, 99)
    )
    for one in (often, never):
        one.update(batch)
    for part in ("critics", "critic_adam"):
        assert torch.equal(network(weights(often), part), network(weights(never), part))


def test_the_actor_is_judged_by_the_smaller_critic_under_running_averages():
    config = CrossQConfig(hidden=(8, 8), policy_delay=1, learning_rate=1e-30)
    agent = CrossQ(3, 2, config, generator())
    shuffled(agent.critics)
    batch = random_batch(16, 3, 2)
    own = torch.from_numpy(agent.act(batch.obs.numpy()))
    loss = agent.update(batch).actor.item()  # whose critic step moved the averages before
    critics = [module.eval() for module in as_modules(agent.critics)]
    values = torch.stack([critic(torch.cat((batch.obs, own), 1)) for critic in critics])
    assert loss == pytest.approx(-values.amin(0).mean().item(), rel=1e-4)


@pytest.mark.parametrize(("settling", "rates"), [(4, [0.8, 0.4]), (None, [0.8, 0.8])])
def test_the_learning_rate_falls_as_the_updates_go_on(settling, rates):
    config = CrossQConfig(hidden=(4,), learning_rate=0.8, settling=settling)
    assert [config.rate(updates) for updates in (0, 12)] == pytest.approx(rates)
    agent = CrossQ(3, 2, config, generator())
    for updates in range(3):
        agent.update(random_batch(8, 3, 2))
        for adam in (agent.actor_adam, agent.critic_adam):
            assert adam.param_groups[0]["lr"] == config.rate(updates)


def test_raw_actions_cost_their_mean_square():
    """Critics that always say the same leave only that to the actor."""
    config = CrossQConfig(hidden=(8, 8), policy_delay=1, raw_action_cost=0.3, learning_rate=1e-30)
    agent = CrossQ(3, 2, config, generator())
    for layer in agent.critics.layers[-2:]:
        layer.data.zero_()
    batch = random_batch(16, 3, 2)
    cost = 0.3 * agent.actor(batch.obs)[0].square().mean()
    wanted = torch.autograd.grad(cost, list(agent.actor.parameters()))
    losses = agent.update(batch)
    assert losses.actor.item() == pytest.approx(0)  # what is logged is the value alone
    for parameter, gradient in zip(agent.actor.parameters(), wanted, strict=True):
        found = agent.actor_adam.state[parameter]["exp_avg"]
        torch.testing.assert_close(found, 0.1 * gradient)


@pytest.mark.parametrize("share", [0.0, 0.2])
def test_the_deployed_actor_follows_the_one_that_learns(share):
    """1 / (4 + share n) of the way after the n-th update of that one, nowhere in between."""
    config = CrossQConfig(
        hidden=(8, 8), policy_delay=2, deployed_rate=0.25, deployed_share=share, learning_rate=0.1
    )
    agent = CrossQ(3, 2, config, generator())
    expected = [parameter.detach().clone() for parameter in agent.actor.parameters()]
    for update in range(1, 7):
        agent.update(random_batch(8, 3, 2, seed=update))
        if update % 2 == 0:
            for mean, parameter in zip(expected, agent.actor.parameters(), strict=True):
                mean += (parameter.detach() - mean) / (4 + share * update / 2)
        for mean, parameter in zip(expected, agent.deployed.parameters(), strict=True):
            torch.testing.assert_close(parameter, mean)
            assert not parameter.requires_grad
    states = np.ones((5, 3))
    shown = agent.act(states, deployed=True)
    assert not np.allclose(shown, agent.act(states))
    for mine, other in zip(agent.actor.parameters(), agent.deployed.parameters(), strict=True):
        mine.data.copy_(other)
    assert np.allclose(shown, agent.act(states))


def test_the_average_comes_to_be_one_over_a_share_of_all_updates():
    config = CrossQConfig(policy_delay=2, deployed_rate=0.5, deployed_share=0.25)
    assert [config.following(updates) for updates in (0, 8, 24)] == [0.5, 1 / 3, 1 / 5]
    assert replace(config, deployed_share=0.0).following(10**6) == 0.5


def test_errors_beyond_delta_count_in_proportion():
    """Distances 1, -2 and 5, 0 of two critics from their targets; of |e| > 2: 4 |e| - 4."""
    now = torch.tensor([[[1.0], [-2.0]], [[5.0], [0.0]]], requires_grad=True)
    values, target = Values(now, now.detach(), now[:, :0]), torch.zeros(2, 1)
    squared = values.losses(target, None)
    assert squared.total.item() == (1 + 4 + 25 + 0) / 2
    huber = values.losses(target, None, huber_delta=2.0)
    assert huber.total.item() == huber.td.item() == (1 + 4 + 16 + 0) / 2
    (gradient,) = torch.autograd.grad(huber.total, now)
    assert gradient.flatten().tolist() == [1, -2, 2, 0]
    weighted = values.losses(target, None, huber_delta=2.0, weights=torch.tensor([[3.0], [0.5]]))
    assert weighted.total.item() == (3 * 1 + 0.5 * 4 + 3 * 16 + 0) / 2


@pytest.mark.parametrize("delta", [None, 0.5])
def test_the_critics_minimise_the_loss_that_their_settings_name(delta):
    batch = random_batch(16, 3, 2)
    losses = []
    for one in (delta, 1e6):  # beyond which no error is: squares
        config = CrossQConfig(hidden=(8, 8), huber_delta=one)
        losses.append(CrossQ(3, 2, config, generator()).update(batch).critic.item())
    if delta is None:
        assert losses[0] == pytest.approx(losses[1])
    else:
        assert losses[0] < 0.9 * losses[1]


def test_imitated_rows_teach_but_do_not_enter_the_statistics():
    batch, more = random_batch(16, 3, 2), random_batch(9, 3, 2, seed=1)
    alone, both = CrossQ(3, 2, SMALL, generator()), CrossQ(3, 2, SMALL, generator())
    alone.update(batch)
    far = Imitation(more.obs + 100, more.action, more.reward + 50, torch.ones(9, 1), 1.0)
    losses = both.update(batch, far)
    assert (losses.gains > 0).all()
    assert losses.imitation.item() > 0
    for mine, other in zip(both.critics.norms, alone.critics.norms, strict=True):
        torch.testing.assert_close(mine.running_mean, other.running_mean)
        torch.testing.assert_close(mine.running_var, other.running_var)
    assert not torch.equal(
        network(weights(both), "critic_adam"), network(weights(alone), "critic_adam")
    )


# --- it learns --------------------------------------------------------------------------------


def test_it_learns_to_copy_its_observation():
    agent = CrossQ(1, 1, CrossQConfig(hidden=(32, 32)), generator())
    rng = np.random.default_rng(0)
    for _ in range(500):
        s, a = (torch.from_numpy(rng.uniform(-0.9, 0.9, (64, 1)).astype(np.float32)) for _ in "sa")
        agent.update(Batch(s, a, 1 - (s - a).abs(), torch.zeros_like(s), torch.ones_like(s)))
    states = np.linspace(-0.8, 0.8, 50)[:, np.newaxis]
    assert np.abs(agent.act(states) - states).mean() < 0.1


@pytest.mark.parametrize(
    ("terminal", "expected", "tolerance"), [(False, 10.0, 0.5), (True, 4.0951, 0.3)]
)
def test_truncation_bootstraps_and_termination_does_not(terminal, expected, tolerance):
    """Reward 1, five steps, discount 0.9; the step is seen only where it matters."""
    agent = CrossQ(1, 1, CrossQConfig(hidden=(32,), learning_rate=3e-3, discount=0.9), generator())
    rng = np.random.default_rng(0)
    for _ in range(1000):
        step = rng.integers(5, size=(64, 1)).astype(np.float32)
        seen = torch.from_numpy(step / 5 if terminal else np.zeros_like(step))
        after = torch.from_numpy((step + 1) / 5 if terminal else np.zeros_like(step))
        action = torch.from_numpy(rng.uniform(-1, 1, (64, 1)).astype(np.float32))
        end = torch.from_numpy((step == 4) * np.float32(terminal))
        agent.update(Batch(seen, action, torch.ones(64, 1), after, end))
    start = torch.cat((torch.zeros(1, 1), torch.from_numpy(agent.act(np.zeros((1, 1))))), 1)
    assert agent.critics(start).mean().item() == pytest.approx(expected, abs=tolerance)


# --- state ------------------------------------------------------------------------------------


def test_a_restored_agent_goes_on_to_the_bit():
    def digest(agent: CrossQ) -> str:
        parts = [tensor.detach().numpy().tobytes() for tensor in agent.tensors().values()]
        return hashlib.sha256(b"".join(parts)).hexdigest()

    agent = CrossQ(3, 2, SMALL, generator(1))
    for seed in range(7):
        agent.update(random_batch(16, 3, 2, seed))
    twin = CrossQ(3, 2, SMALL, generator(2))
    twin.load_tensors(weights(agent))
    assert digest(twin) == digest(agent)
    for seed in range(7, 14):
        batch = random_batch(16, 3, 2, seed)
        assert agent.update(batch)[:2] == twin.update(batch)[:2]
    assert digest(twin) == digest(agent)
    assert "critics/norms.1.running_var" in agent.tensors()


def test_state_of_another_network_is_refused_and_changes_nothing():
    agent = CrossQ(3, 2, SMALL, generator())
    agent.update(random_batch(16, 3, 2))
    before = weights(agent)
    wider = CrossQ(3, 2, CrossQConfig(hidden=(8, 9)), generator(1))
    wider.update(random_batch(16, 3, 2))
    with pytest.raises(DataError, match="layers"):
        agent.load_tensors(weights(wider))
    for missing in ("critics/norms.0.running_mean", "critic_adam/0.exp_avg", "generator"):
        with pytest.raises(DataError, match=missing):
            agent.load_tensors({k: v for k, v in before.items() if k != missing})
    assert all(torch.equal(before[name], tensor) for name, tensor in agent.tensors().items())


@pytest.mark.parametrize(
    "bad",
    [
        {"hidden": ()},
        {"learning_rate": 0.0},
        {"critic_beta": 1.0},
        {"momentum": 0.0},
        {"discount": 1.1},
        {"target_noise": -1.0},
        {"policy_delay": 0},
        {"deployed_rate": 0.0},
        {"deployed_share": 1.0},
        {"huber_delta": 0.0},
    ],
)
def test_senseless_settings_are_refused(bad):
    with pytest.raises(UsageError, match=next(iter(bad))):
        CrossQConfig(**bad)
