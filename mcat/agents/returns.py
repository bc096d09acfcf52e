"""The returns of some episodes; light, as results are read without a simulator."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, kw_only=True)
class Returns:
    """The undiscounted returns of some episodes.

    Attributes:
        label: Who acted where: `ON_SOURCE`, `UNTRANSLATED` or `TRANSFERRED`.
        values: One number per episode; equal labels' episodes start alike everywhere.
    """

    label: str
    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """The mean return."""
        return float(np.mean(self.values))

    @property
    def standard_error(self) -> float:
        """The standard error of the mean; 0 if there is but one episode."""
        n = len(self.values)
        return float(np.std(self.values, ddof=1)) / math.sqrt(n) if n > 1 else 0.0
