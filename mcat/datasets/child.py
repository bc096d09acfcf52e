"""Parses a stranger's file in a child process with limits, which may crash without harm."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from mcat.datasets import untrusted, untrusted_tables
from mcat.datasets.untrusted import Arrays, Notes, RefusedError
from mcat.errors import DataError, printable
from mcat.safe_io import StrPath, open_input

READERS: dict[str, Callable[..., tuple[Arrays, Notes]]] = {
    "hdf5": untrusted.read_hdf5,
    "lerobot": untrusted_tables.read_lerobot,
    "minari": untrusted.read_minari_file,
    "named-hdf5": untrusted_tables.read_named_hdf5,
    "named-npz": untrusted_tables.read_named_npz,
    "named-parquet": untrusted_tables.read_named_parquet,
    "npz": untrusted_tables.read_npz,
    "parquet": untrusted_tables.read_parquet,
}
SECONDS = 10  # of computing, plus a second per 50 MB
PATIENCE = 6  # times that on the clock: the machine may be busy
MEMORY = 2 * 2**30  # of addresses, plus four times the size of the file

_ROOT = Path(__file__).parents[2]
# -P, and our own folder first: the child must not find modules in the current folder.
PROGRAM = (sys.executable, "-P", "-c",
            f"import sys; sys.path.insert(0, {str(_ROOT)!r});"
            "from mcat.datasets.child import main; main(*sys.argv[1:])")  # fmt: skip


def read_in_child(path: StrPath, layout: str, kind: str, *names: str) -> tuple[Arrays, Notes]:
    """What one of `READERS` makes of a file.

    Raises:
        MissingInputError: if the file is not there.
        DataError: if it is refused, or the child crashed or ran out of time or memory.
    """
    with open_input(path) as file:
        try:
            return _answer(path, os.fstat(file.fileno()).st_size, layout, names)
        except RefusedError as error:
            reason = printable(error)
            raise DataError(f"{path}: not a readable {kind}: {reason}") from error


def _answer(
    path: StrPath, file_bytes: int, layout: str, names: Sequence[str]
) -> tuple[Arrays, Notes]:
    seconds = SECONDS + file_bytes // 50_000_000
    memory = MEMORY + 4 * file_bytes
    command = [*PROGRAM, str(path), str(seconds), str(memory), layout, *names]
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
            raise RefusedError(f"its parser gave up (exit code {child.returncode})")
        try:
            header = json.loads(answer.readline())
            if "refused" not in header:
                return _receive(answer, header), header["notes"]
        except (ValueError, KeyError, TypeError) as error:
            raise RefusedError(f"its parser answered nonsense ({error})") from None
        raise RefusedError(header["refused"])


def _send(answer: IO[bytes], arrays: Arrays, notes: Notes) -> None:
    layout = [[name, array.dtype.str, array.shape] for name, array in arrays.items()]
    answer.write(json.dumps({"layout": layout, "notes": notes}).encode() + b"\n")
    for array in arrays.values():
        answer.write(np.ascontiguousarray(array).data)


def _receive(answer: IO[bytes], header: Mapping[str, Any]) -> Arrays:
    arrays = {}
    for name, dtype, shape in header["layout"]:
        array = np.empty(shape, dtype=np.dtype(dtype))
        into = array.reshape(-1).view(np.uint8).data
        if answer.readinto(into) != array.nbytes:  # type: ignore[attr-defined]
            raise ValueError(f"{name} is cut short")
        arrays[name] = array
    return arrays


def main(path: str, seconds: str, memory: str, layout: str, *names: str) -> None:
    """The child's program."""
    for limit, value in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_CPU, int(seconds)),
        (resource.RLIMIT_AS, int(memory)),
    ):
        resource.setrlimit(limit, (value, value))
    answer = sys.stdout.buffer
    try:
        arrays, notes = READERS[layout](path, os.path.getsize(path), *names)
    except Exception as error:
        text = str(error) or type(error).__name__
        answer.write(json.dumps({"refused": text}).encode() + b"\n")
    else:
        _send(answer, arrays, notes)
