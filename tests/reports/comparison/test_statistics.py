"""Interquartile means, probabilities and profiles: by hand, by scipy, and as rliable has them."""

import numpy as np
import pytest
from scipy import stats

from mcat.reports.comparison import statistics
from mcat.reports.comparison.statistics import (
    RESAMPLES,
    chance,
    improvement,
    iqm,
    iqm_band,
    iqm_estimate,
    paired_difference,
    plain_difference,
    profile,
    relative_difference,
)

FIRST = [np.array(x) for x in ([0.62, 0.85, 0.71], [1.10, 0.95, 1.32], [0.30, 0.41, 0.22])]
SECOND = [np.array(x) for x in ([0.80, 0.91, 0.77], [1.05, 1.21, 1.40], [0.28, 0.52, 0.45])]


def test_the_iqm_is_the_mean_of_the_middle_half():
    assert iqm(np.array([100.0, 1, 2, 3, 4, 5, 6, -100])) == 3.5  # 2, 3, 4, 5
    assert iqm(np.array([1.0, 2, 6])) == 3  # a quarter of three is nobody
    assert iqm(np.array([[4.0, 0, 1, 9], [0, 2, 4, 100]])).tolist() == [2.5, 3]


# Computed once by rliable 1.2.0 (arch 7.2.0) on FIRST and SECOND: 50,000 resamples, of the
# probability 5,000. Its percentile intervals move by 0.01 between its own seeds.
def test_values_are_those_of_rliable():
    one, two = iqm_estimate(FIRST), iqm_estimate(SECOND)
    assert (one.value, two.value) == pytest.approx((0.708, 0.810))
    assert one.interval == pytest.approx((0.640, 0.784), abs=0.015)
    assert two.interval == pytest.approx((0.766, 0.880), abs=0.015)
    likely = improvement(FIRST, SECOND)
    assert likely.value == pytest.approx(0.74074074)
    assert likely.interval == pytest.approx((0.444, 0.963), abs=0.04)
    levels = np.array([0.25, 0.5, 0.75, 1.0, 1.25])
    found = profile(FIRST, levels)
    assert found.value == pytest.approx([8 / 9, 6 / 9, 4 / 9, 2 / 9, 1 / 9])
    assert found.low == pytest.approx([6 / 9, 6 / 9, 3 / 9, 0, 0])
    assert found.high == pytest.approx([1, 6 / 9, 6 / 9, 3 / 9, 3 / 9])


def test_resampling_is_scipys_bit_for_bit():
    """One sample for each stratum makes scipy's bootstrap the stratified one."""
    rng = np.random.default_rng(3)
    strata = [rng.normal(size=size) for size in (3, 5, 4)]
    found = stats.bootstrap(
        strata,
        lambda *samples, axis: stats.trim_mean(np.concatenate(samples, axis), 0.25, axis),
        n_resamples=RESAMPLES,
        method="percentile",
        vectorized=True,
        rng=np.random.default_rng(0),
    )
    assert iqm_estimate(strata).interval == pytest.approx(tuple(found.confidence_interval))


def test_chance_is_that_of_a_permutation_test():
    """By scipy, which deals all scores of one stratum; three and three apart by counting."""
    rng = np.random.default_rng(1)
    for size in (3, 4, 6):
        one, other = rng.normal(size=size), rng.normal(size=size) + 1
        scipys = stats.permutation_test(
            (other, one), lambda x, y, axis: iqm(x) - iqm(y), vectorized=True, n_resamples=np.inf
        )
        assert chance([one], [other]) == pytest.approx(scipys.pvalue, abs=0.03)
    assert chance([one], [other]) > 0  # what happened is one of the cases
    three = np.arange(3.0)
    assert chance([three], [three + 100]) == pytest.approx(2 / 20, abs=0.02)


def test_families_that_contradict_each_other_are_not_clear():
    """Each is parted wholly, in opposite directions: together that is what chance does."""
    low, high = np.array([1, 1.01, 1.02]), np.array([1.1, 1.11, 1.13])
    assert chance([low, low], [high, high]) < 0.02
    assert chance([low, high], [high, low]) > 0.5


def test_the_probability_of_improvement_is_mann_whitneys_u():
    one, two = np.array([1.0, 2, 3]), np.array([2.0, 4])
    # 4 beats all three; 2 beats 1, draws with 2, loses to 3.
    assert improvement([one], [two]).value == pytest.approx(4.5 / 6)
    u = stats.mannwhitneyu(two, one).statistic
    assert improvement([one], [two]).value == pytest.approx(u / 6)
    # Strata count alike, however many runs they have: (1 + 0) / 2.
    assert improvement([one, np.array([5.0] * 9)], [one + 9, np.array([1.0] * 9)]).value == 0.5


def test_too_few_seeds_have_no_interval():
    two, three = np.array([1.0, 2]), np.array([1.0, 2, 3])
    assert iqm_estimate([two]) == (1.5, None)
    assert iqm_estimate([three, two]).interval is None
    assert iqm_estimate([three]).interval is not None
    assert improvement([three], [two]).interval is None
    assert paired_difference(two, two + 1) == (1, None)
    assert profile([two], np.array([1.5])).low is None
    assert iqm_band(np.array([[1.0, 2], [3, 4]])).low is None


def test_pairs_are_resampled_together():
    first = np.array([1.0, 100, 10_000])
    assert paired_difference(first, first + 3) == (3, (3, 3))
    together = plain_difference([first], [first + 3], paired=True)
    assert (together.value, *together.interval) == pytest.approx((3, 3, 3))
    apart = plain_difference([first], [first + 3], paired=False)
    assert apart.value == pytest.approx(3)
    assert apart.interval.low < -1000 < 1000 < apart.interval.high


def test_relative_differences_are_of_the_reference():
    first, second = [np.array([1.0, 2, 3]), np.array([4.0, 6, 8])], [np.ones(3), np.full(3, 5.0)]
    # IQM of 1, 2, 3, 4, 6, 8 without the ends is 3.75, that of 1, 1, 1, 5, 5, 5 is 3.
    found = relative_difference(first, second, paired=False)
    assert found.value == pytest.approx(3 / 3.75 - 1)
    assert found.interval.low < found.value < found.interval.high
    doubled = relative_difference(first, [2 * values for values in first], paired=True)
    assert (doubled.value, *doubled.interval) == pytest.approx((1, 1, 1))


def test_a_band_is_the_interval_at_each_place():
    scores = np.random.default_rng(1).normal(size=(5, 3))
    band = iqm_band(scores)
    for place in range(3):
        alone = iqm_estimate([scores[:, place]])
        assert band.value[place] == pytest.approx(alone.value)
        assert (band.low[place], band.high[place]) == pytest.approx(alone.interval)


def test_the_same_scores_give_the_same_digits():
    assert iqm_estimate(FIRST) == iqm_estimate(FIRST)
    assert improvement(FIRST, SECOND) == improvement(FIRST, SECOND)


def test_an_interval_holds_the_truth_about_as_often_as_it_says():
    """With ten seeds on five families; of three it is known and said that they hold it less."""
    rng = np.random.default_rng(0)
    held = 0
    for _ in range(200):
        low, high = statistics.iqm_estimate(list(rng.normal(1, 0.3, (5, 10)))).interval
        held += low <= 1 <= high
    assert 0.86 <= held / 200 <= 0.98
