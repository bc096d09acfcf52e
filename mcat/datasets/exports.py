"""Data sets as tables for other programs: one row per step (CSV, Parquet)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from mcat.datasets.arrays import steps_of
from mcat.datasets.cards import described
from mcat.datasets.checks import has_rewards, rate_hz
from mcat.datasets.untrusted_tables import CARD_KEY
from mcat.datasets.views import Episodes
from mcat.errors import UsageError
from mcat.progress import Progress
from mcat.safe_io import StrPath, dump_json, new_file

# As our own files: compression gains little on such data. It also keeps a file from looking like
# one that was made to inflate, which readers refuse.
PARQUET: dict[str, Any] = {"compression": "none", "use_dictionary": False}

VECTORS = {"obs": "observations", "act": "actions", "next_obs": "next_observations"}
"""The arrays that have a column for each number, such as `obs_0`, by the name of the columns."""

_BLOCK = 10_000  # rows written at a time


def export_table(
    store: Episodes,
    metadata: Mapping[str, Any],
    path: StrPath,
    *,
    overwrite: bool = False,
    quiet: bool = True,
) -> None:
    """Write a table that `load` takes back, exact to the bit, whole or not at all.

    Its columns are `episode`, `step`, `time` in seconds since the episode began if
    `metadata["rate_hz"]` is known, `obs_0` …, `act_0` …, `next_obs_0` …, `reward` unless the source
    had none, `terminal` and `timeout`. Names, units and bounds come back from Parquet alone: a CSV
    file has no place for them.

    Args:
        store: The episodes.
        metadata: What `load` gave.
        path: The file; its name ends in .csv or .parquet.
        overwrite: Replace a file that is there already.
        quiet: Show no progress.

    Raises:
        CannotCreateError: if `path` exists and `overwrite` is false.
        StorageError: if the disk is full.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in (".csv", ".parquet"):
        raise UsageError(f"{path}: cannot tell its format, name it .csv or .parquet")
    if suffix == ".parquet":
        require_pyarrow(path)
    columns = _columns(store, metadata)
    with (
        Progress("exporting", total=len(store), unit="rows", quiet=quiet) as progress,
        new_file(path, overwrite=overwrite) as part,
        # Python opens the file: its errors say what is wrong with the disk.
        open(part, "xb") as file,
    ):
        if suffix == ".csv":
            _write_csv(file, columns, progress)
        else:
            _write_parquet(file, columns, progress, described(metadata))


def _columns(store: Episodes, metadata: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    episode, step = places(store)
    columns: dict[str, NDArray[Any]] = {"episode": episode, "step": step}
    rate = rate_hz(metadata)
    if rate is not None:
        columns["time"] = step / rate
    for name, array in VECTORS.items():
        columns |= {f"{name}_{n}": values for n, values in enumerate(store.column(array).T)}
    if has_rewards(metadata):
        columns["reward"] = store.rewards
    return columns | {"terminal": store.terminals, "timeout": store.timeouts}


def places(store: Episodes) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The number of each row's episode, and of its step in it."""
    return np.repeat(np.arange(store.num_episodes), store.lengths), steps_of(store.episode_ends)


def require_pyarrow(path: StrPath) -> None:
    """Raise a `UsageError` if Parquet files can be neither read nor written here."""
    if find_spec("pyarrow") is None:
        raise UsageError(f"{path}: Parquet files need pyarrow: pip install pyarrow")


def _write_csv(file: BinaryIO, columns: Mapping[str, NDArray[Any]], progress: Progress) -> None:
    # Nine digits tell every float32 from its neighbours.
    kinds = ["%.9g" if values.dtype.kind == "f" else "%d" for values in columns.values()]
    line = ",".join(kinds) + "\n"
    file.write((",".join(columns) + "\n").encode())
    for block in _blocks(columns, progress):
        rows = np.column_stack(list(block.values()))
        file.write((line * len(rows) % tuple(rows.ravel().tolist())).encode())


def _write_parquet(
    file: BinaryIO,
    columns: Mapping[str, NDArray[Any]],
    progress: Progress,
    card: Mapping[str, Any],
) -> None:
    import pyarrow
    from pyarrow import parquet

    schema = pyarrow.table({name: values[:0] for name, values in columns.items()}).schema
    if card:
        schema = schema.with_metadata({CARD_KEY: dump_json(card)})
    with parquet.ParquetWriter(file, schema, **PARQUET) as writer:
        for block in _blocks(columns, progress):
            writer.write_table(pyarrow.table(block, schema=schema))


def _blocks(
    columns: Mapping[str, NDArray[Any]], progress: Progress
) -> Iterator[dict[str, NDArray[Any]]]:
    """Some rows at a time, until all are shown as done."""
    for first in range(0, progress.total, _BLOCK):
        block = {name: values[first : first + _BLOCK] for name, values in columns.items()}
        yield block
        progress.advance(len(block["step"]))
