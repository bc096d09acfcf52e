"""TD3 against values worked out by hand, an independent implementation, and tasks it must solve."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
import torch
from torch import nn

from mcat.agents.configs import TD3Config
from mcat.agents.learner import Batch
from mcat.agents.networks import MLP
from mcat.agents.td3 import TD3
from mcat.errors import DataError, UsageError
from tests.agents.numpy_td3 import NumpyTD3


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def random_batch(n: int, obs: int, act: int, seed: int = 0) -> Batch:
    g = generator(seed)
    return Batch(
        torch.randn(n, obs, generator=g),
        torch.rand(n, act, generator=g) * 2 - 1,
        torch.randn(n, 1, generator=g),
        torch.randn(n, obs, generator=g),
        (torch.rand(n, 1, generator=g) < 0.3).to(torch.get_default_dtype()),
    )


def weights(agent: TD3) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in agent.tensors().items()}


# --- networks -------------------------------------------------------------------------------


def as_modules(net: MLP) -> list[nn.Sequential]:
    """The members of an MLP as ordinary torch modules."""
    modules = []
    for member in range(net.members):
        layers: list[nn.Module] = []
        pairs = zip(net.layers[::2], net.layers[1::2], strict=True)
        for weight, bias in pairs:
            layer = nn.Linear(weight.shape[2], weight.shape[1])
            layer.weight.data.copy_(weight[member].detach())
            layer.bias.data.copy_(bias[member, 0].detach())
            layers += [layer, nn.ReLU()]
        modules.append(nn.Sequential(*layers[:-1]))
    return modules


@pytest.mark.parametrize("sizes", [(3, 8, 8, 1), (9, 4, 2), (2, 7), (5, 5, 5, 5, 6)])
@pytest.mark.parametrize("members", [1, 2, 3])
def test_mlp_and_its_gradients_equal_torch_modules(sizes, members):
    net = MLP(sizes, members, generator())
    modules = as_modules(net)
    x = torch.randn(11, sizes[0], generator=generator(1)).requires_grad_()
    out = net(x)
    expected = torch.stack([module(x) for module in modules])
    torch.testing.assert_close(out, expected)

    found = torch.autograd.grad(out.square().sum(), [x, *net.layers])
    wanted = torch.autograd.grad(
        expected.square().sum(), [x, *(p for m in modules for p in m.parameters())]
    )
    torch.testing.assert_close(found[0], wanted[0])
    per_member = len(net.layers)
    for index, gradient in enumerate(found[1:]):
        for member in range(members):
            torch.testing.assert_close(
                gradient[member].squeeze(0) if index % 2 else gradient[member],
                wanted[1 + member * per_member + index],
            )


@pytest.mark.parametrize(("members", "sets"), [(3, 3), (6, 3), (2, 1)])
def test_members_may_see_different_rows(members, sets):
    """Outputs and gradients are those of a network alone with its rows; set i of i modulo sets."""
    net = MLP((3, 8, 2), members, generator())
    x = torch.randn(sets, 7, 3, generator=generator(1))
    out = net(x)
    found = torch.autograd.grad(out.square().sum(), list(net.layers))
    for member, module in enumerate(as_modules(net)):
        expected = module(x[member % sets])
        torch.testing.assert_close(out[member], expected)
        wanted = torch.autograd.grad(expected.square().sum(), list(module.parameters()))
        for ours, theirs in zip(found, wanted, strict=True):
            torch.testing.assert_close(ours[member].view_as(theirs), theirs)


def test_a_narrowed_network_has_the_first_outputs_and_the_same_weights():
    net = MLP((3, 8, 6), 2, generator())
    narrow, x = net.narrowed(4), torch.randn(5, 3, generator=generator(1))
    torch.testing.assert_close(narrow(x), net(x)[..., :4])
    assert narrow.sizes == (3, 8, 4)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(1.0)
    torch.testing.assert_close(narrow(x), net(x)[..., :4])
    assert not any(parameter.requires_grad for parameter in narrow.parameters())


def test_initial_weights_are_drawn_as_torch_linear_does():
    net = MLP((50, 400, 10), 2, generator())
    for index, inputs in enumerate((50, 50, 400, 400)):
        values = net.layers[index].detach()
        assert values.abs().max() <= inputs**-0.5
        assert values.std() == pytest.approx(inputs**-0.5 / 3**0.5, rel=0.2)


# --- the update, by hand ----------------------------------------------------------------------


def silence(net: nn.Module) -> None:
    for parameter in net.parameters():
        parameter.data.zero_()


def network(state: dict[str, torch.Tensor], name: str) -> torch.Tensor:
    """All weights or moments of one part of an agent's state."""
    return torch.cat([v.flatten() for key, v in state.items() if key.startswith(f"{name}/")])


def constant_agent(config: TD3Config, q1: float, q2: float) -> TD3:
    """All networks are 0, but the target critics say q1 and q2 of everything."""
    agent = TD3(1, 1, config, generator())
    for net in (agent.actor, agent.critics, agent.actor_target, agent.critics_target):
        silence(net)
    agent.critics_target.layers[-1][:, 0, 0] = torch.tensor([q1, q2])
    return agent


def column(*values: float) -> torch.Tensor:
    return torch.tensor(values).unsqueeze(1)


@pytest.mark.parametrize(("q1", "q2"), [(3.0, 5.0), (5.0, 3.0)])
def test_the_target_takes_the_smaller_critic_and_masks_termination_only(q1, q2):
    agent = constant_agent(TD3Config(hidden=(4,), discount=0.9), q1, q2)
    nothing = column(0.0, 0.0)
    # A time limit leaves terminal at 0 and so bootstraps: y = 1 + 0.9 * 3 = 3.7; else y = 1.
    losses = agent.update(Batch(nothing, nothing, column(1.0, 1.0), nothing, column(0.0, 1.0)))
    # Both critics say 0: the loss is the mean of (3.7², 1²), twice.
    assert losses.critic.item() == pytest.approx(2 * (3.7**2 + 1) / 2)


def smoothed_action(agent: TD3) -> float:
    """The target action of one row, read off a loss of 2 (0 - Q'(s', a'))² where Q' = a'."""
    silence(agent.critics)
    nothing = column(0.0)
    loss = agent.update(Batch(nothing, nothing, nothing, nothing, nothing)).critic.item()
    return (loss / 2) ** 0.5


@pytest.mark.parametrize(("mean", "low", "high"), [(0.0, 0.0, 0.5), (9.0, 0.5, 1.0)])
def test_target_smoothing_is_clipped_and_stays_inside_the_action_space(mean, low, high):
    config = TD3Config(hidden=(1,), discount=1.0, target_noise=100.0, policy_delay=10**9)
    agent = constant_agent(config, -10.0, -10.0)
    agent.actor_target.layers[-1][:] = mean  # the target actor says tanh(mean): 0 or 1
    first, bias, last, _ = agent.critics_target.layers
    first[:, 0, 1], bias[:], last[:] = 1.0, 10.0, 1.0  # relu(a + 10) - 10 = a
    actions = [smoothed_action(agent) for _ in range(50)]
    assert min(actions) >= low - 1e-5
    assert max(actions) <= high + 1e-5
    assert max(actions) - min(actions) < 0.51
    assert np.mean(np.isclose(actions, 0.5, atol=1e-4)) > 0.3  # the noise is nearly always clipped


def test_actor_and_targets_move_every_second_update_only():
    agent = TD3(3, 2, TD3Config(hidden=(8, 8)), generator())
    batch = random_batch(16, 3, 2)
    still = ("actor", "actor_target", "critics_target")
    for update in range(1, 7):
        before = weights(agent)
        agent.update(batch)
        after = weights(agent)
        assert not torch.equal(network(before, "critics"), network(after, "critics"))
        for name in still:
            same = torch.equal(network(before, name), network(after, name))
            assert same == (update % 2 == 1), name
        if update % 2 == 0:  # a fraction tau of the way to the networks as they are now
            for name in ("actor", "critics"):
                old, new = network(before, f"{name}_target"), network(after, f"{name}_target")
                torch.testing.assert_close(new, old + 0.005 * (network(after, name) - old))


def test_the_actor_update_leaves_the_critics_alone_and_uses_the_first():
    batch = random_batch(16, 3, 2)
    agents = [
        TD3(3, 2, TD3Config(hidden=(8, 8), policy_delay=delay), generator()) for delay in (1, 9)
    ]
    for agent in agents:
        agent.update(batch)
    with_actor, without = (weights(agent) for agent in agents)
    for name in ("critics", "critic_adam"):
        assert torch.equal(network(with_actor, name), network(without, name))
    assert not torch.equal(network(with_actor, "actor"), network(without, "actor"))

    torch.manual_seed(0)
    third = TD3(3, 2, TD3Config(hidden=(8, 8), policy_delay=1, learning_rate=1e-30), generator())
    for parameter in third.critics.layers:
        parameter.data[1] = 1e3 * torch.randn_like(parameter[1])  # a wild second critic
    first = as_modules(third.critics)[0]
    loss = third.update(batch).actor.item()
    obs, own = batch.obs, torch.from_numpy(third.act(batch.obs.numpy()))
    assert loss == pytest.approx(-first(torch.cat((obs, own), 1)).mean().item(), rel=1e-4)


# --- an independent implementation ------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-5)])
def test_a_hundred_updates_equal_an_independent_numpy_implementation(dtype, tolerance):
    torch.set_default_dtype(dtype)
    try:
        agent = TD3(5, 3, TD3Config(hidden=(32, 24)), generator())
        reference = NumpyTD3(agent)
        noises = generator()
        for update in range(100):
            batch = random_batch(64, 5, 3, seed=update)
            noises.set_state(agent.generator.get_state())
            noise = torch.randn(batch.action.shape, generator=noises).numpy().astype(np.float64)
            critic, actor, *_ = agent.update(batch)
            rows = (column.numpy().astype(np.float64) for column in batch)
            expected_critic, expected_actor = reference.update(*rows, noise)
            assert critic.item() == pytest.approx(expected_critic, rel=tolerance)
            if expected_actor is not None:
                assert actor.item() == pytest.approx(expected_actor, rel=tolerance, abs=tolerance)
        for name, net, member in (("actor", agent.actor, 0), ("q2", agent.critics, 1)):
            found = np.concatenate([p.ravel() for p in NumpyTD3.layers(net, member)])
            wanted = np.concatenate([p.ravel() for p in reference.nets[name]])
            assert np.linalg.norm(found - wanted) <= tolerance * np.linalg.norm(wanted)
    finally:
        torch.set_default_dtype(torch.float32)


# --- it learns --------------------------------------------------------------------------------


def test_it_learns_to_copy_its_observation():
    """SB3's identity task: one step, the reward is how close the action is to the observation."""
    agent = TD3(1, 1, TD3Config(hidden=(32, 32), learning_rate=2e-3), generator())
    rng = np.random.default_rng(0)
    for _ in range(1500):
        s, a = (torch.from_numpy(rng.uniform(-0.9, 0.9, (64, 1)).astype(np.float32)) for _ in "sa")
        agent.update(Batch(s, a, 1 - (s - a).abs(), torch.zeros_like(s), torch.ones_like(s)))
    states = np.linspace(-0.8, 0.8, 50)[:, np.newaxis]
    assert np.abs(agent.act(states) - states).mean() < 0.1


@pytest.mark.parametrize(
    ("terminal", "expected", "tolerance"), [(False, 10.0, 0.5), (True, 4.0951, 0.3)]
)
def test_truncation_bootstraps_and_termination_does_not(terminal, expected, tolerance):
    """Reward 1, five steps, discount 0.9; the step is seen only where it matters."""
    config = TD3Config(hidden=(32,), learning_rate=3e-3, discount=0.9, target_rate=0.05)
    agent = TD3(1, 1, config, generator())
    rng = np.random.default_rng(0)
    for _ in range(2000):
        step = rng.integers(5, size=(64, 1)).astype(np.float32)
        seen = torch.from_numpy(step / 5 if terminal else np.zeros_like(step))
        after = torch.from_numpy((step + 1) / 5 if terminal else np.zeros_like(step))
        action = torch.from_numpy(rng.uniform(-1, 1, (64, 1)).astype(np.float32))
        end = torch.from_numpy((step == 4) * np.float32(terminal))
        agent.update(Batch(seen, action, torch.ones(64, 1), after, end))
    start = torch.cat((torch.zeros(1, 1), torch.from_numpy(agent.act(np.zeros((1, 1))))), 1)
    value = agent.critics(start).mean().item()
    assert value == pytest.approx(expected, abs=tolerance)


# --- state ------------------------------------------------------------------------------------


def test_a_restored_agent_goes_on_to_the_bit():
    def digest(agent: TD3) -> str:
        parts = [tensor.detach().numpy().tobytes() for tensor in agent.tensors().values()]
        return hashlib.sha256(b"".join(parts)).hexdigest()

    agent = TD3(3, 2, TD3Config(hidden=(16, 16)), generator(1))
    for seed in range(7):
        agent.update(random_batch(16, 3, 2, seed))
    twin = TD3(3, 2, TD3Config(hidden=(16, 16)), generator(2))
    twin.load_tensors(weights(agent))
    assert digest(twin) == digest(agent)
    for seed in range(7, 14):
        batch = random_batch(16, 3, 2, seed)
        assert agent.update(batch)[:2] == twin.update(batch)[:2]
    assert digest(twin) == digest(agent)


def test_state_of_another_network_is_refused_and_changes_nothing():
    agent = TD3(3, 2, TD3Config(hidden=(16,)), generator())
    before = weights(agent)
    with pytest.raises(DataError, match="'actor/layers"):
        agent.load_tensors(weights(TD3(4, 2, TD3Config(hidden=(16,)), generator())))
    with pytest.raises(DataError, match="generator"):
        agent.load_tensors({k: v for k, v in before.items() if k != "generator"})
    assert all(torch.equal(before[name], tensor) for name, tensor in agent.tensors().items())


@pytest.mark.parametrize(
    "bad",
    [
        {"hidden": ()},
        {"learning_rate": 0.0},
        {"learning_rate": float("nan")},
        {"discount": 1.1},
        {"target_rate": 0.0},
        {"target_noise": -1.0},
        {"policy_delay": 0},
    ],
)
def test_senseless_settings_are_refused(bad):
    with pytest.raises(UsageError, match=next(iter(bad))):
        TD3Config(**bad)


# --- a peer -----------------------------------------------------------------------------------


def train_on_pendulum(seed: int, steps: int) -> TD3:
    import gymnasium as gym

    from mcat.agents.replay import Replay

    env = gym.make("Pendulum-v1")
    rng = np.random.default_rng(seed)
    agent = TD3(3, 1, TD3Config(hidden=(64, 64), learning_rate=1e-3), generator(seed))
    replay = Replay(3, 1, 20_000)
    obs, _ = env.reset(seed=seed)
    for step in range(steps):
        action = agent.act(obs[np.newaxis])[0] + 0.1 * rng.standard_normal(1)
        action = rng.uniform(-1, 1, 1) if step < 1000 else np.clip(action, -1, 1)
        after, reward, terminated, truncated, _ = env.step(2 * action)
        replay.add(obs, action, float(reward), after, terminated)
        obs = env.reset()[0] if truncated else after
        if step >= 1000:
            agent.update(replay.sample(rng, 256))
    return agent


def pendulum_return(act) -> float:
    import gymnasium as gym

    env = gym.make("Pendulum-v1")
    total = 0.0
    for seed in range(20):
        obs, _ = env.reset(seed=1000 + seed)
        for _ in range(200):
            obs, reward, *_ = env.step(act(obs))
            total += float(reward) / 20
    return total


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_it_reaches_the_level_of_stable_baselines3_on_pendulum():
    from stable_baselines3 import TD3 as SB3TD3

    ours, theirs = [], []
    for seed in range(3):
        agent = train_on_pendulum(seed, 10_000)
        ours.append(pendulum_return(lambda obs, a=agent: 2 * a.act(obs[np.newaxis])[0]))
        model = SB3TD3(
            "MlpPolicy",
            "Pendulum-v1",
            learning_starts=1000,
            policy_kwargs={"net_arch": [64, 64]},
            seed=seed,
            device="cpu",
        ).learn(10_000)
        theirs.append(pendulum_return(lambda obs, m=model: m.predict(obs, deterministic=True)[0]))
    print(f"pendulum after 10,000 steps: ours {ours}, stable-baselines3 {theirs}")
    assert np.median(ours) >= -250
    assert np.median(ours) >= np.median(theirs) - 50
