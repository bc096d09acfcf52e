"""Logs as tables: one row per step, one column per number (CSV, Parquet)."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from mcat.datasets.episodes import EpisodeStore
from mcat.errors import DataError, UsageError
from mcat.safe_io import StrPath, io_errors

_VECTORS = {"obs": "observations", "act": "actions", "next_obs": "next_observations"}
_SCALARS = {"reward": "rewards", "terminal": "terminals", "timeout": "timeouts"}
_USED = re.compile(r"(obs|act|next_obs)_\d+|reward|terminal|timeout|episode")
_FLAGS = {"true": 1.0, "false": 0.0}


def read_csv(path: StrPath) -> tuple[EpisodeStore, dict[str, Any]]:
    """A log whose first line names its columns.

    `obs_0`, `obs_1`, … and `act_0`, … must be there; `next_obs_0`, …, `reward`, `terminal`,
    `timeout` and `episode` (a number that changes when a new episode begins) may be. Others are
    left out and listed in the metadata as `ignored_columns`.

    Raises:
        DataError: Naming the line and the column that cannot be read.
    """
    with io_errors(path, "read"), open(path, newline="", encoding="utf-8-sig") as file:
        try:
            header = [name.strip() for name in next(csv.reader(file), [])]
            used = [number for number, name in enumerate(header) if _USED.fullmatch(name)]
            _check_header(path, [header[number] for number in used])
            values = np.loadtxt(
                _lines(path, file, fields=len(header)),
                delimiter=",",
                quotechar='"',
                comments=None,
                ndmin=2,
                usecols=used,
                converters={n: _flag for n in used if header[n] in ("terminal", "timeout")},
            )
        except UnicodeDecodeError:
            raise DataError(f"{path}: not a text file in UTF-8") from None
        except DataError:
            raise
        except (ValueError, csv.Error) as error:
            raise DataError(f"{path}: {_bad_field(path) or error}") from None
    table = {header[number]: values[:, column] for column, number in enumerate(used)}
    return _from_table(path, table, [name for name in header if name not in table])


def read_parquet(path: StrPath) -> tuple[EpisodeStore, dict[str, Any]]:
    """The same table as `read_csv` takes, in a Parquet file."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise UsageError(
            f"{path}: reading Parquet needs pyarrow: pip install pyarrow, or convert to CSV"
        ) from None
    with io_errors(path, "read"), open(path, "rb") as file:
        try:
            content = parquet.read_table(file)
            used = [name for name in content.column_names if _USED.fullmatch(name)]
            table = {name: content[name].to_numpy() for name in used}
        except pyarrow.ArrowException as error:
            raise DataError(f"{path}: not a readable Parquet file: {error}") from None
    _check_header(path, used)
    return _from_table(path, table, [name for name in content.column_names if name not in table])


def _from_table(
    path: StrPath, table: Mapping[str, NDArray[Any]], ignored: list[str]
) -> tuple[EpisodeStore, dict[str, Any]]:
    arrays = {}
    for name, array in _VECTORS.items():
        columns = [table[column] for column in _numbered(table, name)]
        if columns:
            arrays[array] = np.column_stack(columns)
    arrays |= {array: table[name] for name, array in _SCALARS.items() if name in table}
    if "episode" in table:
        changes = np.flatnonzero(np.diff(table["episode"])) + 1
        arrays["episode_ends"] = np.append(changes, len(table["episode"]))
    try:
        store = EpisodeStore.from_arrays(**arrays)
    except DataError as error:
        raise DataError(f"{path}: {error}") from None
    return store, {"source": Path(path).name, "ignored_columns": ignored}


def _numbered(names: Iterable[str], name: str) -> list[str]:
    """Those of `names` that are `name_0`, `name_1`, …, in this order."""
    columns = [column for column in names if re.fullmatch(rf"{name}_\d+", column)]
    return sorted(columns, key=lambda column: int(column.rpartition("_")[2]))


def _check_header(path: StrPath, names: list[str]) -> None:
    for name in _VECTORS:
        found = _numbered(names, name)
        expected = [f"{name}_{number}" for number in range(max(len(found), name != "next_obs"))]
        if found != expected:
            missing = next(column for column in expected if column not in found)
            raise DataError(f"{path}: there is no column {missing}")
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise DataError(f"{path}: two columns are named {twice[0]}")


def _lines(path: StrPath, file: TextIO, fields: int) -> Iterator[str]:
    """The lines of a CSV file: numpy itself overlooks surplus fields, as in `1,5` for 1.5."""
    empty = True
    for number, line in enumerate(file, start=2):
        found = line.count(",") + 1
        if found != fields and line.strip() and '"' not in line:
            raise DataError(f"{path}: line {number} has {found} fields, the header has {fields}")
        empty = empty and not line.strip()
        yield line
    if empty:
        raise DataError(f"{path}: there is no line after the header")


def _flag(text: str) -> float:
    return float(_FLAGS.get(text.strip().lower(), text))


def _bad_field(path: StrPath) -> str | None:
    """The first field that is not a number; numpy names neither lines nor columns as we do."""
    with open(path, newline="", encoding="utf-8-sig") as file:
        lines = csv.reader(file)
        header = [name.strip() for name in next(lines)]
        for fields in lines:
            for name, field in zip(header, fields, strict=False):
                try:
                    if _USED.fullmatch(name):
                        _flag(field)
                except ValueError:
                    return f"line {lines.line_num}, column {name}: {field[:40]!r} is not a number"
    return None
