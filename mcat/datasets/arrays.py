"""Arrays from anywhere → checked columns and episode boundaries; no store takes others."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mcat.errors import DataError

Columns = dict[str, NDArray[Any]]
"""One array per name of `DTYPES`, all with the same number of rows."""

DTYPES: dict[str, type] = {
    "observations": np.float32,
    "actions": np.float32,
    "rewards": np.float32,
    "next_observations": np.float32,
    "terminals": np.bool_,
    "timeouts": np.bool_,
}
"""The columns of a data set, under D4RL's names."""


def checked_columns(
    *, observations: ArrayLike, actions: ArrayLike, **others: ArrayLike | None
) -> tuple[Columns, NDArray[np.int64]]:
    """The six columns and the row after the last of each episode.

    `EpisodeStore.from_arrays` documents the arguments and the rules. Float32 input is not copied.
    """
    columns, ends = checked_rows(observations=observations, actions=actions, **others)
    return (columns, ends) if "next_observations" in columns else _with_successors(columns, ends)


def checked_rows(
    *,
    observations: ArrayLike,
    actions: ArrayLike,
    next_observations: ArrayLike | None = None,
    rewards: ArrayLike | None = None,
    terminals: ArrayLike | None = None,
    timeouts: ArrayLike | None = None,
    episode_ends: ArrayLike | None = None,
) -> tuple[Columns, NDArray[np.int64]]:
    """The same with every row that was given: next observations are there only if they were."""
    columns: Columns = {
        "observations": _floats("observations", observations, ndim=2),
        "actions": _floats("actions", actions, ndim=2),
    }
    rows = len(columns["observations"])
    columns["rewards"] = _floats("rewards", np.zeros(rows) if rewards is None else rewards, ndim=1)
    if next_observations is not None:
        columns["next_observations"] = _floats("next_observations", next_observations, ndim=2)
    columns["terminals"] = _flags("terminals", terminals, rows)
    columns["timeouts"] = _flags("timeouts", timeouts, rows)
    _check_shapes(columns)

    if episode_ends is not None:
        ends = _given_ends(episode_ends, rows)
    else:
        ends = _found_ends(columns, trust_flags=timeouts is not None)
    for name, values in columns.items():
        if values.dtype == np.float32:
            check_finite(name, values, ends)
    _settle_flags(columns, ends)
    return columns, ends


def check_finite(name: str, values: NDArray[Any], ends: NDArray[np.int64]) -> None:
    """Raise a `DataError` that names the first value that is NaN or infinite."""
    finite = np.isfinite(values)
    if not finite.all():
        row, *column = np.argwhere(~finite)[0]
        place, value = place_of(row, ends, *column), values[(row, *column)]
        raise DataError(f"{name}: {place} is {value}: repair the log or leave the episode out")


def place_of(row: int, ends: NDArray[np.int64], *column: int) -> str:
    """Where a row is, or a number in it, as in `episode 3, step 17` or `…, column 2`."""
    episode = int(np.searchsorted(ends, row, side="right"))
    first = int(ends[episode - 1]) if episode else 0
    return f"episode {episode}, step {row - first}" + "".join(f", column {c}" for c in column)


def goes_on(ends: NDArray[np.int64]) -> NDArray[np.bool_]:
    """`(rows,)`: whether another row of its episode follows a row."""
    found = np.ones(ends.max(initial=0), dtype=np.bool_)
    found[ends - 1] = False
    return found


def steps_of(ends: NDArray[np.int64]) -> NDArray[np.int64]:
    """`(rows,)`: the number of each row in its episode."""
    lengths = np.diff(ends, prepend=0)
    return np.arange(lengths.sum()) - np.repeat(ends - lengths, lengths)


def ends_of(labels: NDArray[Any]) -> NDArray[np.int64]:
    """Where episodes end whose rows have labels of their own, such as the episode's number."""
    return np.append(np.flatnonzero(labels[1:] != labels[:-1]) + 1, len(labels)).astype(np.int64)


def breaks(columns: Columns) -> NDArray[np.bool_]:
    """`(rows - 1,)`: True where a row's next observation is not the following row's observation."""
    differs = columns["next_observations"][:-1] != columns["observations"][1:]
    return np.asarray(differs.any(axis=1))


def _floats(name: str, values: ArrayLike, *, ndim: int) -> NDArray[np.float32]:
    try:
        array = np.asarray(values)
        if array.dtype.kind not in "fiub":
            raise ValueError(f"its type is {array.dtype}")
        with np.errstate(over="ignore"):  # too large for float32 becomes inf, refused later
            array = np.ascontiguousarray(array, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise DataError(f"{name} must be an array of numbers: {error}") from None
    if array.ndim != ndim:
        expected = "(rows, columns)" if ndim == 2 else "(rows,)"
        raise DataError(f"{name} must have the shape {expected}, got {array.shape}")
    return array


def _flags(name: str, values: ArrayLike | None, rows: int) -> NDArray[np.bool_]:
    if values is None:
        return np.zeros(rows, dtype=np.bool_)
    array = np.asarray(values)
    if array.ndim != 1:
        raise DataError(f"{name} must have the shape (rows,), got {array.shape}")
    if array.dtype.kind not in "fiub" or not ((array == 0) | (array == 1)).all():
        raise DataError(f"{name} must hold only True and False (or 1 and 0)")
    return array.astype(np.bool_)  # a copy: we may set flags below


def _check_shapes(columns: Columns) -> None:
    rows, width = columns["observations"].shape
    if rows == 0 or width == 0:
        raise DataError(f"observations are empty: shape {(rows, width)}")
    for name, values in columns.items():
        if len(values) != rows:
            raise DataError(f"{name} has {len(values)} rows but observations has {rows}")
    successors = columns.get("next_observations")
    if successors is not None and successors.shape[1] != width:
        raise DataError(
            f"next_observations has {successors.shape[1]} columns but observations has {width}"
        )


def _given_ends(episode_ends: ArrayLike, rows: int) -> NDArray[np.int64]:
    ends = np.asarray(episode_ends)
    if ends.ndim != 1 or (len(ends) and ends.dtype.kind not in "iu"):
        raise DataError("episode_ends must be a list of whole numbers")
    ends = ends.astype(np.int64)
    if len(ends) == 0 or ends[-1] != rows:
        last = ends[-1] if len(ends) else "nothing"
        raise DataError(f"episode_ends must end with the number of rows, {rows}, got {last}")
    wrong = np.flatnonzero(np.diff(ends, prepend=0) <= 0)
    if len(wrong):
        raise DataError(
            f"episode_ends must increase from above 0: entry {wrong[0]} is {ends[wrong[0]]}"
        )
    return ends


def _found_ends(columns: Columns, *, trust_flags: bool) -> NDArray[np.int64]:
    """Boundaries from the flags and, where time limits are not marked, from the states."""
    last = columns["terminals"] | columns["timeouts"]
    if not trust_flags and "next_observations" in columns:
        unmarked = breaks(columns) & ~last[:-1]
        if unmarked.sum() > len(last) / 2:
            raise DataError(
                f"{unmarked.sum()} of {len(last)} rows are not continued by the next row, so the "
                "episodes cannot be told: pass timeouts= or episode_ends="
            )
        last[:-1] |= unmarked
    last[-1] = True  # a log that stops is an episode that was cut off
    return np.flatnonzero(last).astype(np.int64) + 1


def _settle_flags(columns: Columns, ends: NDArray[np.int64]) -> None:
    """Afterwards each episode's last row has a flag and no other row has one."""
    inside = goes_on(ends)
    for name in ("terminals", "timeouts"):
        wrong = np.flatnonzero(columns[name] & inside)
        if len(wrong):
            place = place_of(int(wrong[0]), ends)
            raise DataError(f"{name}: {place} is set, but episode_ends says the episode goes on")
    columns["timeouts"][ends - 1] |= ~columns["terminals"][ends - 1]


def _with_successors(
    columns: Columns, ends: NDArray[np.int64]
) -> tuple[Columns, NDArray[np.int64]]:
    """Next observations from the following rows.

    Nobody logged what followed an episode's last row, so that row is left out and the episode is
    cut off one step earlier. An episode of one row vanishes.
    """
    keep = goes_on(ends)
    if not keep.any():
        raise DataError("every episode has one row, so no next observation is known")
    known = {name: values[keep] for name, values in columns.items()}
    known["next_observations"] = columns["observations"][1:][keep[:-1]]
    lengths = np.diff(ends, prepend=0) - 1
    ends = np.cumsum(lengths[lengths > 0])
    known["timeouts"][ends - 1] = True
    return known, ends
