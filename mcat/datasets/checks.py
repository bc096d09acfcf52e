"""What is odd about a data set, found before anything is trained on it (reliability.md §5)."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mcat.datasets.arrays import DTYPES, breaks, place_of
from mcat.datasets.views import Episodes

LARGE = 1e6
CONSTANT = 1e-6


@dataclass(frozen=True)
class Finding:
    """One line about a data set: an error makes training pointless, a warning may."""

    severity: Literal["error", "warning"]
    message: str

    def __str__(self) -> str:
        return f"{self.severity}: {self.message}"


def check(
    store: Episodes,
    *,
    history: int = 10,
    action_low: ArrayLike | None = None,
    action_high: ArrayLike | None = None,
) -> list[Finding]:
    """Everything odd about one store, errors first; an empty list is a clean bill.

    Args:
        store: The data set.
        history: K, the length of the history that a model will be given.
        action_low: The smallest actions the environment takes, if known.
        action_high: The largest.
    """
    if len(store) == 0:
        return [Finding("error", "there are no transitions")]
    findings = [
        *_large_values(store),
        *_outside_box(store, action_low, action_high),
        *_constant_columns(store),
        *_short_episodes(store, history),
        *_broken_episodes(store),
        *_duplicate_episodes(store),
    ]
    return sorted(findings, key=lambda finding: finding.severity)


def _large_values(store: Episodes) -> list[Finding]:
    findings = []
    for name, dtype in DTYPES.items():
        if dtype is np.float32:
            values = store.column(name)
            wrong = ~(np.abs(values) <= LARGE)  # NaN is wrong too
            if wrong.any():
                first = tuple(np.argwhere(wrong)[0])
                finite = bool(np.isfinite(values).all())
                findings.append(
                    Finding(
                        "warning" if finite else "error",
                        f"{name}: {wrong.sum()} values are not within ±{LARGE:g}, first "
                        f"{values[first]} at {_place(store, first)}: a diverged simulation?",
                    )
                )
    return findings


def _outside_box(store: Episodes, low: ArrayLike | None, high: ArrayLike | None) -> list[Finding]:
    lowest = -np.inf if low is None else np.asarray(low, dtype=np.float32)
    highest = np.inf if high is None else np.asarray(high, dtype=np.float32)
    outside = (store.actions < lowest) | (store.actions > highest)
    if not outside.any():
        return []
    first = tuple(np.argwhere(outside)[0])
    return [
        Finding(
            "warning",
            f"actions: {outside.sum()} values are outside the action space, first "
            f"{store.actions[first]} at {_place(store, first)}: log the action that was executed",
        )
    ]


def _constant_columns(store: Episodes) -> list[Finding]:
    findings = []
    for name in ("observations", "actions"):
        constant = np.flatnonzero(store.column(name).std(axis=0, dtype=np.float64) <= CONSTANT)
        if len(constant):
            listed = _listed(constant)
            findings.append(
                Finding("warning", f"{name}: {len(constant)} columns never change: {listed}")
            )
    return findings


def _short_episodes(store: Episodes, history: int) -> list[Finding]:
    short = np.flatnonzero(store.lengths < history + 1)
    if len(short) == 0:
        return []
    return [
        Finding(
            "error" if len(short) == store.num_episodes else "warning",
            f"{len(short)} of {store.num_episodes} episodes have fewer than {history + 1} steps, "
            f"so no full history of {history}: {_listed(short)}",
        )
    ]


def _broken_episodes(store: Episodes) -> list[Finding]:
    columns = {name: store.column(name) for name in ("observations", "next_observations")}
    broken = breaks(columns)
    broken[store.episode_ends[:-1] - 1] = False
    if not broken.any():
        return []
    place = place_of(int(np.argmax(broken)), store.episode_ends)
    return [
        Finding(
            "warning",
            f"{broken.sum()} rows are not continued by the next row of their episode, first "
            f"{place}: rows missing or an episode end not marked?",
        )
    ]


def _duplicate_episodes(store: Episodes) -> list[Finding]:
    first_with: dict[bytes, int] = {}
    duplicates = []
    observations, actions = store.observations, store.actions
    for number, (end, length) in enumerate(zip(store.episode_ends, store.lengths, strict=True)):
        rows = slice(end - length, end)
        digest = hashlib.sha256(observations[rows].tobytes() + actions[rows].tobytes()).digest()
        if first_with.setdefault(digest, number) != number:
            duplicates.append(number)
    if not duplicates:
        return []
    return [
        Finding(
            "warning",
            f"{len(duplicates)} episodes repeat an earlier one exactly: "
            f"{_listed(np.array(duplicates))}",
        )
    ]


def _place(store: Episodes, index: tuple[np.int64, ...]) -> str:
    row, *column = index
    return place_of(int(row), store.episode_ends) + "".join(f", column {c}" for c in column)


def _listed(numbers: NDArray[np.int64], limit: int = 8) -> str:
    listed = ", ".join(map(str, numbers[:limit]))
    return listed + (", …" if len(numbers) > limit else "")
