"""What is said about a transfer, beside what comes of it on the machine itself."""

import itertools

import pytest

from mcat.translator import ActionConfig, ContextConfig, TransferredPolicy, fit_pair
from mcat.translator.trust import estimate_trust
from tests.translator.arm import MOTORS, log, track, tracking_error

CONTEXT = ContextConfig(
    encoder_hidden=(32,), forward_hidden=(64, 64), context_size=4, max_steps=1200
)
ACTION = ActionConfig(
    hidden=(64, 64), embedding=32, steps=500, batch_size=256, learning_rate=1e-3
)  # fmt: skip
NOISE = {"clean": 0.0, "noisy": 0.02}
EPISODES = {"long": 120, "short": 12}
ROW = "| {:9} | {:5} | {:5} | {:>6} | {:>6} | {:>10} | {:8} | {:>11} | {:>10} | {:>5} |"
HEADING = ("motors", "logs", "", "source", "as is", "translated", "verdict", "untranslated",
           "translated", "error")  # fmt: skip


def outcome(motors, noise, episodes, context=CONTEXT, action=ACTION):
    """Trust, and the tracking errors of source, policy as it is and translated policy."""
    home, changed = MOTORS["unchanged"], MOTORS[motors]
    source = log(home, 1, episodes=episodes, noise=noise)
    target = log(changed, 2, episodes=episodes, noise=noise, policy_share=0.5)
    translator = fit_pair(source, target, context=context, action=action, quiet=True)
    trust = estimate_trust(translator, source, target, quiet=True)
    moved = TransferredPolicy(track, translator)
    runs = (home, track), (changed, track), (changed, moved)
    return trust, [tracking_error(machine, policy, noise) for machine, policy in runs]


def require_truth(motors, grade, home, as_is, translated):
    """Nothing is said that the machine does not bear out; that nothing is known is always true."""
    if as_is > 1.25 * home:
        assert grade != "same"
    if translated > 0.99 * as_is:
        assert grade not in ("good", "fair")
    if motors == "dead":
        assert grade != "good"
    if motors == "unchanged":
        assert grade in ("same", "unknown")


EXPECTED = {
    "unchanged": ("same",),
    "reversed": ("good", "fair"),
    "weaker": ("good", "fair"),
    "swapped": ("good", "fair"),
    "dead": ("limited", "cannot"),
}
"""What long and clean logs should show."""


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("motors", MOTORS)
def test_words_agree_with_outcomes(motors):
    """One change of motors, clean and noisy, long and short logs."""
    print("\n" + ROW.format(*HEADING))
    grades = {}
    for quality, length in itertools.product(NOISE, EPISODES):
        trust, errors = outcome(motors, NOISE[quality], EPISODES[length])
        numbers = trust.untranslated, trust.translated, trust.model_error
        print(ROW.format(motors, quality, length, *(f"{error:.3f}" for error in errors),
                         trust.grade, *(f"{n:.2f}" for n in numbers)), flush=True)  # fmt: skip
        require_truth(motors, trust.grade, *errors)
        grades[quality, length] = trust.grade
    assert grades["clean", "long"] in EXPECTED[motors]
