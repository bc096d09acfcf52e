"""Logs as tables: one row per step, one column per number (CSV, Parquet)."""

from __future__ import annotations

import csv
import json
import math
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from mcat.datasets.arrays import ends_of
from mcat.datasets.cards import believed
from mcat.datasets.child import read_in_child
from mcat.datasets.episodes import EpisodeStore
from mcat.datasets.exports import VECTORS, require_pyarrow
from mcat.datasets.foreign import assemble, refuse_lookalikes
from mcat.datasets.untrusted import TABLE_COLUMN, TIMES, budget_for
from mcat.datasets.untrusted_tables import MAX_COLUMNS
from mcat.errors import DataError, McatError, printable
from mcat.safe_io import StrPath, open_input

_SCALARS = {"reward": "rewards", "terminal": "terminals", "timeout": "timeouts"}
_NAMES = {array: f"{name}_0" for name, array in VECTORS.items()}
_NAMES |= {array: name for name, array in _SCALARS.items()} | {"episode_ends": "episode"}
_FLAGS = {"true": 1.0, "false": 0.0}

Converter = Callable[[str], float]
Converters = dict[int, Converter | None]
"""What makes a number of a column's fields, by the column's number; None where they are numbers."""


def read_csv(path: StrPath) -> tuple[EpisodeStore, dict[str, Any]]:
    """A log whose first line names its columns; it may be compressed (.csv.gz).

    `obs_0`, `obs_1`, … and `act_0`, … must be there; `next_obs_0`, …, `reward`, `terminal`,
    `timeout`, `episode` (a number that changes when a new episode begins) and `time` (in seconds)
    may be. Others are left out and listed in the metadata as `ignored_columns`, unless they look
    like one of these.

    Raises:
        DataError: Naming the line and the column that cannot be read.
    """
    ignored: list[str] = []

    def choose(header: list[str]) -> Converters:
        ignored.extend(_check_header(path, header))
        converters: dict[str, Converter] = dict.fromkeys(("terminal", "timeout"), as_flag)
        converters |= dict.fromkeys(TIMES, number_or_nan)  # NaN for dates
        used = [number for number, name in enumerate(header) if TABLE_COLUMN.fullmatch(name)]
        return {number: converters.get(header[number]) for number in used}

    table, _ = csv_columns(path, choose)
    return _from_table(path, table, ignored)


def csv_columns(
    path: StrPath, choose: Callable[[list[str]], Converters]
) -> tuple[dict[str, NDArray[np.float64]], list[str]]:
    """Columns of a CSV file by name, and the names of all.

    Args:
        path: The file.
        choose: Given the names, the numbers of the columns to be read; with what makes a number of
            a field, None for fields that are numbers.

    Raises:
        DataError: Naming the line and the column that cannot be read.
    """
    used: Converters = {}
    with open_text(path) as file:
        try:
            header = [name.strip() for name in next(csv.reader(file), [])]
            used = choose(header)
            values = np.loadtxt(
                checked_lines(path, file, fields=len(header)),
                delimiter=",",
                quotechar='"',
                comments=None,
                ndmin=2,
                usecols=list(used),
                converters={n: convert for n, convert in used.items() if convert is not None},
            )
        except UnicodeDecodeError:
            raise DataError(f"{path}: not a text file in UTF-8") from None
        except McatError:
            raise
        except (ValueError, csv.Error) as error:
            raise DataError(f"{path}: {_bad_field(path, used) or printable(error)}") from None
    return {header[number]: values[:, k] for k, number in enumerate(used)}, header


def read_parquet(path: StrPath) -> tuple[EpisodeStore, dict[str, Any]]:
    """The same table as `read_csv` takes, in a Parquet file."""
    require_pyarrow(path)
    table, notes = read_in_child(path, "parquet", "Parquet file")
    ignored = _check_header(path, notes["columns"])
    ignored += [name for name in TIMES if name in notes["columns"] and name not in table]
    store, metadata = _from_table(path, table, ignored)
    try:
        card = json.loads(notes["card"] or "null")
    except (ValueError, RecursionError):
        card = None
    return store, metadata | believed(card, (store.observation_size, store.action_size))


def _from_table(
    path: StrPath, table: Mapping[str, NDArray[Any]], ignored: list[str]
) -> tuple[EpisodeStore, dict[str, Any]]:
    arrays = {name: table[name] for name in TIMES if name in table}
    for name, array in VECTORS.items():
        columns = [table[column] for column in _numbered(table, name)]
        if columns:
            arrays[array] = np.column_stack(columns)
    arrays |= {array: table[name] for name, array in _SCALARS.items() if name in table}
    if "episode" in table:
        numbers = table["episode"]
        empty = np.flatnonzero(~np.isfinite(numbers))
        if len(empty):
            raise DataError(f"{path}: column episode: row {empty[0]} is {numbers[empty[0]]}")
        arrays["episode_ends"] = ends_of(numbers)
    return assemble(path, arrays, ignored)


def _numbered(names: Iterable[str], name: str) -> list[str]:
    """The names among `names` that are `name_0`, `name_1`, …, in this order."""
    columns = [column for column in names if re.fullmatch(rf"{name}_[0-9]+", column)]
    return sorted(columns, key=lambda column: int(column.rpartition("_")[2]))


def _check_header(path: StrPath, header: list[str]) -> list[str]:
    """The columns that are left out; those that are read must be complete."""
    if not header:
        raise DataError(f"{path}: the file is empty")
    if len(header) > MAX_COLUMNS:
        raise DataError(f"{path}: {len(header):,} columns, a log has {MAX_COLUMNS:,} at most")
    names = [name for name in header if TABLE_COLUMN.fullmatch(name)]
    ignored = [name for name in header if not TABLE_COLUMN.fullmatch(name)]
    found = {name: _numbered(names, name) for name in VECTORS}
    present = [array for name, array in VECTORS.items() if found[name]]
    present += [array for array, name in _NAMES.items() if name in names]
    refuse_lookalikes(path, ignored, _NAMES, present=present)
    for name, columns in found.items():
        expected = [f"{name}_{number}" for number in range(max(len(columns), name != "next_obs"))]
        if columns != expected:
            there = set(columns)
            missing = next(column for column in expected if column not in there)
            raise DataError(f"{path}: there is no column {missing}")
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise DataError(f"{path}: two columns are named {twice[0]}")
    return ignored


@contextmanager
def open_text(path: StrPath) -> Iterator[TextIO]:
    """The text of a file, compressed or not."""
    with open_input(path) as file:
        if Path(path).suffix != ".gz":
            yield TextIOWrapper(file, encoding="utf-8-sig", newline="")
            return
        content, whole = unpacked(path, file.read())
        if not whole:
            raise DataError(f"{path}: not a readable gzip file: it ends in its middle")
        yield TextIOWrapper(BytesIO(content), encoding="utf-8-sig", newline="")


def unpacked(path: StrPath, content: bytes) -> tuple[bytes, bool]:
    """What a gzip file holds, or its beginning, and whether that is all.

    Raises:
        DataError: if it is none, or holds far more than its size.
    """
    allowed, found = budget_for(len(content)), b""
    while content:  # it may have several parts
        part = zlib.decompressobj(wbits=31)
        try:
            found += part.decompress(content, allowed + 1 - len(found))
        except zlib.error as error:
            raise DataError(f"{path}: not a readable gzip file: {printable(error)}") from None
        if len(found) > allowed:
            raise DataError(
                f"{path}: more than {allowed / 1e6:,.0f} MB of text, far above its size"
            )
        if not part.eof:
            return found, False
        content = part.unused_data.lstrip(b"\0")  # tapes were filled up with zeros
    return found, True


def checked_lines(path: StrPath, file: TextIO, fields: int) -> Iterator[str]:
    """The lines of a CSV file: numpy itself overlooks surplus fields, as in `1,5` for 1.5."""
    empty = True
    for number, line in enumerate(file, start=2):
        found = line.count(",") + 1
        if found != fields and line.strip() and '"' not in line:
            raise DataError(
                f"{path}: line {number} has {found} fields, the header has {fields}: mcat dataset"
                " repair leaves such lines out"
            )
        empty = empty and not line.strip()
        yield line
    if empty:
        raise DataError(f"{path}: there is no line after the header")


def as_flag(text: str) -> float:
    """The number of a field that may also say true or false."""
    return float(_FLAGS.get(text.strip().lower(), text))


def number_or_nan(text: str, convert: Converter | None = None) -> float:
    """The number of a field; NaN if it is none."""
    try:
        return (convert or float)(text)
    except ValueError:
        return math.nan


def _bad_field(path: StrPath, used: Converters) -> str | None:
    """The first field that is not a number; numpy names neither lines nor columns as we do."""
    with open_text(path) as file:
        lines = csv.reader(file)
        try:
            header = [name.strip() for name in next(lines)]
            for fields in lines:
                for number, field in enumerate(fields):
                    try:
                        if number in used:
                            (used[number] or float)(field)
                    except ValueError:
                        name, field = header[number], printable(field, 40)
                        return f"line {lines.line_num}, column {name}: {field!r} is not a number"
        except csv.Error as error:
            return f"line {lines.line_num}: {error}"
    return None
