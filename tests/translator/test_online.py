"""C, F and H refined round by round: what changes, what must not, when it stops."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from mcat.datasets.episodes import EpisodeStore
from mcat.errors import DivergedError
from mcat.translator import context
from mcat.translator.action import ActionTraining
from mcat.translator.configs import ActionConfig
from mcat.translator.cycle.online import CycleLearner
from mcat.translator.online import ContextLearner, TranslatorLearner
from tests.agents.meta.point_mass import TINY, Gain, point_mass_task_set, random_round

TASK_SET = point_mass_task_set((Gain(0.9), Gain(0.45, 180.0)))
TASKS = 2


def episodes(rounds: range) -> list:
    """Of each task."""
    store = EpisodeStore(2, 2)
    for number in rounds:
        store.extend(random_round(TASK_SET, number).episodes)
    return [store.task(task) for task in range(TASKS)]


TRAINING, HELD_OUT = episodes(range(10)), episodes(range(20, 21))


def learner(seed: int = 0, good_enough: float = 0.0, **changes) -> ContextLearner:
    config = dataclasses.replace(TINY.context, **changes)
    return ContextLearner(2, 2, TASKS, config, good_enough=good_enough, seed=seed)


def no_tick(done: int, total: int) -> None:
    pass


def copies(tensors) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in tensors.items()}


def equal(one, two) -> bool:
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


# --- C and F ----------------------------------------------------------------------------------


def test_learning_stops_when_the_held_out_error_no_longer_falls():
    calls = []
    models = learner(max_steps=1000, evaluate_every=5, patience=3, learning_rate=1e-12)
    progress = models.learn(TRAINING, HELD_OUT, lambda *call: calls.append(call))
    assert progress.steps == 20  # the first evaluation is the best, three more are waited for
    assert calls == [(step, 1000) for step in range(20)]


def test_nothing_held_out_means_all_steps_and_no_error():
    models = learner(max_steps=12, evaluate_every=5, patience=1, learning_rate=1e-12)
    progress = models.learn(TRAINING, [], no_tick)
    assert progress.steps == 12
    assert np.isnan(progress.error)
    assert models.error is None
    assert "error" not in models.tensors()


def test_a_good_enough_model_takes_a_tenth_of_the_steps():
    models = learner(good_enough=1e9, max_steps=40, evaluate_every=1000)
    assert models.learn(TRAINING, HELD_OUT, no_tick).steps == 40  # its error is not known yet
    assert models.learn(TRAINING, HELD_OUT, no_tick).steps == 4
    models.good_enough = models.error  # below it, not at it
    assert models.learn(TRAINING, HELD_OUT, no_tick).steps == 40


def test_features_are_means_over_the_histories_of_the_own_task():
    models = learner(feature_samples=4000)
    models.learn(TRAINING, HELD_OUT, no_tick)
    for number, task in enumerate(TRAINING):
        changes, actions = task.histories(np.arange(len(task)), models.config.history)
        with torch.no_grad():
            contexts = models.model.encode((torch.from_numpy(changes), torch.from_numpy(actions)))
        found = models.model.features[number]
        # The mean of 4,000 draws from these: 5 standard errors.
        assert ((found - contexts.mean(0)).abs() < 5 * contexts.std(0) / 4000**0.5 + 1e-6).all()


def test_held_out_episodes_change_nothing_but_when_to_stop():
    one, two = (learner(max_steps=10, evaluate_every=1000) for _ in range(2))
    one.learn(TRAINING, HELD_OUT, no_tick)
    two.learn(TRAINING, episodes(range(30, 31)), no_tick)
    assert equal(copies(one.model.state_dict()), copies(two.model.state_dict()))
    assert one.error != two.error


def test_equal_seeds_learn_alike_and_a_restored_learner_goes_on_to_the_bit():
    one, two = learner(seed=3), learner(seed=3)
    for models in (one, two):
        models.learn(TRAINING[:], HELD_OUT, no_tick)
    assert equal(one.tensors(), two.tensors())
    assert not equal(one.tensors(), learner(seed=4).tensors())

    restored = learner(seed=9)
    restored.load_tensors(copies(one.tensors()))
    restored.rng.bit_generator.state = one.rng.bit_generator.state
    progress = [models.learn(TRAINING, HELD_OUT, no_tick) for models in (one, restored)]
    assert progress[0] == progress[1]
    assert equal(one.tensors(), restored.tensors())


# --- H ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [TranslatorLearner, CycleLearner])
def test_learning_to_translate_leaves_c_and_f_alone(kind):
    models = learner()
    models.learn(TRAINING, HELD_OUT, no_tick)
    before = copies(models.tensors())
    translator = kind(models.model, TINY.action, seed=1)
    translator.learn(TRAINING, no_tick)
    first = copies(translator.tensors())
    translator.learn(TRAINING, no_tick)
    assert not equal(first, translator.tensors())
    assert equal(before, models.tensors())


def test_models_get_better_from_call_to_call_and_translations_reach_where_the_source_went():
    wide = {"encoder_hidden": (32,), "forward_hidden": (32, 32)}
    models = learner(max_steps=300, learning_rate=5e-3, batch_size=64, patience=99, **wide)
    errors = [models.learn(TRAINING, HELD_OUT, no_tick).error for _ in range(3)]
    assert errors[2] < 0.8 * errors[0]
    config = ActionConfig(
        embedding=16, hidden=(32, 32), batch_size=64, steps=200, learning_rate=5e-3, proximity=0.0
    )
    translator = TranslatorLearner(models.model, config)
    progress = translator.learn(TRAINING, no_tick)
    assert progress.translated < 0.7 * progress.untranslated

    # The weak mass needs twice the action, the other way.
    actions = np.random.default_rng(0).uniform(-0.4, 0.4, (200, 2)).astype(np.float32)
    features = models.model.features
    found = translator.translate(
        torch.zeros(200, 2),
        torch.from_numpy(actions),
        features[0].expand(200, -1),
        features[1].expand(200, -1),
    ).numpy()
    assert np.corrcoef(found.ravel(), -2 * actions.ravel())[0, 1] > 0.7
    assert np.abs(found).mean() > 1.3 * np.abs(actions).mean()


@pytest.mark.parametrize("kind", [TranslatorLearner, CycleLearner])
def test_a_restored_translator_goes_on_to_the_bit(kind):
    models = learner()
    models.learn(TRAINING, HELD_OUT, no_tick)
    one, restored = (kind(models.model, TINY.action, seed=seed) for seed in (1, 2))
    assert one.tensors() == {}
    restored.load_tensors({}, TRAINING)  # as before the first round that it learns from
    assert restored.tensors() == {}
    one.learn(TRAINING, no_tick)
    restored.load_tensors(copies(one.tensors()), TRAINING)
    restored.rng.bit_generator.state = one.rng.bit_generator.state
    assert one.learn(TRAINING, no_tick) == restored.learn(TRAINING, no_tick)
    assert equal(one.tensors(), restored.tensors())


# --- losses that diverge ----------------------------------------------------------------------


def poisoned(real, call: int):
    """`real`, whose result is NaN from some call on."""
    calls = iter(range(10**9))
    return lambda *args, **kwargs: (
        real(*args, **kwargs) * (float("nan") if next(calls) >= call else 1.0)
    )


@pytest.mark.parametrize("call", [0, 3, 7])  # of 8 steps
def test_a_loss_that_is_not_finite_is_named_before_it_spoils_a_weight(monkeypatch, call):
    for name in ("contrastive", "forward"):
        with monkeypatch.context() as patch:
            per_step = 2 if name == "forward" else 1
            real = getattr(context, f"{name}_loss")
            patch.setattr(context, f"{name}_loss", poisoned(real, call * per_step))
            models = learner()
            with pytest.raises(DivergedError, match=f"the {name} loss became nan"):
                models.learn(TRAINING, HELD_OUT, no_tick)
            assert all(t.isfinite().all() for t in models.tensors().values())


@pytest.mark.parametrize("call", [0, 3])  # of 4 steps
def test_a_translation_loss_that_is_not_finite_is_named(monkeypatch, call):
    models = learner()
    models.learn(TRAINING, HELD_OUT, no_tick)
    monkeypatch.setattr(ActionTraining, "loss", poisoned(ActionTraining.loss, call))
    with pytest.raises(DivergedError, match="the translation loss became nan"):
        TranslatorLearner(models.model, TINY.action).learn(TRAINING, no_tick)


def test_a_wild_learning_rate_ends_with_the_name_of_the_loss():
    with pytest.raises(DivergedError, match=r"the (forward|contrastive) loss became"):
        learner(learning_rate=1e30, max_steps=50).learn(TRAINING, HELD_OUT, no_tick)
