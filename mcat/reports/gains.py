"""What one policy earns more than another, and whether that may be chance."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mcat.agents.returns import Returns
from mcat.reports.sections import Array
from mcat.transfer.result import ReturnMatrix

_FEWEST = 5  # with fewer episodes the error itself is not known well enough to judge by


def difference(before: Returns, after: Returns) -> tuple[float, float]:
    """Mean and standard error of what one earns more in the same episodes; ∞ for too few."""
    differences = np.subtract(after.values, before.values)
    if len(differences) < _FEWEST:
        return float(differences.mean()), np.inf
    return float(differences.mean()), float(differences.std(ddof=1)) / np.sqrt(len(differences))


def gains(matrix: ReturnMatrix) -> tuple[Array, NDArray[np.bool_]]:
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
