"""Types that several packages share, and the check of what policies are given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mcat.errors import DataError, UsageError

PolicyFunction = Callable[[NDArray[Any]], NDArray[Any]]
"""Anything that maps observations `(n, obs)` to actions `(n, act)`."""


def require_observations(obs: ArrayLike, size: int) -> NDArray[np.float32]:
    """Observations as rows `(n, size)`; a single one, `(size,)`, becomes the only row.

    Raises:
        UsageError: if they are no numbers or have another shape.
        DataError: if one is NaN or infinite, as from a sensor that failed.
    """
    try:
        with np.errstate(over="ignore"):  # what float32 cannot hold is infinite, and refused below
            rows = np.asarray(obs, dtype=np.float32)
    except (TypeError, ValueError):
        kind = type(obs).__name__
        raise UsageError(f"observations must be an array of numbers, not this {kind}") from None
    if rows.ndim not in (1, 2) or rows.shape[-1] != size:
        raise UsageError(
            f"observations must have shape (n, {size}) or ({size},), not {np.shape(obs)}"
        )
    finite = np.isfinite(rows)
    if not finite.all():
        place = np.argwhere(~finite)[0]
        raise DataError(
            f"observation {place.tolist()} is {rows[tuple(place)]}: a policy acts on finite numbers"
        )
    return np.atleast_2d(rows)
