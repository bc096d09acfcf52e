"""Episodes of random length: whole payment periods, log-uniform, one horizon a round."""

from __future__ import annotations

import numpy as np
import pytest

from mcat.agents.lengths import check_limits, cut, draw_length
from mcat.agents.meta.config import PRESETS, MetaTrainConfig
from mcat.errors import UsageError


def draws(limits: tuple[int, ...], *, delay: int, count: int = 2000, horizon: int = 1000):
    rng = np.random.default_rng(0)
    return np.array(
        [draw_length(limits, horizon=horizon, delay=delay, rng=rng) for _ in range(count)]
    )


def test_lengths_are_log_uniform():
    found = draws((100, 1000), delay=1)
    assert found.min() >= 100
    assert found.max() <= 1000
    assert np.log(found).mean() == pytest.approx(np.log(100 * 1000) / 2, abs=0.03)
    assert (found < 316).mean() == pytest.approx(0.5, abs=0.03)  # half of the decade


@pytest.mark.parametrize(
    ("delay", "possible"), [(500, {500, 1000}), (100, set(range(100, 1001, 100)))]
)
def test_lengths_are_whole_payment_periods_of_at_least_one(delay, possible):
    assert set(draws((10,), delay=delay).tolist()) == possible


@pytest.mark.parametrize("delay", [1, 7, 100, 300, 500, 1000, 2000])
@pytest.mark.parametrize("limits", [(1,), (100,), (100, 300), (1000,), (5000,)])
def test_pieces_of_a_round_make_up_one_horizon(limits, delay):
    rng = np.random.default_rng(0)
    for _ in range(50):
        pieces = cut(limits, horizon=1000, delay=delay, rng=rng)
        assert sum(pieces) == 1000
        least = min(1000, max(delay, limits[0] - delay))  # rounded to whole periods
        assert all(piece >= least for piece in pieces)
        # Only the last may end between two payments, and then the horizon does not pay for it.
        assert all(piece % delay == 0 for piece in pieces[:-1])


@pytest.mark.parametrize("limits", [(), (0,), (-5, 10), (10, 5), (1, 2, 3)])
def test_limits_that_make_no_sense_are_refused(limits):
    with pytest.raises(UsageError, match="shortest and a longest"):
        check_limits(limits)
    with pytest.raises(UsageError, match="shortest and a longest"):
        MetaTrainConfig(episode_lengths=limits)


def test_presets_that_follow_the_paper_cut_nothing():
    for name in ("paper", "released", "cpu"):
        assert PRESETS[name].episode_lengths is None
        assert PRESETS[name].mcat.learner == "td3"
        assert PRESETS[name].mcat.credit.kind == "none"
        assert not PRESETS[name].mcat.scale_rewards
