"""How much the scores of few runs say: robust means with intervals by resampling runs.

Scores come as one array for each stratum, here a family of tasks, with one score for each run. A
run counts once: its tasks share its luck, and resampling them on their own would promise more
certainty than there is. All resampling is seeded, so the same scores give the same digits.

The bootstrap of few scores is narrow: of made-up normal scores a difference was within its
interval of 95 % in 80 % of 1,500 cases with three seeds and one family, in 90 % with three seeds
and five families, in 93 % with five seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mcat.reports.sections import Array

Strata = Sequence[Array]

FEWEST = 3  # scores of a stratum; two have no spread worth the name
RESAMPLES = 2000
_DEALS = 20_000
_TAILS = (0.025, 0.975)
_TRIMMED = 0.25


class Interval(NamedTuple):
    """Where 95 % of the resampled values lie."""

    low: float
    high: float


class Estimate(NamedTuple):
    """A value, and where it would lie with other seeds; None with too few to tell."""

    value: float
    interval: Interval | None


class Band(NamedTuple):
    """Estimates side by side, such as along a curve; without intervals the limits are None."""

    value: Array
    low: Array | None
    high: Array | None


def iqm(scores: Array) -> Array:
    """Interquartile mean along the last axis: the mean of the middle half."""
    from scipy.stats import trim_mean

    return np.asarray(trim_mean(scores, _TRIMMED, axis=-1), dtype=np.float64)


def iqm_estimate(strata: Strata) -> Estimate:
    """IQM of all scores together."""
    return _estimate(lambda samples: iqm(np.concatenate(samples, axis=-1)), strata)


def iqm_band(scores: Array) -> Band:
    """IQM over the first axis, runs; at every place of the second the same runs are resampled."""
    value = iqm(scores.T)
    if len(scores) < FEWEST:
        return Band(value, None, None)
    (chosen,) = _choices([len(scores)])
    low, high = np.quantile(iqm(scores.T[:, chosen]), _TAILS, axis=-1)
    return Band(value, low, high)


def improvement(first: Strata, second: Strata) -> Estimate:
    """Probability that a run of the second earns more than one of the first; draws count half.

    In each stratum it is Mann and Whitney's U over the number of pairs; strata count alike.
    """

    def probability(samples: Sequence[Array]) -> Array:
        pairs = zip(samples[: len(first)], samples[len(first) :], strict=True)
        return np.asarray(np.mean([_wins(one, other) for one, other in pairs], axis=0))

    return _estimate(probability, [*first, *second])


def _wins(one: Array, other: Array) -> Array:
    gaps = other[..., :, None] - one[..., None, :]
    return np.asarray(((gaps > 0) + 0.5 * (gaps == 0)).mean(axis=(-2, -1)))


def paired_difference(first: Array, second: Array) -> Estimate:
    """Mean of second − first over runs with the same seeds, resampled as pairs."""
    return _estimate(lambda samples: samples[0].mean(-1), [second - first])


def relative_difference(first: Strata, second: Strata, *, paired: bool) -> Estimate:
    """IQM of the second over that of the first, minus 1.

    Args:
        first: Scores of the reference, all above 0.
        second: Scores of the other variant, of the same strata in the same order.
        paired: Whether the scores at the same place have the same seed.
    """
    return _contrast(lambda one, other: other / one - 1, first, second, paired)


def plain_difference(first: Strata, second: Strata, *, paired: bool) -> Estimate:
    """IQM of the second minus that of the first; arguments as of `relative_difference`."""
    return _contrast(lambda one, other: other - one, first, second, paired)


def _contrast(
    compare: Callable[[Array, Array], Array], first: Strata, second: Strata, paired: bool
) -> Estimate:
    def statistic(samples: Sequence[Array]) -> Array:
        one, other = samples[: len(first)], samples[len(first) :]
        return compare(iqm(np.concatenate(one, -1)), iqm(np.concatenate(other, -1)))

    return _estimate(statistic, [*first, *second], copies=2 if paired else 1)


def chance(first: Strata, second: Strata) -> float:
    """How often chance alone parts the two sides as far: a permutation test, two-sided.

    In each stratum the scores of both are dealt to them anew. Unlike a bootstrap that keeps to
    its level with few scores: three against three in one stratum can be dealt in 20 ways, so even
    if they do not overlap, that happens in 1 case of 10. Pairs are not kept together, as
    five of them would never be enough.
    """
    rng = np.random.default_rng(0)
    ones, others = [], []
    for one, other in zip(first, second, strict=True):
        scores = np.concatenate((one, other))
        dealt = rng.permuted(np.broadcast_to(scores, (_DEALS, len(scores))), axis=-1)
        dealt = np.concatenate((scores[None], dealt))  # what happened is one of the cases
        ones.append(dealt[:, : len(one)])
        others.append(dealt[:, len(one) :])
    gaps = np.abs(iqm(np.concatenate(others, -1)) - iqm(np.concatenate(ones, -1)))
    return float((gaps >= gaps[0] - 1e-9).mean())


def profile(strata: Strata, thresholds: Array) -> Band:
    """Share of runs with a score above each threshold."""

    def above(samples: Sequence[Array]) -> Array:
        return np.asarray((np.concatenate(samples, -1)[..., None] > thresholds).mean(-2))

    value = above(strata)
    if min(map(len, strata)) < FEWEST:
        return Band(value, None, None)
    low, high = np.quantile(above(_resampled(strata)), _TAILS, axis=0)
    return Band(value, low, high)


def _estimate(
    statistic: Callable[[Sequence[Array]], Array], strata: Strata, copies: int = 1
) -> Estimate:
    """A statistic and its percentile interval.

    Args:
        statistic: Of strata, or of many resamples of them along a leading axis.
        strata: The scores.
        copies: How many equal parts the strata come in whose scores are resampled together.
    """
    value = float(statistic(strata))
    if min(map(len, strata)) < FEWEST:
        return Estimate(value, None)
    low, high = np.quantile(statistic(_resampled(strata, copies)), _TAILS)
    return Estimate(value, Interval(float(low), float(high)))


def _resampled(strata: Strata, copies: int = 1) -> list[Array]:
    part = len(strata) // copies
    choices = _choices([len(scores) for scores in strata[:part]]) * copies
    return [scores[chosen] for scores, chosen in zip(strata, choices, strict=True)]


def _choices(sizes: Sequence[int]) -> list[NDArray[np.int64]]:
    """For each stratum the places of its scores in every resample, drawn with replacement."""
    rng = np.random.default_rng(0)
    return [rng.integers(0, size, (RESAMPLES, size)) for size in sizes]
