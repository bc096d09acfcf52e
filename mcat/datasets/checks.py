"""What is odd about a data set, found before anything is trained on it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mcat.datasets.arrays import DTYPES, breaks, goes_on, place_of
from mcat.datasets.cards import ROUNDING, Card, Limits
from mcat.datasets.views import Episodes
from mcat.errors import counted, printable

ACTION_LIMIT = 1.0  # mcat's actions are from -1 to 1
LARGE = 1e6
CONSTANT = 1e-6  # a spread below this is rounding, not motion
LISTED = 8  # places named of each kind


@dataclass(frozen=True)
class Problem:
    """One line about a data set: an error makes training pointless, a warning may, a note not.

    Attributes:
        severity: How bad it is: "error", "warning" or "note".
        message: What was found, and where.
    """

    severity: Literal["error", "warning", "note"]
    message: str

    def __str__(self) -> str:
        return f"{self.severity}: {self.message}"


def check(
    store: Episodes, metadata: Mapping[str, Any] | None = None, *, history: int = 10
) -> list[Problem]:
    """Everything odd about one data set, errors first; an empty list is a clean bill.

    Args:
        store: The episodes.
        metadata: What `load` said about them: bounds of the actions, what is odd about the times,
            columns that were left out.
        history: K, the length of the history that a model will be given.
    """
    metadata = metadata or {}
    if len(store) == 0:
        return [Problem("error", "there are no transitions")]
    card = Card.of_metadata(metadata, (store.observation_size, store.action_size))
    problems = [
        *_large_values(store),
        *_actions_outside(store, card),
        *_observations_outside(store, card),
        *_constant_columns(store, card if "observation_names" in metadata else None),
        *_short_episodes(store, history),
        *_broken_episodes(store),
        *_duplicate_episodes(store),
        *_odd_times(metadata),
        *_left_out(metadata),
    ]
    order = ("error", "warning", "note")
    return sorted(problems, key=lambda problem: order.index(problem.severity))


def rate_hz(metadata: Mapping[str, Any]) -> float | None:
    """Rows per second of a log, if it said when they were."""
    rate = metadata.get("rate_hz")
    return float(rate) if isinstance(rate, int | float) and rate > 0 else None


def has_rewards(metadata: Mapping[str, Any]) -> bool:
    """Whether the source of a data set had rewards; without, they are stored as zeros."""
    return metadata.get("has_rewards") is not False


def gaps(store: Episodes) -> NDArray[np.bool_]:
    """`(rows - 1,)`: where an episode goes on, but not from where the row before had led to."""
    columns = {name: store.column(name) for name in ("observations", "next_observations")}
    return breaks(columns) & goes_on(store.episode_ends)[:-1]


def _large_values(store: Episodes) -> Iterator[Problem]:
    for name, dtype in DTYPES.items():
        if dtype is np.float32:
            values = store.column(name)
            wrong = ~(np.abs(values) <= LARGE)  # NaN is wrong too
            if wrong.any():
                row, *column = np.argwhere(wrong)[0]
                first, place = values[(row, *column)], place_of(row, store.episode_ends, *column)
                yield Problem(
                    "warning" if np.isfinite(values).all() else "error",
                    f"{name}: {counted(int(wrong.sum()), 'value')} not within ±{LARGE:g}:"
                    f" a diverged simulation? (first {first} at {place})",
                )


def _actions_outside(store: Episodes, card: Card) -> Iterator[Problem]:
    limits, what = card.limits, "the action space: log the action that was executed"
    if limits is None:
        size = np.ones(store.action_size)
        limits = Limits(-ACTION_LIMIT * size, ACTION_LIMIT * size)
        what = "[-1, 1], the range of mcat's actions: scale them to it, or give bounds"
    room = np.maximum(ROUNDING, ROUNDING * (limits.high - limits.low))
    outside = (store.actions < limits.low - room) | (store.actions > limits.high + room)
    if outside.any():
        row, column = np.argwhere(outside)[0]
        place = place_of(row, store.episode_ends, column)
        found = f"{counted(int(outside.sum()), 'value')} outside {what}"
        where = f"(first {store.actions[row, column]:g} at {place})"
        yield Problem("warning", f"actions: {found} {where}")


def _observations_outside(store: Episodes, card: Card) -> Iterator[Problem]:
    for channel, values in zip(card.observations, store.observations.T, strict=True):
        low = -np.inf if channel.low is None else channel.low
        high = np.inf if channel.high is None else channel.high
        outside = (values < np.float32(low)) | (values > np.float32(high))
        if outside.any():
            row = int(np.argmax(outside))
            place = place_of(row, store.episode_ends)
            count = counted(int(outside.sum()), "value")
            yield Problem("warning", f"{count} beyond {channel} (first {values[row]:g} at {place})")


def _constant_columns(store: Episodes, card: Card | None) -> Iterator[Problem]:
    for name in ("observations", "actions"):
        constant = np.flatnonzero(store.column(name).std(axis=0, dtype=np.float64) <= CONSTANT)
        if len(constant):
            count = counted(len(constant), "column")
            change = "change" if len(constant) > 1 else "changes"
            which = constant if card is None else [getattr(card, name)[n].name for n in constant]
            yield Problem("warning", f"{name}: {count} never {change}: {listed(which)}")


def _short_episodes(store: Episodes, history: int) -> Iterator[Problem]:
    short = np.flatnonzero(store.lengths < history + 1)
    if len(short):
        yield Problem(
            "error" if len(short) == store.num_episodes else "warning",
            f"{len(short)} of {store.num_episodes} episodes have fewer than {history + 1} steps, "
            f"so no full history of {history}: {listed(short)}",
        )


def _broken_episodes(store: Episodes) -> Iterator[Problem]:
    rows = np.flatnonzero(gaps(store))
    if len(rows):
        places = [place_of(int(row), store.episode_ends) for row in rows[:LISTED]]
        yield Problem(
            "warning",
            f"{counted(len(rows), 'row')} not continued by the next row of the episode: rows"
            f" missing or an episode end not marked? At {'; '.join(places)}"
            + ("; …" if len(rows) > LISTED else ""),
        )


def _duplicate_episodes(store: Episodes) -> Iterator[Problem]:
    first_with: dict[bytes, int] = {}
    duplicates = []
    observations, actions = store.observations, store.actions
    for number, (end, length) in enumerate(zip(store.episode_ends, store.lengths, strict=True)):
        rows = slice(end - length, end)
        digest = hashlib.sha256(observations[rows].tobytes() + actions[rows].tobytes()).digest()
        if first_with.setdefault(digest, number) != number:
            duplicates.append(number)
    if duplicates:
        count = counted(len(duplicates), "episode")
        yield Problem("warning", f"{count} equal to an earlier one: {listed(duplicates)}")


def _odd_times(metadata: Mapping[str, Any]) -> Iterator[Problem]:
    """What was found when the log was read: the times themselves are not kept."""
    entries = metadata.get("time_findings")
    for entry in entries if isinstance(entries, list) else []:
        match entry:
            case [("error" | "warning") as severity, str(text)]:
                yield Problem(severity, printable(text, 1000))


def _left_out(metadata: Mapping[str, Any]) -> Iterator[Problem]:
    names = metadata.get("ignored_columns")
    if isinstance(names, list) and names:
        found = listed([printable(name, 60) for name in names])
        yield Problem("note", f"{counted(len(names), 'column')} not read: {found}")


def listed(found: NDArray[np.int64] | Sequence[object]) -> str:
    """The first of what was found, and … if there are more."""
    return ", ".join(map(str, found[:LISTED])) + (", …" if len(found) > LISTED else "")
