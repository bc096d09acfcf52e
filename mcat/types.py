"""Types that several packages share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray

PolicyFunction = Callable[[NDArray[Any]], NDArray[Any]]
"""Anything that maps observations `(n, obs)` to actions `(n, act)`."""
