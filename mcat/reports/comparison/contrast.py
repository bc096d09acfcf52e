"""All runs of a comparison, on one scale, and each variant beside the reference."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np

from mcat.reports.comparison.looks import Axis, FamilyRuns, Scores, families_of, variants_of
from mcat.reports.comparison.results import ComparedRun
from mcat.reports.comparison.statistics import (
    FEWEST,
    Estimate,
    Strata,
    chance,
    improvement,
    iqm,
    plain_difference,
    relative_difference,
)
from mcat.reports.sections import Array

_RARE = 0.05  # what goes with intervals of 95 %


class Scale(NamedTuple):
    """How returns of different families become scores that can be counted together."""

    words: str  # what a score of 1 is
    limits: dict[str, tuple[float, float]]  # family → the returns with the scores 0 and 1
    # What 1 is: what the reference earned, what the paper's MCAT did, or the best of all runs.
    kind: Literal["reference", "paper", "best"]

    def scores(self, family: str, returns: Array) -> Array:
        """Returns on a family as scores."""
        low, high = self.limits[family]
        return (returns - low) / (high - low)


class Contrast(NamedTuple):
    """A variant beside the reference."""

    variant: str  # its name
    families: tuple[str, ...]  # on which it was compared
    seeds: tuple[int, int]  # the smallest and the largest number of runs on a family
    relative: bool  # whether the difference is a part of what the reference earns, or a score
    difference: Estimate  # of the IQM over all families
    probability: Estimate  # that a run of the variant earns more than one of the reference
    chance: float  # of as large a difference if the variants were alike

    @property
    def apart(self) -> bool:
        """Whether the interval of the difference leaves out 0."""
        interval = self.difference.interval
        return interval is not None and not interval.low <= 0 <= interval.high

    @property
    def clear(self) -> bool:
        """Whether chance alone is no good explanation of the difference.

        Of few runs an interval is too narrow, so a test that is not has to agree.
        """
        return self.apart and self.chance <= _RARE


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """All runs, by family and variant."""

    runs: tuple[ComparedRun, ...]

    @cached_property
    def families(self) -> tuple[FamilyRuns, ...]:
        """In the order in which they come."""
        return families_of(self.runs)

    @cached_property
    def variants(self) -> tuple[str, ...]:
        """The reference first."""
        return variants_of(self.runs)

    @property
    def split(self) -> str:
        """The tasks that are judged by, in those families that have such."""
        return "test" if any(family.split == "test" for family in self.families) else "train"

    def scores(self, part: float = 1.0, axis: Axis = "step") -> dict[str, Scores]:
        """Family → returns that it is judged by, after a part of what all have taken."""
        return {
            family.name: family.scores(family.split, part * end, axis)
            for family in self.families
            if (end := family.reached(axis)) is not None
        }

    @cached_property
    def final(self) -> dict[str, Scores]:
        """The same when all have come as far as the slowest."""
        return {name: scores for name, scores in self.scores().items() if scores}

    @cached_property
    def scale(self) -> Scale:
        """How much of the reference's return it is, as long as that is above 0 in every family.

        Else, or if there is nothing to compare, by the paper's numbers, if there is one for every
        family, or from worst to best.
        """
        first, *others = self.variants
        usual = {name: values_of(own[first]) for name, own in self.final.items() if first in own}
        positive = all(values.min() > 0 for values in usual.values())
        if others and positive and len(usual) == len(self.final):
            limits = {name: (0.0, float(iqm(values))) for name, values in usual.items()}
            return Scale(f"1 is what “{first}” earned on the family", limits, "reference")
        judged = [family for family in self.families if family.name in self.final]
        papers = {family.name: family.paper for family in judged if family.split == "test"}
        limits = {name: (0.0, paper) for name, paper in papers.items() if paper}
        if len(limits) == len(judged):
            return Scale("1 is what the paper's MCAT earned after 2M steps", limits, "paper")
        for name, scores in self.final.items():
            every = np.concatenate([list(own.values()) for own in scores.values()])
            low, high = float(every.min()), float(every.max())
            limits[name] = low, high if high > low else low + 1
        return Scale("0 is the worst run of its family, 1 the best", limits, "best")

    def strata(self, variant: str) -> Strata:
        """The scores of a variant, family by family."""
        return [
            self.scale.scores(name, values_of(scores[variant]))
            for name, scores in self.final.items()
            if variant in scores
        ]

    def contrast(self, variant: str, part: float = 1.0, axis: Axis = "step") -> Contrast | None:
        """A variant beside the reference after a part of the steps, or CPU seconds, that all took.

        None if they share no family that was evaluated by then. Families where one of them has too
        few seeds are left out, unless all have. Each family counts by how much of the reference's
        return there is gained, so that none outweighs the others; where returns are not above 0,
        differences of scores are taken instead.
        """
        looks = self.scores(part, axis).items()
        pairs = {
            name: (scores[self.variants[0]], scores[variant])
            for name, scores in looks
            if name in self.final and {self.variants[0], variant} <= scores.keys()
        }
        enough = {name: pair for name, pair in pairs.items() if min(map(len, pair)) >= FEWEST}
        pairs = enough or pairs
        if not pairs:
            return None
        paired = all(one.keys() == other.keys() for one, other in pairs.values())
        first = {name: values_of(one) for name, (one, _) in pairs.items()}
        second = {name: values_of(other) for name, (_, other) in pairs.items()}
        relative = all(values.min() > 0 for values in first.values())
        scale: Callable[[str, Array], Array] = self.scale.scores
        if relative:
            usual = {name: float(iqm(values)) for name, values in first.items()}
            scale = lambda name, values: values / usual[name]  # noqa: E731
        one = [scale(name, values) for name, values in first.items()]
        other = [scale(name, values) for name, values in second.items()]
        difference = relative_difference if relative else plain_difference
        sizes = [len(scores) for pair in pairs.values() for scores in pair]
        return Contrast(
            variant=variant,
            families=tuple(pairs),
            seeds=(min(sizes), max(sizes)),
            relative=relative,
            difference=difference(one, other, paired=paired),
            probability=improvement(one, other),
            chance=chance(one, other),
        )


def values_of(own: dict[int, float]) -> Array:
    """Returns in the order of seeds, so that those of one seed are at the same place."""
    return np.array([own[seed] for seed in sorted(own)])
