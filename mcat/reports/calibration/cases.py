"""Transfers whose estimate of trust and whose outcome are both known, and how the two go together.

The estimate is the share of the one-step mismatch that translation removes, judged from logs. The
outcome is what translation changed of the return, in shares of what the policy earns on its own
machine, so that machines with other rewards can be set side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, Self, get_args

import numpy as np
from numpy.typing import ArrayLike

from mcat.config import as_type, to_json
from mcat.errors import DataError, MissingInputError
from mcat.reports.sections import difference
from mcat.safe_io import read_json
from mcat.transfer.result import (
    ON_SOURCE,
    RESULT_FILE,
    TRANSFERRED,
    UNTRANSLATED,
    TransferResult,
)
from mcat.translator.grade import Grade

FEWEST = 5  # of pairs; a rank correlation of fewer says nothing
RESAMPLES = 2000
Outcome = Literal["helped", "no clear difference", "hurt"]


@dataclass(frozen=True, kw_only=True)
class Case:
    """One transfer."""

    pair: str  # from where to where
    preset: str  # how the translator was trained
    seed: int  # of the translator
    grade: Grade  # what the estimate said
    # The share of the mismatch that translation removes, as estimated; below 0 it adds.
    removed: float
    model_error: float  # what the models are off by, in effects of the source's actions
    gain: float  # what translation changed, in shares of what the policy earns at home
    error: float  # the standard error of that
    commit: str  # the code that made it

    @property
    def transfer(self) -> tuple[str, str, int]:
        """By what it is known on a page."""
        return self.pair, self.preset, self.seed

    @property
    def outcome(self) -> Outcome:
        """Whether it helped; a difference counts from twice its error on."""
        if not abs(self.gain) > 2 * self.error:
            return "no clear difference"
        return "helped" if self.gain > 0 else "hurt"

    @classmethod
    def of(cls, result: TransferResult) -> Self | None:
        """The case that a result is; None if estimate or outcome is missing, or hardly known."""
        found = {returns.label: returns for returns in result.returns}
        if result.trust is None or not {ON_SOURCE, UNTRANSLATED, TRANSFERRED} <= found.keys():
            return None
        home, trust = abs(found[ON_SOURCE].mean), result.trust
        gain, error = difference(found[UNTRANSLATED], found[TRANSFERRED])
        if home == 0 or trust.untranslated == 0 or not np.isfinite(error):
            return None
        return cls(
            pair=" → ".join(machine.name for machine in result.machines),
            preset=result.preset,
            seed=result.seed,
            grade=trust.grade,
            removed=1 - trust.translated / trust.untranslated,
            model_error=trust.model_error,
            gain=gain / home,
            error=error / home,
            commit=str(result.provenance.get("commit")),
        )


_FIELDS = tuple(field.name for field in fields(Case))


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """How well the estimates order the outcomes."""

    # Spearman's rank correlation; None if there are too few pairs, or no two different ones.
    correlation: float | None
    interval: tuple[float, float] | None  # 95 % of it when pairs are drawn anew
    pairs: int  # how many different pairs of machines there are


def read_cases(sources: Sequence[Path]) -> tuple[list[Case], int]:
    """The cases in these folders and earlier pages, and how many results had to be left out.

    What a page says of a pair, preset and seed does not count where a folder has them too.

    Args:
        sources: Folders with results of `mcat translate`, or `calibration.json` of earlier pages.

    Raises:
        MissingInputError: if one of them is not there.
        DataError: if there is no case in any of them, or a file is no such page.
    """
    pages = [source for source in sources if source.is_file()]
    measured, others = _measured([source for source in sources if source not in pages])
    known = {case.transfer for case in measured}
    told = {case.transfer: case for page in pages for case in _recorded(page)}
    cases = [case for case in told.values() if case.transfer not in known] + measured
    if not cases:
        raise DataError(
            f"{sources[0]}: no transfer with an estimate of trust and returns in it: make some by"
            " mcat translate (one pair, --method ours, no --map, --episodes above 0)"
        )
    return cases, others


def _measured(folders: Sequence[Path]) -> tuple[list[Case], int]:
    for folder in folders:
        if not folder.is_dir():
            raise MissingInputError(f"{folder} is no folder and no calibration.json")
    cases, others = [], 0
    for path in sorted(
        {path.resolve() for folder in folders for path in folder.rglob(RESULT_FILE)}
    ):
        try:
            case = Case.of(TransferResult.from_json(read_json(path)))
        except DataError:  # of another command
            case = None
        if case is None:
            others += 1
        else:
            cases.append(case)
    return cases, others


def _recorded(page: Path) -> list[Case]:
    """What `calibration_json` kept."""
    try:
        rows = [{name: row[name] for name in _FIELDS} for row in read_json(page)["cases"]]
        return [as_type(Case, row) for row in rows]
    except (AttributeError, KeyError, TypeError) as error:
        raise DataError(f"{page} is no calibration.json of mcat calibrate") from error


def agreement(cases: Sequence[Case]) -> Agreement:
    """Spearman's rank correlation of estimate and outcome, and how sure it is.

    Seeds of one pair are no independent cases, so whole pairs are drawn anew.
    """
    by_pair: dict[str, list[tuple[float, float]]] = {}
    for case in cases:
        by_pair.setdefault(case.pair, []).append((case.removed, case.gain))
    groups = list(by_pair.values())
    found = _of_groups(groups) if len(groups) >= FEWEST else None
    if found is None:
        return Agreement(correlation=None, interval=None, pairs=len(groups))
    rng = np.random.default_rng(0)
    drawn = (rng.integers(len(groups), size=len(groups)) for _ in range(RESAMPLES))
    again = [_of_groups([groups[index] for index in draw]) for draw in drawn]
    low, high = np.quantile([value for value in again if value is not None], (0.025, 0.975))
    return Agreement(correlation=found, interval=(float(low), float(high)), pairs=len(groups))


def _of_groups(groups: Sequence[Sequence[tuple[float, float]]]) -> float | None:
    estimate, outcome = zip(*(case for group in groups for case in group), strict=True)
    return rank_correlation(estimate, outcome)


def rank_correlation(first: ArrayLike, second: ArrayLike) -> float | None:
    """Spearman's ρ, ties at their mean rank; None if all numbers of one are equal."""
    from scipy.stats import rankdata

    ranks = np.array([rankdata(values) for values in (first, second)])
    centred = ranks - ranks.mean(axis=1, keepdims=True)
    size = float(np.sqrt(np.square(centred).sum(axis=1).prod()))
    return float((centred[0] * centred[1]).sum() / size) if size else None


def counts(cases: Sequence[Case]) -> dict[Grade, dict[Outcome, int]]:
    """How often each grade was followed by each outcome; grades that were given only."""
    return {
        grade: {
            outcome: sum(case.outcome == outcome for case in cases if case.grade == grade)
            for outcome in get_args(Outcome)
        }
        for grade in get_args(Grade)
        if any(case.grade == grade for case in cases)
    }


def calibration_json(cases: Sequence[Case], found: Agreement) -> dict[str, Any]:
    """All of it, as JSON types."""
    return to_json(found) | {
        "outcomes": counts(cases),
        "cases": [to_json(case) | {"outcome": case.outcome} for case in cases],
    }
