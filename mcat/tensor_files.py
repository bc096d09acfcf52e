"""Arrays and JSON metadata in one safetensors file, in which nothing can be run."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from mcat.errors import DataError
from mcat.safe_io import StrPath, dump_json, open_input, parse_json, write_file

Arrays = dict[str, npt.NDArray[Any]]
Value = TypeVar("Value")
_MAX_HEADER = 100_000_000  # bytes, as safetensors itself has it


def part(name: str, values: Mapping[str, Value]) -> dict[str, Value]:
    """Those whose names begin so, by the rest of their names: `actor/0` is `0` of `actor/`."""
    return {k.removeprefix(name): v for k, v in values.items() if k.startswith(name)}


def digest(arrays: Mapping[str, npt.NDArray[Any]], text: str = "") -> str:
    """A SHA-256 over names, types, shapes and values, whatever file they are stored in."""
    sha = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        array = np.asarray(arrays[name], order="C")
        sha.update(f"\n{name} {array.dtype.str} {array.shape}\n".encode())
        sha.update(array.reshape(-1).view(np.uint8).data)
    return sha.hexdigest()


def save_safetensors(
    path: StrPath,
    tensors: Mapping[str, npt.NDArray[Any]],
    metadata: Mapping[str, Any],
    *,
    overwrite: bool = False,
) -> None:
    """Writes arrays and JSON metadata as one safetensors file, whole or not at all.

    Raises:
        DataError: if an array holds NaN or infinity.
    """
    from safetensors.numpy import save

    arrays = {name: np.asarray(array, order="C") for name, array in tensors.items()}
    _require_finite(arrays, path)
    text = dump_json(metadata)
    content = save(arrays, {"mcat": text, "sha256": digest(arrays, text)})
    write_file(path, content, overwrite=overwrite)


def load_safetensors(path: StrPath) -> tuple[Arrays, dict[str, Any]]:
    """Reads what `save_safetensors` wrote: arrays and metadata. Nothing in a file is ever run.

    Raises:
        MissingInputError: if the file is not there.
        DataError: if it is damaged, holds NaN, or is anything else (a pickle, a zip, ...).
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load

    with open_input(path) as file:
        content = file.read()
    try:
        # np.array copies: arrays over the file's bytes would be read-only.
        arrays = {name: np.array(array) for name, array in load(content).items()}
    except (SafetensorError, ValueError, KeyError, TypeError, OverflowError) as error:
        raise _unreadable(path, error) from error
    notes = _notes(content[8 : 8 + int.from_bytes(content[:8], "little")], path)
    if notes["sha256"] != digest(arrays, notes["mcat"]):
        raise DataError(f"{path}: damaged, its checksum does not match; restore it from a copy")
    _require_finite(arrays, path)
    return arrays, _metadata(notes, path)


def load_metadata(path: StrPath) -> dict[str, Any]:
    """Reads the metadata alone, without the arrays, and so without the check that they are sound.

    Raises:
        MissingInputError: if the file is not there.
        DataError: if it is not one that mcat wrote.
    """
    return _metadata(_read_notes(path), path)


def content_digest(path: StrPath) -> str:
    """The hash of what is in a file; equal contents may have unequal bytes, as maps have no order.

    Raises:
        MissingInputError: if the file is not there.
        DataError: if it is not one that mcat wrote.
    """
    return str(_read_notes(path)["sha256"])


def _read_notes(path: StrPath) -> dict[str, Any]:
    with open_input(path) as file:
        size = int.from_bytes(file.read(8), "little")
        if size > _MAX_HEADER:
            raise _unreadable(path, ValueError("its header is too large"))
        return _notes(file.read(size), path)


def _notes(header: bytes, path: StrPath) -> dict[str, Any]:
    """What the header says beside the shapes."""
    found = parse_json(header, path)
    notes = found.get("__metadata__") if isinstance(found, dict) else None
    if not isinstance(notes, dict) or not {"mcat", "sha256"} <= notes.keys():
        raise DataError(f"{path}: a safetensors file, but not one that mcat wrote")
    return notes


def _metadata(notes: Mapping[str, Any], path: StrPath) -> dict[str, Any]:
    metadata = parse_json(notes["mcat"], path)
    if not isinstance(metadata, dict):
        raise DataError(f"{path}: its mcat metadata is not a JSON object")
    return metadata


def _unreadable(path: StrPath, error: Exception) -> DataError:
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    return DataError(
        f"{path}: not a readable safetensors file ({reason}); pickles and zips are never loaded"
    )


def _require_finite(arrays: Mapping[str, npt.NDArray[Any]], path: StrPath) -> None:
    for name, array in arrays.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise DataError(f"{path}: '{name}' holds NaN or infinity: neither saved nor loaded")
