"""The picture of an adaptation. Needs matplotlib: import it only when drawing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mcat.reports.adaptation.curves import ADAPTED, ReturnCurve
from mcat.reports.figures import BLUE, COLOURS, GREY, INK, new_figure, plain, png, style

_OTHERS = tuple(colour for colour in COLOURS if colour != BLUE)
_LINES = ("--", ":", "-.")


def draw_curves(curves: Sequence[ReturnCurve], title: str) -> bytes:
    """Return against real steps; what needs none is a level line, or a bar if nothing does."""
    if all(curve.flat for curve in curves):
        return _draw_bars(curves, title)
    figure = new_figure(title, 4.2)
    axes = style(figure.add_subplot())
    moving = [curve for curve in curves if not curve.flat]
    flat = [curve for curve in curves if curve.flat]
    for number, curve in enumerate(moving):
        own = curve.label == ADAPTED
        colour = BLUE if own else _OTHERS[(number - 1) % len(_OTHERS)]
        width, order = (2.4, 4) if own else (1.5, 3)
        axes.plot(curve.steps, curve.returns, color=colour, linewidth=width, zorder=order,
                  marker="o", markersize=3.5, label=plain(curve.label, 60))  # fmt: skip
        low, high = curve.returns - curve.errors, curve.returns + curve.errors
        axes.fill_between(curve.steps, low, high, color=colour, alpha=0.15, linewidth=0)
    for number, curve in enumerate(flat):
        axes.axhline(curve.last, color=GREY, linestyle=_LINES[number % len(_LINES)], linewidth=1.3,
                     label=plain(curve.label, 60))  # fmt: skip
    axes.set_xlabel("real steps")
    axes.set_ylabel("mean return")
    axes.xaxis.set_major_formatter(lambda step, _: f"{step:,.0f}")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.margins(x=0.02, y=0.08)
    figure.legend(loc="outside lower left", ncols=2, frameon=False, fontsize=8.5, labelcolor=INK)
    return png(figure)


def _draw_bars(curves: Sequence[ReturnCurve], title: str) -> bytes:
    """What was made of logs alone, the best on top."""
    figure = new_figure(title, 1.2 + 0.38 * len(curves))
    axes = style(figure.add_subplot(), grid="x")
    ordered = sorted(curves, key=lambda curve: curve.last)
    colours = [BLUE if curve.label == ADAPTED else GREY for curve in ordered]
    errors = [0.0 if np.isnan(curve.errors[-1]) else curve.errors[-1] for curve in ordered]
    axes.barh(range(len(ordered)), [curve.last for curve in ordered], xerr=errors, color=colours,
              height=0.6, error_kw={"ecolor": INK, "elinewidth": 1.2})  # fmt: skip
    axes.set_yticks(range(len(ordered)), [plain(curve.label, 60) for curve in ordered])
    axes.set_xlabel("mean return")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    return png(figure)
