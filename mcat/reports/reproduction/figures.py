"""The pictures of `mcat reproduce`. Needs matplotlib: import this module only when drawing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mcat.paper.summary import RowSummary, Summary, best_of, mean_matrix
from mcat.reports.figures import new_figure, png, style
from mcat.reports.translation.figures import draw_heat_map, draw_paths
from mcat.transfer.result import GUESSED, ON_SOURCE, UNTRANSLATED

# Colour-blind safe; the same policies have the same colours in a transfer's report.
_COLOURS = {
    ON_SOURCE: "#8C8C8C",
    UNTRANSLATED: "#D55E00",
    GUESSED: "#CC79A7",
    "cycle": "#009E73",
    best_of("cycle"): "#8FD1BD",
    "ours": "#0072B2",
    best_of("ours"): "#8DBBDB",
    "reward-aware": "#56B4E9",
    "cloning": "#E69F00",
    "offline-rl": "#CC79A7",
}
_ABREAST = 4  # panels that are still readable side by side


def draw_summary(summary: Summary) -> bytes:
    """Bars for rows of pairs, a map for each set of tasks; the paper's numbers as diamonds."""
    rows = summary.rows
    lines = -(-len(rows) // _ABREAST)
    figure = new_figure(summary.title, max(lines, 1) * (3.4 if rows and rows[0].cells else 4.6))
    for number, row in enumerate(rows):
        axes = figure.add_subplot(lines, min(len(rows), _ABREAST), number + 1)
        if row.cells:
            _bars(axes, row, first=number % _ABREAST == 0)
        else:
            draw_heat_map(axes, mean_matrix(row.matrices))
        axes.set_title(row.name, loc="left", fontsize=9)
    if rows and rows[0].cells:
        _legend(figure, rows)
    return png(figure)


def draw_row_paths(row: RowSummary) -> bytes:
    """Where the hand went in a row of Meta-World (Figure 4)."""
    return png(draw_paths(row.paths, f"{row.name}: paths of the hand"))


def _bars(axes: Axes, row: RowSummary, *, first: bool) -> None:
    style(axes)
    names = [name for name in _COLOURS if name in row.cells]
    for place, name in enumerate(names):
        cell, printed = row.cells[name], row.printed_beside(name)
        axes.bar(place, cell.mean, yerr=cell.error, color=_COLOURS[name], width=0.7,
                 ecolor="#333333", capsize=2)  # fmt: skip
        if printed:
            axes.plot(place, printed[0], "D", markersize=5, markerfacecolor="white",
                      markeredgecolor="black", zorder=3)  # fmt: skip
    axes.set_xticks([])
    axes.axhline(0, color="#BBBBBB", linewidth=0.8)
    if first:
        axes.set_ylabel("mean return")


def _legend(figure: Figure, rows: Sequence[RowSummary]) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    shown = [name for name in _COLOURS if any(name in row.cells for row in rows)]
    handles: list[Any] = [
        Patch(color=_COLOURS[name], label=name.replace("-best", ", best epoch")) for name in shown
    ]
    handles.append(Line2D([], [], marker="D", linestyle="", markerfacecolor="white",
                          markeredgecolor="black", label="paper"))  # fmt: skip
    figure.legend(handles=handles, loc="outside lower left", ncols=3, fontsize=8, frameon=False)
