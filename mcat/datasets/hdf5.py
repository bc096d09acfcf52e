"""The data set file: plain HDF5 that any h5py reads, sealed against damage.

    user block   512 bytes: what this is, the file's size, the SHA-256 of everything after it
    arrays       observations actions rewards next_observations terminals timeouts (D4RL's names)
                 and episode_ends, the row after each episode's last; contiguous, uncompressed
    attribute    "mcat" on the root: the metadata, JSON

Equal contents give equal bytes: no times and no host names are stored. A file is believed only
after its seal, its structure and its values have been checked, in this order.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Mapping
from typing import Any, BinaryIO

import h5py
import numpy as np

from mcat.datasets.arrays import DTYPES
from mcat.datasets.child import read_in_child
from mcat.datasets.episodes import EpisodeStore
from mcat.datasets.foreign import assemble_arrays
from mcat.datasets.untrusted import (
    MAX_METADATA_BYTES,
    METADATA,
    PARSE_ERRORS,
    Arrays,
    Notes,
    read_allowed,
)
from mcat.datasets.views import Episodes
from mcat.errors import DataError, printable
from mcat.safe_io import StrPath, dump_json, new_file, open_input, parse_json

FORMAT_VERSION = 1

_BLOCK = 512  # the smallest user block HDF5 allows
_MAGIC = b"mcat data set, sealed\n"
_HDF5 = b"\x89HDF\r\n\x1a\n"


def write_dataset(
    path: StrPath, episodes: Episodes, metadata: Mapping[str, Any], *, overwrite: bool = False
) -> None:
    """Writes `episodes` and `metadata` as one sealed file, whole or not at all.

    Args:
        path: The file.
        episodes: What is written.
        metadata: JSON types; by convention `metadata["task"]` is `Task.to_dict()`. The format
            version, sizes, counts and return statistics are added.
        overwrite: Replace a file that is there already.

    Raises:
        CannotCreateError: if `path` exists and `overwrite` is false.
        StorageError: if the disk is full.
    """
    text = dump_json(dict(metadata) | facts(episodes)).encode()
    if len(text) > MAX_METADATA_BYTES:
        raise DataError(f"{path}: {len(text)} bytes of metadata, {MAX_METADATA_BYTES} are allowed")
    columns = {name: episodes.column(name) for name in DTYPES}
    image = _image(columns | {"episode_ends": episodes.episode_ends}, text)
    with new_file(path, overwrite=overwrite) as part, open(part, "xb") as file:
        file.write(image.getbuffer())


def read_dataset(path: StrPath, *, trust_seal: bool = True) -> tuple[EpisodeStore, dict[str, Any]]:
    """The episodes and the metadata of a data set file of mcat or of D4RL.

    No file is locked, nothing a file says is run, and no environment is made from it. Files
    without our seal are parsed in a child process, so that they cannot crash the caller; their
    metadata are what `foreign.assemble` finds out.

    Args:
        path: The file.
        trust_seal: The seal finds damage, but anyone can make one: false parses sealed files in
            a child process too (a second slower), for files from strangers.

    Raises:
        MissingInputError: if the file is not there.
        DataError: if it is damaged, hostile, from a newer mcat, or not a data set.
    """
    with open_input(path) as file:
        sealed = _check_seal(file, path)
        if sealed and trust_seal:
            arrays, notes = _parse(file, path)
        else:
            arrays, notes = read_in_child(path, "hdf5", "data set")
    text = notes["metadata"]
    if text is None and not sealed:
        return assemble_arrays(path, arrays, notes["ignored"])
    if text is None:
        raise DataError(f"{path}: not a data set: it has no metadata")
    _check_names(path, {*arrays, *notes["ignored"]})
    metadata = _checked_metadata(text, path)
    try:
        episodes = EpisodeStore.from_arrays(**arrays)  # checks lengths, flags and finite values
        _check_agreement(episodes, arrays, metadata)
    except DataError as error:
        raise DataError(f"{path}: {error}") from error
    return episodes, metadata


def is_sealed(path: StrPath) -> bool:
    """Whether a file begins as those that mcat writes, sound or not."""
    with open_input(path) as file:
        return file.read(len(_MAGIC)) == _MAGIC


def facts(episodes: Episodes) -> dict[str, Any]:
    """The part of the metadata that follows from the episodes."""
    returns = episodes.episode_returns()
    return {
        "format_version": FORMAT_VERSION,
        "observation_size": episodes.observation_size,
        "action_size": episodes.action_size,
        "transitions": len(episodes),
        "episodes": episodes.num_episodes,
        "returns": {
            "min": float(returns.min()),
            "mean": float(returns.mean()),
            "max": float(returns.max()),
        },
    }


def _image(arrays: Arrays, metadata: bytes) -> io.BytesIO:
    """The bytes of the sealed file.

    HDF5 writes to memory and plain Python to the disk: on a full disk h5py ends the process by
    SIGSEGV, Python with an error we can name.
    """
    image = io.BytesIO()
    with h5py.File(image, "w", userblock_size=_BLOCK) as file:
        for name, array in arrays.items():
            file.create_dataset(name, data=array)
        file.attrs.create(METADATA, metadata, dtype=h5py.string_dtype("utf-8", len(metadata)))
    content = image.getbuffer()
    seal = hashlib.sha256(content[_BLOCK:]).hexdigest()
    content[:_BLOCK] = _seal_block(len(content), seal)
    return image


def _seal_block(size: int, sha256: str) -> bytes:
    return (_MAGIC + f"bytes {size}\nsha256 {sha256}\n".encode()).ljust(_BLOCK, b"\0")


def _check_seal(file: BinaryIO, path: StrPath) -> bool:
    """Whether the file has our seal; a broken one is an error. Leaves HDF5 untouched."""
    block = file.read(_BLOCK)
    if block.startswith(_HDF5):
        return False
    if not block.startswith(_MAGIC):
        damaged = file.read(len(_HDF5)) == _HDF5
        raise DataError(
            f"{path}: damaged, its seal is overwritten; restore it from a copy"
            if damaged
            else f"{path}: not an HDF5 file ({os.fstat(file.fileno()).st_size} bytes)"
        )
    size = os.fstat(file.fileno()).st_size
    declared = block[len(_MAGIC) :].split(b"\n", 1)[0]
    if declared != f"bytes {size}".encode():
        raise DataError(
            f"{path}: damaged, it has {size} bytes and its seal says"
            f" {declared.decode(errors='replace')!a}; restore it from a copy"
        )
    sha = hashlib.sha256()
    while piece := file.read(2**20):
        sha.update(piece)
    if block != _seal_block(size, sha.hexdigest()):
        raise DataError(
            f"{path}: damaged or edited, its checksum does not match; restore it from a copy"
        )
    return True


def _parse(file: BinaryIO, path: StrPath) -> tuple[Arrays, Notes]:
    # Through the open file, so that what is parsed is what was checked, and no lock is needed.
    try:
        with h5py.File(file, "r") as content:
            return read_allowed(content, os.fstat(file.fileno()).st_size)
    except PARSE_ERRORS as error:
        if isinstance(error, OSError) and error.errno:  # of the disk; HDF5's own have no number
            raise
        raise DataError(f"{path}: not a readable data set: {printable(error)}") from error


def _check_names(path: StrPath, found: set[str]) -> None:
    """Whether a file with our metadata holds what we write, no more and no less."""
    ours = {*DTYPES, "episode_ends"}
    if missing := ours - found:
        raise DataError(f"{path}: not a data set: it has no {', '.join(sorted(missing))}")
    if strange := found - ours:
        raise DataError(f"{path}: holds {min(strange)[:40]!a}, which no data set of mcat has")


def _checked_metadata(text: str, path: StrPath) -> dict[str, Any]:
    metadata = parse_json(text, path)
    if not isinstance(metadata, dict):
        raise DataError(f"{path}: its metadata is not a JSON object")
    version = metadata.get("format_version")
    if not isinstance(version, int) or version < 1:
        raise DataError(f"{path}: its metadata names no format version")
    if version > FORMAT_VERSION:
        versions = metadata.get("versions")
        writer = str(versions.get("mcat") if isinstance(versions, dict) else None)[:40]
        raise DataError(
            f"{path}: format {version} needs mcat >= {writer!a}, this one reads {FORMAT_VERSION}"
        )
    return metadata


def _check_agreement(episodes: EpisodeStore, arrays: Arrays, metadata: dict[str, Any]) -> None:
    """Whether the arrays are as the metadata and the rules for our own files say."""
    for name, dtype in [*DTYPES.items(), ("episode_ends", np.int64)]:
        if arrays[name].dtype != dtype:
            raise DataError(f"{name} has type {arrays[name].dtype}, not {np.dtype(dtype)}")
    true = facts(episodes)
    for name in ("observation_size", "action_size", "transitions", "episodes"):
        if metadata.get(name) != true[name]:
            raise DataError(f"{name} is {true[name]}, its metadata says {metadata.get(name)!a}")
    if not np.array_equal(arrays["timeouts"], episodes.timeouts):
        raise DataError("the last step of an episode has no flag: neither terminal nor timeout")
    if "action_low" in metadata or "action_high" in metadata:
        _check_bounds(episodes, metadata)


def _check_bounds(episodes: EpisodeStore, metadata: dict[str, Any]) -> None:
    try:
        low, high = (np.array(metadata[f"action_{side}"], dtype=float) for side in ("low", "high"))
    except (KeyError, TypeError, ValueError, OverflowError):
        low = high = np.empty(0)
    if not low.shape == high.shape == (episodes.action_size,):
        raise DataError(f"its metadata must give {episodes.action_size} numbers as action bounds")
    outside = (episodes.actions < low - 1e-6) | (episodes.actions > high + 1e-6)
    if outside.any():
        row, column = np.argwhere(outside)[0]
        raise DataError(f"actions: row {row}, column {column} is outside the action bounds")
