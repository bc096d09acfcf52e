"""The paper's numbers beside those of runs."""

from __future__ import annotations

from collections.abc import Sequence

from mcat.envs.families import FAMILIES
from mcat.paper.experiments import TEST, TEST_SUCCESS, TRAIN, TRAIN_SUCCESS
from mcat.paper.meta import (
    LEARNER_NOTE,
    MCAT,
    OTHER_LEARNER,
    Printed,
    lookup,
    method_of,
    printed_for,
)
from mcat.reports.groups import Group
from mcat.reports.sections import Rows, number, thousands

PAPER_METHOD = "the paper's MCAT"
PAPER_COLUMN = "the paper's, test"


def paper_value(group: Group, column: str) -> Printed | None:
    """The paper's number for what these runs are, None if it has none."""
    steps = max(run.steps for run in group.runs)
    return printed_for(group.record, column, steps)


def paper_cell(group: Group) -> str:
    """The same in a table: number, method and steps, and a mark if the learner is another one."""
    printed, method = paper_value(group, TEST), method_of(group.record)
    if printed is None or method is None:
        return "–"
    mark = "" if method.same_learner else f" {OTHER_LEARNER}"
    return f"{number(printed.mean)} ({printed.method}, {thousands(printed.steps)}){mark}"


def paper_cells(family: str) -> tuple[str, ...]:
    """What the paper prints of MCAT: train and test return, train and test success."""
    cells = []
    delay = FAMILIES[family].train[0].delay
    for column in (TRAIN, TEST, TRAIN_SUCCESS, TEST_SUCCESS):
        printed = lookup(MCAT, family, column, 2_000_000, delay)
        scale, unit = (100, " %") if column in (TRAIN_SUCCESS, TEST_SUCCESS) else (1, "")
        if printed is not None and printed.error is not None:
            cells.append(f"{scale * printed.mean:.1f} ± {scale * printed.error:.1f}{unit}")
    return tuple(cells)


def learner_note(rows: Rows) -> str:
    """What the mark in a table means; empty if it has none."""
    marked = any(cell.endswith(OTHER_LEARNER) for row in rows for cell in row)
    return LEARNER_NOTE if marked else ""


def caveat(groups: Sequence[Group]) -> str:
    """What to know of other methods' numbers, if there are some."""
    if all(group.record.method == "mcat" for group in groups):
        return ""
    return (
        " The methods other than MCAT are reimplementations with corrections, not replications of"
        " the paper's runs."
    )
