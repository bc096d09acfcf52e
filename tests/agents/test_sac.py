"""SAC against values worked out by hand, an independent implementation, and tasks to solve."""

from __future__ import annotations

import hashlib
import math

import numpy as np
import pytest
import torch

from mcat.agents.configs import FAST_SAC, SACConfig
from mcat.agents.learner import Batch, Imitation
from mcat.agents.sac import SAC
from mcat.errors import DataError, UsageError
from tests.agents.plain_sac import PlainSAC
from tests.agents.test_td3 import (
    column,
    generator,
    network,
    pendulum_return,
    random_batch,
    silence,
    weights,
)

SMALL = SACConfig(hidden=(8, 8))
NORMALISED = SACConfig(hidden=(8, 8), critics="normalised", deployed_rate=0.25)
KINDS = pytest.mark.parametrize("config", [SMALL, NORMALISED], ids=["tracked", "normalised"])


def by_task(batch: Batch, tasks: int) -> Batch:
    return Batch(*(x.view(tasks, -1, x.shape[1]) for x in batch))


# --- the update, by hand ----------------------------------------------------------------------


def constant_agent(config: SACConfig, q1: float, q2: float) -> SAC:
    """Networks are 0, so that spreads are 1, but the target critics say q1 and q2 of everything."""
    agent = SAC(1, 1, config, generator())
    for net in (agent.actor, agent.critics, agent.twins.target):
        silence(net)
    agent.twins.target.layers[-1][:, 0, 0] = torch.tensor([q1, q2])
    return agent


class Told(SAC):
    """Every action has a density of e^-3."""

    def policy(self, obs):
        policy = super().policy(obs)

        class Fixed(type(policy)):
            def draw(self, generator):
                drawn = super().draw(generator)
                return drawn._replace(log_density=torch.full_like(drawn.log_density, -3.0))

        return Fixed(*policy)


@pytest.mark.parametrize(("q1", "q2"), [(10.0, 12.0), (12.0, 10.0)])
@pytest.mark.parametrize(("scale", "soft"), [(1.0, 10.54), (5.0, 14.54)])
def test_the_target_is_soft_takes_the_smaller_critic_and_masks_termination(q1, q2, scale, soft):
    """1 + 0.9 (10 + 0.2 · 3) = 10.54, and 14.54 with rewards five times as large."""
    agent = constant_agent(
        SACConfig(hidden=(4,), discount=0.9, temperature=0.2, reward_scale=scale), q1, q2
    )
    agent.__class__ = Told
    nothing = column(0.0, 0.0)
    losses = agent.update(Batch(nothing, nothing, column(1.0, 1.0), nothing, column(0.0, 1.0)))
    # Both critics say 0; the second row ends, so that its target is the reward alone.
    assert losses.critic.item() == pytest.approx(2 * (soft**2 + scale**2) / 2)


def test_the_actors_loss_is_what_entropy_costs_minus_the_smaller_value():
    agent = constant_agent(SACConfig(hidden=(4,), temperature=0.2, learning_rate=1e-30), 0.0, 0.0)
    agent.critics.layers[-1].data[:, 0, 0] = torch.tensor([7.0, 5.0])
    obs = torch.zeros(4, 1)
    state = agent.generator.get_state()
    losses, drawn = agent.actor_losses(obs)
    assert losses.item() == pytest.approx((0.2 * drawn.log_density - 5.0).mean().item())
    agent.generator.set_state(state)
    noise = torch.randn(4, 1, generator=agent.generator)
    assert torch.equal(drawn.raw, noise)  # mean 0, spread 1


@pytest.mark.parametrize(("log_std", "sign"), [(1.0, -1), (-3.0, 1)])
def test_too_much_entropy_makes_it_cheaper_and_too_little_dearer(log_std, sign):
    """One number per action: entropy is to be -1. tanh of N(0, 1) has about -0.1 more than that."""
    agent = constant_agent(SACConfig(hidden=(4,), learning_rate=1e-30), 0.0, 0.0)
    agent.actor.layers[-1].data[0, 0, 1] = log_std - 1.0
    before = agent.temperature().item()
    assert before == pytest.approx(math.log(0.1))
    agent.update(random_batch(64, 1, 1))
    step = agent.temperature().item() - before
    assert step == pytest.approx(sign * 3e-4, rel=1e-3)  # Adam's first step is its rate


def test_a_fixed_temperature_stays():
    agent = SAC(3, 2, SACConfig(hidden=(8,), temperature=1.0, temperature_rate=0.0), generator())
    for seed in range(5):
        agent.update(random_batch(16, 3, 2, seed))
    assert agent.temperature().item() == 0.0


@KINDS
def test_the_actors_step_leaves_the_critics_alone_and_theirs_the_actor(config):
    batch = random_batch(16, 3, 2)
    changes = {name: getattr(config, name) for name in ("hidden", "critics", "deployed_rate")}
    agents = [SAC(3, 2, SACConfig(**changes, policy_delay=delay), generator()) for delay in (1, 9)]
    before = weights(agents[0])
    for agent in agents:
        agent.update(batch)
    both, critics_only = (weights(agent) for agent in agents)
    for name in ("critics", "critic_adam"):
        assert torch.equal(network(both, name), network(critics_only, name))
        assert not (name in before and torch.equal(network(both, name), network(before, name)))
    for name in ("actor", "temperature"):
        assert torch.equal(network(critics_only, name), network(before, name))
        assert not torch.equal(network(both, name), network(before, name))


def test_targets_follow_at_every_update():
    agent = SAC(3, 2, SMALL, generator())
    for seed in range(3):
        before = weights(agent)
        agent.update(random_batch(16, 3, 2, seed))
        after = weights(agent)
        old, new = network(before, "critics_target"), network(after, "critics_target")
        torch.testing.assert_close(new, old + 0.005 * (network(after, "critics") - old))


@KINDS
def test_imitated_steps_raise_values_to_their_returns_in_the_units_of_rewards(config):
    agent = SAC(3, 2, SACConfig(hidden=(8,), critics=config.critics, reward_scale=2.0), generator())
    batch = random_batch(16, 3, 2)
    seen = Imitation(batch.obs[:4], batch.action[:4], column(50.0, -50.0, 50.0, 50.0),
                     column(1.0, 1.0, 0.5, 0.0), share=0.0)  # fmt: skip
    # As they are without gradients; statistics of normalised critics move before they are asked.
    twin = SAC(3, 2, agent.config, generator())
    twin.update(batch)
    losses = agent.update(batch, seen)
    fresh = SAC(3, 2, agent.config, generator())
    if config.critics == "normalised":
        for own, moved in zip(fresh.critics.norms, twin.critics.norms, strict=True):
            own.running_mean.copy_(moved.running_mean)
            own.running_var.copy_(moved.running_var)
    values = fresh.twins.judge(seen.obs, seen.action).detach()
    excess = (2 * seen.returns - values).clamp(min=0)
    assert losses.gains.tolist() == pytest.approx(excess.sum(0).flatten().tolist(), rel=1e-5)
    assert losses.gains[1] == 0
    expected = (seen.weights * excess.square()).sum().item() / 4
    assert losses.imitation.item() == pytest.approx(expected, rel=1e-5)


# --- by task ----------------------------------------------------------------------------------


@KINDS
def test_rows_by_task_in_one_network_are_the_same_rows(config):
    flat = SAC(3, 2, config, generator())
    grouped = SAC(3, 2, config, generator(), tasks=4)
    for seed in range(6):
        batch = random_batch(32, 3, 2, seed)
        found, expected = grouped.update(by_task(batch, 4)), flat.update(batch)
        assert found.critic.item() == pytest.approx(expected.critic.item(), rel=1e-4)
        if seed == 0:  # then each task has a temperature of its own
            assert found.actor.item() == pytest.approx(expected.actor.item(), rel=1e-5)
    assert grouped.temperature().shape == (4, 1, 1)


@KINDS
def test_tasks_apart_learn_from_their_own_rows_only(config):
    agents = [SAC(3, 2, config, generator(), tasks=3, apart=True) for _ in "ab"]
    batch = by_task(random_batch(48, 3, 2), 3)
    other = Batch(*(x.clone() for x in batch))
    for x, y in zip(other, random_batch(16, 3, 2, seed=9), strict=True):
        x[1] = y
    for agent, rows in zip(agents, (batch, other), strict=True):
        for _ in range(3):  # Adam's first steps are all of one length
            agent.update(rows)
    for net in ("actor", "critics"):
        ours, theirs = (getattr(agent, net).layers for agent in agents)
        for a, b in zip(ours, theirs, strict=True):
            same = [torch.equal(a[i], b[i]) for i in range(len(a))]
            assert same == [number % 3 != 1 for number in range(len(a))], net
    ours, theirs = (agent.temperature() for agent in agents)
    assert (ours == theirs).flatten().tolist() == [True, False, True]


@KINDS
def test_each_of_the_tasks_apart_is_judged_as_it_would_be_alone(config):
    together = SAC(3, 2, config, generator(), tasks=2, apart=True)
    batch = random_batch(32, 3, 2)
    for task in range(2):
        alone = SAC(3, 2, config, generator(5))
        for net in ("actor", "critics"):
            pairs = zip(getattr(alone, net).layers, getattr(together, net).layers, strict=True)
            for own, theirs in pairs:
                own.data.copy_(theirs.data[task::2])
        rows = by_task(batch, 2)
        (now, after, _), (wanted, wanted_after, _) = (
            agent.twins.values(part, part.action)
            for agent, part in ((together, rows), (alone, Batch(*(x[task] for x in rows))))
        )
        torch.testing.assert_close(now[:, task], wanted)
        if config.critics == "normalised":
            torch.testing.assert_close(after[:, task], wanted_after)
        torch.testing.assert_close(
            together.policy(rows.obs).mean[task], alone.policy(rows.obs[task]).mean
        )


# --- an independent implementation ------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-4)])
def test_a_hundred_updates_equal_an_independent_implementation(dtype, tolerance):
    torch.set_default_dtype(dtype)
    try:
        agent = SAC(5, 3, SACConfig(hidden=(32, 24), temperature_rate=1e-2), generator())
        reference, noises = PlainSAC(agent), generator()
        for update in range(100):
            batch = random_batch(64, 5, 3, seed=update)
            noises.set_state(agent.generator.get_state())
            noise = [torch.randn(batch.action.shape, generator=noises) for _ in range(2)]
            critic, actor, *_ = agent.update(batch)
            expected = reference.update(batch, *noise)
            assert (critic.item(), actor.item()) == pytest.approx(expected, rel=tolerance, abs=1e-5)
        assert agent.temperature().item() == pytest.approx(
            reference.log_alpha.item(), rel=tolerance
        )
        found = agent.actor.layers[2].detach()[0]
        torch.testing.assert_close(found, reference.actor[2].weight.detach(),
                                   rtol=10 * tolerance, atol=10 * tolerance)  # fmt: skip
    finally:
        torch.set_default_dtype(torch.float32)


# --- acting -----------------------------------------------------------------------------------


@KINDS
def test_it_acts_by_its_means_and_explores_by_its_spreads(config):
    agent = SAC(3, 2, config, generator())
    obs = torch.randn(5, 3, generator=generator(1))
    policy = agent.policy(obs)
    expected = torch.tanh(policy.mean).detach().numpy()
    np.testing.assert_allclose(agent.act(obs.numpy()), expected, rtol=1e-6)
    np.testing.assert_allclose(agent.act(obs.numpy(), deployed=True), expected, rtol=1e-6)
    noise = np.float32([[1.0, -2.0]] * 5)
    found = agent.explore(obs.numpy(), noise, spread=99.0)
    raw = policy.mean + policy.log_std.exp() * torch.from_numpy(noise)
    np.testing.assert_allclose(found, torch.tanh(raw).detach().numpy(), rtol=1e-6)


def test_what_a_user_gets_is_the_actors_means_as_they_are_now_or_an_average():
    obs = np.random.default_rng(0).standard_normal((5, 3))
    same, averaged = SAC(3, 2, SMALL, generator()), SAC(3, 2, NORMALISED, generator())
    assert same.deployed.sizes == averaged.deployed.sizes == (3, 8, 8, 2)
    before = [p.clone() for p in averaged.deployed.layers]
    for agent in (same, averaged):
        agent.update(random_batch(16, 3, 2))
    assert np.array_equal(same.act(obs, deployed=True), same.act(obs))
    assert not np.array_equal(averaged.act(obs, deployed=True), averaged.act(obs))
    for old, new, means in zip(
        before, averaged.deployed.layers, averaged.means.layers, strict=True
    ):
        torch.testing.assert_close(new.data, old + 0.25 * (means.data - old))


# --- it learns --------------------------------------------------------------------------------


@pytest.mark.parametrize("critics", ["tracked", "normalised"])
def test_it_learns_to_copy_its_observation(critics):
    """SB3's identity task: one step, the reward is how close the action is to the observation."""
    config = SACConfig(hidden=(32, 32), learning_rate=2e-3, temperature=0.02, critics=critics)
    agent = SAC(1, 1, config, generator())
    rng = np.random.default_rng(0)
    for _ in range(1000):
        s, a = (torch.from_numpy(rng.uniform(-0.9, 0.9, (64, 1)).astype(np.float32)) for _ in "sa")
        agent.update(Batch(s, a, 1 - (s - a).abs(), torch.zeros_like(s), torch.ones_like(s)))
    states = np.linspace(-0.8, 0.8, 50)[:, np.newaxis]
    assert np.abs(agent.act(states) - states).mean() < 0.1


# --- state ------------------------------------------------------------------------------------


@KINDS
def test_a_restored_agent_goes_on_to_the_bit(config):
    def digest(agent: SAC) -> str:
        parts = [tensor.detach().numpy().tobytes() for tensor in agent.tensors().values()]
        return hashlib.sha256(b"".join(parts)).hexdigest()

    agent = SAC(3, 2, config, generator(1))
    for seed in range(7):
        agent.update(random_batch(16, 3, 2, seed))
    twin = SAC(3, 2, config, generator(2))
    twin.load_tensors(weights(agent))
    assert digest(twin) == digest(agent)
    obs = np.ones((1, 3))
    assert np.array_equal(twin.act(obs, deployed=True), agent.act(obs, deployed=True))
    for seed in range(7, 14):
        batch = random_batch(16, 3, 2, seed)
        assert agent.update(batch)[:2] == twin.update(batch)[:2]
    assert digest(twin) == digest(agent)
    assert np.array_equal(twin.act(obs), agent.act(obs))


def test_state_of_another_network_is_refused_and_changes_nothing():
    agent = SAC(3, 2, SMALL, generator())
    before = weights(agent)
    with pytest.raises(DataError, match="'actor/layers"):
        agent.load_tensors(weights(SAC(4, 2, SMALL, generator())))
    with pytest.raises(DataError, match="temperature"):
        agent.load_tensors({k: v for k, v in before.items() if k != "temperature/values"})
    assert all(torch.equal(before[name], tensor) for name, tensor in agent.tensors().items())


@pytest.mark.parametrize(
    "bad",
    [
        {"hidden": ()},
        {"learning_rate": float("nan")},
        {"settling": 0},
        {"discount": 1.1},
        {"reward_scale": 0.0},
        {"temperature": 0.0},
        {"temperature_rate": -1.0},
        {"spread_floor": 2.0},
        {"target_rate": 0.0},
        {"momentum": 0.0},
        {"critic_beta": 1.0},
        {"policy_delay": 0},
        {"deployed_rate": 0.0},
        {"deployed_share": -0.1},
        {"huber_delta": -1.0},
        {"critics": "wild"},
    ],
)
def test_senseless_settings_are_refused(bad):
    with pytest.raises(UsageError, match=next(iter(bad))):
        SACConfig(**bad)


# --- a peer -----------------------------------------------------------------------------------


def train_on_pendulum(seed: int, steps: int, config: SACConfig) -> SAC:
    import gymnasium as gym

    from mcat.agents.replay import Replay

    env = gym.make("Pendulum-v1")
    rng = np.random.default_rng(seed)
    agent, replay = SAC(3, 1, config, generator(seed)), Replay(3, 1, 20_000)
    obs, _ = env.reset(seed=seed)
    for step in range(steps):
        noise = rng.standard_normal((1, 1), dtype=np.float32)
        action = agent.explore(obs[np.newaxis], noise)[0]
        action = rng.uniform(-1, 1, 1) if step < 1000 else action
        after, reward, terminated, truncated, _ = env.step(2 * action)
        replay.add(obs, action, float(reward), after, terminated)
        obs = env.reset()[0] if truncated else after
        if step >= 1000:
            agent.update(replay.sample(rng, 256))
    return agent


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_it_reaches_the_level_of_stable_baselines3_on_pendulum():
    from dataclasses import replace

    from stable_baselines3 import SAC as SB3SAC

    plain = SACConfig(hidden=(64, 64), learning_rate=1e-3, temperature=1.0, temperature_rate=1e-3)
    fast = replace(FAST_SAC, hidden=(64, 64), temperature_rate=1e-3)
    ours, normalised, theirs = [], [], []
    for seed in range(3):
        for config, found in ((plain, ours), (fast, normalised)):
            agent = train_on_pendulum(seed, 10_000, config)
            act = lambda obs, a=agent: 2 * a.act(obs[np.newaxis], deployed=True)[0]  # noqa: E731
            found.append(pendulum_return(act))
        model = SB3SAC(
            "MlpPolicy",
            "Pendulum-v1",
            learning_rate=1e-3,
            learning_starts=1000,
            policy_kwargs={"net_arch": [64, 64]},
            seed=seed,
            device="cpu",
        ).learn(10_000)
        theirs.append(pendulum_return(lambda obs, m=model: m.predict(obs, deterministic=True)[0]))
    print(f"pendulum after 10,000 steps: {ours=}, {normalised=}, stable-baselines3 {theirs}")
    for found in (ours, normalised):
        assert np.median(found) >= -250
        assert np.median(found) >= np.median(theirs) - 50
