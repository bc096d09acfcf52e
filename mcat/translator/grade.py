"""What an estimate of trust says: its numbers, a grade, and the grade in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

CLOSE = 0.35  # machines that differ by less, errors included, do the same
FAR = 0.25  # more than this between best and wanted, and the target cannot do it
BLIND = 0.5  # models that are off by more do not know what actions do
VARIED = 0.1  # logs in which less is done than the state explains show nothing of what actions do

Grade = Literal["unknown", "same", "cannot", "little", "limited", "partial", "fair", "good"]


@dataclass(frozen=True, kw_only=True)
class Trust:
    """Root mean square distances between next states; 1 is the effect of the source's actions.

    Attributes:
        untranslated: The distance with the source's actions as they are.
        translated: The distance with the translated actions.
        reachable: The distance with the best actions that a direct search finds.
        closer: 95 % interval of how much nearer translated actions come than they would as they
            are.
        model_error: What the models' own ignorance adds to any of these; noise is no part of it.
        missed: The part of it that is plainly in their errors on held-out steps.
        scatter: The rest of those errors: noise, or what is not learned yet.
        improving: The share of them that twice the training took away.
        variety: Share of what was done that the state does not explain, in the log with less of it.
        no_equivalent: Share of source actions to whose effect neither model of the target comes
            near, by more than they are off themselves.
        per_dimension_untranslated: The first for each dimension of the state; squares add up.
        per_dimension_translated: The second for each dimension of the state.
    """

    untranslated: float
    translated: float
    reachable: float
    closer: tuple[float, float]
    model_error: float
    missed: float
    scatter: float
    improving: float
    variety: float
    no_equivalent: float
    per_dimension_untranslated: tuple[float, ...]
    per_dimension_translated: tuple[float, ...]

    @property
    def grade(self) -> Grade:
        """What is shown; nothing good is said of what the models cannot see."""
        gap, left, error = self.untranslated, self.translated, self.model_error
        if gap + error <= CLOSE and self.variety >= VARIED:
            return "same"
        if not (error <= BLIND and error <= gap / 2 and self.variety >= VARIED):  # nor NaN
            return "unknown"
        beyond = self.reachable > max(FAR, 2 * error)
        if self.closer[0] <= 0 or left > 0.9 * gap:
            return "cannot" if beyond else "little"
        if beyond:
            return "limited"
        if left > gap / 2:
            return "little"
        if left + error <= CLOSE:
            return "good"
        return "fair" if left <= 2 * error else "partial"

    def sentences(self) -> list[str]:
        """What it means, for the engineer who has to decide."""
        low, high = self.closer
        told = [
            f"One step with the source's action takes the target {self.untranslated:.2f} away from"
            " where the source would go (1 = as far apart as two actions of the source lead).",
            f"Translated, {self.translated:.2f} is left, {low:.2f} to {high:.2f} closer (95 %"
            f" interval); the best action found in each state would leave {self.reachable:.2f}.",
            f"These are answers of forward models, and they are off by {self.model_error:.2f}"
            f" themselves; held-out steps scatter around them by another {self.scatter:.2f}.",
            self.verdict(),
        ]
        if self.grade not in ("unknown", "same") and self.no_equivalent > 0:
            told.insert(
                2,
                f"{100 * self.no_equivalent:.0f} % of the source's actions have no equivalent on"
                " the target: no action of it has that effect, as with a dead or weaker motor.",
            )
        return told

    def verdict(self) -> str:
        """The estimate in a few sentences, and what came of transfers that were judged alike."""
        words = _VERDICTS[self.grade]
        if self.grade == "unknown":
            words += f" {self._advice()}"
        record = RECORDED.get(words.partition(":")[0])
        if record is None:
            return words
        gained, neither, lost = record
        return (
            f"{words} Of {gained + neither + lost} recorded transfers judged so, {gained} gained"
            f" and {lost} lost."
        )

    def _advice(self) -> str:
        if self.variety < VARIED:
            return (
                "In one of the logs the state explains all that was done, so that nobody can know"
                " what other actions do: add noise to them."
            )
        if self.improving > 0.1 or 2 * self.missed**2 > self.model_error**2:
            return "Train longer (a larger preset); the models are still improving."
        if self.scatter > BLIND:
            return "It takes more logs, or cleaner ones."
        return "It takes more logs, with more variety in what was done."


RECORDED = {
    "Good trust": (3, 0, 0),
    "Fair trust": (7, 1, 0),
    "Limited trust": (1, 0, 4),
    "Low trust": (5, 2, 1),
    "Cannot tell": (13, 6, 0),
}
"""Recorded transfers that gained, hardly changed, lost: see docs/translator.md."""

_VERDICTS: dict[Grade, str] = {
    "unknown": "Cannot tell: the models know too little for what they would have to compare.",
    "same": "The machines hardly differ: expect no gain from translating.",
    "cannot": "Low trust: as far as the logs show, the target cannot do what the source did. That"
    " does not foretell a loss: try both where failing is cheap.",
    "little": "Low trust: translating leaves more than half of the distance. That does not foretell"
    " a loss. Longer training, or more data of the target and of the policy to be moved, should"
    " help.",
    "limited": "Limited trust: steps come closer but, as far as the logs show, the target cannot do"
    " all that the source did. It may do worse than the policy as it is: try both where failing is"
    " cheap.",
    "partial": "Limited trust: steps come closer, but more is left than the models are off by. It"
    " may do worse than the policy as it is: try both where failing is cheap.",
    "fair": "Fair trust: steps come closer, and what is left the models cannot see. Try it with"
    " care.",
    "good": "Good trust: translated, the target does what the source did.",
}
