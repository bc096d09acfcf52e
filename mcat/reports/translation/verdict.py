"""Did the transfer help? The answer in words; a difference counts from twice its error on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from mcat.agents.returns import Returns
from mcat.transfer.result import (
    ON_SOURCE,
    TRANSFERRED,
    UNTRANSLATED,
    ReturnMatrix,
    TransferResult,
)

Array = NDArray[np.float64]

_FEWEST = 5  # with fewer episodes the error itself is not known well enough to judge by


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Whether the transfer helped, as a headline and what stands behind it."""

    tone: Literal["good", "bad", "unclear"]
    headline: str
    details: str


def mean_and_error_text(returns: Returns) -> str:
    """Mean and standard error of the mean."""
    return f"{returns.mean:,.1f} ± {returns.standard_error:,.1f}"


def verdict(result: TransferResult) -> Verdict:
    """The transferred policy against the source policy left as it is."""
    if result.matrix is not None:
        return _of_pairs(result.matrix)
    by_label = {returns.label: returns for returns in result.returns}
    if UNTRANSLATED in by_label and TRANSFERRED in by_label:
        return _of_returns(by_label[UNTRANSLATED], by_label[TRANSFERRED], by_label.get(ON_SOURCE))
    judge = "; judge by the trust estimate below." if result.trust else "."
    return Verdict(
        tone="unclear",
        headline="Trained, but not tried out",
        details=f"There are no returns to compare{judge}",
    )


def _of_returns(before: Returns, after: Returns, home: Returns | None) -> Verdict:
    # Both ran the same episodes, so their differences have the smaller error.
    differences = np.subtract(after.values, before.values)
    gain, episodes = float(differences.mean()), len(differences)
    enough = episodes >= _FEWEST
    error = float(differences.std(ddof=1)) / np.sqrt(episodes) if enough else np.inf
    times = f", {after.mean / before.mean:.2f} times as much" if before.mean > 1 else ""
    details = (
        f"On the target the source policy earns {mean_and_error_text(after)} with translated"
        f" actions and {mean_and_error_text(before)} without{times}"
        f" (mean ± standard error, {episodes} episodes)."
    )
    if not abs(gain) > 2 * error:
        why = f"with a standard error of {error:,.1f}" if enough else "in too few episodes"
        details += f" The difference is {gain:+,.1f} {why}: it may be chance."
        return Verdict(tone="unclear", headline="No clear difference", details=details)
    if gain < 0:
        details += " Do not deploy this translator: the policy does better without it."
        return Verdict(tone="bad", headline="Translation made it worse", details=details)
    if home is not None and home.mean > before.mean:
        share = gain / (home.mean - before.mean)
        details += (
            f" That wins back {100 * share:.0f} % of what the change of machine cost:"
            f" the policy earns {mean_and_error_text(home)} on the source."
        )
    return Verdict(tone="good", headline="Translation helped", details=details)


def improvement(matrix: ReturnMatrix) -> tuple[Array, NDArray[np.bool_]]:
    """Per source (row) and target (column) the gain in percent, and whether it is no chance.

    The gain is 100·(transferred − untranslated) / max(|untranslated|, 1), NaN for a pair that was
    not evaluated.
    """
    before, after, before_error, after_error = (
        np.array(cells, dtype=np.float64)  # None becomes NaN
        for cells in (
            matrix.untranslated,
            matrix.transferred,
            matrix.untranslated_error,
            matrix.transferred_error,
        )
    )
    gain = after - before
    clear = np.abs(gain) > 2 * np.hypot(before_error, after_error)
    return 100 * gain / np.maximum(np.abs(before), 1), clear


def _of_pairs(matrix: ReturnMatrix) -> Verdict:
    percent, clear = improvement(matrix)
    different = ~np.eye(len(percent), dtype=bool) & np.isfinite(percent)
    gains = percent[different]
    if not gains.size:
        return Verdict(
            tone="unclear",
            headline="Trained, but not tried out",
            details="None of the tasks has a policy to transfer.",
        )
    better = int((percent > 0)[different & clear].sum())
    worse = int((percent < 0)[different & clear].sum())
    return Verdict(
        tone="good" if better > worse else "bad" if worse > better else "unclear",
        headline=f"Translation helped {better} of {gains.size} pairs and hurt {worse}",
        details=f"The median pair of different tasks changes by {np.median(gains):+.1f} %, the"
        f" worst by {gains.min():+.1f} % and the best by {gains.max():+.1f} %. Only a difference of"
        " more than twice its standard error counts as help or hurt.",
    )
