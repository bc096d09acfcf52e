"""The pictures of a transfer's report. Needs matplotlib: import this module only when drawing."""

from __future__ import annotations

import textwrap
from collections.abc import Callable

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mcat.reports.figures import (
    BLUE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    POLICY_COLOURS,
    draw_heat_map,
    draw_paths,
    new_figure,
    new_panels,
    panel_title,
    plain,
    png,
    scatter_contexts,
    style,
)
from mcat.reports.sections import Section
from mcat.reports.translation.sections import (
    EFFECTS,
    SPREADS,
    action_names,
    curves,
    partners,
    state_names,
)
from mcat.transfer.result import TransferResult


def draw(section: Section, result: TransferResult) -> bytes:
    """The picture of one section, as PNG."""
    return png(_DRAWINGS[section.name](result, section.finding))


def _returns(result: TransferResult, title: str) -> Figure:
    figure = new_figure(title, 0.9 + 0.72 * len(result.returns))
    axes = figure.add_subplot()
    for row, returns in enumerate(result.returns):
        colour = POLICY_COLOURS.get(returns.label, GREEN)
        axes.barh(row, returns.mean, height=0.62, color=colour, alpha=0.35)
        # Steps of the golden ratio spread dots evenly without a random number.
        offsets = 0.5 * (np.arange(len(returns.values)) * 0.618 % 1 - 0.5)
        size = 9 if len(returns.values) > 30 else 25
        axes.scatter(
            returns.values, row + offsets, s=size, color=colour, alpha=0.65, linewidths=0, zorder=3
        )
        axes.errorbar(
            returns.mean, row, xerr=returns.standard_error, color=INK, capsize=5, lw=1.8, zorder=4
        )
    axes.set_yticks(
        range(len(result.returns)), [f"{r.label}\n{r.mean:,.1f}" for r in result.returns]
    )
    axes.invert_yaxis()
    axes.axvline(0, color="#BBBBBB", lw=1)
    axes.set_xlabel("return of an episode (bar: mean, whisker: standard error, dot: one episode)")
    style(axes, grid="x")
    return figure


def _heat_map(result: TransferResult, title: str) -> Figure:
    assert result.matrix is not None
    names = result.matrix.names
    side, room = 0.7 * len(names), 0.07 * max(map(len, names))
    figure = new_figure(title, side + 0.7 * room + 1.4, max(5.6, side + room + 2))
    draw_heat_map(figure.add_subplot(facecolor="#F0F0F0"), result.matrix)
    return figure


def _mismatch(result: TransferResult, title: str) -> Figure:
    trust = result.trust
    assert trust is not None
    bars = [
        ("source actions as they are", trust.untranslated, ORANGE),
        ("translated actions", trust.translated, BLUE),
        ("best actions found by search", trust.reachable, GREEN),
        ("error of the models", trust.model_error, GREY),
    ]
    figure = new_figure(title, 2.5)
    axes = figure.add_subplot()
    names, values, colours = zip(*bars, strict=True)
    drawn = axes.barh(names, values, height=0.62, color=colours)
    axes.bar_label(drawn, fmt="%.3g", padding=4, fontsize=9, color=INK)
    axes.invert_yaxis()
    axes.margins(x=0.08)
    axes.set_xlabel(f"mismatch of the next state ({EFFECTS})")
    style(axes, grid="x")
    return figure


def _dimensions(result: TransferResult, title: str) -> Figure:
    trust = result.trust
    assert trust is not None
    figure = new_figure(title, 2.9)
    axes = figure.add_subplot()
    places = np.arange(len(trust.per_dimension_translated))
    before, after = trust.per_dimension_untranslated, trust.per_dimension_translated
    axes.bar(places - 0.21, before, 0.38, color=ORANGE, label="as they are")
    axes.bar(places + 0.21, after, 0.38, color=BLUE, label="translated")
    axes.set_ylabel("mismatch\n(effects of actions)")
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), frameon=False, fontsize=9, ncols=2)
    return _state_axis(figure, axes, state_names(result, len(places)))


def _forward_error(result: TransferResult, title: str) -> Figure:
    errors = result.fit.forward_error
    figure = new_figure(title, 2.6)
    axes = figure.add_subplot()
    axes.bar(range(len(errors)), errors, 0.7, color=GREY)
    axes.set_ylabel(f"held-out error\n({SPREADS})")
    return _state_axis(figure, axes, state_names(result, len(errors)))


def _state_axis(figure: Figure, axes: Axes, names: list[str]) -> Figure:
    """Names below the bars, or plain numbers where the logs have none."""
    shown = range(0, len(names), 1 if len(names) <= 40 else 10)
    named = not names[0].startswith("state ")
    axes.set_xticks(shown, [plain(names[k], 20) if named else str(k) for k in shown])
    if named and len(shown) > 8:
        axes.tick_params(axis="x", rotation=60)
        figure.set_figheight(figure.get_figheight() + 0.05 * min(20, max(map(len, names))))
    axes.set_xlim(-0.7, len(names) - 0.3)
    axes.set_xlabel("part of the state" if named else "part of the state, by its number")
    style(axes)
    return figure


def _curves(result: TransferResult, title: str) -> Figure:
    watched = curves(result)
    figure, panels = new_panels(title, len(watched), 2.1)
    for axes, (name, (steps, values)) in zip(panels, watched.items(), strict=True):
        axes.plot(steps, values, color=BLUE, lw=1.6, marker="." if len(steps) < 12 else None)
        if values.min() > 0 and values.max() > 20 * values.min():
            axes.set_yscale("log")
        label = textwrap.fill(plain(name, 60), 96 // min(len(watched), 4))
        panel_title(axes, f"{label}\n{values[0]:.3g} → {values[-1]:.3g}")
        axes.set_xlabel("gradient step")
        axes.locator_params(axis="x", nbins=4)
        style(axes)
    return figure


def _actions(result: TransferResult, title: str) -> Figure:
    source = np.array(result.scatter["source"])
    translated = np.array(result.scatter["translated"])
    figure, panels = new_panels(title, translated.shape[1], 2.3)
    shown = enumerate(partners(source, translated))
    for axes, (target, given) in zip(panels, shown, strict=True):
        axes.plot([-1, 1], [-1, 1], color="#AAAAAA", lw=1, ls="--")
        axes.scatter(
            source[:, given], translated[:, target], s=7, color=BLUE, alpha=0.4, linewidths=0
        )
        axes.set(xlim=(-1.08, 1.08), ylim=(-1.08, 1.08), aspect="equal")
        axes.set(xticks=(-1, 0, 1), yticks=(-1, 0, 1))
        names = action_names(result, given, target)
        axes.set(xlabel=f"source {names[0]}", ylabel=f"target {names[1]}")
        style(axes, grid=None)
    return figure


def _paths(result: TransferResult, title: str) -> Figure:
    return draw_paths(result.paths, title)


def _contexts(result: TransferResult, title: str) -> Figure:
    contexts = result.contexts
    assert contexts is not None
    figure = new_figure(title, 4.4)
    axes = figure.add_subplot()
    labels = {task: plain(result.machines[task].name) for task in sorted(set(contexts.tasks))}
    points = np.array(contexts.points, dtype=np.float64)
    axes.set_xlabel(scatter_contexts(axes, points, contexts.tasks, labels, result.seed))
    figure.legend(loc="outside right upper", frameon=False, fontsize=8.5, markerscale=1.6)
    return figure


_DRAWINGS: dict[str, Callable[[TransferResult, str], Figure]] = {
    "returns": _returns,
    "improvement": _heat_map,
    "mismatch": _mismatch,
    "dimensions": _dimensions,
    "curves": _curves,
    "forward-error": _forward_error,
    "actions": _actions,
    "paths": _paths,
    "contexts": _contexts,
}
