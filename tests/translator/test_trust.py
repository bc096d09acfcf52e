"""How far a transfer can be trusted, on machines where the answer is known."""

import json
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch

from mcat.datasets import EpisodeStore
from mcat.errors import UsageError
from mcat.translator import ActionConfig, ContextConfig, fit_pair
from mcat.translator.grade import VARIED, Trust
from mcat.translator.trust import _interval, _linear_part, _variety, estimate_trust
from tests.translator.arm import MOTORS, log, run, track
from tests.translator.systems import ACTIONS, CHANGES, linear_system
from tests.translator.test_trust_outcomes import outcome, require_truth

BRIEF = ContextConfig(
    encoder_hidden=(8,), forward_hidden=(64, 64), context_size=2, history=4, future=4,
    max_steps=400, evaluate_every=100, learning_rate=5e-3, batch_size=128,
)  # fmt: skip
BRIEF_H = ActionConfig(hidden=(48,), embedding=24, steps=250, learning_rate=3e-3, batch_size=128)
UNTRAINED = replace(BRIEF, max_steps=20)


@pytest.mark.parametrize(
    ("motors", "noise", "episodes", "context", "grades", "words"),
    [
        ("reversed", 0.0, 30, BRIEF, ("good", "fair"), "trust"),
        ("dead", 0.0, 30, BRIEF, ("limited", "cannot"), "the target cannot do"),
        ("reversed", 0.02, 5, replace(BRIEF, max_steps=150), ("unknown",), "Cannot tell"),
        ("unchanged", 0.0, 30, UNTRAINED, ("unknown",), "Train longer"),
    ],
)
def test_nothing_is_said_that_the_machine_does_not_bear_out(
    motors, noise, episodes, context, grades, words
):
    """Each trains but once, so all that there is to say about it is said here."""
    trust, errors = outcome(motors, noise, episodes, context, BRIEF_H)
    require_truth(motors, trust.grade, *errors)
    assert trust.grade in grades
    assert words in trust.verdict()
    told = " ".join(trust.sentences())
    assert f"{trust.untranslated:.2f} away" in told
    assert f"off by {trust.model_error:.2f}" in told
    assert ("no equivalent" in told) == (motors == "dead")
    for parts, whole in (
        (trust.per_dimension_untranslated, trust.untranslated),
        (trust.per_dimension_translated, trust.translated),
    ):
        assert np.square(parts).sum() == pytest.approx(whole**2, rel=1e-3)
    assert all(np.isfinite(x).all() for x in asdict(trust).values())


NAMES = ("untranslated", "translated", "reachable", "closer", "model_error")


def found(*numbers, missed=0.0, scatter=0.0, improving=0.0, variety=1.0, no_equivalent=0.0):
    return Trust(
        **dict(zip(NAMES, numbers, strict=True)),
        missed=missed,
        scatter=scatter,
        improving=improving,
        variety=variety,
        no_equivalent=no_equivalent,
        per_dimension_untranslated=(),
        per_dimension_translated=(),
    )


@pytest.mark.parametrize(
    ("trust", "verdict"),
    [
        (found(0.1, 0.1, 0.1, (-0.1, 0.1), 0.1), "hardly differ"),
        (found(0.1, 0.1, 0.1, (-0.1, 0.1), 0.3), "Cannot tell"),  # who knows what they hide
        (found(0.7, 0.7, 0.7, (-0.1, 0.1), 0.7), "Cannot tell"),
        (found(0.7, 0.2, 0.1, (0.4, 0.6), 0.4), "Cannot tell"),
        (found(3.0, 0.2, 0.1, (2.7, 2.9), 0.6), "Cannot tell"),
        (found(float("nan"), 0.2, 0.1, (2.7, 2.9), 0.1), "Cannot tell"),
        (found(1.0, 0.99, 0.95, (-0.1, 0.1), 0.1), "target cannot do what"),
        (found(1.0, 0.99, 0.2, (-0.1, 0.1), 0.1), "more than half"),
        (found(1.0, 0.6, 0.2, (0.3, 0.5), 0.1), "more than half"),
        (found(1.0, 0.5, 0.2, (-0.1, 1.1), 0.1), "Low trust"),  # closer by chance
        (found(1.0, 0.8, 0.7, (0.1, 0.3), 0.1), "Limited"),
        (found(1.0, 0.4, 0.2, (0.4, 0.6), 0.1), "more is left than"),  # a real remainder
        (found(1.0, 0.4, 0.2, (0.4, 0.6), 0.2), "Fair"),
        (found(1.0, 0.2, 0.1, (0.7, 0.9), 0.1), "Good"),
        (found(1.0, 0.2, 0.1, (0.7, 0.9), 0.2), "Fair"),  # what is left may be twice as much
    ],
)
def test_verdicts(trust, verdict):
    assert verdict in trust.verdict()


def test_a_worse_model_never_makes_the_verdict_better():
    order = ["unknown", "fair", "good", "same"]  # a remainder in sight is another matter
    for gap, left in ((0.05, 0.05), (0.5, 0.1), (1.0, 0.3), (2.0, 0.1)):
        grades = [
            found(gap, left, 0.05, (gap - left - 0.01, gap), error).grade
            for error in np.linspace(0, 3, 31)
        ]
        ranks = [order.index(grade) for grade in grades if grade in order]
        assert ranks == sorted(ranks, reverse=True)
        assert grades[-1] == "unknown"


@pytest.mark.parametrize(
    ("parts", "advice"),
    [
        ({"missed": 0.6}, "Train longer"),
        ({"improving": 0.3, "scatter": 2.0}, "Train longer"),
        ({"scatter": 2.0}, "more logs, or cleaner ones"),
        ({}, "more variety"),
        ({"variety": 0.05, "improving": 0.3}, "add noise"),
    ],
)
def test_who_cannot_tell_says_what_it_takes(parts, advice):
    assert advice in found(1.0, 0.5, 0.2, (0.4, 0.6), 0.7, **parts).verdict()


def test_equivalents_are_not_spoken_of_by_models_that_do_not_know():
    known, blind = (found(1, 0.5, 0.5, (0.3, 0.6), e, no_equivalent=0.85) for e in (0.1, 0.7))
    assert "85 % of the source's actions have no equivalent" in " ".join(known.sentences())
    assert "equivalent" not in " ".join(blind.sentences())


def test_nothing_is_known_of_actions_that_the_state_explains():
    """A policy without noise: what it never did nobody can know, however well models agree."""
    assert _variety(log(MOTORS["reversed"], 2, episodes=12), 0) > 0.3
    assert _variety(alone(MOTORS["reversed"]), 0) < VARIED
    for numbers in ((0.1, 0.1, 0.1, (-0.1, 0.1), 0.1), (1.0, 0.2, 0.1, (0.7, 0.9), 0.1)):
        assert found(*numbers, variety=0.05).grade == "unknown"


def alone(motors, episodes=12, steps=200):
    seen, done, _ = run(
        motors, lambda obs, _: track(obs), np.random.default_rng(3), episodes, steps
    )
    return EpisodeStore.from_arrays(
        observations=seen[:, :-1].reshape(-1, 6),
        actions=done.reshape(-1, 2),
        next_observations=seen[:, 1:].reshape(-1, 6),
        episode_ends=np.arange(1, episodes + 1) * steps,
    )


def test_a_straight_line_finds_what_a_model_missed():
    rng = np.random.default_rng(0)
    action = torch.from_numpy(rng.uniform(-1, 1, (1000, 2)))
    noise = torch.from_numpy(rng.normal(size=(1000, 3)))
    hidden = action @ torch.tensor([[1.0, 0, 0], [0, 0.5, 0]], dtype=torch.float64)
    assert _linear_part(noise, action) < 0.01
    expected = float(hidden.square().sum(dim=1).mean())
    assert _linear_part(noise + hidden, action) == pytest.approx(expected, rel=0.3)
    assert _linear_part(noise[:3], action[:3]) >= 0  # as many lines as rows, and no crash


def test_intervals_are_wide_where_stretches_of_the_log_disagree():
    ones = np.ones(1000, np.float32)
    low, high = _interval(4 * ones, ones)
    assert low == pytest.approx(1) == high
    waves = np.where(np.arange(1000) % 200 < 100, 16.0, 0.25)
    low, high = _interval(waves, ones)
    assert low < 0 < high
    assert not np.isfinite(_interval(ones[:1], ones[:1])).any()


def test_two_short_episodes_and_a_policy_are_enough():
    source, target = (linear_system(CHANGES["stronger"] / 2, seed, 2, 12) for seed in (1, 2))
    tiny = replace(UNTRAINED, max_steps=2)
    translator = fit_pair(source, target, context=tiny, action=replace(BRIEF_H, steps=2),
                          quiet=True)  # fmt: skip

    def policy(observations):
        return np.tanh(observations[:, :ACTIONS])

    trust = estimate_trust(translator, source, target, policy, quiet=True)
    assert trust.grade == "unknown"
    assert Trust(**asdict(trust)) == trust
    json.dumps(asdict(trust), allow_nan=False)
    with pytest.raises(UsageError, match=r"the policy's action is 5, outside \[-1, 1\]"):
        estimate_trust(translator, source, target, lambda obs: 5 * np.ones((len(obs), ACTIONS)),
                       quiet=True)  # fmt: skip
