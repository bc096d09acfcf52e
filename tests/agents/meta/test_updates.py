"""Updates of π(s, z): contexts of their rows, and self-imitation, against the definitions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from mcat.agents.configs import TD3Config
from mcat.agents.meta.mcat import MCAT
from mcat.agents.meta.updates import PolicyUpdates, encode_all
from mcat.agents.td3 import TD3, Batch, Imitation
from mcat.config import overlay
from tests.agents.meta.point_mass import (
    TINY,
    mcat,
    no_progress,
)
from tests.agents.test_td3 import as_modules, column, constant_agent, generator, random_batch


def updates(agent: MCAT) -> PolicyUpdates:
    return PolicyUpdates(
        agent.learner,
        agent.policy,
        agent.replay,
        imitation=agent.imitation,
        credit=agent.credit,
        rng=agent.rngs["sampling"],
        batch_size=agent.config.batch_size,
    )


def copies(tensors) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in tensors.items()}


def changed(before, after) -> set[str]:
    return {name for name in before if not torch.equal(before[name], after[name])}


# --- contexts in the updates ------------------------------------------------------------------


def test_contexts_are_those_of_the_present_encoder_over_each_steps_own_history():
    agent = mcat()
    model, k = agent.models.model, agent.config.context.history
    for episodes in (agent.replay, agent.imitation.episodes):
        found = encode_all(agent.policy, episodes)
        for step in range(0, len(episodes), 7):
            changes, actions = episodes.histories([step], k)
            with torch.no_grad():
                wanted = model.encode((torch.from_numpy(changes), torch.from_numpy(actions)))
            torch.testing.assert_close(found[step], wanted[0])
    before = encode_all(agent.policy, agent.replay)
    agent._learn_dynamics(no_progress)  # nothing of the old encoder stays behind
    assert not torch.allclose(encode_all(agent.policy, agent.replay), before)


def test_encoding_in_chunks_changes_nothing(monkeypatch):
    agent = mcat()
    whole = encode_all(agent.policy, agent.replay)
    monkeypatch.setattr("mcat.agents.meta.updates.CHUNK", 7)
    torch.testing.assert_close(encode_all(agent.policy, agent.replay), whole)


@pytest.mark.parametrize("kind", ["none", "uniform", "learned"])
def test_a_batch_has_the_steps_own_context_with_the_state_and_with_the_next(kind):
    agent = mcat(overlay(TINY, {"credit.kind": kind}))
    size = agent.task_set.observation_size
    batch = updates(agent)._draw(agent.config.batch_size)
    assert torch.equal(batch.obs[:, size:], batch.next_obs[:, size:])  # z_t with s_{t+1} too
    contexts = encode_all(agent.policy, agent.replay)
    states = torch.from_numpy(agent.replay.observations.copy())
    rewards = torch.from_numpy(agent.replay.rewards.copy())
    for row in range(len(batch.obs)):
        (step,) = (states == batch.obs[row, :size]).all(1).nonzero()[:, 0].tolist()
        assert torch.equal(batch.obs[row, size:], contexts[step])
        assert torch.equal(batch.action[row], torch.from_numpy(agent.replay.actions[step].copy()))
        after = torch.from_numpy(agent.replay.next_observations[step].copy())
        assert torch.equal(batch.next_obs[row, :size], after)
        if kind == "none":
            assert batch.reward[row] == rewards[step]
        elif kind == "uniform":
            first = step - step % agent.task_set.delay
            assert batch.reward[row] == rewards[first : first + 5].sum() / 5
    assert not batch.terminal.any()


def test_imitated_rows_have_their_own_contexts_and_the_returns_as_received():
    agent = mcat()
    memory = agent.imitation
    indices, rows = updates(agent)._imitation_rows(memory)
    size = agent.task_set.observation_size
    contexts = encode_all(agent.policy, memory.episodes)
    assert torch.equal(rows.obs[:, size:], contexts[indices])
    assert np.array_equal(rows.obs[:, :size].numpy(), memory.episodes.observations[indices])
    assert np.array_equal(rows.action.numpy(), memory.episodes.actions[indices])
    wanted = memory.episodes.discounted_returns(agent.config.td3.discount)[indices]
    assert np.array_equal(rows.returns[:, 0].numpy(), wanted)


def test_each_phase_changes_its_own_networks_and_no_others():
    agent = mcat()

    def after(phase, *arguments) -> set[str]:
        before = copies(agent.tensors())
        phase(*arguments)
        return {name.partition("/")[0] for name in changed(before, agent.tensors())}

    acting = (agent._policy_updates(), 4, 4, no_progress)
    assert after(agent._learn_to_act, *acting) == {"learner", "imitation", "credit"}
    assert after(agent._learn_to_translate, no_progress) == {"translator"}
    assert after(agent._learn_dynamics, no_progress) == {"models"}


def test_no_gradient_of_the_policy_reaches_the_encoder():
    agent = mcat()
    for parameter in agent.models.model.parameters():
        parameter.grad = None
    update = updates(agent)
    assert not update._draw(8).obs.requires_grad
    assert not update._imitation_rows(agent.imitation)[1].obs.requires_grad
    for _ in range(4):
        update()
    assert all(parameter.grad is None for parameter in agent.models.model.parameters())


# --- self-imitation in the update -------------------------------------------------------------


def first_moments(agent: TD3) -> torch.Tensor:
    """Of the critics' Adam, in the order of their layers."""
    state = agent.critic_adam.state
    return torch.cat([state[p]["exp_avg"].flatten() for p in agent.critics.layers])


def test_the_imitation_loss_by_hand():
    """Critics that say 0; the first row once brought 2, the second -1."""
    agent = constant_agent(TD3Config(hidden=(4,), discount=0.9), 0.0, 0.0)
    nothing = column(0.0, 0.0)
    rows = Imitation(nothing, nothing, column(2.0, -1.0), column(0.5, 1.0), share=3.0)
    losses = agent.update(Batch(nothing, nothing, nothing, nothing, nothing), rows)
    assert losses.critic.item() == 0
    assert losses.imitation.item() == 2 * (0.5 * 2**2 + 0) / 2  # of both critics, per row
    assert losses.gains.tolist() == [2 * 2, 0]
    # d/db of share · w (2 - b)² / rows = -3 · 0.5 · 2 · 2 / 2, of which Adam's mean keeps a tenth.
    mean = first_moments(agent)
    moved = mean[mean != 0]
    assert moved.tolist() == pytest.approx([-0.3, -0.3])  # one bias of each


@pytest.mark.parametrize("share", [0.3, 1.0])
def test_an_update_with_imitation_has_the_gradient_of_both_losses(share):
    agent = TD3(3, 2, TD3Config(hidden=(8, 8)), generator())
    batch, more = random_batch(16, 3, 2), random_batch(9, 3, 2, seed=1)
    weights = torch.rand(9, 1, generator=generator(2))
    rows = Imitation(more.obs, more.action, more.reward, weights, share)
    critics = as_modules(agent.critics)
    with torch.no_grad():
        noise = torch.randn(batch.action.shape, generator=_twin(agent.generator)) * 0.2
        target_actor = as_modules(agent.actor_target)[0]
        after = (target_actor(batch.next_obs).tanh() + noise.clamp(-0.5, 0.5)).clamp(-1, 1)
        values = [q(torch.cat((batch.next_obs, after), 1)) for q in critics]
        target = batch.reward + 0.99 * (1 - batch.terminal) * torch.minimum(*values)
    td, sil, gains = 0.0, 0.0, torch.zeros(9, 1)
    for q in critics:
        td = td + (q(torch.cat((batch.obs, batch.action), 1)) - target).square().mean()
        gain = (more.reward - q(torch.cat((more.obs, more.action), 1))).clamp(min=0)
        sil, gains = sil + (weights * gain.square()).mean(), gains + gain.detach()
    (td + share * sil).backward()
    losses = agent.update(batch, rows)
    torch.testing.assert_close(losses.critic, td.detach())
    torch.testing.assert_close(losses.imitation, sil.detach())
    torch.testing.assert_close(losses.gains, gains[:, 0])
    assert 0 < (gains > 0).sum() < 9  # of both kinds

    wanted = [
        torch.stack([gradients[index].grad.flatten() for gradients in members]).flatten()
        for index in range(6)
        for members in [[list(q.parameters()) for q in critics]]
    ]
    torch.testing.assert_close(first_moments(agent), 0.1 * torch.cat(wanted))


def _twin(original: torch.Generator) -> torch.Generator:
    twin = torch.Generator()
    twin.set_state(original.get_state())
    return twin


def test_only_rows_that_were_worth_more_than_expected_teach_anything():
    batch, more = random_batch(16, 3, 2), random_batch(9, 3, 2, seed=1)

    def taught(other: Batch) -> dict[str, torch.Tensor]:
        agent = TD3(3, 2, TD3Config(hidden=(8, 8)), generator())
        returns = torch.full((9, 1), -100.0)
        returns[:4] = 100.0
        obs = torch.cat((more.obs[:4], other.obs[4:]))
        action = torch.cat((more.action[:4], other.action[4:]))
        losses = agent.update(batch, Imitation(obs, action, returns, torch.ones(9, 1), 1.0))
        assert (losses.gains > 0).tolist() == [True] * 4 + [False] * 5
        return copies(agent.tensors())

    one, two = taught(more), taught(random_batch(9, 3, 2, seed=5))
    for name in one:
        torch.testing.assert_close(one[name], two[name])


def test_priorities_become_the_gains_of_the_update():
    agent = mcat()
    memory, update, seen = agent.imitation, updates(agent), {}
    real = memory.update
    memory.update = lambda indices, gains: (seen.update(i=indices, g=gains), real(indices, gains))
    update()
    last = dict(zip(seen["i"], seen["g"], strict=True))  # a row drawn twice has one gain
    for index, gain in last.items():
        assert memory.priorities[index] == pytest.approx((gain + 1e-6) ** 0.6, rel=1e-5)


def test_without_imitation_the_memory_is_not_looked_at():
    agent = mcat(replace(TINY, imitate=False))
    agent.imitation.priorities.fill(np.nan)  # would be found
    found = agent.learn(no_progress)
    assert found["losses/imitation"] == 0
    assert np.isfinite(found["losses/critic"])
