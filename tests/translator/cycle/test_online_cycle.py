"""The baseline of Zhang et al. (2020) in the place of H, on machines whose answer is known."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from mcat.agents.meta.algorithm import Round, TaskSet
from mcat.agents.meta.config import PRESETS
from mcat.agents.meta.mcat import MCAT
from mcat.datasets import EpisodeStore
from mcat.translator.configs import ActionConfig, ContextConfig
from mcat.translator.context import ContextModel, fit_scales
from mcat.translator.cycle.online import CycleLearner
from mcat.translator.networks import optimise
from mcat.translator.windows import sample_windows
from tests.translator.systems import ACTIONS, CHANGES, STATES, linear_system

MOTORS = (np.eye(ACTIONS), CHANGES["reversed"])
CONTEXT = ContextConfig(encoder_hidden=(8,), forward_hidden=(64, 64), context_size=2, recent=0)
ACTION = ActionConfig(embedding=16, hidden=(64,), batch_size=64, steps=600, learning_rate=3e-3)
TINY = replace(ACTION, batch_size=16, steps=3)


def no_tick(done, total):
    pass


@pytest.fixture(scope="module")
def tasks():
    return [linear_system(motors, seed, episodes=20) for seed, motors in enumerate(MOTORS)]


@pytest.fixture(scope="module")
def model(tasks):
    """F of both machines, told apart by features that are given."""
    rng = np.random.default_rng(0)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = ContextModel(STATES, ACTIONS, len(tasks), CONTEXT)
    fit_scales(model, tasks)
    model.features.copy_(torch.eye(len(tasks)))
    adam = torch.optim.Adam(model.dynamics.parameters(), 3e-3, fused=True)
    for step in range(500):
        feature = model.features[step % 2].expand(64, -1)
        rows = sample_windows(tasks[step % 2], CONTEXT, rng, 64)
        mean, _ = model.predict(rows.obs, rows.action, rows.past, feature)
        optimise(adam, (mean - model.change_scale(rows.change)).abs().mean())
    return model


def copied(module):
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


def translated(learner, source, target):
    """Random actions of the source, and Psi's translations of them."""
    rng = np.random.default_rng(9)
    states, actions = rng.normal(size=(400, STATES)), rng.uniform(-0.9, 0.9, (400, ACTIONS))
    features = (learner.model.features[task].expand(400, -1) for task in (source, target))
    states, wanted = (torch.tensor(values, dtype=torch.float32) for values in (states, actions))
    return actions, learner.translate(states, wanted, *features).numpy()


def test_psi_finds_the_map_between_any_two_tasks(model, tasks):
    before = copied(model)
    learner = CycleLearner(model, ACTION, seed=1)
    progress = learner.learn(tasks, no_tick)
    assert progress.translated < 0.4 * progress.untranslated
    for source, target in ((0, 1), (1, 0)):
        actions, new = translated(learner, source, target)
        wanted = actions @ MOTORS[source]
        untranslated = np.abs(actions @ MOTORS[target] - wanted).mean()
        assert np.abs(new @ MOTORS[target] - wanted).mean() < 0.3 * untranslated
    for task in (0, 1):
        actions, new = translated(learner, task, task)
        assert np.abs(new - actions).mean() < 0.15
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())


def test_each_loss_is_about_the_right_machine(model, tasks):
    """Of target transitions: actions are proposed for the source, and come back."""
    learner = CycleLearner(model, TINY)
    learner.learn(tasks, no_tick)
    training = learner._training
    batch = training.sample(training.sources[1]._replace(targets=[0]), 256)
    rows = batch.rows
    right = rows.action @ torch.tensor(CHANGES["reversed"], dtype=torch.float32)
    assert training.losses(batch, right)["dynamics"] < 0.2  # F answers for the source
    assert training.losses(batch, rows.action)["dynamics"] > 0.5
    proposed = training.propose(batch)
    z0, z1 = model.features[0].expand(256, -1), model.features[1].expand(256, -1)
    states = model.scaled(rows.obs)
    assert torch.equal(proposed, training.phi(states, rows.action, z0, z1))
    back = training.network(states, proposed, z0, z1)
    losses = training.losses(batch, proposed)
    assert torch.equal(losses["domain"], (back - rows.action).abs().mean())
    verdict = training.helpers["discriminator"](torch.cat((proposed, z0), 1))
    assert torch.allclose(losses["adversarial"], (verdict - 1).square().mean())


def test_the_adversary_learns_whose_actions_are_whose():
    """One task's actions are positive, the other's negative: D accepts each with its own z."""
    rng = np.random.default_rng(0)
    tasks = []
    for sign in (1, -1):
        states = rng.normal(size=(200, STATES))
        actions = sign * rng.uniform(0.2, 1, (200, ACTIONS))
        tasks.append(EpisodeStore.from_arrays(
            observations=states, actions=actions, next_observations=states + 0.1, episode_ends=[200]
        ))  # fmt: skip
    model = ContextModel(STATES, ACTIONS, 2, CONTEXT)
    fit_scales(model, tasks)
    model.features.copy_(torch.eye(2))
    learner = CycleLearner(model, replace(TINY, steps=150, batch_size=64))
    learner.learn(tasks, no_tick)
    judge, actions = learner._training.helpers["discriminator"], torch.full((1, ACTIONS), 0.6)
    with torch.no_grad():
        own, other = (judge(torch.cat((actions, z[None]), 1)).mean() for z in model.features)
    assert own > other + 0.3


def test_a_loaded_learner_goes_on_as_the_saved_one(model, tasks):
    one, two = CycleLearner(model, TINY, seed=3), CycleLearner(model, TINY, seed=4)
    assert one.tensors() == {}
    two.load_tensors({}, tasks)
    one.learn(tasks, no_tick)
    saved = {name: tensor.detach().clone() for name, tensor in one.tensors().items()}
    state = one.rng.bit_generator.state
    for _ in range(2):
        expected = one.learn(tasks, no_tick)
    two.load_tensors(saved, tasks)
    two.rng.bit_generator.state = state
    for _ in range(2):
        found = two.learn(tasks, no_tick)
    assert found == expected
    tensors = two.tensors()
    assert tensors.keys() == one.tensors().keys()
    for name, tensor in one.tensors().items():
        assert torch.equal(tensor, tensors[name]), name


def test_mcat_transfers_by_it(tasks):
    """Task 0 earns, task 1 does not: its next episode is driven by task 0's policy through Psi."""
    task_set = TaskSet(
        train=("a", "b"), test=(), observation_size=STATES, action_size=ACTIONS,
        horizon=50, delay=10, make=lambda numbers: pytest.fail("no environment is needed"),
    )  # fmt: skip
    config = replace(PRESETS["smoke"].mcat, translator="cycle", start_steps=0)
    mcat = MCAT(task_set, config, np.random.SeedSequence(0))
    assert isinstance(mcat.translator, CycleLearner)
    for step in (100, 200):
        episodes = EpisodeStore(STATES, ACTIONS)
        for number, task in enumerate(tasks):
            episode = task.episode(step // 100)
            columns = {k: episode[k] for k in ("observations", "actions", "next_observations")}
            rewards = np.full(50, 1.0 - number, np.float32)
            episodes.append_episode(**columns, rewards=rewards, task=number)
        mcat.remember(Round(step=step, episodes=episodes, drivers=("shared", "shared")))
    found = mcat.learn(lambda phase, done, total: None)
    assert np.isfinite(found["model/mismatch_translated"])
    drivers = mcat.plan()
    assert drivers == ("shared", "a")
    actions = mcat.explorer(drivers)(np.zeros((2, STATES), np.float32))
    assert actions.shape == (2, ACTIONS)
    assert any(name.startswith("translator/helpers/") for name in mcat.tensors())
