"""Did the transfer help, and is it what to use? A difference counts from twice its error on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from mcat.agents.returns import Returns
from mcat.errors import counted
from mcat.reports.sections import difference, gains, with_error
from mcat.transfer.result import (
    CLONED,
    GUESSED,
    LOGGED,
    LOGGED_SOURCE,
    OFFLINE,
    ON_SOURCE,
    POLICY_FILES,
    TRANSFERRED,
    UNTRANSLATED,
    ReturnMatrix,
    TransferResult,
)

OTHERS = {CLONED: "cloning the target's logs", OFFLINE: "offline RL on the target's logs"}
"""What can be done with these logs instead, in words."""


@dataclass(frozen=True, kw_only=True)
class TransferVerdict:
    """Whether the transfer helped, as a headline and what stands behind it."""

    tone: Literal["good", "bad", "unclear"]
    headline: str
    details: str


def mean_and_error_text(returns: Returns) -> str:
    """Mean and standard error of the mean."""
    return with_error(returns.mean, returns.standard_error)


def verdict(result: TransferResult) -> TransferVerdict:
    """The transferred policy against the source policy left as it is, and what else there is."""
    if result.matrix is not None:
        return _of_pairs(result.matrix)
    by_label = {returns.label: returns for returns in result.returns}
    if UNTRANSLATED in by_label and TRANSFERRED in by_label:
        before, after = by_label[UNTRANSLATED], by_label[TRANSFERRED]
        found = _of_returns(before, after, by_label.get(ON_SOURCE))
        others = [by_label[label] for label in OTHERS if label in by_label]
        found = _beside(others, found, before, after) if others else found
        guess = by_label.get(GUESSED)
        return _after_guess(guess, found, after, [before, *others]) if guess else found
    judge = "; judge by the trust estimate below." if result.trust else "."
    return TransferVerdict(
        tone="unclear",
        headline="Trained, but not tried out",
        details=f"There are no returns to compare{judge}{_known_from_logs(result.logged)}",
    )


def _known_from_logs(logged: Sequence[Returns]) -> str:
    """What the policy has to beat, where nothing was run."""
    found = {returns.label: returns for returns in logged}
    if LOGGED not in found:
        return ""
    target = found[LOGGED]
    told = (
        f" In its own logs the target earns {_log_text(target)}. These logs show how to earn that"
        " much, by cloning them or by offline RL, so a policy that earns less when translated is"
        " the wrong tool."
    )
    if LOGGED_SOURCE in found:
        told += f" In the source's logs the source earns {_log_text(found[LOGGED_SOURCE])}."
    return told


def _log_text(returns: Returns) -> str:
    number = counted(len(returns.values), "episode")
    return f"{returns.mean:,.1f} an episode (at best {max(returns.values):,.1f}; {number})"


def _beside(
    others: Sequence[Returns], found: TransferVerdict, before: Returns, after: Returns
) -> TransferVerdict:
    """The verdict in view of what else these logs give; all ran the same episodes."""
    best = max(others, key=lambda returns: returns.mean)
    listed = " and ".join(
        f"{OTHERS[item.label]} earns {mean_and_error_text(item)}" for item in others
    )
    details = f"{found.details} From the same logs, {listed}."
    ahead, error = difference(after, best)
    if ahead > 2 * error:
        name = OTHERS[best.label]
        told = f" {name[0].upper()}{name[1:]} is {ahead:,.1f} ± {error:,.1f} ahead of translating"
        if before.mean > best.mean:
            told += ", and the policy as it is earns more still."
            return replace(found, details=details + told)
        told += f": the policy is in {POLICY_FILES[best.label]}."
        headline = f"Translation is the wrong tool here: {name} earns more"
        return TransferVerdict(tone="bad", headline=headline, details=details + told)
    if found.tone != "good":
        return replace(found, details=details)
    if -ahead > 2 * error:
        headline = f"{found.headline}, and is the best of what these logs give"
        return replace(found, headline=headline, details=details)
    return replace(found, details=f"{details} That translating is better is not clear.")


def _after_guess(
    guess: Returns, found: TransferVerdict, after: Returns, others: Sequence[Returns]
) -> TransferVerdict:
    """The verdict in view of what the maps were worth before anything was learned."""
    told = (
        f" The first guess alone, before anything was learned, earns {mean_and_error_text(guess)}"
    )
    ahead, error = difference(after, guess)
    if not ahead > 2 * error or any(other.mean > guess.mean for other in others):
        return replace(found, details=f"{found.details}{told}.")
    return TransferVerdict(
        tone="bad",
        headline="Learning spoilt the guess: alone it earns more",
        details=f"{found.details}{told}, {ahead:,.1f} ± {error:,.1f} more: keep it as it is by"
        " --set recipe.state.steps=0.",
    )


def _of_returns(before: Returns, after: Returns, home: Returns | None) -> TransferVerdict:
    gain, error = difference(before, after)
    episodes = len(after.values)
    times = f", {after.mean / before.mean:.2f} times as much" if before.mean > 1 else ""
    details = (
        f"On the target the source policy earns {mean_and_error_text(after)} with translated"
        f" actions and {mean_and_error_text(before)} without{times}"
        f" (mean ± standard error, {episodes} episodes)."
    )
    if not abs(gain) > 2 * error:
        known = np.isfinite(error)
        why = f"with a standard error of {error:,.1f}" if known else "in too few episodes"
        details += f" The difference is {gain:+,.1f} {why}: it may be chance."
        return TransferVerdict(tone="unclear", headline="No clear difference", details=details)
    if gain < 0:
        details += " Do not deploy this translator: the policy does better without it."
        return TransferVerdict(tone="bad", headline="Translation made it worse", details=details)
    if home is not None and home.mean > before.mean:
        share = gain / (home.mean - before.mean)
        details += (
            f" That wins back {100 * share:.0f} % of what the change of machine cost:"
            f" the policy earns {mean_and_error_text(home)} on the source."
        )
    return TransferVerdict(tone="good", headline="Translation helped", details=details)


def _of_pairs(matrix: ReturnMatrix) -> TransferVerdict:
    percent, clear = gains(matrix)
    different = ~np.eye(len(percent), dtype=bool) & np.isfinite(percent)
    found = percent[different]
    if not found.size:
        return TransferVerdict(
            tone="unclear",
            headline="Trained, but not tried out",
            details="None of the tasks has a policy to transfer.",
        )
    better = int((percent > 0)[different & clear].sum())
    worse = int((percent < 0)[different & clear].sum())
    return TransferVerdict(
        tone="good" if better > worse else "bad" if worse > better else "unclear",
        headline=f"Translation helped {better} of {found.size} pairs and hurt {worse}",
        details=f"The median pair of different tasks changes by {np.median(found):+.1f} %, the"
        f" worst by {found.min():+.1f} % and the best by {found.max():+.1f} %. Only a difference of"
        " more than twice its standard error counts as help or hurt.",
    )
