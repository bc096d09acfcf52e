"""The pictures of a comparison. Needs matplotlib: import this module only when drawing."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from mcat.reports.comparison.contrast import Comparison
from mcat.reports.comparison.looks import Axis
from mcat.reports.comparison.sections import intervals
from mcat.reports.comparison.statistics import Band, profile
from mcat.reports.figures import (
    COLOURS,
    INK,
    line_style,
    new_figure,
    new_panels,
    panel_title,
    paper_line,
    plain,
    png,
    step_axis,
    style,
)
from mcat.reports.sections import Array, Section, thousands

_THRESHOLDS = 200


def draw(section: Section, comparison: Comparison) -> bytes | None:
    """The picture of a section; None if there is nothing to draw."""
    title = section.finding
    if section.name == "intervals":
        return draw_intervals(comparison, title)
    if section.name == "profile":
        return draw_profile(comparison, title)
    if section.name == "curves-cpu":
        return draw_curves(comparison, comparison.split, "cpu", title)
    return draw_curves(comparison, section.name.removeprefix("curves-"), "step", title)


def draw_intervals(comparison: Comparison, title: str) -> bytes:
    """A panel for all families together and one for each: IQM, interval and single runs.

    Where there are too few seeds for an interval there are the single runs only.
    """
    found = intervals(comparison)
    variants = comparison.variants
    names = [textwrap.fill(plain(variant, 84), 32) for variant in variants]
    lines = max(name.count("\n") + 1 for name in names)
    figure, panels = new_panels(title, len(found), 0.9 + (0.12 + 0.13 * lines) * len(variants))
    columns = _columns(panels)
    for place, (axes, (name, own)) in enumerate(zip(panels, found.items(), strict=True)):
        style(axes, grid="x")
        for row, variant in enumerate(variants):
            if variant not in own:
                continue
            estimate, scores = own[variant]
            colour = COLOURS[row % 6]
            sure = estimate.interval is not None
            axes.scatter(
                scores, np.full(len(scores), row + 0.25 * sure), s=12 if sure else 24,
                facecolors="none", edgecolors=colour, linewidths=0.8 if sure else 1.4,
            )  # fmt: skip
            if estimate.interval is not None:
                axes.plot(estimate.interval, (row, row), color=colour, lw=4, alpha=0.45,
                          solid_capstyle="round")  # fmt: skip
                axes.plot(estimate.value, row, "o", color=colour, ms=5.5)
        if comparison.scale.kind != "best":
            axes.axvline(1, color=INK, lw=1, ls=(0, (5, 4)))
        panel_title(axes, plain(name))
        axes.set_ylim(len(variants) - 0.4, -0.5)
        axes.set_yticks(range(len(variants)), names)
        size = 8.5 if lines == 1 else 7.5
        axes.tick_params(axis="y", length=0, labelsize=size, labelleft=place % columns == 0)
        axes.margins(x=0.12)
        axes.locator_params(axis="x", nbins=4)
    return png(figure)


def draw_curves(comparison: Comparison, split: str, axis: Axis, title: str) -> bytes | None:
    """A panel for each family with one curve and band for each variant, or its single runs.

    Runs whose episodes end early have steps of their own: a first look that they share may be
    missing.
    """
    found = ((family, family.curves(split, axis)) for family in comparison.families)
    curves = [(family, own) for family, own in found if own]
    if not curves:
        return None
    figure, panels = new_panels(title, len(curves), 2.6)
    columns = _columns(panels)
    for place, (axes, (family, own)) in enumerate(zip(panels, curves, strict=True)):
        for variant, curve in own.items():
            colour, dash = line_style(comparison.variants.index(variant))
            marker = "o" if len(curve.places) < 12 else None
            axes.plot(curve.places, curve.band.value, dash, color=colour, lw=1.6, marker=marker,
                      ms=3)  # fmt: skip
            _draw_band(axes, curve.places, curve.band, colour)
            for run in curve.runs if curve.band.low is None and len(curve.runs) > 1 else ():
                axes.plot(curve.places, run, color=colour, lw=0.7, alpha=0.6)
        panel_title(axes, plain(family.name))
        step_axis(axes, ticks=4)
        axes.margins(y=0.1)
        lines = family.printed if split == "test" else ()
        lowest = min((printed.mean for printed in lines), default=0.0)
        for printed in lines:
            label = f"paper: {printed.method}, {thousands(printed.steps)}"  # panels are narrow
            below = len(lines) > 1 and printed.mean == lowest  # it may lie on the next one
            paper_line(axes, printed.mean, label, right=True, below=below)
        if place + columns >= len(panels):  # nothing below it
            axes.set_xlabel("environment steps" if axis == "step" else "CPU seconds")
        if place % columns == 0:
            axes.set_ylabel("mean return")
    shown = {variant for _, own in curves for variant in own}
    _legend(figure, comparison, shown)
    return png(figure)


def _columns(panels: Sequence[Axes]) -> int:
    """How many panels stand side by side."""
    place = panels[0].get_subplotspec()
    return 1 if place is None else place.get_gridspec().ncols


def _draw_band(
    axes: Axes, places: Array, band: Band, colour: str, step: Literal["post"] | None = None
) -> None:
    if band.low is not None and band.high is not None:
        axes.fill_between(places, band.low, band.high, color=colour, alpha=0.16, lw=0, step=step)


def draw_profile(comparison: Comparison, title: str) -> bytes:
    """For each variant the share of runs above every threshold."""
    strata = {variant: comparison.strata(variant) for variant in comparison.variants}
    strata = {variant: own for variant, own in strata.items() if own}
    every = np.concatenate([scores for own in strata.values() for scores in own])
    low, high = min(0.0, float(every.min())), float(every.max())
    thresholds = np.linspace(low, high + 0.02 * (high - low or 1), _THRESHOLDS)
    figure = new_figure(title, 3.4)
    axes = style(figure.add_subplot())
    for variant, own in strata.items():
        colour, dash = line_style(comparison.variants.index(variant))
        band = profile(own, thresholds)
        axes.plot(thresholds, band.value, dash, color=colour, lw=1.6, drawstyle="steps-post")
        _draw_band(axes, thresholds, band, colour, "post")
    axes.set(xlim=(thresholds[0], thresholds[-1]), ylim=(0, 1.03))
    axes.set_xlabel(f"score ({comparison.scale.words})")
    axes.set_ylabel("share of runs above it")
    axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
    if comparison.scale.kind != "best":
        axes.axvline(1, color=INK, lw=1, ls=(0, (5, 4)))
    _legend(figure, comparison, strata)
    return png(figure)


def _legend(figure: Figure, comparison: Comparison, shown: Iterable[str]) -> None:
    """Below the panels, which the figure grows for."""
    present = set(shown)
    if len(comparison.variants) == 1:
        return
    handles = [
        Line2D([], [], color=colour, ls=dash, lw=1.8, label=plain(variant, 110))
        for number, variant in enumerate(comparison.variants)
        if variant in present
        for colour, dash in (line_style(number),)
    ]
    columns = 3 if max(map(len, present)) <= 32 else 1
    width, height = figure.get_size_inches()
    figure.set_size_inches(width, height + 0.2 * -(-len(handles) // columns))
    figure.legend(handles=handles, loc="outside lower left", frameon=False, fontsize=8.5,
                  ncols=columns, labelcolor=INK)  # fmt: skip
