"""Reads tables (NumPy, Parquet, HDF5) that may be damaged or made to harm; see `untrusted`."""

from __future__ import annotations

import math
import os
import zipfile
from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import IO, Any

import h5py
import numpy as np

from mcat.datasets.untrusted import (
    DIMENSIONS,
    MAX_OBJECTS,
    TABLE_COLUMN,
    TIMES,
    Arrays,
    Notes,
    RefusedError,
    budget_for,
    check_type,
    declared_bytes,
    own_object,
)

MAX_COLUMNS = 10_000
CARD_KEY = "mcat"  # where a Parquet file of ours says what its numbers are
MAX_CARD = 1_000_000  # characters
# The columns of LeRobot's data files that are read, 2 for those that hold vectors.
LEROBOT_DIMENSIONS = {
    "observation.state": 2,
    "action": 2,
    "next.observation.state": 2,
    "next.reward": 1,
    "next.done": 1,
    "next.truncated": 1,
    "timestamp": 1,
    "episode_index": 1,
    "frame_index": 1,
}


def read_npz(path: str, file_bytes: int) -> tuple[Arrays, Notes]:
    """The arrays on the list of a NumPy archive; objects, which are pickles, are no arrays.

    Raises:
        RefusedError: if an array is not as it should be.
    """
    budget = budget_for(file_bytes)
    dimensions = DIMENSIONS | TIMES
    arrays: Arrays = {}
    ignored = []
    with zipfile.ZipFile(path) as archive:
        if len(archive.infolist()) > MAX_OBJECTS:
            raise RefusedError(f"holds {len(archive.infolist())} arrays")
        for member in archive.infolist():
            name = member.filename.removesuffix(".npy")
            if name not in dimensions:
                ignored.append(name[:100])
                continue
            shape, dtype = _declared(archive, member)
            if name in TIMES and (len(shape) != 1 or dtype.kind not in "fiu"):
                ignored.append(name)
                continue
            check_type(name, dtype, len(shape), dimensions[name])
            arrays[name] = _member(archive, member, budget)
            budget -= arrays[name].nbytes
    return arrays, {"ignored": ignored}


def read_named_npz(path: str, file_bytes: int, *patterns: str) -> tuple[Arrays, Notes]:
    """The arrays of a NumPy archive that a pattern means, as columns; the notes name all.

    Raises:
        RefusedError: if one of them holds something else than numbers, or rows of them.
    """
    budget = budget_for(file_bytes)
    arrays: Arrays = {}
    names = []
    with zipfile.ZipFile(path) as archive:
        if len(archive.infolist()) > MAX_COLUMNS:
            raise RefusedError(f"holds {len(archive.infolist())} arrays")
        for member in archive.infolist():
            name = member.filename.removesuffix(".npy")
            if not _wanted(name, patterns):
                names.append(name[:100])
                continue
            shape, dtype = _declared(archive, member)
            check_type(name, dtype, 1, 1)
            if len(shape) not in (1, 2):
                raise RefusedError(f"{name!a} has {len(shape)} dimensions, not 1 or 2")
            values = _member(archive, member, budget)
            budget -= values.nbytes
            arrays |= _columns(name, values.reshape(len(values), -1), values.ndim == 1)
    return arrays, {"columns": [*arrays, *names]}


def read_named_hdf5(path: str, file_bytes: int, *patterns: str) -> tuple[Arrays, Notes]:
    """The arrays of an HDF5 file that a pattern means, as columns; the notes name all.

    Raises:
        RefusedError: if one of them is a link, or holds something else than numbers or rows.
    """
    budget = budget_for(file_bytes)
    arrays: Arrays = {}
    names = []
    with h5py.File(path, "r", locking="best-effort") as file:
        if len(file.id) > MAX_COLUMNS:
            raise RefusedError(f"holds {len(file.id)} objects")
        for raw_name in file.id:
            name = raw_name.decode(errors="replace")
            if not _wanted(name, patterns):
                names.append(name[:100])
                continue
            dataset = own_object(file, name, h5py.Dataset)
            if dataset.ndim not in (1, 2):
                raise RefusedError(f"{name!a} has {dataset.ndim} dimensions, not 1 or 2")
            budget -= declared_bytes(name, dataset, dataset.ndim, budget, file_bytes)
            values = dataset[()]
            arrays |= _columns(name, values.reshape(len(values), -1), values.ndim == 1)
    return arrays, {"columns": [*arrays, *names]}


def _wanted(name: str, patterns: tuple[str, ...]) -> bool:
    """Whether one of the patterns means the array, or a column that it will be split into."""
    return any(
        fnmatchcase(name, pattern)
        or name == pattern.rpartition("_")[0]
        or (pattern.endswith("*") and fnmatchcase(f"{name}_0", pattern))
        for pattern in patterns
    )


def _columns(name: str, rows: np.ndarray[Any, np.dtype[Any]], alone: bool) -> Arrays:
    """The columns of an array of vectors, numbered; one that holds numbers keeps its name."""
    if alone:
        return {name: rows[:, 0]}
    if rows.shape[1] > MAX_COLUMNS:
        raise RefusedError(f"{name!a} has {rows.shape[1]:,} columns")
    return {f"{name}_{number}": column for number, column in enumerate(rows.T)}


def _declared(
    archive: zipfile.ZipFile, member: zipfile.ZipInfo
) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """The shape and the type that an array of an archive says it has."""
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise RefusedError(f"{member.filename!a} is compressed in a way that NumPy does not")
    with archive.open(member) as file:
        shape, _, dtype = _npy_header(file)
    return shape, dtype


def _member(
    archive: zipfile.ZipFile, member: zipfile.ZipInfo, budget: int
) -> np.ndarray[Any, np.dtype[Any]]:
    """An array of an archive, whose type has been looked at."""
    with archive.open(member) as file:
        shape, fortran, dtype = _npy_header(file)
        declared = math.prod(shape) * dtype.itemsize
        if declared > budget:
            raise RefusedError(f"declares {declared / 1e6:,.0f} MB for {member.filename!a}")
        content = file.read(declared + 1)  # to the end, where its checksum is checked
    if len(content) != declared:
        raise RefusedError(f"{member.filename!a} has {len(content)} bytes, not {declared}")
    return np.frombuffer(content, dtype).reshape(shape, order="F" if fortran else "C")


def _npy_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        return np.lib.format.read_array_header_1_0(file)
    return np.lib.format.read_array_header_2_0(file)


def read_parquet(path: str, file_bytes: int) -> tuple[Arrays, Notes]:
    """The columns of a Parquet table that are on the list; the notes name all.

    Raises:
        RefusedError: if a column does not hold numbers; a `time` of another kind is left out.
    """

    def wants(field: Any) -> bool:
        from pyarrow import types

        if not TABLE_COLUMN.fullmatch(field.name):
            return False
        if _is_number(field.type):
            return True
        if field.name not in TIMES:
            raise RefusedError(f"column {field.name} holds {field.type}, not numbers")
        return bool(types.is_timestamp(field.type))

    wanted, content, schema = _parquet_columns(path, file_bytes, wants)
    card = (schema.metadata or {}).get(CARD_KEY.encode(), b"")[:MAX_CARD]
    arrays = {}
    for name in wanted:
        values = content[name].to_numpy()
        if values.dtype.kind == "M":
            values = (values - values[:1]) / np.timedelta64(1, "s")
        if values.dtype.kind not in "fiub":
            raise RefusedError(f"column {name} has empty cells")
        arrays[name] = values
    return arrays, {
        "columns": list(schema.names),
        "card": card.decode("utf-8", "replace"),
    }


def read_named_parquet(path: str, file_bytes: int, *patterns: str) -> tuple[Arrays, Notes]:
    """The columns of a Parquet table that a pattern means; the notes name all.

    Lists of one length are split into columns. Dates become seconds since the first, and texts,
    which can only tell episodes apart, the number of the row in which each was first seen.

    Raises:
        RefusedError: if one of them holds something else.
    """
    wanted, content, schema = _parquet_columns(
        path, file_bytes, lambda field: _wanted(field.name, patterns)
    )
    from pyarrow import types

    arrays: Arrays = {}
    for name in wanted:
        column = content[name].combine_chunks()
        if types.is_timestamp(column.type):
            values = column.to_numpy(zero_copy_only=False)
            arrays[name] = (values - values[:1]) / np.timedelta64(1, "s")
        elif types.is_string(column.type) or types.is_dictionary(column.type):
            texts = column if types.is_dictionary(column.type) else column.dictionary_encode()
            arrays[name] = _rows(name, texts.indices)[:, 0]
        elif _is_number(column.type):  # empty cells become NaN, which is refused or repaired later
            arrays[name] = column.cast("float64").to_numpy(zero_copy_only=False)
        else:
            arrays |= _columns(name, _rows(name, column), alone=False)
    return arrays, {"columns": [*arrays, *(n[:100] for n in schema.names if n not in wanted)]}


def _parquet_columns(
    path: str, file_bytes: int, wants: Callable[[Any], bool]
) -> tuple[list[str], Any, Any]:
    """The names of the columns of a Parquet file that are wanted, the columns, and the schema."""
    os.environ["ARROW_DEFAULT_MEMORY_POOL"] = "system"  # others reserve more than our limit
    from pyarrow import parquet

    with parquet.ParquetFile(path) as file:
        wanted = [field.name for field in file.schema_arrow if wants(field)]
        declared = _column_bytes(file, wanted)
        if declared > budget_for(file_bytes):
            raise RefusedError(f"declares {declared / 1e6:,.0f} MB, far above its size")
        return wanted, file.read(wanted, use_threads=False), file.schema_arrow


def _column_bytes(file: Any, wanted: list[str]) -> int:
    """How many bytes the wanted columns of a Parquet file will take."""
    declared = 0
    for number in range(file.metadata.num_row_groups):
        group = file.metadata.row_group(number)
        for column in map(group.column, range(group.num_columns)):
            # Parquet puts a list's values under a longer name, such as action.list.element.
            if any(f"{column.path_in_schema}.".startswith(f"{name}.") for name in wanted):
                declared += 8 * max(column.num_values, group.num_rows)
    return declared


def read_lerobot(path: str, file_bytes: int) -> tuple[Arrays, Notes]:
    """The columns of a data file of LeRobot that are on the list; the notes name all.

    Raises:
        RefusedError: if a column does not hold numbers, or lists of them of one length.
    """
    wanted, content, schema = _parquet_columns(
        path, file_bytes, lambda field: field.name in LEROBOT_DIMENSIONS
    )
    arrays = {}
    for name in wanted:
        values = _rows(name, content[name].combine_chunks())
        if LEROBOT_DIMENSIONS[name] == 1 and values.shape[1] != 1:
            raise RefusedError(f"column {name} holds {values.shape[1]} numbers a row, not one")
        arrays[name] = values if LEROBOT_DIMENSIONS[name] == 2 else values[:, 0]
    return arrays, {"columns": [name[:100] for name in schema.names]}


def _rows(name: str, column: Any) -> np.ndarray[Any, np.dtype[Any]]:
    """The numbers of a column, `(rows, numbers a row)`."""
    from pyarrow import types

    kind = column.type
    is_list = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    if not _is_number(kind.value_type if is_list else kind):
        raise RefusedError(f"column {name} holds {str(kind)[:40]}, not numbers")
    values = column.flatten() if is_list else column
    if column.null_count or values.null_count:
        raise RefusedError(f"column {name} has empty cells")
    rows = len(column)
    lengths = set(column.value_lengths().to_pylist()) if is_list else {1}
    if len(lengths) > 1:
        raise RefusedError(f"column {name} has lists of different lengths")
    return np.asarray(values.to_numpy(zero_copy_only=False)).reshape(rows, -1 if rows else 1)


def _is_number(kind: Any) -> bool:
    from pyarrow import types

    return any(test(kind) for test in (types.is_floating, types.is_integer, types.is_boolean))
