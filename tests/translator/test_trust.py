"""How far a transfer can be trusted, on machines where the answer is known."""

import numpy as np
import pytest

from mcat.translator import ActionConfig, ContextConfig, fit_pair
from mcat.translator.trust import Trust, estimate_trust
from tests.translator.systems import ACTIONS, CHANGES, linear_system

QUICK = ContextConfig(
    encoder_hidden=(32,), forward_hidden=(64, 64), context_size=4, max_steps=1500, patience=99
)
QUICK_H = ActionConfig(hidden=(64, 64), embedding=32, steps=800, proximity=0.0, batch_size=256,
                       learning_rate=1e-3)  # fmt: skip
DEAD = np.diag([1.0, 1.0, 0.0])


@pytest.fixture(scope="module")
def trust():
    source = linear_system(np.eye(ACTIONS), 1)
    found = {}
    for name, motors in {"reversed": CHANGES["reversed"], "dead": DEAD}.items():
        target = linear_system(motors, 2)
        translator = fit_pair(source, target, context=QUICK, action=QUICK_H, quiet=True)
        found[name] = estimate_trust(translator, source, target, quiet=True)
    return found


def test_what_can_be_undone_is_undone(trust):
    found = trust["reversed"]
    assert found.translated < 0.3 * found.untranslated
    assert found.reachable <= found.translated
    assert found.no_equivalent < 0.3
    assert "Low trust" not in found.verdict()


def test_a_dead_motor_has_no_equivalent(trust):
    found = trust["dead"]
    assert found.no_equivalent > 0.6
    assert found.reachable > 0.5 * found.untranslated
    assert "trust: it helps where" in found.verdict() or "cannot" in found.verdict()


def test_the_parts_agree_with_the_whole(trust):
    for found in trust.values():
        assert np.mean(found.per_dimension_untranslated) == pytest.approx(found.untranslated, 1e-4)
        assert np.mean(found.per_dimension_translated) == pytest.approx(found.translated, 1e-4)
        told = " ".join(found.sentences())
        assert f"{found.untranslated:.2f}" in told
        assert f"{found.translated:.2f}" in told


@pytest.mark.parametrize(
    ("numbers", "verdict"),
    [
        ((0.1, 0.1, 0.1, 0.1, 0.0), "hardly differ"),
        ((1.0, 0.99, 0.95, 0.1, 0.9), "target cannot do"),
        ((1.0, 0.99, 0.3, 0.1, 0.2), "changes little"),
        ((1.0, 0.8, 0.7, 0.1, 0.9), "Limited"),
        ((1.0, 0.5, 0.4, 0.1, 0.2), "Fair"),
        ((1.0, 0.2, 0.1, 0.1, 0.2), "Good"),
    ],
)
def test_verdicts(numbers, verdict):
    names = ("untranslated", "translated", "reachable", "model_error", "no_equivalent")
    trust = Trust(
        **dict(zip(names, numbers, strict=True)),
        per_dimension_untranslated=(),
        per_dimension_translated=(),
    )
    assert verdict in trust.verdict()
