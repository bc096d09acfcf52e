"""Updates between the steps of a round: what they see, when, and how many there are."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mcat.agents.learner import Batch
from mcat.agents.meta.mcat import MCAT
from mcat.agents.meta.multistep import look_ahead
from mcat.agents.meta.updates import PolicyUpdates, encode_all
from mcat.config import overlay
from mcat.datasets.episodes import EpisodeStore
from mcat.datasets.rollout import Taken, roll_out
from tests.agents.meta.point_mass import HORIZON, PointMasses, mcat, no_progress, tiny_task_set
from tests.agents.meta.test_fast_loop import FAST


def act(agent: MCAT, after_step) -> EpisodeStore:
    """One round of both tasks, with something called after every step."""
    found = roll_out(
        agent.task_set.make(range(2)),
        agent.explorer(agent.plan()),
        seed=np.random.SeedSequence(7),
        noise=(0.0, 0.0),
        episodes=2,
        after=after_step,
    )
    episodes = EpisodeStore(2, 2)
    for task, episode in enumerate(found):
        episodes.append_episode(**episode, task=task)
    return episodes


def ready(**changes) -> tuple[MCAT, PolicyUpdates]:
    agent = mcat(overlay(FAST, changes))
    agent.prepare(no_progress)
    assert agent._updates is not None
    return agent, agent._updates


def test_every_step_is_in_the_next_batches_as_it_happened():
    agent, updates = ready(**{"credit.kind": "ridge"})
    before = len(agent.replay)
    moments: list[int] = []

    def after_step(taken: Taken) -> None:
        agent.after_step(taken, no_progress)
        moments.append(updates._rows.count - before)

    new = act(agent, after_step)
    assert moments == list(range(2, 2 * HORIZON + 1, 2))  # both tasks, after each of their steps
    # The rows alternate between the tasks, the episodes follow one another.
    places = np.arange(2 * HORIZON).reshape(2, HORIZON).T.ravel()
    rows = new.transitions(places)
    found = [column[before : before + 2 * HORIZON] for column in updates._rows.columns]
    contexts = encode_all(agent.policy, new)[places]
    torch.testing.assert_close(
        found[0], torch.cat((torch.from_numpy(rows.observations), contexts), 1)
    )
    assert np.array_equal(found[1].numpy(), rows.actions)
    rewards = updates._rows.scaled(agent.credit.ridge.rewards_of(new)[places])
    np.testing.assert_allclose(found[2][:, 0].numpy(), rewards, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(
        found[3], torch.cat((torch.from_numpy(rows.next_observations), contexts), 1)
    )
    assert not found[4].any()


def test_rows_of_three_steps_are_those_of_the_whole_episodes():
    agent, updates = ready(**{"credit.kind": "ridge", "td_steps": 3})
    before, states = len(agent.replay), agent.replay.observation_size
    new = act(agent, lambda taken: agent.after_step(taken, no_progress))
    rows = new.transitions(np.arange(2 * HORIZON))
    rewards = updates._rows.scaled(agent.credit.ridge.rewards_of(new)).astype(np.float32)
    columns = rows.observations, rows.actions, rewards[:, None], rows.next_observations
    wanted = Batch(*map(torch.tensor, columns), terminal=torch.zeros(2 * HORIZON, 1))
    look_ahead(wanted, new.lengths, 3, agent.config.discount, states)
    places = np.arange(2 * HORIZON).reshape(2, HORIZON).T.ravel()
    found = Batch(*(column[before : before + 2 * HORIZON] for column in updates._rows.columns))
    torch.testing.assert_close(found.reward, wanted.reward[places], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found.next_obs[:, :states], wanted.next_obs[places])
    torch.testing.assert_close(found.terminal, wanted.terminal[places])


@pytest.mark.parametrize("per_step", [1 / 6, 1.0, 1.5])
def test_there_are_as_many_updates_as_configured_and_they_come_step_by_step(per_step):
    agent, updates = ready(updates_per_step=per_step)
    done: list[int] = []

    def after_step(taken: Taken) -> None:
        agent.after_step(taken, no_progress)
        done.append(updates.done)

    act(agent, after_step)
    assert done == [max(1, round(2 * step * per_step)) for step in range(1, HORIZON + 1)]
    assert agent.learner.updates == done[-1]  # `mcat` made none: this preset does not learn after
    assert np.isfinite(agent.learn(no_progress)["losses/critic"])
    assert agent.learner.updates == done[-1]
    assert agent._updates is None


def test_a_payment_is_not_looked_at_before_the_credit_was_fitted_to_it():
    agent, updates = ready(**{"credit.kind": "ridge"})
    act(
        agent,
        lambda taken: agent.after_step(taken._replace(rewards=taken.rewards * np.nan), no_progress),
    )
    assert updates._rows.columns.reward[: updates._rows.count].isfinite().all()
    assert updates.sums.isfinite().all()


def test_shares_of_payments_to_come_are_not_guessed():
    agent, updates = ready(**{"credit.kind": "uniform"})
    before = updates._rows.count
    act(agent, lambda taken: agent.after_step(taken, no_progress))
    assert updates._rows.count == before == len(agent.replay)
    assert updates.seen == 2 * HORIZON
    assert updates.done == 10


def test_steps_of_episodes_that_are_over_or_went_wrong_are_left_out():
    agent, updates = ready()
    before = updates._rows.count

    def after_step(taken: Taken) -> None:
        agent.after_step(taken._replace(running=np.array([True, False])), no_progress)

    new = act(agent, after_step)
    assert updates._rows.count == before + HORIZON
    found = updates._rows.columns.action[before : updates._rows.count].numpy()
    assert np.array_equal(found, new.task(0).actions)


def test_models_are_learned_before_the_round_and_policies_during_it():
    agent = mcat(FAST, rounds=0)
    assert agent.prepare(no_progress) == {}  # nothing to learn from yet
    agent = mcat(overlay(FAST, {"credit.kind": "ridge"}))
    before = {name: tensor.clone() for name, tensor in agent.tensors().items()}
    found = agent.prepare(no_progress)
    changed = {n for n, t in agent.tensors().items() if n in before and not before[n].equal(t)}
    assert {name.partition("/")[0] for name in changed} == {"models"}
    assert np.isfinite(found["losses/forward"])
    assert np.isfinite(found["model/mismatch_translated"])  # H is new


def test_rolling_out_tells_which_episodes_take_part():
    steps: list[Taken] = []
    task_set = tiny_task_set()
    found = roll_out(
        task_set.make(range(2)),
        None,
        seed=np.random.SeedSequence(0),
        noise=(0.0, 0.0),
        episodes=1,
        after=lambda taken: steps.append(Taken(*(column.copy() for column in taken))),
    )
    (episode,) = found
    assert [taken.running.tolist() for taken in steps] == [[True, False]] * HORIZON
    for name in ("observations", "actions", "rewards", "next_observations"):
        column = np.stack([getattr(taken, name)[0] for taken in steps])
        assert np.array_equal(column, episode[name])


def test_a_state_beyond_float32_is_not_learned_from(monkeypatch):
    """The episode is thrown away when it is over; until then its steps must not count."""
    real = PointMasses.step

    def step(self, actions):
        states, *others = real(self, actions)
        if self._elapsed[1] > 3:
            states[1] = 1e39
        return states, *others

    monkeypatch.setattr(PointMasses, "step", step)
    running: list[list[bool]] = []
    with np.errstate(over="ignore"):
        found = list(
            roll_out(
                tiny_task_set().make(range(2)),
                None,
                seed=np.random.SeedSequence(0),
                noise=(0.0, 0.0),
                episodes=2,
                after=lambda taken: running.append(taken.running.tolist()),
            )
        )
    assert running == [[True, True]] * 3 + [[True, False]] * (HORIZON - 3)
    assert found[1] is None
