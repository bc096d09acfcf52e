"""Actions are numbers in [-1, 1], or within bounds that are known; others are refused, not cut."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mcat.datasets.cards import ROUNDING, Card
from mcat.datasets.views import Episodes
from mcat.errors import DataError, UsageError

_HOW = (
    "divide the actions of log and policy by the largest that the machine takes, or say what that"
    " is (mcat dataset import --bounds)"
)


def require_limits(**machines: Episodes) -> None:
    """Refuse logs in other units, such as torques in N m."""
    for name, episodes in machines.items():
        require_log_limits(episodes, f"the log of {name.replace('_', ' ')}")


def require_log_limits(episodes: Episodes, name: str) -> None:
    """Refuse one log as `require_limits` does several."""
    worst = float(np.abs(episodes.column("actions")).max(initial=0.0))
    if not worst <= 1 + ROUNDING:
        raise DataError(f"{name}: an action is {worst:g}, outside [-1, 1]: {_HOW}")


def require_actions(
    actions: ArrayLike, rows: int, size: int, card: Card | None = None
) -> NDArray[np.float32]:
    """What a policy did, as rows `(rows, size)` of numbers in [-1, 1].

    Args:
        actions: One row may be given without its first axis.
        rows: How many there must be.
        size: Numbers in each.
        card: The machine in whose units they are, if those are others.

    Raises:
        UsageError: if they are no numbers within the bounds, or have another shape.
    """
    try:
        found = np.asarray(actions, np.float32)
    except (TypeError, ValueError):
        kind = type(actions).__name__
        raise UsageError(f"a policy's actions must be an array, not this {kind}") from None
    if found.shape != (rows, size) and not (rows == 1 and found.shape == (size,)):
        raise UsageError(f"a policy's actions must have shape ({rows}, {size}), not {found.shape}")
    if not np.isfinite(found).all():
        raise UsageError("the policy's actions are NaN or infinite: was an observation?")
    if card is not None and card.scaled:
        try:
            card.require_within(found, "the policy's actions")
        except DataError as error:
            raise UsageError(
                f"{error}: it must stay within the bounds of its own machine"
            ) from None
        return card.to_unit(found.reshape(rows, size))
    worst = float(np.abs(found).max(initial=0.0))
    if worst > 1 + ROUNDING:
        raise UsageError(f"the policy's action is {worst:g}, outside [-1, 1]: {_HOW}")
    return found.reshape(rows, size)
