"""Writes LeRobot data sets; `lerobot` says what is in such a folder, and reads it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mcat.datasets.cards import Card, described
from mcat.datasets.checks import has_rewards, rate_hz
from mcat.datasets.exports import PARQUET, places, require_pyarrow
from mcat.datasets.lerobot import ARRAYS, CARD, INFO, MAX_RATE, VERSION, is_lerobot
from mcat.datasets.views import Episodes
from mcat.envs.tasks import Task
from mcat.errors import CannotCreateError, UsageError
from mcat.progress import Progress
from mcat.safe_io import StrPath, new_file, write_json
from mcat.workplaces import new_folder

FILE_BYTES = 100 * 2**20  # of a data file, unless one episode has more
CHUNK_FILES = 1000  # in a folder
PERCENTS = (1, 10, 50, 90, 99)  # the quantiles among the statistics

_FILE = "chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"


def export_lerobot(
    store: Episodes,
    metadata: Mapping[str, Any],
    folder: StrPath,
    *,
    overwrite: bool = False,
    quiet: bool = True,
) -> None:
    """Write a data set that LeRobot loads and `load` takes back, whole or not at all.

    `next.done` is set at the last step of each episode, `next.truncated` if it was cut off.

    Args:
        store: The episodes.
        metadata: What `load` gave; `metadata["rate_hz"]` must be there and a whole number.
        folder: The folder to make.
        overwrite: Replace a LeRobot data set that is there already.
        quiet: Show no progress.

    Raises:
        UsageError: if the rate is not known, or not whole.
        CannotCreateError: if `folder` exists and `overwrite` is false, or it is something else.
        StorageError: if the disk is full.
    """
    require_pyarrow(folder)
    final = Path(folder)
    if overwrite and final.is_dir() and not is_lerobot(final):
        raise CannotCreateError(f"{final} is no LeRobot data set and will not be replaced")
    rate = _whole_rate(metadata)
    columns = _columns(store, metadata, rate)
    row_bytes = sum(values.nbytes for values in columns.values()) // len(store)
    files = _files_of(store.lengths, row_bytes)
    robot, task = _described(metadata)
    with new_folder(final, overwrite=overwrite, needed_bytes=row_bytes * len(store)) as new:
        stats: list[dict[str, Any]] = []
        with Progress("exporting", total=len(store), unit="rows", quiet=quiet) as progress:
            for number in range(files[-1] + 1):
                within = _ranges(store)[files == number]
                stats += _write_data(new, number, columns, within, progress)
        tasks = {"task_index": [0], "task": [task]}
        _write_table(new / "meta" / "tasks.parquet", tasks, index="task")
        episodes = new / "meta" / "episodes" / _FILE.format(chunk_index=0, file_index=0)
        _write_table(episodes, _episode_rows(store, stats, files, task))
        write_json(new / "meta" / "stats.json", {n: _stats(v) for n, v in columns.items()})
        info = {
            "codebase_version": VERSION,
            "robot_type": robot,
            "total_episodes": store.num_episodes,
            "total_frames": len(store),
            "total_tasks": 1,
            "chunks_size": CHUNK_FILES,
            "data_files_size_in_mb": FILE_BYTES // 2**20,
            "video_files_size_in_mb": 200,
            "fps": rate,
            "splits": {"train": f"0:{store.num_episodes}"},
            "data_path": f"data/{_FILE}",
            "video_path": None,
            "features": {n: _feature(n, v, metadata) for n, v in columns.items()},
        }
        card = described(metadata)
        if not card.keys() <= {"observation_names", "action_names"}:  # these are in info.json
            write_json(new / CARD, card)
        write_json(new / INFO, info)


def _whole_rate(metadata: Mapping[str, Any]) -> int:
    rate = rate_hz(metadata)
    if rate is None:
        raise UsageError("LeRobot needs the steps a second, which this data set lacks: pass --rate")
    if rate != round(rate) or rate > MAX_RATE:
        raise UsageError(
            f"LeRobot needs a whole number of steps a second, not {rate:g}: pass --rate"
            f" {min(max(round(rate), 1), MAX_RATE)} if that is what it was meant to be"
        )
    return round(rate)


def _described(metadata: Mapping[str, Any]) -> tuple[str | None, str]:
    """The robot and the task in words, as far as a data set tells."""
    try:
        task = Task.from_dict(metadata["task"])
    except (KeyError, ValueError, TypeError, AttributeError):
        return None, "unknown"
    return task.robot, task.label()


def _columns(store: Episodes, metadata: Mapping[str, Any], rate: int) -> dict[str, NDArray[Any]]:
    episode, step = places(store)
    columns = {name: store.column(array) for name, array in ARRAYS.items()}
    if not has_rewards(metadata):
        del columns["next.reward"]
    return columns | {
        "next.done": store.terminals | store.timeouts,
        "next.truncated": store.timeouts,
        "timestamp": (step / rate).astype(np.float32),
        "frame_index": step,
        "episode_index": episode,
        "index": np.arange(len(store)),
        "task_index": np.zeros(len(store), dtype=np.int64),
    }


def _feature(name: str, values: NDArray[Any], metadata: Mapping[str, Any]) -> dict[str, Any]:
    width = values.shape[1] if values.ndim == 2 else 1
    names = None
    if values.ndim == 2:
        card = Card.of_metadata(metadata, (width, width))
        channels = card.actions if name == "action" else card.observations
        names = [channel.name for channel in channels]
    return {"dtype": values.dtype.name, "shape": [width], "names": names}


def _stats(values: NDArray[Any]) -> dict[str, list[float]]:
    rows = values.reshape(len(values), -1)
    if rows.dtype == np.bool_:
        rows = rows.astype(np.float64)
    stats = {
        "min": rows.min(axis=0),
        "max": rows.max(axis=0),
        "mean": rows.mean(axis=0, dtype=np.float64),
        "std": rows.std(axis=0, dtype=np.float64),
        "count": np.array([len(rows)]),
    }
    quantiles = np.quantile(rows.astype(np.float64), [p / 100 for p in PERCENTS], axis=0)
    stats |= {f"q{p:02}": numbers for p, numbers in zip(PERCENTS, quantiles, strict=True)}
    return {name: numbers.tolist() for name, numbers in stats.items()}


def _ranges(store: Episodes) -> NDArray[np.int64]:
    """`(episodes, 2)`: the first row of each, and the row after its last."""
    return np.stack([store.episode_ends - store.lengths, store.episode_ends], axis=1)


def _files_of(lengths: Iterable[int], row_bytes: int) -> NDArray[np.int64]:
    """The number of the data file in which each episode goes."""
    numbers, number, size = [], 0, 0
    for length in lengths:
        if size and size + length * row_bytes > FILE_BYTES:
            number, size = number + 1, 0
        size += length * row_bytes
        numbers.append(number)
    return np.array(numbers, dtype=np.int64)


def _episode_rows(
    store: Episodes, stats: list[dict[str, Any]], files: NDArray[np.int64], task: str
) -> dict[str, Any]:
    ranges = _ranges(store)
    rows: dict[str, Any] = {
        "episode_index": np.arange(store.num_episodes),
        "tasks": [[task]] * store.num_episodes,
        "length": store.lengths,
        "data/chunk_index": files // CHUNK_FILES,
        "data/file_index": files % CHUNK_FILES,
        "dataset_from_index": ranges[:, 0],
        "dataset_to_index": ranges[:, 1],
    }
    for name, numbers in stats[0].items():
        for what in numbers:
            rows[f"stats/{name}/{what}"] = [episode[name][what] for episode in stats]
    first_file = np.zeros(store.num_episodes, dtype=np.int64)
    return rows | {f"meta/episodes/{kind}_index": first_file for kind in ("chunk", "file")}


def _write_data(
    folder: Path,
    number: int,
    columns: Mapping[str, NDArray[Any]],
    ranges: NDArray[np.int64],
    progress: Progress,
) -> list[dict[str, Any]]:
    """One data file, with a row group for each episode; returns the statistics of each."""
    from pyarrow import parquet

    chunk, file_index = divmod(number, CHUNK_FILES)
    path = folder / "data" / _FILE.format(chunk_index=chunk, file_index=file_index)
    path.parent.mkdir(parents=True, exist_ok=True)
    schema = _arrow({name: values[:0] for name, values in columns.items()}).schema
    stats = []
    with (
        new_file(path) as part,
        open(part, "xb") as file,
        parquet.ParquetWriter(file, schema, **PARQUET) as writer,
    ):
        for first, end in ranges:
            rows = {name: values[first:end] for name, values in columns.items()}
            writer.write_table(_arrow(rows))
            stats.append({name: _stats(values) for name, values in rows.items()})
            progress.advance(int(end - first))
    return stats


def _arrow(columns: Mapping[str, NDArray[Any]]) -> Any:
    """A table with a list in each cell of a vector, except that a vector of one is a number."""
    import pyarrow

    def column(values: NDArray[Any]) -> Any:
        flat = pyarrow.array(values.reshape(-1))
        if values.ndim == 1 or values.shape[1] == 1:
            return flat
        return pyarrow.FixedSizeListArray.from_arrays(flat, values.shape[1])

    return pyarrow.table({name: column(values) for name, values in columns.items()})


def _write_table(path: Path, columns: Mapping[str, Any], *, index: str | None = None) -> None:
    """A small table; `index` is the column by which pandas, LeRobot's reader, looks rows up."""
    import pyarrow
    from pyarrow import parquet

    table = pyarrow.table(dict(columns))
    if index is not None:
        kinds = {"int64": ("int64", "int64"), "string": ("unicode", "object")}
        described = [
            {
                "name": field.name,
                "field_name": field.name,
                "pandas_type": kinds[str(field.type)][0],
                "numpy_type": kinds[str(field.type)][1],
                "metadata": None,
            }
            for field in table.schema
        ]
        frame = {"index_columns": [index], "column_indexes": [], "columns": described}
        table = table.replace_schema_metadata({"pandas": json.dumps(frame)})
    path.parent.mkdir(parents=True, exist_ok=True)
    with new_file(path) as part, open(part, "xb") as file:
        parquet.write_table(table, file, **PARQUET)
