"""Reads the arrays of an HDF5 file that may be damaged or made to harm.

HDF5 files can point into other files, declare terabytes in a few bytes, and crash the C library.
So nothing is read unless it is on a list of what a data set needs, link by link, and what is
declared is added up before memory is taken. `child` calls these readers where a crash does no harm.
"""

from __future__ import annotations

import math
import re
import zlib
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

Arrays = dict[str, npt.NDArray[Any]]
Notes = dict[str, Any]
"""What a file says beside its arrays, in JSON types."""

# Every array a data set may hold, with its number of dimensions.
DIMENSIONS = {
    "observations": 2,
    "actions": 2,
    "rewards": 1,
    "next_observations": 2,
    "terminals": 1,
    "timeouts": 1,
    "episode_ends": 1,
}
TIMES = {"time": 1, "timestamp": 1}
"""What a log may call the moment of each row; not kept, but looked at."""
# The same for each episode of a Minari file.
MINARI_DIMENSIONS = {
    "observations": 2,
    "actions": 2,
    "rewards": 1,
    "terminations": 1,
    "truncations": 1,
}
TABLE_COLUMN = re.compile(
    r"(obs|act|next_obs)_[0-9]{1,6}|reward|terminal|timeout|episode|time|timestamp"
)
"""The columns of a table, where a row is a step and a column one number of it."""
METADATA = "mcat"
# Little is lost by a wrong guess here, so it is one rule for damage, bombs and chunk caches: a file
# may declare this many bytes, or this many times its own size if that is more.
SMALL_BYTES = 64 * 2**20
MAX_EXPANSION = 50
MAX_OBJECTS = 100
MAX_METADATA_BYTES = 60_000  # HDF5 keeps attributes up to 64 KiB in the object header

_NUMBERS = {("b", 1), *((kind, size) for kind in "iu" for size in (1, 2, 4, 8))}
_NUMBERS |= {("f", 2), ("f", 4), ("f", 8)}
_COMPRESSORS = {h5py.h5z.FILTER_DEFLATE, h5py.h5z.FILTER_LZF}
_FILTERS = _COMPRESSORS | {h5py.h5z.FILTER_SHUFFLE}
# What h5py raises on damaged files, as counted over 21,000 mutants, and zlib.
PARSE_ERRORS = (
    OSError,
    KeyError,
    RuntimeError,
    ValueError,
    TypeError,
    MemoryError,
    OverflowError,
    zlib.error,
)


class RefusedError(ValueError):
    """The file holds something that no data set needs."""


def budget_for(file_bytes: int) -> int:
    """How many bytes a file of this size may turn into."""
    return max(SMALL_BYTES, MAX_EXPANSION * file_bytes)


def read_allowed(file: h5py.File, file_bytes: int) -> tuple[Arrays, Notes]:
    """The arrays of `file` that are on the list.

    The notes are the text of its metadata attribute, None if it has none, and the names of the
    other objects, which are not opened.

    Raises:
        RefusedError: if an array is not as it should be.
    """
    budget = budget_for(file_bytes)
    dimensions = DIMENSIONS | TIMES
    datasets: dict[str, h5py.Dataset] = {}
    ignored = []
    addresses = set()
    # HDF5 resolves paths through links of any kind, so links are looked at one by one, unresolved.
    if len(file.id) > MAX_OBJECTS:
        raise RefusedError(f"holds {len(file.id)} objects, a data set has {len(DIMENSIONS)}")
    for raw_name in file.id:
        name = raw_name.decode(errors="replace")
        if file.id.links.get_info(raw_name).type != h5py.h5l.TYPE_HARD:
            raise RefusedError(f"{name[:40]!a} is a link to somewhere else")
        if name not in dimensions:
            ignored.append(name[:100])
            continue
        dataset = file[name]
        address = h5py.h5o.get_info(dataset.id).addr
        if not isinstance(dataset, h5py.Dataset) or address in addresses:
            raise RefusedError(f"{name!a} is not an array of its own")
        addresses.add(address)
        try:
            budget -= declared_bytes(name, dataset, dimensions[name], budget, file_bytes)
        except RefusedError:
            if name not in TIMES:
                raise
            ignored.append(name)  # a time of another kind is no reason to stop
        else:
            datasets[name] = dataset
    arrays = {name: dataset[()] for name, dataset in datasets.items()}
    return arrays, {"metadata": _metadata_text(file), "ignored": ignored}


def read_minari(file: h5py.File, file_bytes: int) -> tuple[Arrays, Notes]:
    """The arrays of Minari's layout, a group per episode, joined; `lengths` counts the steps.

    Raises:
        RefusedError: if anything that is needed is not as it should be; the rest is not opened.
    """
    budget = budget_for(file_bytes)
    episodes: list[dict[str, h5py.Dataset]] = []
    addresses = set()
    for number in range(len(file.id)):
        group = own_object(file, f"episode_{number}", h5py.Group)
        columns = {}
        for name, dimensions in MINARI_DIMENSIONS.items():
            dataset = own_object(group, name, h5py.Dataset)
            path = f"{group.name}/{name}"
            budget -= declared_bytes(path, dataset, dimensions, budget, file_bytes)
            addresses.add(h5py.h5o.get_info(dataset.id).addr)
            columns[name] = dataset
        episodes.append(columns)
    if not episodes or len(addresses) != len(episodes) * len(MINARI_DIMENSIONS):
        raise RefusedError("holds no episodes, or an array that is part of two")
    lengths = np.array([len(columns["rewards"]) for columns in episodes], dtype=np.int64)
    for name in MINARI_DIMENSIONS:
        expected = lengths + 1 if name == "observations" else lengths
        wrong = np.flatnonzero([len(columns[name]) for columns in episodes] != expected)
        if len(wrong):
            rows = len(episodes[wrong[0]][name])
            raise RefusedError(
                f"episode {wrong[0]} has {rows} {name} for {lengths[wrong[0]]} rewards"
            )
    joined = {name: np.concatenate([e[name][()] for e in episodes]) for name in MINARI_DIMENSIONS}
    return joined | {"lengths": lengths}, {}


def own_object(parent: h5py.Group, name: str, kind: type) -> Any:
    """The member `name` of `parent`, if it is there, of this kind, and no link to elsewhere."""
    raw_name = name.encode()
    if raw_name not in parent.id:
        raise RefusedError(f"{parent.name[:40]!a} has no {name!a}")
    if parent.id.links.get_info(raw_name).type != h5py.h5l.TYPE_HARD:
        raise RefusedError(f"{name!a} is a link to somewhere else")
    member = parent[name]
    if not isinstance(member, kind):
        raise RefusedError(f"{name!a} is not a {kind.__name__.lower()}")
    return member


def declared_bytes(
    name: str, dataset: h5py.Dataset, dimensions: int, budget: int, file_bytes: int
) -> int:
    """How many bytes an array will take, if it is one that may be read.

    Raises:
        RefusedError: if it is not as it should be.
    """
    plist = dataset.id.get_create_plist()
    filters = [plist.get_filter(i)[0] for i in range(plist.get_nfilters())]
    if dataset.is_virtual or plist.get_external_count():
        raise RefusedError(f"{name!a} takes its values from another file")
    if not set(filters) <= _FILTERS or sum(f in _COMPRESSORS for f in filters) > 1:
        raise RefusedError(f"{name!a} needs the filters {filters}")
    check_type(name, dataset.dtype, dataset.ndim, dimensions)
    item = dataset.dtype.itemsize
    declared = int(math.prod(dataset.shape) * item)
    chunk_bytes = math.prod(dataset.chunks or ()) * item
    if max(declared, chunk_bytes) > budget:
        raise RefusedError(f"declares {declared / 1e6:,.0f} MB for {name!a}, far above its size")
    if declared and not dataset.id.get_storage_size():
        raise RefusedError(f"{name!a} was declared but never written")
    if h5py.h5z.FILTER_DEFLATE in filters:
        _check_chunks(name, dataset, filters.index(h5py.h5z.FILTER_DEFLATE), file_bytes)
    return declared


def check_type(name: str, dtype: np.dtype[Any], found: int, dimensions: int) -> None:
    """Refuses what is not numbers of that many dimensions."""
    if (dtype.kind, dtype.itemsize) not in _NUMBERS:
        raise RefusedError(f"{name!a} has type {str(dtype)[:40]!a}")
    if found != dimensions:
        raise RefusedError(f"{name!a} has {found} dimensions, not {dimensions}")


def _check_chunks(name: str, dataset: h5py.Dataset, deflate: int, file_bytes: int) -> None:
    """Refuses a chunk that would inflate beyond its size: HDF5 itself inflates it to the end."""
    chunk_bytes = math.prod(dataset.chunks) * dataset.dtype.itemsize
    sides = zip(dataset.shape, dataset.chunks, strict=True)
    expected = int(math.prod(math.ceil(length / side) for length, side in sides))
    limit = min(expected, file_bytes // 8)  # an entry of the index takes more than 8 bytes
    chunks: list[Any] = []

    def note(chunk: Any) -> bool:  # True ends the iteration: an index may lead round in circles
        chunks.append(chunk)
        return len(chunks) > limit

    dataset.id.chunk_iter(note)
    if len(chunks) > limit:
        raise RefusedError(f"{name!a} has more chunks than it can")
    for chunk in chunks:
        if chunk.filter_mask >> deflate & 1:
            continue
        if chunk.size > file_bytes:
            raise RefusedError(f"{name!a} has a chunk larger than the file")
        _, stored = dataset.id.read_direct_chunk(chunk.chunk_offset)
        if len(zlib.decompressobj().decompress(stored, chunk_bytes + 1)) > chunk_bytes:
            raise RefusedError(f"{name!a} has a chunk that inflates beyond its size")


def _metadata_text(file: h5py.File) -> str | None:
    if not h5py.h5a.exists(file.id, METADATA.encode()):
        return None
    attribute = h5py.h5a.open(file.id, METADATA.encode())
    kind = attribute.get_type()
    if (
        not isinstance(kind, h5py.h5t.TypeStringID)
        or kind.is_variable_str()
        or attribute.shape != ()
        or kind.get_size() > MAX_METADATA_BYTES
    ):
        raise RefusedError(f"its attribute {METADATA!a} is not a short text")
    value = np.empty((), dtype=f"S{kind.get_size()}")
    attribute.read(value, kind)
    return bytes(value[()]).decode()


def read_hdf5(path: str, file_bytes: int) -> tuple[Arrays, Notes]:
    """`read_allowed` of the file at `path`."""
    with h5py.File(path, "r", locking="best-effort") as file:
        return read_allowed(file, file_bytes)


def read_minari_file(path: str, file_bytes: int) -> tuple[Arrays, Notes]:
    """`read_minari` of the file at `path`."""
    with h5py.File(path, "r", locking="best-effort") as file:
        return read_minari(file, file_bytes)
