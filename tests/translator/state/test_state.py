"""The state translator and its first guesses, on machines whose answer is known."""

import dataclasses
import json

import numpy as np
import pytest
import torch

from mcat.datasets import EpisodeStore
from mcat.errors import UsageError
from mcat.translator.configs import ContextConfig, StateConfig
from mcat.translator.context import ContextModel, bounded_log_variance, train_context
from mcat.translator.policy import TransferredPolicy, Translator
from mcat.translator.state.correspondence import (
    CORRESPONDENCES,
    Correspondence,
)
from mcat.translator.state.hand_maps import ActionMap, StateMap
from mcat.translator.state.training import MapLosses, StateTraining
from mcat.translator.state.translator import StateTranslator, fit_state
from mcat.translator.windows import Windows
from tests.translator.systems import LIMBS, THREE_LIMBS, TWO_LIMBS, linear_system

# The mirrored machine: two of three states negated, its two motors swapped.
SIGNS = np.diag([-1.0, 1.0, -1.0])
SWAP = np.eye(2)[[1, 0]]
DRIFT = np.diag([0.95, 0.7, 0.4])  # unequal: each state has a character of its own
RIGHT = Correspondence(
    state_to_source=SIGNS, state_to_target=SIGNS, action_to_target=SWAP, action_to_source=SWAP
)
# The same guess by someone who misjudged the units of one state and mixed up two others a little.
ERROR = np.array([[1.4, 0.0, 0.0], [0.0, 0.95, 0.3], [0.0, -0.3, 0.95]])
WRONG = dataclasses.replace(
    RIGHT, state_to_source=ERROR @ SIGNS, state_to_target=SIGNS @ np.linalg.inv(ERROR)
)
QUICK = StateConfig(
    context=ContextConfig(
        encoder_hidden=(16,), forward_hidden=(64,), context_size=2, max_steps=400, batch_size=128
    ),
    hidden=(32,),
    batch_size=64,
    steps=500,
)
TINY = dataclasses.replace(QUICK, steps=4, context=dataclasses.replace(QUICK.context, max_steps=4))


def roll_out(machine, policy, states, steps=50):
    """Episodes of a machine `(states, actions) -> states` from these states on."""
    rows = []
    for _ in range(steps):
        actions = policy(states)
        after = machine(states, actions)
        rows.append((states, actions, after))
        states = after
    columns = [np.stack(column, axis=1) for column in zip(*rows, strict=True)]
    flat = [column.reshape(-1, column.shape[2]) for column in columns]
    return EpisodeStore.from_arrays(
        observations=flat[0],
        actions=flat[1],
        next_observations=flat[2],
        episode_ends=np.arange(1, len(states) + 1) * steps,
    )


def source_machine(states, actions):
    return states @ DRIFT + actions @ TWO_LIMBS


def target_machine(states, actions):
    return source_machine(states @ SIGNS, actions @ SWAP) @ SIGNS


@pytest.fixture(scope="module")
def mirrored():
    rng = np.random.default_rng(1)
    starts = rng.normal(size=(40, 3))
    return tuple(
        roll_out(machine, lambda states: rng.uniform(-1, 1, (len(states), 2)), starts)
        for machine in (source_machine, target_machine)
    )


@pytest.fixture(scope="module")
def tiny(mirrored):
    return fit_state(*mirrored, WRONG, config=TINY, quiet=True)


def state_error(view, episodes):
    """Mean |seen - right state| of the mirrored machine."""
    return np.abs(view(episodes.observations) - episodes.observations @ SIGNS).mean()


def effect_error(translate, states):
    """Mean |change on the mirrored machine - mirrored change of the source|, in 500 actions."""
    states = states[:500]
    actions = np.random.default_rng(3).uniform(-0.9, 0.9, (500, 2))
    wanted = source_machine(states @ SIGNS, actions) @ SIGNS
    return np.abs(target_machine(states, translate(states, actions)) - wanted).mean()


def test_a_right_guess_stays_right(mirrored):
    translator = fit_state(*mirrored, RIGHT, config=QUICK, quiet=True)
    assert state_error(translator.view, mirrored[1]) < 0.05
    assert effect_error(translator.translate, mirrored[1].observations) < 0.05


def test_a_wrong_guess_is_improved(mirrored):
    translator = fit_state(*mirrored, WRONG, config=QUICK, quiet=True)
    guessed = state_error(lambda states: states @ WRONG.state_to_source.T, mirrored[1])
    assert state_error(translator.view, mirrored[1]) < 0.5 * guessed


@pytest.mark.parametrize("goal", [(0.3, 0.3), (0.15, 0.3)])
def test_another_goal_is_learned_from_where_the_target_spends_its_time(goal):
    """The mirror image of the source's goal is (0.3, 0.3): right, or a guess to be improved."""
    rng = np.random.default_rng(0)

    def towards(goal, noise):
        return lambda states: np.clip(
            3 * (goal - states) + noise * rng.normal(size=states.shape), -1, 1
        )

    def hand(states, actions):
        return states + 0.05 * actions

    goals = np.array([-0.3, 0.3]), np.array(goal)
    source, target = (roll_out(hand, towards(g, 1), rng.normal(0, 0.05, (40, 2))) for g in goals)
    guess = Correspondence.mirror(2, 2, state_axes=[0], action_axes=[0])
    translator = fit_state(source, target, guess, config=QUICK, quiet=True)
    policy = TransferredPolicy(towards(goals[0], 0), translator)
    end = roll_out(hand, policy, np.zeros((2, 2)), steps=150).next_observations[-1]
    np.testing.assert_allclose(end, goal, atol=0.05)


def test_spaces_of_different_sizes():
    """The third motor does half of what it did: H must double its action, G drop a limb."""
    half = 0.5 * np.eye(2)  # so that twice the action is still possible
    source = linear_system(np.eye(2), 1, push=TWO_LIMBS, drive=half)
    drive = np.diag([0.5, 0.5, 1.0]) @ LIMBS.action_to_target
    target = linear_system(np.eye(3), 2, push=THREE_LIMBS, drive=drive)
    translator = fit_state(source, target, LIMBS, config=QUICK, quiet=True)
    states = target.observations[:500]
    actions = np.random.default_rng(3).uniform(-0.5, 0.5, (500, 2))
    found = translator.translate(states, actions)
    assert found.shape == (500, 3)
    right = actions[:, [0, 0, 1]] * [1, 1, 2]
    assert np.abs(found - right).mean() < 0.5 * np.abs(actions[:, [0, 0, 1]] - right).mean()


def test_no_training_is_exactly_the_guess(mirrored):
    config = dataclasses.replace(TINY, steps=0)
    translator = fit_state(*mirrored, WRONG, config=config, quiet=True)
    states = mirrored[1].observations[:50]
    actions = np.random.default_rng(0).uniform(-1, 1, (50, 2)).astype(np.float32)
    np.testing.assert_array_equal(translator.translate(states, actions), actions[:, [1, 0]])
    np.testing.assert_array_equal(
        translator.translate(states, np.sign(actions)), np.sign(actions)[:, [1, 0]]
    )
    with pytest.raises(UsageError, match="outside"):
        translator.translate(states, 3 * np.sign(actions))
    exact = (torch.tensor(states) @ torch.tensor(WRONG.state_to_source).T).numpy()
    np.testing.assert_array_equal(translator.view(states), exact)


def test_without_a_guess_of_actions_h_starts_at_nothing(mirrored):
    config = dataclasses.replace(TINY, steps=0)
    translator = fit_state(*mirrored, RIGHT.states_only(), config=config, quiet=True)
    states, actions = mirrored[1].observations[:50], mirrored[0].actions[:50]
    np.testing.assert_array_equal(translator.view(states), states @ SIGNS)
    np.testing.assert_array_equal(translator.translate(states, actions), np.zeros((50, 2)))


def test_without_a_guess_of_states_g_starts_at_the_mean(mirrored):
    config = dataclasses.replace(TINY, steps=0)
    translator = fit_state(*mirrored, RIGHT.actions_only(), config=config, quiet=True)
    source, target = mirrored
    actions = source.actions[:50]
    mean = np.tile(source.observations.mean(axis=0), (50, 1))
    np.testing.assert_allclose(translator.view(target.observations[:50]), mean, atol=1e-5)
    back = translator.maps.to_target(torch.tensor(source.observations[:50]))
    assert back.tolist() == [translator.maps.target_scale.mean.tolist()] * 50
    found = translator.translate(target.observations[:50], actions)
    np.testing.assert_array_equal(found, actions[:, [1, 0]])


def test_h_is_learned_from_nothing_where_the_states_are_given(mirrored):
    translator = fit_state(*mirrored, RIGHT.states_only(), config=QUICK, quiet=True)
    states = mirrored[1].observations
    nothing = effect_error(lambda states, actions: 0 * actions, states)
    assert effect_error(translator.translate, states) < 0.2 * nothing


def test_maps_of_the_baseline_without_a_hand_map():
    state_map, action_map = StateMap(2, 3, (4,)), ActionMap(2, 1, (4,))
    state_map.source_scale.mean.copy_(torch.tensor([5.0, -7.0]))
    shown = state_map.in_source_units(state_map(torch.ones(4, 3)))
    assert shown.tolist() == [[5, -7]] * 4
    assert action_map(torch.tensor([[0.3, -0.9]])).tolist() == [[0]]
    state_map.hand[1, 2] = 1.0  # one number known is a hand map, the other then is 0
    shown = state_map.in_source_units(state_map(torch.tensor([[1.0, 2.0, 3.0]])))
    assert shown.tolist() == [[0, 3]]


def test_what_never_changed_on_the_source_is_shown_as_it_was(mirrored):
    def with_goal(store, goal):
        extra = np.full((len(store), 1), goal)
        return EpisodeStore.from_arrays(
            observations=np.hstack((store.observations, extra)),
            actions=store.actions,
            next_observations=np.hstack((store.next_observations, extra)),
            episode_ends=store.episode_ends,
        )

    source, target = (with_goal(store, goal) for store, goal in zip(mirrored, (3, 7), strict=True))
    guess = Correspondence.mirror(4, 2, state_axes=(), action_axes=())
    translator = fit_state(source, target, guess, config=TINY, quiet=True)
    np.testing.assert_array_equal(translator.view(target.observations[:5])[:, 3], 3)
    back = translator.maps.to_target(torch.tensor(source.observations[:5]))
    np.testing.assert_array_equal(back[:, 3], 7)


def test_training_the_maps_leaves_c_and_f_as_they_are(mirrored):
    model, _ = train_context([mirrored[1]], TINY.context, quiet=True)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    training = StateTraining(model, *mirrored, RIGHT, TINY)
    start = {name: tensor.clone() for name, tensor in training.maps.named_parameters()}
    training.run(quiet=True)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name]), name
    for network in ("state_to_source", "state_to_target", "action"):
        name = f"{network}.2.bias"
        assert not torch.equal(training.maps.get_parameter(name), start[name]), name


@pytest.fixture
def by_hand():
    """One state and one action; F says: change = 0.5 action + 0.1 last change."""
    config = ContextConfig(forward_hidden=(), context_size=1, recent=2, history=3)
    model = ContextModel(1, 1, 1, config)
    with torch.no_grad():
        layer = model.dynamics[0]
        layer.weight.zero_(), layer.bias.zero_()
        layer.weight[0, 1] = 0.5  # inputs are state, action, context, and two past changes
        layer.weight[0, 4] = 0.1
    model.requires_grad_(False)
    states = np.array([[-1.0], [1.0], [-1.0], [1.0]]) / np.sqrt(4 / 3)  # of spread 1
    store = EpisodeStore.from_arrays(
        observations=states, actions=0 * states, next_observations=states, episode_ends=[2, 4]
    )
    guess = Correspondence(
        state_to_source=[[1]], state_to_target=[[2]], action_to_target=[[1]], action_to_source=[[1]]
    )
    rows = Windows(
        obs=torch.tensor([[1.0]]),
        action=torch.tensor([[0.8]]),
        change=torch.tensor([[0.3]]),
        reward=torch.zeros(1),
        past=torch.tensor([[[0.7], [0.2]]]),
        context_past=(torch.zeros(1, 3, 1), torch.zeros(1, 3, 1)),
        window=torch.zeros(1, dtype=torch.long),
    )
    return StateTraining(model, store, store, guess, StateConfig(context=config)), rows


def test_losses_by_hand(by_hand):
    training, rows = by_hand
    with torch.no_grad():
        training.maps.state_to_source[-1].bias.fill_(0.25)
        training.maps.action[-1].bias.fill_(0.6)
        training.adversary.network[-1].weight.zero_()
        training.adversary.network[-1].bias.fill_(3.0)
    losses = training.losses(rows, torch.tensor([[0.5]]))
    assert losses.adversarial.item() == pytest.approx((3 - 1) ** 2)
    # 0.5 goes to 0.75 and comes back as 1.5; 1 goes to 2 and comes back as 2.25.
    assert losses.back.item() == pytest.approx(1.0 + 1.25)
    # The action 0.8 + 0.6 is clipped to 1: F says 0.5 + 0.1 · 2 · 0.2, wanted is 2 · 0.3.
    assert losses.transition.item() == pytest.approx(abs(0.54 - 0.6), abs=1e-6)
    assert losses.overshoot.item() == pytest.approx(0.4)
    assert losses.state_moved.item() == pytest.approx(0.25)
    assert losses.action_moved.item() == pytest.approx(0.2)
    config = dataclasses.replace(training.config, state_proximity=2.0, action_proximity=0.5)
    training.config = config
    total = 30 * 4 + 30 * 2.25 + 100 * (0.06 + 0.4 + 0.5 * 0.2) + 2 * 0.25
    assert training.total(losses).item() == pytest.approx(total)


@pytest.mark.parametrize(
    ("unknown", "price"),
    [
        ((), 2 * 0.25 + 100 * 0.5 * 0.2),
        (("guess_action",), 2 * 0.25),
        (("guess_state_to_source", "guess_state_to_target"), 100 * 0.5 * 0.2),
    ],
)
def test_only_a_guess_can_be_left(by_hand, unknown, price):
    training, _ = by_hand
    training.config = dataclasses.replace(
        training.config, state_proximity=2.0, action_proximity=0.5
    )
    for name in unknown:
        getattr(training.maps, name).zero_()
    losses = MapLosses(*map(torch.tensor, (0.0, 0.0, 0.0, 0.0, 0.25, 0.2)))
    assert training.total(losses).item() == pytest.approx(price)


def test_states_that_nobody_guessed_are_pulled_as_hard_as_printed(by_hand):
    training, _ = by_hand
    losses = MapLosses(*map(torch.tensor, (0.5, 0.0, 0.0, 0.0, 0.0, 0.0)))
    training.config = StateConfig()
    assert training.total(losses).item() == pytest.approx(30 * 0.5)
    training.maps.guess_state_to_source.zero_()
    assert training.total(losses).item() == pytest.approx(10 * 0.5)


@pytest.mark.parametrize(
    ("guess", "held", "moves"),
    [
        (RIGHT.actions_only(), 1.0, False),
        (RIGHT.actions_only(), 0.5, True),
        (RIGHT.states_only(), 1.0, True),
        (RIGHT, 1.0, True),
    ],
)
def test_h_waits_for_states_that_nobody_guessed(mirrored, guess, held, moves):
    config = dataclasses.replace(TINY, held=held)
    translator = fit_state(*mirrored, guess, config=config, quiet=True)
    assert bool(translator.maps.action[-1].weight.any()) == moves
    assert translator.maps.state_to_source[-1].weight.any()


def test_the_likelihood_by_hand(by_hand):
    """L_trans,s,a as printed: F is off by 0.06, its variance that of an output of 0."""
    training, rows = by_hand
    training.config = dataclasses.replace(training.config, loss="nll")
    with torch.no_grad():
        training.maps.action[-1].bias.fill_(0.6)
    spread = bounded_log_variance(torch.zeros(1)).item()
    found = training.losses(rows, torch.tensor([[0.5]])).transition.item()
    assert found == pytest.approx(0.06**2 * np.exp(-spread) + spread, abs=1e-6)


def test_saved_and_loaded_to_the_bit(tiny, mirrored, tmp_path):
    tiny.save(tmp_path / "it.safetensors")
    loaded = Translator.load(tmp_path / "it.safetensors")
    assert isinstance(loaded, StateTranslator)
    states, actions = mirrored[1].observations[:64], mirrored[0].actions[:64]
    np.testing.assert_array_equal(loaded.view(states), tiny.view(states))
    np.testing.assert_array_equal(
        loaded.translate(states, actions), tiny.translate(states, actions)
    )


def test_equal_seeds_give_equal_translators(tiny, mirrored):
    again = fit_state(*mirrored, WRONG, config=TINY, quiet=True)
    other = fit_state(*mirrored, WRONG, config=TINY, seed=1, quiet=True)
    states = mirrored[1].observations[:64]
    np.testing.assert_array_equal(again.view(states), tiny.view(states))
    assert (other.view(states) != tiny.view(states)).any()
    assert again.report == tiny.report


def test_the_policy_sees_states_of_the_source(mirrored):
    config = dataclasses.replace(TINY, steps=0)
    translator = fit_state(*mirrored, RIGHT, config=config, quiet=True)
    policy = TransferredPolicy(lambda states: states[:, :2] / 10, translator)
    states = np.array([[1.0, 2.0, 3.0]])
    np.testing.assert_allclose(policy(states), [[0.2, -0.1]], rtol=1e-6)


def test_the_report_is_json(tiny):
    json.dumps(dataclasses.asdict(tiny.report), allow_nan=False)
    assert {
        len(curve) for title, curve in tiny.report.curves.items() if "forward" not in title
    } == {2}
    assert len(tiny.report.forward_error) == 3


def test_wrong_spaces_are_refused_before_training(mirrored, tiny):
    with pytest.raises(UsageError, match="maps 14 states and 4 actions"):
        fit_state(*mirrored, CORRESPONDENCES["mirror-x"], config=TINY, quiet=True)
    with pytest.raises(UsageError, match=r"shape \(n, 3\) or \(3,\), not \(5, 4\)"):
        tiny.view(np.zeros((5, 4)))
    with pytest.raises(UsageError, match=r"actions must have shape \(5, 2\), not \(5, 3\)"):
        tiny.translate(np.zeros((5, 3)), np.zeros((5, 3)))


@pytest.mark.parametrize(
    "bad",
    [
        {"adversarial": -1},
        {"adversarial_unguessed": -1},
        {"steps": -1},
        {"state_proximity": -0.1},
        {"batch_size": 0},
        {"held": 1.5},
    ],
)
def test_configs_that_make_no_sense(bad):
    with pytest.raises(UsageError, match=r"must not be negative|at least 1|\[0, 1\], not 1\.5"):
        StateConfig(**bad)
