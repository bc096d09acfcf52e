"""Reads NumPy archives and Parquet tables that may be damaged or made to harm; see `untrusted`."""

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

    def is_number(kind: Any) -> bool:
        tests = types.is_floating, types.is_integer, types.is_boolean
        return any(test(kind) for test in tests)

    with parquet.ParquetFile(path) as file:
        fields = list(file.schema_arrow)
        wanted = [field.name for field in fields if TABLE_COLUMN.fullmatch(field.name)]
        for field in fields:
            if field.name in wanted and not is_number(field.type):
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
