"""Reads the arrays of an HDF5 file that may be damaged or made to harm.

HDF5 files can point into other files, declare terabytes in a few bytes, and crash the C library.
So nothing is read unless it is on a list of what a data set needs, link by link; and a file
without our seal is read by a child process with limits, which may crash without harm. This file
is also that child's program, hence it imports nothing of `mcat` but its errors, and those lazily.
"""

from __future__ import annotations

import json
import math
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO, Any, Literal

import h5py
import numpy as np
import numpy.typing as npt

Arrays = dict[str, npt.NDArray[Any]]

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
# The same for each episode of a Minari file.
MINARI_DIMENSIONS = {
    "observations": 2,
    "actions": 2,
    "rewards": 1,
    "terminations": 1,
    "truncations": 1,
}
METADATA = "mcat"
# Groups of D4RL's own files. They are not needed, so they are not even opened.
IGNORED = {"infos", "metadata"}
# Little is lost by a wrong guess here, so it is one rule for damage, bombs and chunk caches: a file
# may declare this many bytes, or this many times its own size if that is more.
SMALL_BYTES = 64 * 2**20
MAX_EXPANSION = 50
CHILD_SECONDS = 10  # of computing, plus a second per 50 MB
PATIENCE = 6  # times that on the clock: the machine may be busy
MAX_METADATA_BYTES = 60_000  # HDF5 keeps attributes up to 64 KiB in the object header

_KINDS = {("f", 4), ("f", 8), ("i", 8), ("b", 1), ("u", 1)}
_FILTERS = {h5py.h5z.FILTER_DEFLATE, h5py.h5z.FILTER_SHUFFLE, h5py.h5z.FILTER_LZF}
# What h5py raises on damaged files, as counted over 21,000 mutants (reliability.md 1.4).
PARSE_ERRORS = (
    OSError,
    KeyError,
    RuntimeError,
    ValueError,
    TypeError,
    MemoryError,
    OverflowError,
)


class RefusedError(ValueError):
    """The file holds something that no data set needs."""


def read_allowed(file: h5py.File, file_bytes: int) -> tuple[Arrays, str | None]:
    """The arrays of `file` and the text of its metadata attribute, if it has one.

    Raises:
        RefusedError: if anything is not on the list.
    """
    budget = max(SMALL_BYTES, MAX_EXPANSION * file_bytes)
    datasets: dict[str, h5py.Dataset] = {}
    addresses = set()
    # HDF5 resolves paths through links of any kind, so links are looked at one by one, unresolved.
    if len(file.id) > len(DIMENSIONS) + len(IGNORED):
        raise RefusedError(f"holds {len(file.id)} objects, a data set has {len(DIMENSIONS)}")
    for raw_name in file.id:
        name = raw_name.decode(errors="replace")
        if file.id.links.get_info(raw_name).type != h5py.h5l.TYPE_HARD:
            raise RefusedError(f"{name[:40]!a} is a link to somewhere else")
        if name in IGNORED:
            continue
        if name not in DIMENSIONS:
            raise RefusedError(f"holds {name[:40]!a}, which no data set has")
        dataset = file[name]
        address = h5py.h5o.get_info(dataset.id).addr
        if not isinstance(dataset, h5py.Dataset) or address in addresses:
            raise RefusedError(f"{name!a} is not an array of its own")
        addresses.add(address)
        budget -= _declared_bytes(name, dataset, DIMENSIONS[name], budget)
        datasets[name] = dataset
    arrays = {name: dataset[()] for name, dataset in datasets.items()}
    return arrays, _metadata_text(file)


def read_minari(file: h5py.File, file_bytes: int) -> tuple[Arrays, None]:
    """The arrays of Minari's layout, a group per episode, joined; `lengths` counts the steps.

    Raises:
        RefusedError: if anything that is needed is not as it should be; the rest is not opened.
    """
    budget = max(SMALL_BYTES, MAX_EXPANSION * file_bytes)
    episodes: list[dict[str, h5py.Dataset]] = []
    addresses = set()
    for number in range(len(file.id)):
        group = _own_object(file, f"episode_{number}", h5py.Group)
        columns = {}
        for name, dimensions in MINARI_DIMENSIONS.items():
            dataset = _own_object(group, name, h5py.Dataset)
            budget -= _declared_bytes(f"{group.name}/{name}", dataset, dimensions, budget)
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
    return joined | {"lengths": lengths}, None


def _own_object(parent: h5py.Group, name: str, kind: type) -> Any:
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


def _declared_bytes(name: str, dataset: h5py.Dataset, dimensions: int, budget: int) -> int:
    plist = dataset.id.get_create_plist()
    filters = {plist.get_filter(i)[0] for i in range(plist.get_nfilters())}
    if dataset.is_virtual or plist.get_external_count():
        raise RefusedError(f"{name!a} takes its values from another file")
    if not filters <= _FILTERS:
        raise RefusedError(f"{name!a} needs the filters {sorted(filters - _FILTERS)}")
    dtype = dataset.dtype
    if (dtype.kind, dtype.itemsize) not in _KINDS:
        raise RefusedError(f"{name!a} has type {str(dtype)[:40]!a}")
    if dataset.ndim != dimensions:
        raise RefusedError(f"{name!a} has {dataset.ndim} dimensions, not {dimensions}")
    declared = int(math.prod(dataset.shape) * dtype.itemsize)
    if max(declared, math.prod(dataset.chunks or ()) * dtype.itemsize) > budget:
        raise RefusedError(f"declares {declared / 1e6:,.0f} MB for {name!a}, far above its size")
    if declared and not dataset.id.get_storage_size():
        raise RefusedError(f"{name!a} was declared but never written")
    return declared


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


def read_in_child(
    path: str | os.PathLike[str], *, layout: Literal["flat", "minari"] = "flat"
) -> tuple[Arrays, str | None]:
    """`read_allowed`, or `read_minari`, in another process that may crash without harm to us.

    Raises:
        RefusedError: if the file is refused, or the child crashed or ran out of time or memory.
    """
    file_bytes = Path(path).stat().st_size
    seconds = CHILD_SECONDS + file_bytes // 50_000_000
    memory = 2 * 2**30 + 4 * file_bytes
    # -P: the child must not find modules beside this file or in the current folder.
    command = [sys.executable, "-P", __file__, str(path), str(seconds), str(memory), layout]
    with tempfile.TemporaryFile() as answer:
        try:
            # The timeout is for a child that waits; one that computes ends by its CPU limit.
            child = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=answer,
                stderr=subprocess.DEVNULL,
                timeout=PATIENCE * seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise RefusedError(f"reading it took more than {PATIENCE * seconds} s") from None
        answer.seek(0)
        if child.returncode != 0:
            raise RefusedError(f"HDF5 gave up on it (exit code {child.returncode})")
        return _receive(answer)


def _send(answer: IO[bytes], arrays: Arrays, metadata: str | None) -> None:
    layout = [[name, array.dtype.str, array.shape] for name, array in arrays.items()]
    answer.write(json.dumps({"layout": layout, "metadata": metadata}).encode() + b"\n")
    for array in arrays.values():
        answer.write(np.ascontiguousarray(array).data)


def _receive(answer: IO[bytes]) -> tuple[Arrays, str | None]:
    header = json.loads(answer.readline())
    if "refused" in header:
        raise RefusedError(header["refused"])
    arrays = {}
    for name, dtype, shape in header["layout"]:
        array = np.empty(shape, dtype=np.dtype(dtype))
        answer.readinto(array.reshape(-1).view(np.uint8).data)  # type: ignore[attr-defined]
        arrays[name] = array
    return arrays, header["metadata"]


def _child(path: str, seconds: int, memory: int, layout: str) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    answer = sys.stdout.buffer
    try:
        with h5py.File(path, "r", locking="best-effort") as file:
            read = read_minari if layout == "minari" else read_allowed
            arrays, metadata = read(file, os.path.getsize(path))
    except PARSE_ERRORS as error:
        answer.write(json.dumps({"refused": one_line(error)}).encode() + b"\n")
    else:
        _send(answer, arrays, metadata)


def one_line(error: BaseException) -> str:
    """What an error says, as one short printable line."""
    text = str(error) or type(error).__name__
    return "".join(c if c.isprintable() else " " for c in text)[:300]


if __name__ == "__main__":
    _child(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
