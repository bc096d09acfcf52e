"""The baseline of Zhang et al. (2020) on machines whose answer is known."""

import dataclasses

import numpy as np
import pytest
import torch

from mcat.datasets import EpisodeStore
from mcat.errors import DataError, DivergedError, UsageError
from mcat.translator.adversarial import Adversary, HistoryPool
from mcat.translator.configs import CycleConfig, SpacesCycleConfig
from mcat.translator.cycle.pair import CycleNetworks, CycleTraining, fit_cycle
from mcat.translator.cycle.spaces import SpacesNetworks, SpacesTraining, fit_cycle_spaces
from mcat.translator.cycle.training import LossLog, TransitionRows, optimise, scheduled
from mcat.translator.networks import ends_epoch
from mcat.translator.policy import TransferredPolicy, Translator
from mcat.translator.report import FitReport
from mcat.translator.state.correspondence import Correspondence
from tests.translator.systems import (
    ACTIONS,
    CHANGES,
    LIMBS,
    STATES,
    THREE_LIMBS,
    TWO_LIMBS,
    linear_system,
    step,
)

QUICK = CycleConfig(
    embedding=(32,), hidden=(64,), batch_size=64, forward_steps=500, steps=700, epochs=10
)
TINY = dataclasses.replace(QUICK, forward_steps=5, steps=6, epochs=3, batch_size=16)
QUICK_SPACES = SpacesCycleConfig(batch_size=64, forward_steps=400, turn_steps=80)
TINY_SPACES = dataclasses.replace(QUICK_SPACES, forward_steps=5, turn_steps=4, epochs=2, rounds=1)


@pytest.fixture(scope="module")
def pair():
    return linear_system(np.eye(ACTIONS), 1, 5), linear_system(CHANGES["reversed"], 2, 5)


@pytest.fixture(scope="module")
def limbs():
    """The target is driven the way the hand map drives it, as its first logs would be."""
    source = linear_system(np.eye(2), 1, push=TWO_LIMBS)
    return source, linear_system(np.eye(3), 2, push=THREE_LIMBS, drive=LIMBS.action_to_target)


def changed_parts(module, before):
    """Top-level parts of a module whose weights are not what they were, to the bit."""
    after = module.state_dict()
    return {name.split(".")[0] for name in before if not torch.equal(before[name], after[name])}


def copied(module):
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


def draw(store, n=16):
    return TransitionRows.of(store).draw(np.random.default_rng(0), n)


@pytest.mark.parametrize("name", ["reversed", "stronger"])
def test_translated_actions_do_what_the_source_did(name):
    motors = CHANGES[name]
    source, target = linear_system(np.eye(ACTIONS), 1), linear_system(motors, 2)
    translator = fit_cycle(source, target, config=QUICK, quiet=True)
    rng = np.random.default_rng(9)
    states, wanted = rng.normal(size=(500, STATES)), rng.uniform(-0.9, 0.9, (500, ACTIONS))
    effect = translator.translate(states, wanted) @ motors
    assert np.abs(effect - wanted).mean() < 0.5 * np.abs(wanted @ motors - wanted).mean()
    numbers = translator.report.numbers
    # Of a stronger target, much of what it does is beyond any action of the source.
    assert numbers["translated"] < 0.85 * numbers["untranslated"]
    assert numbers["round trip"] < 0.12 < numbers["moved"]

    found = translator.networks.dynamics(*(draw(source, 500)[:2]))
    assert (found - draw(source, 500).after).abs().mean() < 0.1
    elsewhere = draw(target, 500)
    found = translator.networks.dynamics(elsewhere.obs, elsewhere.action)
    assert (found - elsewhere.after).abs().mean() > 0.15  # F1 knows the source, not the target
    errors = translator.report.forward_error
    assert len(errors) == STATES
    assert numbers["forward error"] == pytest.approx(np.mean(errors), rel=1e-4)


def test_a_limb_more(limbs):
    """The front limb is half as strong: by the hand map alone body and limb fall behind."""
    translator = fit_cycle_spaces(*limbs, LIMBS, config=QUICK_SPACES, quiet=True)
    untrained = dataclasses.replace(TINY_SPACES, rounds=0)
    by_hand = fit_cycle_spaces(*limbs, LIMBS, config=untrained, quiet=True)
    states = limbs[1].observations
    actions = np.random.default_rng(5).uniform(-0.9, 0.9, (len(states), 2))

    def error(policy_translator):
        """How far what a source policy sees next is from what it would see on the source."""
        seen = policy_translator.view(states)
        after = step(states, policy_translator.translate(states, actions), THREE_LIMBS)
        return np.abs(policy_translator.view(after) - step(seen, actions, TWO_LIMBS)).mean()

    assert error(translator) < 0.5 * error(by_hand)
    seen = translator.view(states)
    assert (seen.std(axis=0) > 0.5 * limbs[0].observations.std(axis=0)).all()  # no collapse
    numbers = translator.report.numbers
    assert numbers["translated"] < 0.5 * numbers["untranslated"]
    assert numbers["forward error"] < 0.1


def test_untrained_maps_are_the_hand_maps(limbs):
    config = dataclasses.replace(TINY_SPACES, rounds=0)
    translator = fit_cycle_spaces(*limbs, LIMBS, config=config, quiet=True)
    states = limbs[1].observations
    actions = np.random.default_rng(0).uniform(-1, 1, (len(states), 2))
    assert np.allclose(translator.view(states), states @ LIMBS.state_to_source.T, atol=1e-5)
    translated = translator.translate(states, actions)
    assert np.allclose(translated, actions @ LIMBS.action_to_target.T, atol=1.1e-3)
    assert translator.report.numbers["states moved"] == 0


def test_what_never_changes_on_the_source_is_shown_as_it_was_there():
    """A goal, say, that is elsewhere on the target."""

    def with_goal(seed, goal):
        store = linear_system(np.eye(ACTIONS), seed, 5)
        columns = {
            name: np.hstack([store.column(name), np.full((len(store), 1), goal)])
            for name in ("observations", "next_observations")
        }
        return EpisodeStore.from_arrays(
            **columns, actions=store.actions, episode_ends=store.episode_ends
        )

    same = Correspondence.mirror(STATES + 1, ACTIONS, state_axes=(), action_axes=())
    translator = fit_cycle_spaces(
        with_goal(1, 3.0), with_goal(2, -3.0), same, config=TINY_SPACES, quiet=True
    )
    states = np.hstack([np.random.default_rng(0).normal(size=(50, STATES)), np.full((50, 1), -3)])
    assert (translator.view(states)[:, -1] == 3.0).all()


def test_each_step_changes_only_its_own_networks(pair):
    training = CycleTraining(CycleNetworks((STATES, ACTIONS), TINY), np.random.default_rng(0))
    networks, target = training.networks, draw(pair[1])
    before = copied(networks)
    proposed = networks.to_source(target.obs, target.action)
    training.adversary.learn(proposed, draw(pair[0]).action)
    assert changed_parts(networks, before) == {"discriminator"}
    before = copied(networks)
    optimise(training.adam, sum(training.losses(target, proposed).values()))
    assert changed_parts(networks, before) == {"phi", "psi"}


def test_the_adversary_goes_first(pair):
    training = CycleTraining(CycleNetworks((STATES, ACTIONS), TINY), np.random.default_rng(0))
    target = draw(pair[1])
    proposed = training.networks.to_source(target.obs, target.action)
    losses = training.step(target, draw(pair[0]).action)
    assert torch.equal(losses["adversarial"], training.adversary.generator_loss(proposed))


def test_turns_change_only_their_own_networks(limbs):
    networks = SpacesNetworks((3, 2), (4, 3), TINY_SPACES)
    networks.set_hand_maps(LIMBS)
    training = SpacesTraining(networks, np.random.default_rng(0))
    source, target = (draw(store) for store in limbs)
    before = copied(networks)
    training.state_turn(source, target)
    assert changed_parts(networks, before) == {"state_map", "judge_state"}
    assert torch.equal(networks.state_map.hand, before["state_map.hand"])
    before = copied(networks)
    training.action_turn(source, target)
    assert changed_parts(networks, before) == {
        "to_source", "to_target", "judge_source_action", "judge_target_action",
    }  # fmt: skip


def test_losses_by_hand():
    """F1 and the translators answer 0.5 whatever they are asked."""
    networks = CycleNetworks((1, 1), TINY)
    for network, answer in ((networks.dynamics, 0.5), (networks.psi, np.arctanh(0.5))):
        torch.nn.init.zeros_(network.trunk[-1].weight)
        torch.nn.init.constant_(network.trunk[-1].bias, answer)
    torch.nn.init.zeros_(networks.discriminator[-1].weight)
    torch.nn.init.constant_(networks.discriminator[-1].bias, 0.2)
    training = CycleTraining(networks, np.random.default_rng(0))
    rows = TransitionRows(
        torch.zeros(2, 1), torch.tensor([[0.0], [1.0]]), torch.tensor([[0.5], [2.5]])
    )
    losses = training.losses(rows, torch.zeros(2, 1))
    assert losses["dynamics cycle"].item() == pytest.approx((0 + 2) / 2)
    assert losses["domain cycle"].item() == pytest.approx((0.5 + 0.5) / 2)
    assert losses["adversarial"].item() == pytest.approx(0.8**2)


def test_adversary_by_hand():
    network = torch.nn.Linear(1, 2, bias=False)
    torch.nn.init.ones_(network.weight)  # both outputs repeat the input
    adversary = Adversary(network, 4, 1e-3, np.random.default_rng(0))
    fake, real = torch.tensor([[0.5], [2.0]]), torch.tensor([[3.0]])
    assert adversary.generator_loss(fake).item() == pytest.approx((0.5**2 + 1**2) / 2)
    loss = adversary.learn(fake, real)
    assert loss.item() == pytest.approx(0.5 * ((0.5**2 + 2**2) / 2 + 2**2))
    assert (network.weight < 1).all()  # fake ones too high, the real one too


def test_pool_passes_on_until_full_and_then_swaps():
    pool = HistoryPool(4, np.random.default_rng(0))
    first = torch.arange(3.0)[:, None]
    assert torch.equal(pool.swap(first), first)
    seen, fresh = 3, 0
    for _ in range(200):
        batch = torch.arange(seen, seen + 4.0)[:, None]
        there = {*pool.kept[:, 0].tolist(), *batch[:, 0].tolist()}
        out = pool.swap(batch)
        assert out.shape == batch.shape
        assert len(pool.kept) == 4
        assert {*pool.kept[:, 0].tolist(), *out[:, 0].tolist()} == there  # none lost or doubled
        fresh += int((out == batch).sum())
        seen += 4
    assert 0.4 < fresh / 800 < 0.6


def test_learning_rates_fall_in_equal_parts():
    adam = torch.optim.Adam([torch.zeros(1, requires_grad=True)])
    rates = [adam.param_groups[0]["lr"] for _ in scheduled([adam], 7, (1e-3, 3e-4, 1e-4))]
    assert rates == [1e-3] * 3 + [3e-4] * 2 + [1e-4] * 2
    assert [n for n in range(1, 8) if ends_epoch(n, 7, 3)] == [3, 5, 7]


def test_log_averages_epochs_and_reports_divergence():
    report = FitReport()
    log = LossLog(report)
    for value in (1.0, 2.0):
        log.add({"loss": torch.tensor(value)})
    assert log.close_epoch(2) == "loss 1.500"
    log.add({"loss": torch.tensor(4.0)})
    log.close_epoch(3)
    assert report.curves == {"loss": [(2, 1.5), (3, 4.0)]}
    log.add({"loss": torch.tensor(float("nan"))})
    with pytest.raises(DivergedError, match="'loss' became nan by step 4"):
        log.close_epoch(4)


def test_callers_can_watch_every_epoch(pair, limbs):
    seen = []

    def watch(epoch, translator):
        seen.append((epoch, translator.translate(*probe)))

    probe = pair[1].observations[:5], pair[1].actions[:5]
    translator = fit_cycle(*pair, config=TINY, quiet=True, on_epoch=watch)
    assert [epoch for epoch, _ in seen] == [1, 2, 3]
    assert not np.array_equal(seen[0][1], seen[1][1])
    assert np.array_equal(seen[-1][1], translator.translate(*probe))
    assert all(len(curve) == 3 for curve in translator.report.curves.values())

    seen.clear()
    probe = limbs[1].observations[:5], limbs[0].actions[:5]
    fit_cycle_spaces(*limbs, LIMBS, config=TINY_SPACES, quiet=True, on_epoch=watch)
    assert [epoch for epoch, _ in seen] == [1, 2, 3, 4]  # two of G, two of the action maps
    assert np.array_equal(seen[0][1], seen[1][1])
    assert not np.array_equal(seen[1][1], seen[2][1])


def fits(pair, limbs, seed=0):
    return (
        fit_cycle(*pair, config=TINY, seed=seed, quiet=True),
        fit_cycle_spaces(*limbs, LIMBS, config=TINY_SPACES, seed=seed, quiet=True),
    )


def test_saved_and_loaded_they_act_the_same(pair, limbs, tmp_path):
    probes = (pair[1], pair[0]), (limbs[1], limbs[0])
    for translator, (target, source) in zip(fits(pair, limbs), probes, strict=True):
        path = tmp_path / f"{translator.kind}.safetensors"
        translator.save(path)
        again = Translator.load(path)
        assert type(again) is type(translator)
        states, actions = target.observations[:50], source.actions[:50]
        assert np.array_equal(again.view(states), translator.view(states))
        expected = translator.translate(states, actions)
        assert expected.shape == (50, target.action_size)
        assert (np.abs(expected) <= 1).all()
        policy = TransferredPolicy(lambda _, actions=actions: actions, again)
        assert np.array_equal(policy(states), expected)


def test_equal_seeds_give_equal_translators(pair, limbs):
    torch.manual_seed(0)
    untouched = torch.random.get_rng_state()
    one, two, other = (fits(pair, limbs, seed) for seed in (3, 3, 4))
    assert torch.equal(torch.random.get_rng_state(), untouched)
    for first, second, third in zip(one, two, other, strict=True):
        assert changed_parts(first.networks, copied(second.networks)) == set()
        assert changed_parts(first.networks, copied(third.networks)) != set()
        assert first.report == second.report


def test_the_original_numbers():
    """Zhang et al.'s, not those that the MCAT paper prints for them."""
    same, spaces = CycleConfig.original(), SpacesCycleConfig.paper()
    assert (same.steps, same.batch_size, same.pool) == (30 * 3000, 32, 256)
    assert (same.dynamics_weight, same.domain_weight, same.adversarial_weight) == (20, 1, 1)
    assert (spaces.rounds, spaces.turn_steps, spaces.batch_size, spaces.pool) == (3, 7000, 32, 128)
    assert spaces.learning_rate == 1e-4
    weights = spaces.adversarial_weight, spaces.action_cycle_weight, spaces.dynamics_weight
    assert weights == (10, 30, 100)


def test_bad_input_is_one_clear_line(pair, limbs):
    with pytest.raises(DataError, match="that takes a state translator"):
        fit_cycle(*limbs, config=TINY, quiet=True)
    with pytest.raises(DataError, match="at least 2 episodes"):
        fit_cycle(pair[0], pair[1].select([0]), config=TINY, quiet=True)
    with pytest.raises(UsageError, match="but the machines have"):
        fit_cycle_spaces(*pair, LIMBS, config=TINY_SPACES, quiet=True)
    for wrong in ({"pool": 100}, {"steps": 0}, {"forward_steps": 0}):
        with pytest.raises(UsageError, match=f"{next(iter(wrong))}.* must be"):
            CycleConfig(**wrong)
    with pytest.raises(UsageError, match="turn_steps must not be negative"):
        SpacesCycleConfig(turn_steps=-1)
    _, spaces = fits(pair, limbs)
    with pytest.raises(UsageError, match=r"shape \(n, 4\) or \(4,\), not \(5, 3\)"):
        spaces.view(np.zeros((5, 3)))
    with pytest.raises(UsageError, match=r"actions must have shape \(5, 2\), not \(5, 3\)"):
        spaces.translate(np.zeros((5, 4)), np.zeros((5, 3)))
