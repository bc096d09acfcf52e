"""What groups of runs had earned when all of a family had taken, or computed, equally much."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

from mcat.reports.comparison.contrast import Comparison
from mcat.reports.comparison.looks import Axis
from mcat.reports.comparison.results import ComparedRun
from mcat.reports.comparison.sections import INTERVALS, curves_section
from mcat.reports.groups import Group
from mcat.reports.printed import PAPER_COLUMN, caveat, paper_cell
from mcat.reports.sections import Section

_NONE = "–"


def equal_section(groups: Sequence[Group]) -> Section | None:
    """A line for each group of a family with several that were evaluated; None without one."""
    runs = [ComparedRun(run, group.label) for group in groups for run in group.runs]
    comparison = Comparison(runs=tuple(runs))
    cells: dict[tuple[str, str], dict[tuple[Axis, str], Sequence[str]]] = {}
    for axis in get_args(Axis):
        for split in ("test", "train"):
            for family, label, *found in curves_section(comparison, split, axis).rows[1:]:
                cells.setdefault((family, label), {})[axis, split] = found
    rows: list[tuple[str, ...]] = [
        ("family", "method", "steps", "test", "train", "CPU seconds", "test", "train", PAPER_COLUMN)
    ]
    evaluated = [group for group in groups if (group.record.family, group.label) in cells]
    families = [group.record.family for group in evaluated]
    for group in evaluated:
        if families.count(group.record.family) < 2:
            continue
        own = cells[group.record.family, group.label]
        columns: list[str] = []
        for axis in get_args(Axis):
            test, train = (own.get((axis, split), ()) for split in ("test", "train"))
            reached = (train or test or (_NONE,))[0]
            columns += [reached, *((found or (_NONE,))[-1] for found in (test, train))]
        rows.append((group.record.family, group.label, *columns, paper_cell(group)))
    if len(rows) == 1:
        return None
    reading = (
        "Returns when all runs of a family had taken equally many steps, and when they had used"
        f" equally much CPU time, each by its latest evaluation until then. {INTERVALS}"
    )
    return Section(
        name="equal", title="For equal steps, and for equal computing",
        reading=reading + caveat(groups),
        finding="Each method at the last place that all have reached", rows=rows,
    )  # fmt: skip
