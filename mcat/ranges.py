"""Ranges that numbers of a config must keep, in words that are the same in all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mcat.errors import UsageError

_RANGES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "at_least_1": (lambda value: value >= 1, "must be at least 1"),
    "positive": (lambda value: value > 0, "must be positive"),
    "not_negative": (lambda value: value >= 0, "must not be negative"),
    "share": (lambda value: 0 <= value <= 1, "must be in [0, 1]"),
    "part": (lambda value: 0 < value <= 1, "must be in (0, 1]"),
    "decay": (lambda value: 0 <= value < 1, "must be in [0, 1)"),
    "rates": (lambda value: len(value) > 0 and min(value) > 0, "must be positive rates"),
    "layers": (lambda value: min(value, default=1) >= 1, "must be layer widths of at least 1"),
    "widths": (lambda value: len(value) > 0 and min(value) >= 1, "must be positive layer widths"),
}


def require_ranges(config: object, **fields: Sequence[str]) -> None:
    """Refuse numbers out of range; None is in all of them.

    Args:
        config: Whose fields they are.
        **fields: The names of those that must be in a range, by its name in `_RANGES`.
    """
    for kind, names in fields.items():
        holds, words = _RANGES[kind]
        for name in names:
            value = getattr(config, name)
            if value is not None and not holds(value):
                raise UsageError(f"{name} {words}, not {value}")
