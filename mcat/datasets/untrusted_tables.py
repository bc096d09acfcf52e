"""Reads NumPy archives and Parquet files that may be damaged or made to harm; see `untrusted`."""

from __future__ import annotations

import math
import os
import zipfile
from typing import IO, Any

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
)

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
            if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise RefusedError(f"{name!a} is compressed in a way that NumPy does not")
            with archive.open(member) as file:
                shape, fortran, dtype = _npy_header(file)
                if name in TIMES and (len(shape) != 1 or dtype.kind not in "fiu"):
                    ignored.append(name)
                    continue
                check_type(name, dtype, len(shape), dimensions[name])
                budget -= (declared := math.prod(shape) * dtype.itemsize)
                if budget < 0:
                    raise RefusedError(f"declares {declared / 1e6:,.0f} MB for {name!a}")
                content = file.read(declared + 1)  # to the end, where its checksum is checked
            if len(content) != declared:
                raise RefusedError(f"{name!a} has {len(content)} bytes, not {declared}")
            values = np.frombuffer(content, dtype)
            arrays[name] = values.reshape(shape, order="F" if fortran else "C")
    return arrays, {"ignored": ignored}


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
    os.environ["ARROW_DEFAULT_MEMORY_POOL"] = "system"  # others reserve more than our limit
    from pyarrow import parquet, types

    with parquet.ParquetFile(path) as file:
        fields = list(file.schema_arrow)
        wanted = [field.name for field in fields if TABLE_COLUMN.fullmatch(field.name)]
        for field in fields:
            if field.name in wanted and not _is_number(field.type):
                if field.name not in TIMES:
                    raise RefusedError(f"column {field.name} holds {field.type}, not numbers")
                if not types.is_timestamp(field.type):
                    wanted.remove(field.name)
        groups = [file.metadata.row_group(n) for n in range(file.metadata.num_row_groups)]
        declared = 8 * sum(group.num_rows for group in groups) * len(wanted)
        if declared > budget_for(file_bytes):
            raise RefusedError(f"declares {declared / 1e6:,.0f} MB, far above its size")
        content = file.read(wanted, use_threads=False)
    arrays = {}
    for name in wanted:
        values = content[name].to_numpy()
        if values.dtype.kind == "M":
            values = (values - values[:1]) / np.timedelta64(1, "s")
        if values.dtype.kind not in "fiub":
            raise RefusedError(f"column {name} has empty cells")
        arrays[name] = values
    return arrays, {"columns": [field.name for field in fields]}


def read_lerobot(path: str, file_bytes: int) -> tuple[Arrays, Notes]:
    """The columns of a data file of LeRobot that are on the list; the notes name all.

    Raises:
        RefusedError: if a column does not hold numbers, or lists of them of one length.
    """
    os.environ["ARROW_DEFAULT_MEMORY_POOL"] = "system"
    from pyarrow import parquet

    with parquet.ParquetFile(path) as file:
        names = list(file.schema_arrow.names)
        wanted = [name for name in names if name in LEROBOT_DIMENSIONS]
        declared = 0
        for number in range(file.metadata.num_row_groups):
            group = file.metadata.row_group(number)
            for column in map(group.column, range(group.num_columns)):
                # Parquet puts a list's values under a longer name, such as action.list.element.
                if any(f"{column.path_in_schema}.".startswith(f"{name}.") for name in wanted):
                    declared += 8 * max(column.num_values, group.num_rows)
        if declared > budget_for(file_bytes):
            raise RefusedError(f"declares {declared / 1e6:,.0f} MB, far above its size")
        content = file.read(wanted, use_threads=False)
    arrays = {}
    for name in wanted:
        values = _rows(name, content[name].combine_chunks())
        if LEROBOT_DIMENSIONS[name] == 1 and values.shape[1] != 1:
            raise RefusedError(f"column {name} holds {values.shape[1]} numbers a row, not one")
        arrays[name] = values if LEROBOT_DIMENSIONS[name] == 2 else values[:, 0]
    return arrays, {"columns": [name[:100] for name in names]}


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
