"""The deployed policy: what it sees while acting, and its file."""

from __future__ import annotations

import os
import resource

import numpy as np
import pytest
import torch

from mcat.agents.evaluation import episode_outcomes
from mcat.agents.meta.updates import encode_all
from mcat.agents.networks import MLP
from mcat.agents.policies.context_policy import ContextPolicy, Window
from mcat.agents.policies.policy import load_policy
from mcat.datasets.episodes import EpisodeStore
from mcat.datasets.rollout import roll_out
from mcat.errors import DataError, DivergedError, MissingInputError, UsageError
from mcat.tensor_files import load_safetensors, save_safetensors
from mcat.translator.configs import ContextConfig
from mcat.translator.context import ContextModel
from mcat.translator.windows import past_of
from tests.agents.meta.point_mass import HORIZON, tiny_task_set
from tests.agents.meta.test_loop import spawn


def policy(activation: str = "swish", seed: int = 0, *, averaged: bool = False) -> ContextPolicy:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        config = ContextConfig(
            history=3, context_size=4, encoder_hidden=(8, 6), encoder_activation=activation
        )
        model = ContextModel(2, 2, 3, config).requires_grad_(False)
    model.change_scale.std.copy_(torch.tensor([0.5, 0.1]))
    actor = MLP((6, 16, 2), 1, torch.Generator().manual_seed(seed))
    return ContextPolicy.of(actor, model, averaged=averaged)


def played(acting) -> EpisodeStore:
    """One episode of each tiny task, driven by `acting`."""
    task_set = tiny_task_set()
    episodes = EpisodeStore(2, 2)
    env, seed = task_set.make([0, 1, 2]), np.random.SeedSequence(5)
    for episode in roll_out(env, acting, seed=seed, noise=(0.0, 0.0), episodes=3):
        episodes.append_episode(**episode)
    return episodes


def test_the_window_is_the_history_of_the_stored_episode_at_every_step():
    window, rng = Window(3, 2), np.random.default_rng(0)
    seen = []

    def acting(states):
        seen.append([part.clone() for part in window.see(states)])
        actions = rng.uniform(-1, 1, (3, 2)).astype(np.float32)
        window.acted(actions)
        return actions

    episodes = played(acting)
    for task in range(3):
        steps = task * HORIZON + np.arange(HORIZON)
        changes, actions = past_of(episodes, steps, 3)
        assert torch.equal(changes, torch.stack([step[0][task] for step in seen]))
        assert torch.equal(actions, torch.stack([step[1][task] for step in seen]))
    assert not actions[0].any()  # nothing came before the first step
    assert actions[3:].all()


@pytest.mark.parametrize("averaged", [False, True])
def test_a_deployed_policy_acts_in_the_context_that_learning_would_give_its_steps(averaged):
    own = policy(averaged=averaged)
    started, contexts = own.start_episode(), []

    def acting(states):
        actions = started(states)
        contexts.append(started.contexts)
        return actions

    episodes = played(acting)
    wanted = own.encode(past_of(episodes, np.arange(len(episodes)), 3))
    if averaged:
        means = [wanted[:HORIZON][: step + 1].mean(0) for step in range(HORIZON)]
        torch.testing.assert_close(encode_all(own, episodes)[:HORIZON], torch.stack(means))
        wanted = encode_all(own, episodes)
    found = torch.stack(contexts, dim=1).flatten(0, 1)
    torch.testing.assert_close(found, wanted)
    expected = own.act(torch.from_numpy(episodes.observations.copy()), wanted)
    torch.testing.assert_close(torch.from_numpy(episodes.actions.copy()), expected)
    assert found.std(0).min() > 1e-3  # contexts differ, or this would show nothing


def test_episodes_begin_with_an_empty_memory():
    own = policy()
    states = [np.random.default_rng(i).normal(size=(3, 2)) for i in range(4)]
    first, again = own.start_episode(), own.start_episode()
    before = [first(state) for state in states]
    assert all(np.array_equal(again(s), a) for s, a in zip(states, before, strict=True))
    assert not np.array_equal(first(states[0]), before[0])  # that one remembers


@pytest.mark.parametrize(("activation", "averaged"), [("swish", True), ("relu", False)])
def test_a_saved_policy_acts_the_same_to_the_bit(tmp_path, activation, averaged):
    own = policy(activation, averaged=averaged)
    own.save(tmp_path / "policy", {"step": 7, "family": "masses"})
    read = ContextPolicy.load(tmp_path / "policy")
    assert (read.metadata["step"], read.metadata["family"]) == (7, "masses")
    assert (read.observation_size, read.action_size, read.history) == (2, 2, 3)
    one, two = own.start_episode(), read.start_episode()
    for number in range(5):
        states = np.random.default_rng(number).normal(size=(4, 2))
        assert np.array_equal(one(states), two(states))
        assert torch.equal(one.contexts, two.contexts)
    assert not read.encode(past_of(played(read.start_episode()), np.arange(5), 3)).requires_grad


def test_a_policy_in_training_follows_its_networks():
    own = policy()
    states = np.ones((1, 2))
    before = own.start_episode()(states)
    own.actor.layers[0].data.mul_(2)
    assert not np.array_equal(own.start_episode()(states), before)


CHANGES = {
    "another kind": lambda arrays, header: header.update(kind="policy"),
    "a later format": lambda arrays, header: header.update(format=4),
    "half a neuron": lambda arrays, header: header.update(actor_sizes=[6, 16.5, 2]),
    "sizes that are no whole numbers": lambda arrays, header: header.update(
        actor_sizes=[6.0, 16.0, 2.0]
    ),
    "no history": lambda arrays, header: header.pop("history"),
    "a longer history": lambda arrays, header: header.update(history=4),
    "no numbers as sizes": lambda arrays, header: header.update(actor_sizes="6, 16, 2"),
    "a wider actor": lambda arrays, header: header.update(actor_sizes=[6, 17, 2]),
    "an unknown activation": lambda arrays, header: header.update(activation="sin"),
    "a wider encoder": lambda arrays, header: header.update(encoder_sizes=[12, 9, 6, 4]),
    "no encoder": lambda arrays, header: header.update(encoder_sizes=[]),
    "one weight for all": lambda arrays, header: arrays.update(
        {"actor.layers.0": arrays["actor.layers.0"][:, :1]}
    ),
    "no spread": lambda arrays, header: arrays.pop("spread"),
    "another spread": lambda arrays, header: arrays.update(spread=np.ones(3, np.float32)),
    "one layer too many": lambda arrays, header: arrays.update({"encoder.9.weight": np.ones(3)}),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_file_that_says_something_else_is_refused(tmp_path, change):
    policy().save(tmp_path / "policy", {})
    arrays, header = load_safetensors(tmp_path / "policy")
    CHANGES[change](arrays, header)
    save_safetensors(tmp_path / "bad", arrays, header)
    with pytest.raises(DataError, match="bad") as caught:
        ContextPolicy.load(tmp_path / "bad")
    assert len(str(caught.value).splitlines()) == 1


def test_a_file_of_a_later_mcat_says_which_is_needed(tmp_path):
    policy().save(tmp_path / "policy", {})
    arrays, header = load_safetensors(tmp_path / "policy")
    save_safetensors(tmp_path / "later", arrays, header | {"format": 4, "mcat": "9.9"})
    for load in (ContextPolicy.load, load_policy):
        with pytest.raises(DataError, match=r"later: needs mcat >= 9\.9"):
            load(tmp_path / "later")


def test_a_damaged_or_missing_file_is_refused(tmp_path):
    path = tmp_path / "policy"
    with pytest.raises(MissingInputError):
        ContextPolicy.load(path)
    policy().save(path, {})
    whole = path.read_bytes()
    for content in (b"", whole[:-1], whole[:-4] + b"abcd", b"PK\x03\x04" + whole):
        path.write_bytes(content)
        with pytest.raises(DataError):
            ContextPolicy.load(path)
    path.write_bytes(whole)
    assert isinstance(load_policy(path), ContextPolicy)
    save_safetensors(path, {"x": np.zeros(1)}, {"kind": "round"}, overwrite=True)
    for load in (ContextPolicy.load, load_policy):
        with pytest.raises(DataError, match="not a policy"):
            load(path)


def test_a_small_file_that_claims_to_be_huge_takes_no_memory(tmp_path):
    policy().save(tmp_path / "policy", {})
    arrays, header = load_safetensors(tmp_path / "policy")
    for change in (
        {"actor_sizes": [6, 30_000, 30_000, 2]},
        {"encoder_sizes": [12, 30_000, 30_000, 4]},
        {"history": 10**12, "encoder_sizes": [4 * 10**12, 8, 6, 4]},
    ):
        save_safetensors(tmp_path / "bad", arrays, header | change, overwrite=True)

        def refuse():
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            with pytest.raises(DataError, match=r"does not describe its arrays|JSON"):
                ContextPolicy.load(tmp_path / "bad")
            grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
            os._exit(0 if grown < 50_000 else 1)  # KiB

        assert spawn(refuse) == 0, change


def test_what_it_cannot_act_on_is_named():
    own = policy()
    with pytest.raises(UsageError, match=r"policy\.start_episode\(\)"):
        own(np.zeros(2))
    one, many = own.start_episode(), own.start_episode()
    for number in range(5):
        states = np.random.default_rng(number).normal(size=(1, 2))
        assert np.array_equal(one(states[0]), many(states)[0])
    for wrong in (np.zeros(3), np.zeros((1, 3)), np.zeros((1, 1, 2))):
        with pytest.raises(UsageError, match=r"must have shape \(n, 2\) or \(2,\)"):
            one(wrong)
    with pytest.raises(UsageError, match=r"3 observations of 1 episodes: start_episode\(\) anew"):
        one(np.zeros((3, 2)))
    with pytest.raises(DataError, match=r"observation \[0, 1\] is nan"):
        one(np.array([[0.0, np.nan]]))
    assert np.array_equal(one(states), many(states))  # what was refused is not remembered


def test_the_memory_holds_what_was_done_not_what_was_meant():
    own = policy()
    seen: list[torch.Tensor] = []

    class Watched:
        def start_episode(self):
            acting = own.start_episode()
            window = acting._recognition._window
            see = window.see

            def look(states):
                past = see(states)
                seen.append(past[1].clone())
                return past

            window.see = look
            return acting

    task_set = tiny_task_set()
    seed = np.random.SeedSequence(5)
    (episode,) = roll_out(task_set.make([0]), Watched(), seed=seed, noise=(0.3, 0.3), episodes=1)
    for step in range(3, len(seen)):
        assert np.array_equal(seen[step][0].numpy(), episode["actions"][step - 3 : step])


def test_a_policy_that_is_rolled_out_twice_begins_twice():
    own, task_set, rounds = policy(), tiny_task_set(), []
    for _ in range(2):
        seed = np.random.SeedSequence(5)
        (episode,) = roll_out(task_set.make([0]), own, seed=seed, noise=(0.0, 0.0), episodes=1)
        rounds.append(episode["actions"])
        returns = [episode_outcomes(task_set.make([0]), own, 7).returns[0] for _ in range(2)]
        assert returns[0] == returns[1]
    assert np.array_equal(*rounds)


def test_weights_that_grew_beyond_all_bounds_do_not_act():
    own = policy()
    own.actor.layers[0].data.fill_(float("nan"))
    with pytest.raises(DivergedError, match="NaN"):
        own.start_episode()(np.zeros((2, 2)))
