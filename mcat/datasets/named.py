"""Logs whose columns have names of their own (CSV, Parquet, NumPy): read as they are."""

from __future__ import annotations

import csv
import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mcat.datasets.arrays import ends_of, steps_of
from mcat.datasets.cards import Card
from mcat.datasets.checks import listed
from mcat.datasets.child import read_in_child
from mcat.datasets.columns import LogColumns
from mcat.datasets.exports import require_pyarrow
from mcat.datasets.foreign import meaning
from mcat.datasets.tables import (
    Converter,
    Converters,
    as_flag,
    csv_columns,
    number_or_nan,
    unpacked,
)
from mcat.datasets.untrusted_tables import MAX_COLUMNS
from mcat.errors import DataError, MissingInputError, UsageError, counted, printable
from mcat.safe_io import StrPath, open_input

NamedColumns = dict[str, NDArray[Any]]
_KINDS = {"rewards": "reward", "terminals": "terminal", "episode_ends": "episode"}


@dataclass(kw_only=True)
class RawLog:
    """The rows of one log, of which nothing has been believed yet."""

    observations: NDArray[np.float64]  # `(rows, obs)`, float64; so are the others
    actions: NDArray[np.float64]  # `(rows, act)`
    ends: NDArray[np.int64]  # the row after the last of each episode
    card: Card  # what the numbers are
    time: NDArray[np.float64] | None  # `(rows,)` in seconds; None if the log does not say
    rewards: NDArray[np.float64] | None  # `(rows,)`, or None
    terminals: NDArray[np.float64] | None  # `(rows,)` of 0 and 1, or None
    ignored: list[str]  # columns that are not read

    @property
    def columns(self) -> dict[str, NDArray[np.float64]]:
        """All arrays that are there, by name."""
        names = ("observations", "actions", "time", "rewards", "terminals")
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}

    def kept(self, rows: NDArray[np.bool_], breaks: NDArray[np.bool_]) -> RawLog:
        """Some of its rows; a new episode begins at rows of `breaks` too, also if they are gone."""
        first = breaks | (steps_of(self.ends) == 0)
        arrays = {name: values[rows] for name, values in self.columns.items()}
        ends = ends_of(np.cumsum(first)[rows])
        return replace(self, ends=ends, **arrays)  # type: ignore[arg-type]


def read_log(path: StrPath, columns: LogColumns, *, damage: list[str] | None = None) -> RawLog:
    """The rows of a log.

    Args:
        path: A file in .csv, .csv.gz, .parquet, .npz or .h5.
        columns: What is what.
        damage: None refuses what cannot be read. A list is told what was left out instead; fields
            that are no numbers are then NaN.

    Raises:
        MissingInputError: if the file is not there.
        UsageError: if a column is not there, or the format is none of these.
        DataError: if it cannot be read; the line and the column are named.
    """
    if not Path(path).exists():
        raise MissingInputError(f"{path} does not exist")
    name = Path(path).name.lower()
    asked = (*columns.observations, *columns.actions, *columns.scalars)
    if name.endswith((".csv", ".csv.gz")):
        table, found = _csv(path, columns, damage)
    elif name.endswith(".parquet"):
        require_pyarrow(path)
        table, notes = read_in_child(path, "named-parquet", "Parquet file", *asked)
        found = notes["columns"]
    elif name.endswith((".h5", ".hdf5")):
        table, notes = read_in_child(path, "named-hdf5", "HDF5 file", *asked)
        found = notes["columns"]
    elif name.endswith(".npz"):
        table, notes = read_in_child(path, "named-npz", "NumPy archive", *asked)
        found = notes["columns"]
    else:
        raise UsageError(
            f"{path}: cannot tell its format, name it .csv, .csv.gz, .parquet, .npz or .h5"
        )
    try:
        return _raw_log(path, table, found, columns)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None


def _raw_log(
    path: StrPath, table: NamedColumns, found: Sequence[str], columns: LogColumns
) -> RawLog:
    observations, actions = columns.wanted(found)
    used = [*observations, *actions, *columns.scalars]
    ignored = [name for name in found if name not in used]
    _refuse_meant(ignored, columns)
    rows = {name: len(table[name]) for name in used}
    if len(set(rows.values())) > 1:
        shortest, longest = min(rows, key=rows.__getitem__), max(rows, key=rows.__getitem__)
        raise DataError(
            f"{path}: {longest} has {rows[longest]} rows, {shortest} has {rows[shortest]}"
        )
    count = rows[used[0]]
    if count == 0:
        raise DataError(f"{path}: there are no rows")

    def one(kind: str) -> NDArray[np.float64] | None:
        name = getattr(columns, kind)
        return np.asarray(table[name], dtype=np.float64) if name else None

    time = one("time")
    if time is not None:  # since the first: moments of the Unix clock leave no room for fractions
        known = time[np.isfinite(time)]
        time = (time - (known[0] if len(known) else 0.0)) * columns.seconds
    episode, terminals = one("episode"), one("terminal")
    if episode is None:
        after_end = np.zeros(count) if terminals is None else np.append(0, terminals[:-1] == 1)
        episode = np.cumsum(after_end)
    return RawLog(
        observations=np.column_stack([table[n] for n in observations]).astype(np.float64),
        actions=np.column_stack([table[n] for n in actions]).astype(np.float64),
        ends=ends_of(episode),
        card=columns.card(observations, actions, found),
        time=time,
        rewards=one("reward"),
        terminals=terminals,
        ignored=ignored,
    )


def _refuse_meant(ignored: Sequence[str], columns: LogColumns) -> None:
    """Refuse a log with a column that looks as if it were one of those not named."""
    for name in ignored:
        array, number = meaning(name)
        kind = _KINDS.get(str(array))
        if kind is not None and not number and getattr(columns, kind) is None:
            raise UsageError(
                f"'{printable(name, 60)}' is not read: pass --{kind} {printable(name, 60)}, or"
                f" --{kind} none if it is something else"
            )


# ---- CSV


def _csv(
    path: StrPath, columns: LogColumns, damage: list[str] | None
) -> tuple[NamedColumns, list[str]]:
    """The wanted columns of a CSV file, and the names of all."""

    def choose(header: list[str]) -> Converters:
        twice = [name for name, count in Counter(header).items() if count > 1]
        if len(header) > MAX_COLUMNS or not header:
            raise DataError(f"{path}: {len(header):,} columns, a log has 1 to {MAX_COLUMNS:,}")
        if len(header) == 1 and re.search("[;\t]", header[0]):
            raise DataError(f"{path}: its columns are not separated by commas: convert it")
        try:
            observations, actions = columns.wanted(header)
        except UsageError as error:
            raise UsageError(f"{path}: {error}") from None
        used = [*observations, *actions, *columns.scalars]
        if wrong := [name for name in used if name in twice]:
            raise DataError(f"{path}: two columns are named {wrong[0]}")
        special: dict[str, Converter] = {"episode": _labels(), "time": _moment, "terminal": as_flag}
        kinds = columns.scalars
        return {header.index(name): special.get(kinds.get(name, "")) for name in used}

    if damage is not None:
        return _damaged_csv(path, choose, damage)
    return csv_columns(path, choose)


def _labels() -> Converter:
    """Gives every text that tells episodes apart a number of its own."""
    seen: dict[str, float] = {}
    return lambda text: seen.setdefault(text.strip(), float(len(seen)))


def _moment(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        moment = datetime.fromisoformat(text.strip())  # a ValueError too if it is none
    return (moment - datetime(1970, 1, 1, tzinfo=moment.tzinfo)).total_seconds()


def _damaged_csv(
    path: StrPath, choose: Callable[[list[str]], Converters], damage: list[str]
) -> tuple[NamedColumns, list[str]]:
    """What can be read of a CSV file: whole lines, and NaN for what is no number."""
    lines = csv.reader(StringIO(_whole_text(path, damage), newline=""))
    header = [name.strip() for name in next(lines, [])]
    used = choose(header)
    rows: list[list[float]] = []
    ragged: list[int] = []
    no_numbers = 0
    while True:
        try:
            fields = next(lines, None)
        except csv.Error:
            fields = [""]
        if fields is None:
            break
        if not fields:  # an empty line
            continue
        if len(fields) != len(header):
            ragged.append(lines.line_num)
            rows.append([math.nan] * len(used))  # a hole: what follows does not go on from before
            continue
        row = [number_or_nan(fields[number], convert) for number, convert in used.items()]
        no_numbers += sum(map(math.isnan, row))
        rows.append(row)
    if ragged:
        count = counted(len(ragged), "line")
        damage.append(f"{count} with too few or too many fields: {listed(ragged)}")
    if no_numbers:
        damage.append(f"{counted(no_numbers, 'field')} empty or no numbers")
    values = np.array(rows, dtype=np.float64).reshape(len(rows), len(used))
    return {header[number]: values[:, k] for k, number in enumerate(used)}, header


def _whole_text(path: StrPath, damage: list[str]) -> str:
    """The text of a file up to its last whole line, however it ends."""
    with open_input(path) as file:
        content = file.read()
    if Path(path).suffix == ".gz":
        content, whole = unpacked(path, content)
        if not whole:
            damage.append("the gzip file ends in its middle")
    text = content.decode("utf-8-sig", errors="replace").replace("\0", "")
    lines, newline, rest = text.rpartition("\n")
    if rest.strip() and newline:
        damage.append(f"the last line, which is not ended, left out: {printable(rest, 60)!r}")
        return lines + newline
    return text
