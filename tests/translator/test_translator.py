"""The translator on systems whose answer is known, without any simulator."""

import subprocess
import sys

import numpy as np
import pytest
import torch

from mcat.datasets import EpisodeStore
from mcat.errors import DataError, UsageError
from mcat.translator import (
    ActionConfig,
    ContextConfig,
    TransferredPolicy,
    Translator,
    fit_pair,
)
from mcat.translator.action import ActionTraining, SourceTargets
from mcat.translator.context import (
    ContextModel,
    bounded_log_variance,
    contrastive_loss,
    forward_loss,
    train_context,
)
from mcat.translator.networks import clip
from mcat.translator.windows import sample_windows, shared_dimensions
from tests.translator.systems import ACTIONS, CHANGES, STATES, linear_system

QUICK = ContextConfig(
    encoder_hidden=(32,), forward_hidden=(64, 64), context_size=4, max_steps=2000, patience=4
)
QUICK_H = ActionConfig(hidden=(64, 64), embedding=32, steps=800, proximity=0.0, batch_size=256)


def error_of(translator, motors):
    """Mean |translated - right action| as a share of the range, where a right one exists."""
    rng = np.random.default_rng(9)
    states, actions = rng.normal(size=(500, STATES)), rng.uniform(-0.9, 0.9, (500, ACTIONS))
    right = actions @ np.linalg.inv(motors)
    inside = (np.abs(right) <= 0.95).all(axis=1)
    assert inside.sum() > 100
    found = translator.translate(states, actions)
    return np.abs(found - right)[inside].mean() / 2


@pytest.mark.parametrize("name", CHANGES)
def test_a_pair_recovers_what_the_motors_do(name):
    source, target = linear_system(np.eye(ACTIONS), 1), linear_system(CHANGES[name], 2)
    translator = fit_pair(source, target, context=QUICK, action=QUICK_H, quiet=True)
    assert error_of(translator, CHANGES[name]) < 0.05
    numbers = translator.report.numbers
    assert numbers["translated"] < 0.5 * numbers["untranslated"]


def test_identical_machines_need_no_translation():
    source, target = (linear_system(np.eye(ACTIONS), seed) for seed in (1, 2))
    translator = fit_pair(source, target, context=QUICK, action=QUICK_H, quiet=True)
    assert error_of(translator, np.eye(ACTIONS)) < 0.02


def test_velocities_nobody_measured_are_seen_through_the_past():
    """Only positions are observed; without its own past F cannot know where things are going."""
    rng = np.random.default_rng(0)
    position, velocity = np.zeros((60, 50, 2)), rng.normal(size=(60, 2))
    actions = rng.uniform(-1, 1, (60, 49, 2))
    for t in range(49):
        velocity = 0.9 * velocity + actions[:, t]
        position[:, t + 1] = position[:, t] + velocity
    task = EpisodeStore.from_arrays(
        observations=position[:, :-1].reshape(-1, 2),
        actions=actions.reshape(-1, 2),
        next_observations=position[:, 1:].reshape(-1, 2),
        episode_ends=np.arange(1, 61) * 49,
    )
    blind = ContextConfig(**{**QUICK.__dict__, "recent": 0, "future": 10, "max_steps": 1000})
    seeing = ContextConfig(**{**QUICK.__dict__, "recent": 3, "max_steps": 1000})
    reports = [train_context([task], config, quiet=True)[1] for config in (blind, seeing)]
    errors = [report.numbers["forward error"] for report in reports]
    assert errors[1] < 0.3 * errors[0]


def test_training_h_leaves_c_and_f_as_they_were():
    tasks = [linear_system(np.eye(ACTIONS), 1, 5), linear_system(CHANGES["reversed"], 2, 5)]
    short = ContextConfig(**{**QUICK.__dict__, "max_steps": 20})
    model, _ = train_context(tasks, short, quiet=True)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    ActionTraining(model, [SourceTargets(0, tasks[0], [1])], ActionConfig(steps=10)).run(quiet=True)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name]), name


def test_a_residual_translator_starts_as_the_identity_and_the_cost_keeps_it_near():
    tasks = [linear_system(np.eye(ACTIONS), 1, 5), linear_system(CHANGES["reversed"], 2, 5)]
    short = ContextConfig(**{**QUICK.__dict__, "max_steps": 300})
    model, _ = train_context(tasks, short, quiet=True)
    moved = {}
    for cost in (0.0, 100.0):
        config = ActionConfig(steps=200, proximity=cost)
        training = ActionTraining(model, [SourceTargets(0, tasks[0], [1])], config)
        moved[cost] = training.run(quiet=True).numbers["moved"]
    assert moved[100.0] < 0.02 < moved[0.0]


def test_contrastive_values():
    """Squared distance within a task, squared hinge between tasks."""
    here = torch.zeros(3, 2)
    there = here + torch.tensor([0.25, 0.0])
    assert contrastive_loss(here, here, same=True, margin=1.0) == pytest.approx(0, abs=1e-9)
    far = here + torch.tensor([1.5, 0.0])
    assert contrastive_loss(here, far, same=False, margin=1.0) == 0
    assert contrastive_loss(here, there, same=False, margin=1.0).item() == pytest.approx(0.5625)
    assert contrastive_loss(here, there, same=True, margin=1.0).item() == pytest.approx(0.0625)


def test_log_variance_is_bounded():
    """Softly: what is well inside stays nearly as it was."""
    out = bounded_log_variance(torch.tensor([1e4, -1e4, -3.0]))
    assert out[0].item() == pytest.approx(0.5, abs=1e-3)
    assert out[1].item() == pytest.approx(-10, abs=1e-3)
    assert out[2].item() == pytest.approx(-3, abs=0.05)


def test_the_clip_calls_back_what_is_outside_and_pushes_nothing_out():
    action = torch.tensor([-2.0, -2.0, 0.5, 2.0, 2.0], requires_grad=True)
    clipped = clip(action)
    assert clipped.tolist() == [-1, -1, 0.5, 1, 1]
    (clipped * torch.tensor([1.0, -1.0, 1.0, 1.0, -1.0])).sum().backward()
    assert action.grad.tolist() == [0, -1, 1, 1, 0]  # descent: -grad


def test_dimensions_that_give_a_machine_away_are_not_looked_at():
    """The last number of the state is 3 on one machine and 5 on the other, and does nothing."""
    stores = []
    for seed, label in ((1, 3.0), (2, 5.0)):
        plain = linear_system(CHANGES["reversed"] if seed == 2 else np.eye(ACTIONS), seed)
        columns = [np.hstack([c, np.full((len(plain), 1), label)])
                   for c in (plain.observations, plain.next_observations)]  # fmt: skip
        stores.append(EpisodeStore.from_arrays(
            observations=columns[0], next_observations=columns[1], actions=plain.actions,
            episode_ends=plain.episode_ends,
        ))  # fmt: skip
    assert shared_dimensions(stores).tolist() == [1, 1, 1, 1, 0]
    assert shared_dimensions(stores[:1]).tolist() == [1, 1, 1, 1, 1]
    short = ContextConfig(**{**QUICK.__dict__, "max_steps": 30})
    translator = fit_pair(*stores, context=short, action=ActionConfig(steps=20), quiet=True)
    states, actions = stores[0].observations[:20].copy(), stores[0].actions[:20]
    before = translator.translate(states, actions)
    states[:, -1] = 99
    assert np.array_equal(translator.translate(states, actions), before)


def test_evenness_gives_hard_dimensions_their_share():
    """Weighed by variance^1 the gradient is that of a plain squared error."""
    mean = torch.tensor([[0.5, 0.5]], requires_grad=True)
    log_variance = torch.tensor([[2.0, -3.0]])
    forward_loss(mean, log_variance, torch.zeros(1, 2), evenness=1.0).backward()
    assert mean.grad.flatten().tolist() == pytest.approx([0.5, 0.5])


def test_forward_loss_by_hand():
    mean, change = torch.tensor([[1.0, 2.0]]), torch.tensor([[0.0, 0.0]])
    log_variance = torch.log(torch.tensor([[4.0, 2.0]]))
    expected = (1 / 4 + np.log(4) + 4 / 2 + np.log(2)) / 2
    assert forward_loss(mean, log_variance, change).item() == pytest.approx(expected)


@pytest.mark.parametrize("all_future", [False, True])
def test_windows_stay_inside_their_episode(all_future):
    """Observations count steps, so that every window shows where it was taken."""
    lengths = [3, 12, 1, 30]
    clock = np.concatenate([1000 * i + np.arange(n) for i, n in enumerate(lengths)])
    store = EpisodeStore.from_arrays(
        observations=clock[:, None], actions=clock[:, None] * 0.0001,
        next_observations=clock[:, None] + 1, episode_ends=np.cumsum(lengths),
    )  # fmt: skip
    config = ContextConfig(history=5, future=4, recent=2, all_future=all_future)
    rows = sample_windows(store, config, np.random.default_rng(0), 400)
    step = rows.obs[:, 0].numpy() % 1000
    own = (rows.past[:, :, 0] != 0).sum(dim=1).numpy()
    assert len(rows.context_past[0]) == 400  # each is encoded once
    context = (rows.context_past[0][:, :, 0] != 0).sum(dim=1)[rows.window].numpy()
    assert np.array_equal(own, np.minimum(step, 2))  # zeros before the start, never the current
    ahead = step - context  # exact while the context's past is not yet full
    known = context < 5
    assert ((ahead >= 0) & (ahead < 4))[known].all()
    assert set(ahead[known]) == {0, 1, 2, 3}
    assert set(rows.window.tolist()) == set(range(400))
    assert (len(rows.obs) > 400) == all_future


def test_all_future_steps_at_once_teach_the_same():
    """As printed; windows at the end of an episode have fewer steps than others."""
    config = ContextConfig(**{**QUICK.__dict__, "all_future": True, "batch_size": 32,
                              "max_steps": 400, "evaluate_every": 50})  # fmt: skip
    _, report = train_context([linear_system(np.eye(ACTIONS), 1)], config, quiet=True)
    (curve,) = report.curves.values()
    assert report.numbers["forward error"] < 0.5 * curve[0][1]


def test_constant_dimensions_do_no_harm():
    store = linear_system(np.eye(ACTIONS), 1, 5)
    padded = EpisodeStore.from_arrays(
        observations=np.hstack([store.observations, np.full((len(store), 1), 7.0)]),
        actions=store.actions,
        next_observations=np.hstack([store.next_observations, np.full((len(store), 1), 7.0)]),
        episode_ends=store.episode_ends,
    )
    short = ContextConfig(**{**QUICK.__dict__, "max_steps": 50})
    translator = fit_pair(padded, padded, context=short, action=ActionConfig(steps=20), quiet=True)
    assert not translator.model.change_scale.moves[-1]
    assert np.isfinite(translator.translate(padded.observations, padded.actions)).all()


@pytest.fixture(scope="module")
def small():
    tasks = [linear_system(np.eye(ACTIONS), 1, 5), linear_system(CHANGES["swapped"], 2, 5)]
    short = ContextConfig(**{**QUICK.__dict__, "max_steps": 30})
    return tasks, short


@pytest.mark.parametrize("residual", [True, False])
def test_saved_and_loaded_it_gives_the_same_actions(small, tmp_path, residual):
    tasks, short = small
    config = ActionConfig(steps=30, residual=residual)
    translator = fit_pair(*tasks, context=short, action=config, quiet=True)
    translator.save(tmp_path / "t.safetensors")
    again = Translator.load(tmp_path / "t.safetensors")
    states, actions = tasks[1].observations[:50], tasks[1].actions[:50]
    expected = translator.translate(states, actions)
    assert np.array_equal(again.translate(states, actions), expected)
    assert not np.array_equal(expected, actions)

    def policy(observations):
        return actions[: len(observations)]

    assert np.array_equal(TransferredPolicy(policy, again)(states), expected)


def test_equal_seeds_give_equal_translators(small):
    tasks, short = small
    weights = [
        fit_pair(*tasks, context=short, action=ActionConfig(steps=20), seed=s, quiet=True)
        .network.trunk[-1].weight
        for s in (3, 3, 4)
    ]  # fmt: skip
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_bad_input_is_one_clear_line(small, tmp_path):
    tasks, short = small
    wide = EpisodeStore.from_arrays(
        observations=np.zeros((20, 9)), actions=np.zeros((20, 2)), episode_ends=[10, 20],
        next_observations=np.ones((20, 9)),
    )  # fmt: skip
    with pytest.raises(DataError, match="differ in their spaces"):
        fit_pair(tasks[0], wide, quiet=True)
    with pytest.raises(DataError, match="at least 2 episodes"):
        fit_pair(tasks[0], tasks[1].select([0]), quiet=True)
    with pytest.raises(UsageError, match="recent must be 0 to 10"):
        ContextConfig(recent=11)
    translator = fit_pair(*tasks, context=short, action=ActionConfig(steps=2), quiet=True)
    with pytest.raises(UsageError, match=r"actions must have shape \(5, 3\), not \(4, 3\)"):
        translator.translate(np.zeros((5, 4)), np.zeros((4, 3)))
    (tmp_path / "no.safetensors").write_text("no")
    with pytest.raises(DataError):
        Translator.load(tmp_path / "no.safetensors")


def test_everything_works_where_there_is_no_simulator():
    code = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split('.')[0] in ('mujoco', 'metaworld', 'gymnasium'):
            raise ImportError(name)
sys.meta_path.insert(0, Missing())
import numpy as np
from mcat.datasets import EpisodeStore
from mcat.translator import ActionConfig, ContextConfig, fit_pair
rng = np.random.default_rng(0)
log = rng.normal(size=(101, 3))
store = EpisodeStore.from_arrays(observations=log[:-1], actions=rng.uniform(-1, 1, (100, 2)),
                                 next_observations=log[1:], episode_ends=[50, 100])
translator = fit_pair(store, store, context=ContextConfig(max_steps=5),
                      action=ActionConfig(steps=5), quiet=True)
assert translator.translate(log[:7], np.zeros((7, 2))).shape == (7, 2)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_context_model_shapes():
    model = ContextModel(STATES, ACTIONS, 2, QUICK)
    past = torch.zeros(6, 10, STATES), torch.zeros(6, 10, ACTIONS)
    context = model.encode(past)
    assert context.shape == (6, 4)
    mean, log_variance = model.predict(
        torch.zeros(6, STATES), torch.zeros(6, ACTIONS), past[0][:, -3:], context
    )
    assert mean.shape == log_variance.shape == (6, STATES)
