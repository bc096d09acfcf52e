"""`mcat reproduce`'s outcome as JSON, Markdown and a picture."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mcat.errors import DataError, counted
from mcat.paper.summary import Cell, RowSummary, Summary, best_of, gain_errors, mean_matrix
from mcat.paper.tables import Numbers
from mcat.reports.files import can_draw, require_writable, write_table
from mcat.reports.sections import gains, with_error
from mcat.reports.tables import markdown_table
from mcat.safe_io import is_file, read_json
from mcat.transfer.result import GUESSED, ON_SOURCE, UNTRANSLATED, ReturnMatrix

COLUMNS = {
    ON_SOURCE: "source policy on source",
    UNTRANSLATED: "source policy on target",
    GUESSED: "guess alone",
    "cycle": "cycle (Zhang et al. 2020)",
    best_of("cycle"): "cycle, best epoch",
    "ours": "ours",
    best_of("ours"): "ours, best epoch",
    "reward-aware": "ours, reward-aware",
    "cloning": "cloning the target's logs",
    "offline-rl": "offline RL on the target's logs",
}
_TARGET = [name for name in COLUMNS if name != ON_SOURCE]

_RULE = (
    " The paper reports the best epoch of a training, by returns on the target itself: an"
    " optimistic rule, which whoever has logs alone cannot follow. So its numbers stand beside ours"
    " by that rule; the other columns are of the translator at the end."
)


def write_reproduction(summary: Summary, folder: Path) -> list[Path]:
    """Write `<table>.json`, `.md` and, with matplotlib, pictures.

    What only an earlier table there has (of the same preset, with as many episodes) stays in it.
    """
    require_writable(folder, summary.table)
    summary = summary.over(_recorded(folder / f"{summary.table}.json"))
    pictures = _draw(summary)
    text = markdown(summary, pictures)
    return write_table(folder, summary.table, summary.to_json(), text, pictures)


def _recorded(path: Path) -> Summary | None:
    """The table that is there; None if there is none that can be read."""
    if not is_file(path):
        return None
    try:
        return Summary.from_json(read_json(path))
    except DataError:
        return None


def _draw(summary: Summary) -> dict[str, bytes]:
    """Name → PNG, that of the whole table first; none without matplotlib."""
    if not can_draw():
        return {}
    from mcat.reports.reproduction.figures import draw_row_paths, draw_summary

    found = {summary.table: draw_summary(summary)}
    for row in summary.rows:
        if row.paths:
            found[f"{summary.table}-paths-{row.name}"] = draw_row_paths(row)
    return found


def markdown(summary: Summary, pictures: Iterable[str] = ()) -> str:
    """The page of one table."""
    rows = summary.rows
    parts = [f"# {summary.title}", _how(summary)]
    parts += [f"![{summary.title}]({picture}.png)" for picture in pictures]
    if any(row.cells for row in rows):
        parts.append(_table(rows))
    for row in rows:
        if len(row.matrices) > 1:
            mean, errors = mean_matrix(row.matrices), gain_errors(row.matrices)
            title = f"## {row.name}, mean ± standard error over {len(row.matrices)} seeds"
            parts.append(f"{title}\n\n" + _matrix(mean, errors))
        for seed, matrix in zip(summary.seeds, row.matrices, strict=False):
            parts.append(f"## {row.name}, seed {seed}\n\n" + _matrix(matrix))
    return "\n\n".join(parts) + "\n"


def _how(summary: Summary) -> str:
    seeds = ", ".join(map(str, summary.seeds))
    commits = sorted({commit[:10] for row in summary.rows for commit in row.commits})
    return (
        f"`mcat reproduce {summary.table} --preset {summary.preset}`, seeds {seeds},"
        f" {summary.episodes} episodes a policy and seed, commit {', '.join(commits)}.\n"
        "Numbers are mean returns ± standard error over seeds; the paper's are in brackets."
        + _RULE
        * any(name.endswith(best_of("")) for row in summary.rows for name in row.cells)
    )


def _table(rows: Sequence[RowSummary]) -> str:
    shown = [name for name in COLUMNS if any(name in row.cells for row in rows)]
    last = ["ours / untranslated", "best of these", "minutes (ours)"]
    lines = [["", *(COLUMNS[name] for name in shown), *last]]
    most = max((len(cell.means) for row in rows for cell in row.cells.values()), default=0)
    for row in rows:
        cells = [_cell(row.cells.get(name), row.printed_beside(name), most) for name in shown]
        minutes = f"{row.seconds['ours'] / 60:.1f}" if "ours" in row.seconds else ""
        lines.append([row.name, *cells, _ratio(row.cells), _best(row.cells), minutes])
    return markdown_table(lines)


def _best(cells: dict[str, Cell]) -> str:
    """What to do on the target, if there is a choice; by the mean alone."""
    tried = {name: cells[name].mean for name in _TARGET if name in cells}
    return COLUMNS[max(tried, key=lambda name: tried[name])] if len(tried) > 1 else ""


def _cell(found: Cell | None, printed: Numbers | None, seeds: int) -> str:
    """One number; with how many seeds it has, if others have more."""
    ours = "" if found is None else with_error(found.mean, found.error)
    if found is not None and len(found.means) < seeds:
        ours += f" ({counted(len(found.means), 'seed')})"
    return f"{ours} [{with_error(*printed)}]" if printed else ours


def _ratio(cells: dict[str, Cell]) -> str:
    if "ours" not in cells or UNTRANSLATED not in cells or cells[UNTRANSLATED].mean <= 0:
        return ""
    return f"{cells['ours'].mean / cells[UNTRANSLATED].mean:.2f}"


def _matrix(matrix: ReturnMatrix, errors: NDArray[np.float64] | None = None) -> str:
    """Improvement in percent, and both returns, of every source's policy on every target."""
    names, (percent, _) = matrix.names, gains(matrix)
    lines = ["| from \\ to | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for i, name in enumerate(names):
        cells = []
        for j in range(len(names)):
            before, after = matrix.untranslated[i][j], matrix.transferred[i][j]
            cells.append(
                "" if before is None
                else f"{percent[i, j]:+.0f}{'' if errors is None else f' ± {errors[i, j]:.0f}'} %"
                f" ({before:,.0f} → {after:,.0f})"
            )  # fmt: skip
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)
