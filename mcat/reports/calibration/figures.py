"""The picture of `mcat calibrate`. Needs matplotlib: import this module only when drawing."""

from __future__ import annotations

from collections.abc import Sequence

from mcat.reports.calibration.cases import Case, counts
from mcat.reports.figures import COLOURS, new_figure, png, style

_MARKS = "osD^vPX*"


def draw_cases(cases: Sequence[Case], title: str) -> bytes:
    """Estimate against gain, one dot a transfer."""
    figure = new_figure(title, 4.4)
    axes = figure.add_subplot()
    axes.axhline(0, color="#BBBBBB", linewidth=1)
    for number, grade in enumerate(counts(cases)):
        own = [case for case in cases if case.grade == grade]
        axes.errorbar(
            [100 * case.removed for case in own],
            [100 * case.gain for case in own],
            yerr=[100 * case.error for case in own],
            fmt=_MARKS[number],
            color=COLOURS[number % len(COLOURS)],
            markersize=6,
            capsize=2,
            linewidth=1,
            label=f"{grade} ({len(own)})",
        )
    axes.set_xlabel("share of the one-step mismatch that translation removes, from logs alone (%)")
    axes.set_ylabel("change of the return\n(% of what the policy earns at home)")
    figure.legend(loc="outside lower left", frameon=False, fontsize=8.5, ncols=4, title="grade")
    style(axes, grid="both")
    return png(figure)
