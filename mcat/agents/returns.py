"""The returns of some episodes; light, as results are read without a simulator."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

SUCCESS = "An episode succeeds if it is at its goal after any of its steps."


@dataclass(frozen=True, kw_only=True)
class Returns:
    """The undiscounted returns of some episodes.

    Attributes:
        label: Who acted where: `ON_SOURCE`, `UNTRANSLATED`, `GUESSED` or `TRANSFERRED`.
        values: One number per episode; equal labels' episodes start alike everywhere.
        successes: Whether each episode was at its goal after any of its steps; None for robots
            without a goal, and in files of before it was noted.
    """

    label: str
    values: tuple[float, ...]
    successes: tuple[bool, ...] | None = None

    def __post_init__(self) -> None:
        if self.successes is not None and len(self.successes) != len(self.values):
            raise ValueError(f"{len(self.successes)} successes of {len(self.values)} episodes")

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The returns that a file has."""
        known = data.get("successes")
        successes = None if known is None else tuple(map(bool, known))
        return cls(label=str(data["label"]), values=tuple(data["values"]), successes=successes)

    @property
    def mean(self) -> float:
        """The mean return."""
        return float(np.mean(self.values))

    @property
    def standard_error(self) -> float:
        """The standard error of the mean; 0 if there is but one episode."""
        n = len(self.values)
        return float(np.std(self.values, ddof=1)) / math.sqrt(n) if n > 1 else 0.0

    @property
    def success_rate(self) -> float | None:
        """The part of the episodes that succeeded; None if that is not known."""
        return None if self.successes is None else float(np.mean(self.successes))
