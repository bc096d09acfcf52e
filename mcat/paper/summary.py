"""What `mcat reproduce` found, beside what the paper printed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from mcat.config import as_type
from mcat.errors import DataError
from mcat.paper.tables import TABLES, Numbers
from mcat.transfer.result import Cells, ReturnMatrix


def best_of(method: str) -> str:
    """The column of the best translator of a training, chosen on the target."""
    return f"{method}-best"


@dataclass(frozen=True)
class Cell:
    """What one policy earned: the mean return of every seed, and which seeds these are."""

    means: tuple[float, ...]
    seeds: tuple[int, ...] = ()

    def over(self, earlier: Cell) -> Cell:
        """With the seeds that only an earlier table has."""
        found = dict(zip(earlier.seeds, earlier.means, strict=True))
        found |= dict(zip(self.seeds, self.means, strict=True))
        return Cell(tuple(found[seed] for seed in sorted(found)), tuple(sorted(found)))

    @property
    def mean(self) -> float:
        """The mean over seeds."""
        return float(np.mean(self.means))

    @property
    def error(self) -> float | None:
        """The standard error over seeds; None for one."""
        n = len(self.means)
        return float(np.std(self.means, ddof=1)) / math.sqrt(n) if n > 1 else None


def mean_matrix(matrices: Sequence[ReturnMatrix]) -> ReturnMatrix:
    """The mean over seeds, with the standard error over seeds; one alone stays as it is."""
    if len(matrices) == 1:
        return matrices[0]

    def over_seeds(name: str) -> tuple[Cells, Cells]:
        values = np.array([getattr(matrix, name) for matrix in matrices], dtype=np.float64)
        errors = values.std(0, ddof=1) / math.sqrt(len(matrices))
        return _cells(values.mean(0)), _cells(errors)

    before, before_error = over_seeds("untranslated")
    after, after_error = over_seeds("transferred")
    return ReturnMatrix(
        names=matrices[0].names,
        untranslated=before,
        transferred=after,
        untranslated_error=before_error,
        transferred_error=after_error,
    )


def gain_errors(matrices: Sequence[ReturnMatrix]) -> NDArray[np.float64] | None:
    """The standard error over seeds of each gain in percent of the mean return; None for one."""
    if len(matrices) == 1:
        return None
    before, after = (
        np.array([getattr(matrix, name) for matrix in matrices], dtype=np.float64)
        for name in ("untranslated", "transferred")
    )
    error = (after - before).std(0, ddof=1) / math.sqrt(len(matrices))
    found: NDArray[np.float64] = 100 * error / np.maximum(np.abs(before.mean(0)), 1)
    return found


def _cells(values: NDArray[np.float64]) -> Cells:
    return tuple(tuple(None if np.isnan(x) else float(x) for x in row) for row in values)


@dataclass(frozen=True, kw_only=True)
class RowSummary:
    """One row of a table, or one heat map."""

    name: str  # the row's
    printed: dict[str, Numbers]  # the paper's numbers by column
    cells: dict[str, Cell]  # ours by column; empty for heat maps
    matrices: tuple[ReturnMatrix, ...]  # every seed's heat map; empty for rows of pairs
    # Of the first seed of our method where the hand went: label → episodes → positions; Meta-
    # World's pairs only.
    paths: dict[str, list[list[list[float]]]] = field(default_factory=dict)
    # What a translator of each method took, without trying it while it was trained.
    seconds: dict[str, float]
    commits: tuple[str, ...]  # the code that made them

    def over(self, earlier: RowSummary) -> RowSummary:
        """With what only an earlier table has."""
        cells = earlier.cells | {
            name: cell.over(earlier.cells.get(name, Cell(()))) for name, cell in self.cells.items()
        }
        return replace(
            self,
            cells=cells,
            matrices=self.matrices or earlier.matrices,
            seconds=earlier.seconds | self.seconds,
            commits=tuple(sorted({*earlier.commits, *self.commits})),
        )

    def printed_beside(self, column: str) -> Numbers | None:
        """The paper's number by the same rule: it has the best epoch, if ours is there too."""
        if best_of(column) in self.cells:
            return None
        return self.printed.get(column.removesuffix(best_of("")))


@dataclass(frozen=True, kw_only=True)
class Summary:
    """The rows of a table that are done."""

    table: str  # its name
    title: str  # its heading
    preset: str  # how the translators were trained, as the command line says it
    seeds: tuple[int, ...]  # which of them are in it
    episodes: int  # of each policy
    rows: tuple[RowSummary, ...]  # what was found
    provenance: dict[str, Any]  # commit, versions and machine of this summary

    def over(self, earlier: Summary | None) -> Summary:
        """With the rows, columns and seeds that only an earlier table of the same kind has.

        So a table can be made in parts, and in more than one work folder.
        """
        kind = self.table, self.preset, self.episodes
        if earlier is None or (earlier.table, earlier.preset, earlier.episodes) != kind:
            return self
        mine, theirs = ({row.name: row for row in item.rows} for item in (self, earlier))
        rows = [
            mine[name].over(theirs[name]) if name in mine and name in theirs
            else mine.get(name) or theirs[name]
            for name in (row.name for row in TABLES[self.table].rows)
            if name in mine or name in theirs
        ]  # fmt: skip
        seeds = tuple(sorted({*self.seeds, *earlier.seeds}))
        return replace(self, rows=tuple(rows), seeds=seeds)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """The summary that a file has; cells of earlier ones do not name their seeds.

        Raises:
            DataError: if `data` is something else.
        """
        try:
            rows = [
                row | {"cells": {k: _cell(v, data["seeds"]) for k, v in row["cells"].items()}}
                for row in data["rows"]
            ]
            return as_type(cls, data | {"rows": rows})
        except (TypeError, KeyError, ValueError, AttributeError) as error:
            raise DataError(f"not a table of mcat reproduce ({error})") from error

    def to_json(self) -> dict[str, Any]:
        """The summary as JSON, with the mean and error of each cell."""
        values = asdict(self)
        for row, own in zip(values["rows"], self.rows, strict=True):
            del row["paths"]  # which the translators' own results keep
            for name, cell in own.cells.items():
                row["cells"][name] |= {"mean": cell.mean, "error": cell.error}
        return values


def _cell(cell: dict[str, Any], seeds: list[int]) -> dict[str, Any]:
    """What a cell is made of; one of an earlier table has the table's first seeds."""
    means = cell["means"]
    return {"means": means, "seeds": cell.get("seeds", seeds[: len(means)])}
