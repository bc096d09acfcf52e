"""What the numbers of a machine are: names, units and bounds, kept with its data and its policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mcat.datasets.arrays import DTYPES
from mcat.datasets.episodes import EpisodeStore
from mcat.datasets.views import Episodes
from mcat.errors import DataError, UsageError, printable
from mcat.types import PolicyFunction

ROUNDING = 1e-6  # of the range: what lies outside by less was rounded


@dataclass(frozen=True)
class Channel:
    """One number of an observation or of an action.

    Attributes:
        name: What the log calls it.
        unit: Such as rad or N·m; empty if nobody said.
        low: The smallest value there can be; None if nobody said.
        high: The largest.
    """

    name: str
    unit: str = ""
    low: float | None = None
    high: float | None = None

    def __str__(self) -> str:
        unit = f" in {self.unit}" if self.unit else ""
        if self.low is None and self.high is None:
            return f"{self.name}{unit}"
        low, high = ("…" if side is None else f"{side:g}" for side in (self.low, self.high))
        return f"{self.name}{unit} from {low} to {high}"


def completed(channel: Channel, other: Channel) -> Channel:
    """`channel`, with the unit and the bounds of `other` where nobody said which are its own."""
    return replace(
        channel,
        unit=channel.unit or other.unit,
        low=other.low if channel.low is None else channel.low,
        high=other.high if channel.high is None else channel.high,
    )


class Limits(NamedTuple):
    """The smallest and the largest action, `(act,)` each."""

    low: NDArray[np.float64]
    high: NDArray[np.float64]

    @property
    def unit(self) -> bool:
        """Whether they are -1 and 1, so that there is nothing to scale."""
        return bool((self.low == -1).all() and (self.high == 1).all())

    def inner(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """The same in float32, rounded to the inside."""
        low, high = self.low.astype(np.float32), self.high.astype(np.float32)
        low = np.where(low < self.low, np.nextafter(low, np.float32(np.inf)), low)
        high = np.where(high > self.high, np.nextafter(high, np.float32(-np.inf)), high)
        return low, high


@dataclass(frozen=True, kw_only=True)
class Card:
    """The numbers of one machine, in their order.

    Attributes:
        observations: Those of an observation.
        actions: Those of an action; all of them have bounds, or none.
        rate_hz: Steps a second; None if nobody said.
    """

    observations: tuple[Channel, ...]
    actions: tuple[Channel, ...]
    rate_hz: float | None = None

    def __post_init__(self) -> None:
        for name, _, low, high in map(astuple, (*self.observations, *self.actions)):
            if low is not None and high is not None and not low < high:
                raise UsageError(f"{name}: the smaller bound comes first, not {low:g} and {high:g}")
        bounded = [None not in (channel.low, channel.high) for channel in self.actions]
        if any(bounded) and not all(bounded):
            missing = self.actions[bounded.index(False)].name
            raise UsageError(f"{missing} has no bounds, other actions have: bound all, or none")

    @property
    def limits(self) -> Limits | None:
        """The bounds of the actions, None if they are not known."""
        sides = [(channel.low, channel.high) for channel in self.actions]
        if not sides or any(None in pair for pair in sides):
            return None
        low, high = np.array(sides, dtype=np.float64).T
        return Limits(low, high)

    @property
    def scaled(self) -> bool:
        """Whether its actions are other numbers than those in [-1, 1] that models learn from."""
        limits = self.limits
        return limits is not None and not limits.unit

    def require_within(self, actions: ArrayLike, what: str) -> None:
        """Refuse actions beyond the bounds, if there are bounds.

        Raises:
            DataError: naming the action, its value and the row.
        """
        limits = self.limits
        if limits is None:
            return
        rows = np.atleast_2d(np.asarray(actions, dtype=np.float64))
        room = ROUNDING * (limits.high - limits.low)
        outside = (rows < limits.low - room) | (rows > limits.high + room)
        if outside.any():
            row, column = np.argwhere(outside)[0]
            channel = self.actions[column]
            raise DataError(f"{what}: row {row} has {rows[row, column]:g} for {channel}")

    def to_unit(self, actions: ArrayLike) -> NDArray[np.float32]:
        """Actions as models know them: -1 is the smallest and 1 the largest."""
        limits = self.limits
        if limits is None or limits.unit:
            return np.asarray(actions, dtype=np.float32)
        share = (np.asarray(actions, dtype=np.float64) - limits.low) / (limits.high - limits.low)
        return np.clip(2 * share - 1, -1, 1).astype(np.float32)

    def from_unit(self, actions: NDArray[np.float32]) -> NDArray[np.float32]:
        """Actions of a model in the machine's own units, never outside its bounds."""
        limits = self.limits
        if limits is None or limits.unit:
            return actions
        middle, half = (limits.high + limits.low) / 2, (limits.high - limits.low) / 2
        found = (middle + half * actions).astype(np.float32)
        kept: NDArray[np.float32] = np.clip(found, *limits.inner())
        return kept

    def require_units_of(self, policy: object, what: str) -> None:
        """Refuse a policy that says it acts in [-1, 1] where the machine's units are others.

        Raises:
            UsageError: naming it as `what`.
        """
        bounds = getattr(policy, "bounds", None)
        if self.scaled and getattr(bounds, "within_unit", False):
            raise UsageError(
                f"{what} gives actions in [-1, 1], its machine has {self.actions[0]}: if 1 means"
                " the largest, import it with --logs of that machine, or call card.from_unit"
            )

    def in_unit(self, policy: PolicyFunction) -> PolicyFunction:
        """A policy of the machine with answers as models know them, cut to the bounds."""
        return (lambda observations: self.to_unit(policy(observations))) if self.scaled else policy

    def within(self, episodes: Episodes, *, margin: float = 0.1) -> Card:
        """This card with bounds for observations that have none: what was seen, and a bit more.

        Args:
            episodes: What happened on the machine.
            margin: How far beyond it is still believed, as a part of the range.
        """
        seen = episodes.observations
        lows, highs = seen.min(axis=0).astype(float), seen.max(axis=0).astype(float)
        room = margin * np.maximum(highs - lows, ROUNDING)
        ranges = np.stack([lows - room, highs + room], axis=1).tolist()
        channels = tuple(
            completed(channel, Channel(channel.name, "", low, high))
            for channel, (low, high) in zip(self.observations, ranges, strict=True)
        )
        return replace(self, observations=channels)

    def scale(self, episodes: Episodes) -> Episodes:
        """The same episodes with actions as models know them.

        Raises:
            DataError: if an action lies beyond its bounds.
        """
        if not self.scaled:
            return episodes
        self.require_within(episodes.actions, "actions")
        columns = {name: episodes.column(name) for name in DTYPES}
        columns["actions"] = self.to_unit(columns["actions"])
        return EpisodeStore.from_arrays(
            **columns, episode_ends=episodes.episode_ends, tasks=episodes.tasks
        )

    def to_metadata(self) -> dict[str, Any]:
        """The part of a data set's metadata that is about this, as JSON types."""
        found: dict[str, Any] = {}
        for kind, channels in (("observation", self.observations), ("action", self.actions)):
            found[f"{kind}_names"] = [channel.name for channel in channels]
            if any(channel.unit for channel in channels):
                found[f"{kind}_units"] = [channel.unit for channel in channels]
            for side in ("low", "high"):
                values = [getattr(channel, side) for channel in channels]
                if any(value is not None for value in values):
                    found[f"{kind}_{side}"] = values
        return found | ({} if self.rate_hz is None else {"rate_hz": self.rate_hz})

    @classmethod
    def of_metadata(cls, metadata: Mapping[str, Any], sizes: tuple[int, int]) -> Self:
        """The card of a data set; what its metadata do not tell, or not for every number, is left.

        Args:
            metadata: What `load` gave, or `to_metadata`.
            sizes: Numbers in an observation and in an action.
        """
        channels = []
        for kind, short, size in zip(("observation", "action"), ("obs", "act"), sizes, strict=True):
            names = _texts(metadata.get(f"{kind}_names"), size)
            units = _texts(metadata.get(f"{kind}_units"), size) or [""] * size
            lows, highs = (_numbers(metadata.get(f"{kind}_{side}"), size) for side in _SIDES)
            names = names or [f"{short}_{number}" for number in range(size)]
            if any(a is not None and b is not None and a >= b
                   for a, b in zip(lows, highs, strict=True)):  # fmt: skip
                lows, highs = [None] * size, [None] * size
            parts = zip(names, units, lows, highs, strict=True)
            channels.append(tuple(Channel(*part) for part in parts))
        actions = channels[1]
        if any(None in (channel.low, channel.high) for channel in actions):
            actions = tuple(Channel(channel.name, channel.unit) for channel in actions)
        (rate,) = _numbers([metadata.get("rate_hz")], 1)
        known = rate if rate is not None and rate > 0 else None
        return cls(observations=channels[0], actions=actions, rate_hz=known)


_SIDES = ("low", "high")
_TOLD = tuple(f"{kind}_{what}" for kind in ("observation", "action")
              for what in ("names", "units", *_SIDES))  # fmt: skip


def described(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a data set's metadata that says what its numbers are, the rate left out."""
    return {key: metadata[key] for key in _TOLD if key in metadata}


def believed(notes: object, sizes: tuple[int, int]) -> dict[str, Any]:
    """The same of a file that others may have written: as far as it makes sense."""
    if not isinstance(notes, dict) or not described(notes):
        return {}
    return described(Card.of_metadata(notes, sizes).to_metadata())


def _texts(values: object, size: int) -> list[str]:
    """As many short texts as there must be, else none."""
    if not isinstance(values, list) or len(values) != size:
        return []
    return [printable(value, 60) for value in values]


def _numbers(values: object, size: int) -> Sequence[float | None]:
    """As many numbers or gaps as there must be; gaps only, if it is something else."""
    if not isinstance(values, list) or len(values) != size:
        return [None] * size
    return [
        float(value) if type(value) in (int, float) and abs(value) < 1e300 else None
        for value in values
    ]
