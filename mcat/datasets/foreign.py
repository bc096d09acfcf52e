"""Logs of others: arrays under names of theirs → a store, and metadata that tell what was there."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mcat.datasets.arrays import checked_rows, goes_on, place_of
from mcat.datasets.episodes import EpisodeStore
from mcat.datasets.pace import GAP, pace_of
from mcat.datasets.untrusted import TIMES, Arrays
from mcat.errors import DataError, printable
from mcat.safe_io import StrPath

LISTED = 8  # places named of each kind

# What people call the arrays of a data set. Whoever writes `done` believes that we read it.
_OTHER_NAMES = {
    "observations": ("obs", "observation", "observations"),
    "actions": ("act", "action", "actions"),
    "next_observations": (
        "nextobs", "nextobservation", "nextobservations", "obsnext", "nextstate", "nextstates",
    ),
    "rewards": ("reward", "rewards", "rew"),
    "terminals": (
        "terminal", "terminals", "done", "dones", "isdone", "nextdone", "terminated", "termination",
        "terminations", "isterminal",
    ),
    "timeouts": ("timeout", "timeouts", "truncated", "truncation", "truncations", "istruncated"),
    "episode_ends": (
        "episode", "episodes", "episodeid", "episodeindex", "episodeidx", "episodenumber",
        "episodenr", "episodeends", "ep", "epid", "eps", "traj", "trajid", "trajectory",
        "run", "runid", "trial", "trialid", "rollout", "rolloutid",
        "trajectoryid", "trajectoryindex",
    ),
}  # fmt: skip
_MEANING = {name: array for array, names in _OTHER_NAMES.items() for name in names}
_LONG_NAMES = [name for name in _MEANING if len(name) > 5]  # a typo in a short one is another word


def assemble_arrays(
    path: StrPath, arrays: Arrays, ignored: Sequence[str]
) -> tuple[EpisodeStore, dict[str, Any]]:
    """The store and the metadata of a file whose arrays have our names.

    Raises:
        DataError: if an array is wrong, or left out although it was surely meant to be read.
    """
    refuse_lookalikes(path, ignored, {name: name for name in _OTHER_NAMES}, present=arrays)
    missing = [name for name in ("observations", "actions") if name not in arrays]
    if missing:
        found = ", ".join(printable(name, 40) for name in [*arrays, *ignored][:LISTED])
        raise DataError(
            f"{path}: not a data set: it has no {', '.join(missing)}, but {found or 'nothing'}"
        )
    return assemble(path, arrays, ignored)


def assemble(
    path: StrPath, arrays: Arrays, ignored: Sequence[str]
) -> tuple[EpisodeStore, dict[str, Any]]:
    """The store and the metadata of a log.

    Raises:
        DataError: if an array is wrong.
    """
    columns = {name: values for name, values in arrays.items() if name not in TIMES}
    clocks = [name for name in TIMES if name in arrays and _is_clock(arrays[name])]
    unread = [name for name in TIMES if name in arrays and name not in clocks[:1]]
    try:
        facts = timing(arrays[clocks[0]], checked_rows(**columns)[1]) if clocks else {}
        store = EpisodeStore.from_arrays(**columns)
    except DataError as error:
        raise DataError(f"{path}: {error}") from None
    return store, {
        "source": Path(path).name,
        "ignored_columns": [*ignored, *unread],
        "has_rewards": "rewards" in arrays,
        **facts,
    }


def refuse_lookalikes(
    path: StrPath, ignored: Iterable[str], names: Mapping[str, str], *, present: Iterable[str]
) -> None:
    """Refuses a file with a column that we do not read and its author believes that we do.

    Without its `episode_id` a log of 100 episodes would be one of one episode with 99 jumps.

    Args:
        path: The file, for messages.
        ignored: What it holds that is not read.
        names: What this kind of file calls each array; ending in 0 if each number has its column.
        present: The arrays that are read.
    """
    there = set(present)
    for name in ignored:
        meant, number = meaning(name)
        if meant is None:
            continue
        one_of_many = names[meant].endswith("0") and number  # as obs2 beside obs_0 and obs_1
        if one_of_many or (meant not in there and not number):
            right = names[meant][:-1] + number if one_of_many else names[meant]
            raise DataError(
                f"{path}: {printable(name, 60)!r} is not read, but looks like {right[:60]!r}:"
                " rename it so, or remove it if it is something else"
            )


def meaning(name: str) -> tuple[str | None, str]:
    """The array that a column's author means by its name, if any, and the number at its end."""
    word = re.sub(r"[^a-z0-9]", "", name.lower())
    stem = word.rstrip("0123456789")
    known = stem in _MEANING
    close = [stem] if known else difflib.get_close_matches(stem[:40], _LONG_NAMES, 1, 0.85)
    return (_MEANING[close[0]] if close else None), word[len(stem) :]


def timing(time: NDArray[Any], ends: NDArray[np.int64]) -> dict[str, Any]:
    """The rate of a log and what is odd about its time, as metadata."""
    if len(time) != ends[-1]:
        raise DataError(f"time has {len(time)} rows but observations has {ends[-1]}")
    time = np.asarray(time, dtype=np.float64)
    with np.errstate(over="ignore"):
        steps = np.diff(time)
    within = goes_on(ends)[:-1]
    forward = steps[within & (steps > 0)]
    usual = float(np.median(forward)) if len(forward) else math.inf
    rate = 1 / usual
    backwards = "runs backwards: rows in a wrong order, or an episode end not marked?"
    oddities: list[tuple[str, NDArray[np.bool_], str]] = [
        ("error", steps < 0, backwards),
        ("warning", steps == 0, "stands still: rows repeated?"),
        ("warning", steps > GAP * usual, f"jumps by more than {GAP * usual:.4g}: rows missing?"),
    ]
    findings = []
    pace = pace_of(time, ends)
    if pace is not None and not pace.even:
        how = "mcat dataset import --rate brings it to one"
        findings.append(["warning", f"time goes on at {pace}: {how}"])
    for severity, wrong, what in oddities:
        rows = np.flatnonzero(wrong & within) + 1
        if len(rows):
            places = "; ".join(f"{place_of(int(row), ends)} (row {row})" for row in rows[:LISTED])
            more = f"; and {len(rows) - LISTED} more" if len(rows) > LISTED else ""
            findings.append([severity, f"time {what} At {places}{more}"])
    known = {"rate_hz": float(f"{rate:.6g}")} if 0 < rate < math.inf else {}
    return {**known, "time_findings": findings}


def _is_clock(values: NDArray[Any]) -> bool:
    return values.ndim == 1 and values.dtype.kind in "fiu" and bool(np.isfinite(values).all())
