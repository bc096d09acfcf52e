"""The deployed policy: what it sees while acting, and its file."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mcat.agents.context_policy import ContextPolicy, Window
from mcat.agents.networks import MLP
from mcat.agents.policies import load_policy
from mcat.datasets.episodes import EpisodeStore
from mcat.datasets.rollout import roll_out
from mcat.errors import DataError, DivergedError, MissingInputError
from mcat.safe_io import load_safetensors, save_safetensors
from mcat.translator.configs import ContextConfig
from mcat.translator.context import ContextModel
from mcat.translator.windows import past_of
from tests.agents.point_mass import HORIZON, tiny_arena


def policy(activation: str = "swish", seed: int = 0) -> ContextPolicy:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        config = ContextConfig(
            history=3, context_size=4, encoder_hidden=(8, 6), encoder_activation=activation
        )
        model = ContextModel(2, 2, 3, config).requires_grad_(False)
    model.change_scale.std.copy_(torch.tensor([0.5, 0.1]))
    return ContextPolicy.of(MLP((6, 16, 2), 1, torch.Generator().manual_seed(seed)), model)


def played(acting) -> EpisodeStore:
    """One episode of each tiny task, driven by `acting`."""
    arena = tiny_arena()
    episodes = EpisodeStore(2, 2)
    env, seed = arena.make([0, 1, 2]), np.random.SeedSequence(5)
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


def test_a_deployed_policy_acts_in_the_context_that_learning_would_give_its_steps():
    own = policy()
    deployed, contexts = own.begin(), []

    def acting(states):
        actions = deployed(states)
        contexts.append(deployed.contexts)
        return actions

    episodes = played(acting)
    wanted = own.encode(past_of(episodes, np.arange(len(episodes)), 3))
    found = torch.stack(contexts, dim=1).flatten(0, 1)
    torch.testing.assert_close(found, wanted)
    expected = own.act(torch.from_numpy(episodes.observations.copy()), wanted)
    torch.testing.assert_close(torch.from_numpy(episodes.actions.copy()), expected)
    assert found.std(0).min() > 1e-3  # contexts differ, or this would show nothing


def test_episodes_begin_with_an_empty_memory():
    own = policy()
    states = [np.random.default_rng(i).normal(size=(3, 2)) for i in range(4)]
    first, again = own.begin(), own.begin()
    before = [first(state) for state in states]
    assert all(np.array_equal(again(s), a) for s, a in zip(states, before, strict=True))
    assert not np.array_equal(first(states[0]), before[0])  # that one remembers


@pytest.mark.parametrize("activation", ["swish", "relu"])
def test_a_saved_policy_acts_the_same_to_the_bit(tmp_path, activation):
    own = policy(activation)
    own.save(tmp_path / "policy", {"step": 7, "family": "masses"})
    read = ContextPolicy.load(tmp_path / "policy")
    assert (read.metadata["step"], read.metadata["family"]) == (7, "masses")
    assert (read.observation_size, read.action_size, read.history) == (2, 2, 3)
    one, two = own.begin(), read.begin()
    for number in range(5):
        states = np.random.default_rng(number).normal(size=(4, 2))
        assert np.array_equal(one(states), two(states))
        assert torch.equal(one.contexts, two.contexts)
    assert not read.encode(past_of(played(read.begin()), np.arange(5), 3)).requires_grad


def test_a_policy_in_training_follows_its_networks():
    own = policy()
    states = np.ones((1, 2))
    before = own.begin()(states)
    own.actor.layers[0].data.mul_(2)
    assert not np.array_equal(own.begin()(states), before)


CHANGES = {
    "another kind": lambda arrays, header: header.update(kind="policy"),
    "a later format": lambda arrays, header: header.update(format=3),
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
    with pytest.raises(DataError, match="not a policy"):
        load_policy(path)  # of `mcat train`


def test_weights_that_grew_beyond_all_bounds_do_not_act():
    own = policy()
    own.actor.layers[0].data.fill_(float("nan"))
    with pytest.raises(DivergedError, match="NaN"):
        own.begin()(np.zeros((2, 2)))
