"""What several packages know of policies: their types, how they start, what they are given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, NoReturn, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mcat.errors import DataError, UsageError

PolicyFunction = Callable[[NDArray[Any]], NDArray[Any]]
"""Anything that maps observations `(n, obs)` to actions `(n, act)`. If it has a method `paid`, that
is called after every step with the rewards `(n,)`."""


@runtime_checkable
class Remembering(Protocol):
    """A policy that acts on what it has seen of an episode so far."""

    def start_episode(self) -> PolicyFunction:
        """The policy at the start of episodes in lockstep, to be called once per step."""
        ...


class ActsInEpisodes:
    """A policy that acts through its `start_episode()` only."""

    def __call__(self, obs: NDArray[Any]) -> NoReturn:
        """Refuse: what this policy does depends on the episode so far."""
        raise UsageError(
            "this policy remembers: act with policy.start_episode(), anew for every episode"
        )


AnyPolicy = PolicyFunction | Remembering
Act = TypeVar("Act", bound=AnyPolicy | None, covariant=True)


class NamedPolicy(NamedTuple, Generic[Act]):
    """A policy, and how tables and files call it."""

    name: str
    # What acts. To collect, None draws uniformly random actions; to be moved to another machine,
    # None is a policy that was not found.
    act: Act
    sha256: str | None = None  # a hash that tells its weights from others', None if it has none
    skipped: str | None = None  # why it is not run, None if it is


def started(policy: AnyPolicy) -> PolicyFunction:
    """The policy at the start of episodes: one with a memory starts with an empty one."""
    return policy.start_episode() if isinstance(policy, Remembering) else policy


def require_observations(
    obs: ArrayLike, size: int, episodes: int | None = None
) -> NDArray[np.float32]:
    """Observations as rows `(n, size)`; a single one, `(size,)`, becomes the only row.

    Args:
        obs: What should be such.
        size: Numbers in each.
        episodes: How many there must be, if episodes are under way.

    Raises:
        UsageError: if they are no numbers or have another shape.
        DataError: if one is NaN or infinite, as from a sensor that failed.
    """
    try:
        with np.errstate(over="ignore"):  # what float32 cannot hold is infinite, and refused below
            rows = np.array(obs, dtype=np.float32)  # a copy: torch warns of read-only arrays
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
    rows = np.atleast_2d(rows)
    if episodes not in (None, len(rows)):
        raise UsageError(f"{len(rows)} observations of {episodes} episodes: start_episode() anew")
    return rows
