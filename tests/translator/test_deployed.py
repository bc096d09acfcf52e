"""A translator in somebody's hands: what it is given fits, or one line says what is wrong."""

import contextlib
import copy
import itertools

import numpy as np
import pytest
import torch

from mcat.datasets import EpisodeStore
from mcat.errors import DataError, MissingInputError, UsageError
from mcat.tensor_files import load_safetensors, save_safetensors
from mcat.translator import (
    ActionConfig,
    ContextConfig,
    Correspondence,
    CycleConfig,
    SpacesCycleConfig,
    StateConfig,
    TransferredPolicy,
    Translator,
    fit_cycle,
    fit_cycle_spaces,
    fit_many,
    fit_pair,
    fit_state,
)
from tests.translator.systems import ACTIONS, CHANGES, STATES, linear_system

TINY = ContextConfig(encoder_hidden=(8,), forward_hidden=(8,), context_size=2, max_steps=2)
TINY_H = ActionConfig(hidden=(8,), embedding=8, steps=2)
GUESS = Correspondence.mirror(STATES, ACTIONS, state_axes=(), action_axes=())
SOURCE, TARGET = linear_system(np.eye(ACTIONS), 1, 4), linear_system(CHANGES["swapped"], 2, 4)
FITS = {
    "pair": lambda a, b: fit_pair(a, b, context=TINY, action=TINY_H, quiet=True),
    "many": lambda a, b: fit_many([a, b], context=TINY, action=TINY_H, quiet=True),
    "state": lambda a, b: fit_state(
        a, b, GUESS, config=StateConfig(context=TINY, hidden=(8,), steps=1), quiet=True
    ),
    "cycle": lambda a, b: fit_cycle(
        a, b, config=CycleConfig(forward_steps=1, steps=1, epochs=1), quiet=True
    ),
    "cycle-spaces": lambda a, b: fit_cycle_spaces(
        a, b, GUESS, config=SpacesCycleConfig(forward_steps=1, turn_steps=1, epochs=1), quiet=True
    ),
}


def louder(store, factor):
    return EpisodeStore.from_arrays(
        observations=store.observations,
        actions=store.actions * factor,
        next_observations=store.next_observations,
        episode_ends=store.episode_ends,
    )


@pytest.fixture(scope="module")
def translators():
    return {name: fit(SOURCE, TARGET) for name, fit in FITS.items()}


def policy(observations):
    return np.tanh(observations[:, :ACTIONS])


@pytest.mark.parametrize("name", FITS)
def test_logs_in_other_units_are_refused_not_clipped(name):
    for pair, whose in (
        ((louder(SOURCE, 8), TARGET), "(source|machine 0)"),
        ((SOURCE, louder(TARGET, 1.01)), "(target|machine 1)"),
    ):
        message = rf"the log of {whose}: an action is [\d.]+, outside \[-1, 1\]: divide the actions"
        with pytest.raises(DataError, match=message):
            FITS[name](*pair)


def test_rounding_is_no_other_unit():
    worst = np.abs(SOURCE.actions).max()
    FITS["pair"](louder(SOURCE, (1 + 5e-7) / worst), TARGET)


@pytest.mark.parametrize("name", ["pair", "state", "cycle", "cycle-spaces"])
@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (lambda obs: -8.0 * np.ones((len(obs), ACTIONS)), r"action is 8, outside \[-1, 1\]"),
        (lambda obs: np.full((len(obs), ACTIONS), np.nan), r"actions are NaN or infinite"),
        (lambda obs: np.zeros((len(obs), 2)), r"actions must have shape \(5, 3\), not \(5, 2\)"),
        (lambda obs: np.zeros(ACTIONS), r"must have shape \(5, 3\), not \(3,\)"),
        (lambda obs: None, "actions must have shape|must be an array"),
        (lambda obs: ["up"] * len(obs), "must be an array, not this list"),
    ],
)
def test_a_policy_that_leaves_its_limits_is_refused(translators, name, bad, message):
    with pytest.raises(UsageError, match=message):
        TransferredPolicy(bad, translators[name])(TARGET.observations[:5])


@pytest.mark.parametrize("name", ["pair", "state", "cycle", "cycle-spaces"])
def test_one_observation_gives_one_action(translators, name):
    moved = TransferredPolicy(policy, translators[name])
    rows = TARGET.observations[:5]
    assert moved(rows).shape == (5, ACTIONS)
    assert moved(rows[2]).shape == (ACTIONS,)
    assert np.allclose(moved(rows[2]), moved(rows)[2], atol=1e-6)
    assert moved(list(rows[2])).shape == (ACTIONS,)


@pytest.mark.parametrize("name", ["pair", "state", "cycle", "cycle-spaces"])
@pytest.mark.parametrize(
    ("observations", "error", "message"),
    [
        (np.zeros(STATES + 1), UsageError, r"\(n, 4\) or \(4,\), not \(5,\)"),
        (np.zeros((2, 3)), UsageError, r"\(n, 4\) or \(4,\), not \(2, 3\)"),
        (np.array([0, 0, np.nan, 0]), DataError, r"observation \[2\] is nan"),
        (np.array([[0, 0, 0, np.inf]]), DataError, r"observation \[0, 3\] is inf"),
    ],
)
def test_observations_that_do_not_fit_are_named(translators, name, observations, error, message):
    with pytest.raises(error, match=message):
        TransferredPolicy(policy, translators[name])(observations)


def test_a_policy_can_be_made_from_a_folder_or_its_file(translators, tmp_path):
    translators["pair"].save(tmp_path / "translator.safetensors")
    expected = TransferredPolicy(policy, translators["pair"])(TARGET.observations)
    for where in (tmp_path, str(tmp_path), tmp_path / "translator.safetensors"):
        assert np.array_equal(TransferredPolicy(policy, where)(TARGET.observations), expected)
    (tmp_path / "empty").mkdir()
    with pytest.raises(MissingInputError, match="empty is no folder that mcat translate wrote"):
        Translator.load(tmp_path / "empty")


def test_what_cannot_act_is_refused_at_once(translators):
    with pytest.raises(MissingInputError, match="nowhere"):
        TransferredPolicy(policy, "nowhere")
    with pytest.raises(UsageError, match="3 is no translator and no path"):
        TransferredPolicy(policy, 3)
    with pytest.raises(UsageError, match="cannot be"):
        TransferredPolicy("good", translators["pair"])
    with pytest.raises(UsageError, match=r"several machines: say which by between\(\)"):
        TransferredPolicy(policy, translators["many"])


def test_several_machines_are_called_by_name(tmp_path):
    tasks = [SOURCE, TARGET]
    given = {"context": TINY, "action": TINY_H, "quiet": True}
    fit_many(tasks, names=["old", "new"], **given).save(tmp_path / "many.safetensors")
    translator = Translator.load(tmp_path / "many.safetensors")
    assert translator.names == ("old", "new")
    states, actions = TARGET.observations[:9], TARGET.actions[:9]
    by_name, by_number = translator.between("old", "new"), translator.between(0, 1)
    assert by_name.contexts == by_number.contexts == (0, 1)
    assert np.array_equal(by_name.translate(states, actions), by_number.translate(states, actions))
    with pytest.raises(UsageError, match="unknown machine 'knew': did you mean new"):
        translator.between("old", "knew")
    with pytest.raises(UsageError, match="machines 0 to 1, not 2"):
        translator.between(0, 2)
    with pytest.raises(UsageError, match=r"\(old, new\): say which by between"):
        translator.translate(states, actions)
    with pytest.raises(UsageError, match="a name of its own"):
        fit_many(tasks, names=["same", "same"], **given)


HOSTILE = [5, -1, 0, 2.5, 1e308, 10**9, 10**30, "ab", None, True, [], [1], [10**9, 3], {}, {"a": 1}]


def places(value, path=()):
    """Paths of everything inside a header."""
    yield path
    items = value.items() if isinstance(value, dict) else ()
    items = enumerate(value) if isinstance(value, list) else items
    for key, inside in items:
        yield from places(inside, (*path, key))


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
@pytest.mark.parametrize("every", [25, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", FITS)
def test_no_header_does_harm(translators, name, every, tmp_path):
    """Signed by a stranger: it is refused as damaged, or makes no difference that can be met."""
    file, bad = tmp_path / "t.safetensors", tmp_path / "bad.safetensors"
    translators[name].save(file)
    arrays, header = load_safetensors(file)
    mutants = list(itertools.product(list(places(header))[1:], HOSTILE))[::every]
    refused = 0
    for path, value in mutants:
        changed = copy.deepcopy(header)
        inside = changed
        for key in path[:-1]:
            inside = inside[key]
        inside[path[-1]] = value
        save_safetensors(bad, arrays, changed, overwrite=True)
        with contextlib.suppress(DataError):
            Translator.load(bad)
            refused -= 1
        refused += 1
    print(f"{name}: {refused} of {len(mutants)} headers refused")
    assert refused >= len(mutants) / 5  # learning rates and the like do not matter any more


def test_nothing_is_allocated_on_a_header_s_word(translators, tmp_path):
    translators["pair"].save(tmp_path / "t.safetensors")
    arrays, header = load_safetensors(tmp_path / "t.safetensors")
    header["observation_size"] = 10**7  # C alone would take 3 GB
    header["context"]["encoder_hidden"] = [10**5]  # now 40 TB
    save_safetensors(tmp_path / "bomb.safetensors", arrays, header)
    with pytest.raises(DataError, match="damaged"):
        Translator.load(tmp_path / "bomb.safetensors")


def test_weights_of_another_type_are_refused(translators, tmp_path):
    translators["pair"].save(tmp_path / "t.safetensors")
    arrays, header = load_safetensors(tmp_path / "t.safetensors")
    name = "network.trunk.0.weight"
    save_safetensors(tmp_path / "u.safetensors", arrays | {name: arrays[name] > 0}, header)
    with pytest.raises(DataError, match=r"network\.trunk\.0\.weight is torch\.bool"):
        Translator.load(tmp_path / "u.safetensors")


def test_loaded_weights_are_used_where_they_are(translators, tmp_path):
    """Nothing of a translator is left without memory, and nothing wants a gradient."""
    for name, translator in translators.items():
        translator.save(tmp_path / f"{name}.safetensors")
        for module in Translator.load(tmp_path / f"{name}.safetensors").modules().values():
            for tensor in module.state_dict(keep_vars=True).values():
                assert tensor.device == torch.device("cpu")
                assert not tensor.requires_grad
