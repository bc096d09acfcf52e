"""What `mcat reproduce` found, beside what the paper printed."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from mcat.paper.tables import Numbers
from mcat.transfer.result import ReturnMatrix


def best_of(method: str) -> str:
    """The column of the best translator of a training, chosen on the target."""
    return f"{method}-best"


@dataclass(frozen=True)
class Cell:
    """What one policy earned: the mean return of every seed's translator."""

    means: tuple[float, ...]

    @property
    def mean(self) -> float:
        """The mean over seeds."""
        return float(np.mean(self.means))

    @property
    def error(self) -> float | None:
        """The standard error over seeds; None for one."""
        n = len(self.means)
        return float(np.std(self.means, ddof=1)) / math.sqrt(n) if n > 1 else None


@dataclass(frozen=True, kw_only=True)
class RowSummary:
    """One row of a table, or one heat map.

    Attributes:
        name: The row's.
        printed: The paper's numbers by column.
        cells: Ours by column; empty for heat maps.
        matrices: Every seed's heat map; empty for rows of pairs.
        seconds: What a translator of each method took, without trying it while it was trained.
        commits: The code that made them.
    """

    name: str
    printed: dict[str, Numbers]
    cells: dict[str, Cell]
    matrices: tuple[ReturnMatrix, ...]
    seconds: dict[str, float]
    commits: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Summary:
    """The rows of a table that are done.

    Attributes:
        table: Its name.
        title: Its heading.
        preset: How the translators were trained, as the command line says it.
        seeds: Which of them are in it.
        episodes: Of each policy.
        rows: What was found.
        provenance: Commit, versions and machine of this summary.
    """

    table: str
    title: str
    preset: str
    seeds: tuple[int, ...]
    episodes: int
    rows: tuple[RowSummary, ...]
    provenance: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        """The summary as JSON, with the mean and error of each cell."""
        values = asdict(self)
        for row, own in zip(values["rows"], self.rows, strict=True):
            for name, cell in own.cells.items():
                row["cells"][name] |= {"mean": cell.mean, "error": cell.error}
        return values
