"""The pictures of `mcat reproduce`. Needs matplotlib: import this module only when drawing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mcat.paper.summary import RowSummary, Summary, best_of, mean_matrix
from mcat.reports.figures import (
    BLUE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    draw_heat_map,
    draw_paths,
    new_figure,
    new_panels,
    panel_title,
    plain,
    png,
    scatter_run,
    style,
)
from mcat.reports.runs import LearningRun
from mcat.transfer.result import GUESSED, ON_SOURCE, UNTRANSLATED

# The same policies have the same colours in a transfer's report.
_BARS = {
    ON_SOURCE: GREY,
    UNTRANSLATED: ORANGE,
    GUESSED: "#CC79A7",
    "cycle": GREEN,
    best_of("cycle"): "#8FD1BD",
    "ours": BLUE,
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
    names = [name for name in _BARS if name in row.cells]
    for place, name in enumerate(names):
        cell, printed = row.cells[name], row.printed_beside(name)
        axes.bar(place, cell.mean, yerr=cell.error, color=_BARS[name], width=0.7,
                 ecolor=INK, capsize=2)  # fmt: skip
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

    shown = [name for name in _BARS if any(name in row.cells for row in rows)]
    handles: list[Any] = [
        Patch(color=_BARS[name], label=name.replace("-best", ", best epoch")) for name in shown
    ]
    handles.append(Line2D([], [], marker="D", linestyle="", markerfacecolor="white",
                          markeredgecolor="black", label="paper"))  # fmt: skip
    figure.legend(handles=handles, loc="outside lower left", ncols=3, fontsize=8, frameon=False)


def draw_context_pair(runs: Mapping[str, LearningRun], title: str) -> bytes:
    """Contexts of the training tasks of several runs side by side, by label (Figure 10)."""
    figure, panels = new_panels(title, len(runs), 3.4)
    caption = ""
    for axes, (label, run) in zip(panels, runs.items(), strict=True):
        caption = scatter_run(axes, run, run.trained_contexts())
        panel_title(axes, plain(label))
    handles, names = panels[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower left", frameon=False, fontsize=8.5,
                  markerscale=1.6, ncols=5, title=caption, title_fontsize=9,
                  alignment="left")  # fmt: skip
    return png(figure)
