"""What compared runs earned, one row for each run, task and split, as CSV and as Parquet."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args, get_type_hints

import numpy as np
from numpy.typing import NDArray

from mcat.agents.runs.record import RECORD_FILE, read_failure
from mcat.reports.groups import group_runs
from mcat.reports.runs import EMPTY, LearningRun
from mcat.reports.sections import Array
from mcat.safe_io import new_file, read_json

CSV_FILE, PARQUET_FILE = "results.csv", "results.parquet"
SPLITS = ("train", "test")


@dataclass(frozen=True)
class ComparedRun:
    """A run with its place in the comparison."""

    run: LearningRun  # what it has written so far
    variant: str  # the name of what is compared; the first variant is the reference
    # What has become of it: done, running, failed, diverged or waiting. One that diverged counts as
    # the worst of its family; one that failed is not the method's fault and counts as far as it
    # came.
    state: str = "done"
    attempts: int = 1  # how often it was started
    failure: str = ""  # the last line it said, if it ended badly
    # What else than the family it is compared on, such as "delay 200": variants are compared there
    # by themselves.
    where: str = ""

    @property
    def family(self) -> str:
        """What it is compared on."""
        family = self.run.record.family
        return f"{family}, {self.where}" if self.where else family

    @property
    def cpu_is_measured(self) -> bool:
        """Whether it knows its CPU seconds; older runs know the time that passed only."""
        return "time/cpu" in self.run.metrics

    def places(self, axis: Literal["step", "cpu"]) -> Array:
        """For each row of its metrics the steps or the CPU seconds spent until then."""
        name = "step" if axis == "step" else "time/cpu" if self.cpu_is_measured else "time/seconds"
        unknown = np.full(len(self.run.metrics.get("step", EMPTY)), np.nan)
        return self.run.metrics.get(name, unknown)

    def returns(self, split: str, task: str) -> Array:
        """For each row of its metrics the return on a task, NaN where it was not evaluated."""
        return self._on_task("eval", split, task)

    def success_rates(self, split: str, task: str) -> Array:
        """The same for the part of the episodes that succeeded; NaN for robots without a goal."""
        return self._on_task("eval/success", split, task)

    def _on_task(self, measure: str, split: str, task: str) -> Array:
        column = f"{measure}/{split}/{task}"
        if column not in self.run.metrics and self.tasks(split) == (task,):
            column = f"{measure}/{split}"  # a single task is all of its split
        return self.run.metrics.get(column, np.full(len(self.places("step")), np.nan))

    def tasks(self, split: str) -> tuple[str, ...]:
        """The names of its tasks."""
        return self.run.record.test if split == "test" else self.run.record.train

    @property
    def evaluations(self) -> NDArray[np.int64]:
        """The rows of its metrics in which it was evaluated."""
        return np.flatnonzero(np.isfinite(self.run.metrics.get("eval/train", EMPTY)))


class Row(NamedTuple):
    """What one run earned on one task at its latest evaluation; None is what is not known."""

    sweep: str  # the name of the comparison
    variant: str
    family: str
    seed: int
    task: str
    split: str
    step: int | None
    # Mean return of the episodes, in files `return`. None if the run diverged: what it earned
    # before is no result of it.
    earned: float | None
    episodes: int | None  # of that evaluation on that task
    seconds: float | None  # that the run had worked until then
    cpu_seconds: float | None  # the same in CPU time; None in runs that did not measure it
    host: str
    commit: str
    attempts: int
    state: str
    # The part of the episodes that succeeded; None for robots without a goal, and if the run
    # diverged.
    success: float | None


COLUMNS = tuple("return" if name == "earned" else name for name in Row._fields)


def compared_runs(
    runs: Sequence[LearningRun], labels: Sequence[str] = ()
) -> tuple[ComparedRun, ...]:
    """Runs from anywhere: those that differ in family and seed only are one variant.

    Raises:
        MissingInputError: if no run has a row of metrics.
        UsageError: if there are more or fewer groups of runs than labels.
    """
    return tuple(_compared(run, group.label) for group in group_runs(runs, labels)
                 for run in group.runs)  # fmt: skip


def _compared(run: LearningRun, variant: str) -> ComparedRun:
    lost = read_failure(run.record.folder)
    if lost is None:
        return ComparedRun(run=run, variant=variant)
    return ComparedRun(run=run, variant=variant, state="diverged", failure=lost.line)


def provenance_of(run: LearningRun) -> dict[str, Any]:
    """All that a run's record says; empty if it has none, as in a folder just cleaned up."""
    path = run.record.folder / RECORD_FILE
    content = read_json(path) if path.is_file() else {}
    return content if isinstance(content, dict) else {}


def result_rows(runs: Sequence[ComparedRun], sweep: str) -> Iterator[Row]:
    """One row for each run, task and split, at the latest evaluation of each run."""
    for compared in runs:
        record = compared.run.record
        made = provenance_of(compared.run)
        row = int(compared.evaluations[-1]) if len(compared.evaluations) else None
        for split in SPLITS:
            for task in compared.tasks(split):
                lost = compared.state == "diverged"
                step = _cell(compared.places("step"), row)
                yield Row(
                    sweep=sweep,
                    variant=compared.variant,
                    family=compared.family,
                    seed=record.seed,
                    task=task,
                    split=split,
                    step=None if step is None else int(step),
                    earned=None if lost else _cell(compared.returns(split, task), row),
                    episodes=record.config.get("evaluation_episodes"),
                    seconds=_cell(compared.run.metrics.get("time/seconds", EMPTY), row),
                    cpu_seconds=_cell(compared.run.metrics.get("time/cpu", EMPTY), row),
                    host=_host(made),
                    commit=str(made.get("commit") or ""),
                    attempts=compared.attempts,
                    state=compared.state,
                    success=None if lost else _cell(compared.success_rates(split, task), row),
                )


def _cell(column: Array, row: int | None) -> float | None:
    if row is None or row >= len(column) or not np.isfinite(column[row]):
        return None
    return float(column[row])


def _host(made: dict[str, Any]) -> str:
    host = made.get("host")
    if not isinstance(host, dict):
        return str(host or "")
    return str(host.get("name") or host.get("system") or "")


def write_results(rows: Sequence[Row], folder: Path) -> Iterator[Path]:
    """Write `results.csv` and, with pyarrow, `results.parquet`; earlier ones are replaced.

    Yields:
        The path of each as soon as it is there.
    """
    path = folder / CSV_FILE
    with new_file(path, overwrite=True) as part, part.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows([COLUMNS, *rows])
    yield path
    if find_spec("pyarrow") is None:
        return
    import pyarrow
    from pyarrow import parquet

    known = {int: pyarrow.int64(), float: pyarrow.float64(), str: pyarrow.string()}
    types = [known[(get_args(kind) or (kind,))[0]] for kind in get_type_hints(Row).values()]
    schema = pyarrow.schema(zip(COLUMNS, types, strict=True))
    columns = [[row[number] for row in rows] for number in range(len(COLUMNS))]
    path = folder / PARQUET_FILE
    with new_file(path, overwrite=True) as part:
        parquet.write_table(pyarrow.table(columns, schema=schema), part)
    yield path
