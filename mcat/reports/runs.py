"""What runs have written so far, read from their folders."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mcat.agents.runs.record import RunRecord, read_record
from mcat.errors import DataError
from mcat.progress import Notify
from mcat.reports.sections import Array
from mcat.safe_io import open_input
from mcat.tensor_files import load_safetensors

EMPTY: Array = np.zeros(0)


class Driven(NamedTuple):
    """A collected episode: when it ended, on which task, and who acted."""

    step: float
    task: str
    driver: str


class Contexts(NamedTuple):
    """Contexts z and the names of the tasks they were seen on."""

    points: Array
    tasks: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class LearningRun:
    """What a run has written so far."""

    record: RunRecord
    metrics: dict[str, Array]  # column → values, one for each iteration
    episodes: tuple[Driven, ...] = ()
    contexts: Contexts | None = None
    notes: tuple[str, ...] = ()  # what is missing, for the user to know

    def curve(self, column: str) -> tuple[Array, Array]:
        """Steps and values, where there are any."""
        steps = self.metrics.get("step", EMPTY)
        values = self.metrics.get(column, np.full(len(steps), math.nan))
        known = np.isfinite(values)
        return steps[known], values[known]

    def trained_contexts(self) -> Contexts:
        """Contexts of the tasks that it learns, as the paper shows them; none if there are none."""
        if self.contexts is None:
            return Contexts(np.zeros((0, 1)), ())
        kept = [task in self.record.train for task in self.contexts.tasks]
        names = tuple(task for task in self.contexts.tasks if task in self.record.train)
        return Contexts(self.contexts.points[kept], names)

    @property
    def steps(self) -> int:
        """How far it has come."""
        return int(self.metrics["step"][-1]) if len(self.metrics.get("step", ())) else 0


def read_runs(folders: Iterable[Path], notify: Notify) -> list[LearningRun]:
    """What runs have written so far, each counted once; `notify` is told what is missing of it."""
    once = {folder.resolve(): folder for folder in folders}.values()
    runs = [read_run(folder) for folder in once]
    for note in (note for run in runs for note in run.notes):
        notify(f"note: {note}")
    return runs


def read_run(folder: Path) -> LearningRun:
    """What a run has written so far; it may still be running.

    Raises:
        MissingInputError: if the folder is none of a run.
        DataError: if one of its files is damaged.
    """
    record = read_record(folder)
    notes: list[str] = []
    metrics = _metrics(folder / "metrics.csv", notes)
    episodes: tuple[Driven, ...] = ()
    contexts = None
    if record.kind == "metatrain":
        episodes = _episodes(folder / "episodes.csv", notes)
        contexts = _contexts(folder / "contexts.safetensors", record, notes)
    else:  # one task, so its return is that of all, and nobody else drives
        metrics["eval/train"] = metrics.get("eval/return", EMPTY)
    new = LearningRun(record=record, metrics=metrics, episodes=episodes, contexts=contexts)
    if not new.steps:
        notes = [f"{folder}: nothing is measured yet"]
    elif not len(new.curve("eval/train")[0]):
        notes.append(f"{folder}: not evaluated yet")
    return replace(new, notes=tuple(notes))


def _metrics(path: Path, notes: list[str]) -> dict[str, Array]:
    header, rows = _read_table(path, notes)
    if rows and "step" not in header:
        raise DataError(f"{path}: it has no column 'step'")
    numbers = [
        [_number(cell, path, line, name) for cell, name in zip(row, header, strict=True)]
        for line, row in rows
    ]
    values = np.array(numbers, dtype=np.float64).reshape(len(rows), len(header))
    found = dict(zip(header, values.T, strict=True))
    if rows and not np.isfinite(found["step"]).all():
        raise DataError(f"{path}: a step is no number")
    return found


def _episodes(path: Path, notes: list[str]) -> tuple[Driven, ...]:
    header, rows = _read_table(path, notes)
    missing = [name for name in Driven._fields if name not in header]
    if rows and missing:
        notes.append(f"{path}: no column {', '.join(missing)}, so who drove is not shown")
        return ()
    found = []
    for line, row in rows:
        cells = dict(zip(header, row, strict=True))
        step = _number(cells["step"], path, line, "step")
        found.append(Driven(step, cells["task"], cells["driver"]))
    return tuple(found)


def _contexts(path: Path, record: RunRecord, notes: list[str]) -> Contexts | None:
    if not path.is_file():
        notes.append(f"{path}: not there (yet), so contexts are not shown")
        return None
    try:
        arrays, header = load_safetensors(path)
        points, numbers = np.asarray(arrays["contexts"], np.float64), arrays["tasks"]
        names = tuple(map(str, header.get("names", record.tasks)))
        tasks = tuple(names[number] for number in numbers.tolist())
    except (DataError, KeyError, IndexError, TypeError) as error:
        reason = str(error) if isinstance(error, DataError) else f"{path}: damaged"
        notes.append(f"{reason}, so contexts are not shown")
        return None
    if points.ndim != 2 or len(points) != len(tasks):
        notes.append(f"{path}: contexts and tasks differ in number, so contexts are not shown")
        return None
    return Contexts(points, tasks) if len(points) else None


def _read_table(path: Path, notes: list[str]) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """Heading and numbered lines of a CSV file; nothing, with a note, if it is not there."""
    if not path.is_file():
        notes.append(f"{path}: not there (yet)")
        return [], []
    with open_input(path) as file:
        content = file.read()
    whole = content[: content.rfind(b"\n") + 1]
    if whole != content:
        notes.append(f"{path}: its last line is unfinished and left out")
    try:
        lines = list(csv.reader(io.StringIO(whole.decode(), newline="")))
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path}: damaged, not a CSV file ({error})") from error
    header, rows = (lines[0], list(enumerate(lines[1:], 2))) if lines else ([], [])
    for line, row in rows:
        if len(row) != len(header):
            raise DataError(f"{path}, line {line}: {len(row)} values under {len(header)} headings")
    return header, rows


def _number(cell: str, path: Path, line: int, column: str) -> float:
    try:
        return float(cell)
    except ValueError:
        raise DataError(f"{path}, line {line}: '{cell}' in {column} is no number") from None
