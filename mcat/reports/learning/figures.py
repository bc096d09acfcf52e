"""The pictures of `mcat plot`. Needs matplotlib: import this module only when drawing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap, to_hex
from matplotlib.lines import Line2D
from matplotlib.transforms import ScaledTranslation
from numpy.typing import NDArray

from mcat.agents.meta.algorithm import RANDOM
from mcat.paper.experiments import TEST, TEST_SUCCESS, TRAIN, TRAIN_SUCCESS
from mcat.reports.figures import (
    BLUE,
    COLOURS,
    DASHES,
    INK,
    ORANGE,
    TSNE_POINTS,
    new_figure,
    new_panels,
    panel_title,
    paper_line,
    plain,
    png,
    project,
    style,
)
from mcat.reports.learning.groups import Curve, Group, in_order, short_names
from mcat.reports.learning.runs import Contexts, LearningRun
from mcat.reports.learning.sections import known_drivers, paper_value
from mcat.reports.sections import number, share, thousands

_RANDOM, _OWN = "#E3E3E3", ("#A0A0A0", "#6C6C6C")  # the method's own policies


def draw_curves(groups: Sequence[Group], title: str, *, success: bool = False) -> bytes:
    """A row of panels for each family: train tasks and test tasks; returns or success rates."""
    columns = (TRAIN_SUCCESS, TEST_SUCCESS) if success else (TRAIN, TEST)
    families = list(dict.fromkeys(group.record.family for group in groups))
    labels = list(dict.fromkeys(group.label for group in groups))
    tested = any(group.record.test for group in groups)
    splits = dict(zip(("train", "test") if tested else ("train",), columns, strict=False))
    legend_rows = -(-len(labels) // 3) if len(labels) > 1 else 0
    figure = new_figure(title, 0.9 + 2.5 * len(families) + 0.2 * legend_rows)
    grid = figure.subplots(len(families), len(splits), sharey="row", squeeze=False)
    lines: dict[str, Line2D] = {}
    for family, row in zip(families, grid, strict=True):
        members = [group for group in groups if group.record.family == family]
        single = members[0].record.kind != "metatrain"  # one task, and none to test on
        for axes, (split, column) in zip(row, splits.items(), strict=True):
            if single and split == "test":
                axes.remove()
                continue
            for group in members:
                line = _draw_group(axes, group, column, labels.index(group.label))
                lines |= {group.label: line} if line else {}
            panel_title(axes, plain(family) + ("" if single else f": {split} tasks"))
            _step_axis(axes)
            axes.margins(y=0.1)  # room for the label of the paper's line
            if success:
                axes.set_ylim(-0.03, 1.08)
                axes.yaxis.set_major_formatter(lambda rate, _: share(rate))
            _draw_paper_lines(axes, members, column, _exact_percent if success else number)
        row[0].set_ylabel("success rate" if success else "mean return")
    for axes in grid[-1]:
        axes.set_xlabel("environment steps")
    if legend_rows:
        figure.legend(
            lines.values(), map(plain, lines), loc="outside lower left", frameon=False,
            fontsize=8.5, ncols=3, labelcolor=INK,
        )  # fmt: skip
    return png(figure)


def _draw_group(axes: Axes, group: Group, column: str, number: int) -> Line2D | None:
    colour, dash = COLOURS[number % 6], DASHES[number // 6 % 3]
    curve = group.curve(column)
    if curve is None:
        return None
    if len(group.runs) > 1:
        for run in group.runs:
            axes.plot(*run.curve(column), color=colour, ls=dash, lw=0.7, alpha=0.4)
    return _draw_curve(axes, curve, colour, dash)


def _draw_curve(axes: Axes, curve: Curve, colour: str, dash: str) -> Line2D:
    marker = "o" if len(curve.steps) < 12 else None
    (line,) = axes.plot(curve.steps, curve.mean, dash, color=colour, lw=1.8, marker=marker, ms=3.5)
    if curve.error.any():
        band = curve.mean - curve.error, curve.mean + curve.error
        axes.fill_between(curve.steps, *band, color=colour, alpha=0.18, lw=0)
    return line


def _exact_percent(rate: float) -> str:
    return f"{100 * rate:.1f} %"  # as the paper prints it


def _draw_paper_lines(
    axes: Axes, groups: Sequence[Group], column: str, text: Callable[[float], str]
) -> None:
    """A line for each setting of the paper that a group has; of several methods MCAT's alone."""
    if len({group.record.method for group in groups}) > 1:  # the table has each method's own
        groups = [group for group in groups if group.record.method == "mcat"]
    found = dict.fromkeys(paper_value(group, column) for group in groups)
    for printed in filter(None, found):
        label = f"paper, {printed.method} at {thousands(printed.steps)}: {text(printed.mean)}"
        paper_line(axes, printed.mean, label)


def _step_axis(axes: Axes, ticks: int = 6) -> None:
    style(axes)
    axes.set_xlim(left=0)
    axes.locator_params(axis="x", nbins=ticks)
    axes.xaxis.set_major_formatter(lambda step, _: thousands(step))
    axes.yaxis.set_major_formatter("{x:,.10g}")


def task_curves(group: Group) -> dict[str, tuple[str, Curve]]:
    """Task → its split and curve, for tasks that were evaluated."""
    found = {}
    for split, tasks in (("train", group.record.train), ("test", group.record.test)):
        for task in tasks:
            curve = group.curve(f"eval/{split}/{task}")
            if curve is not None:
                found[task] = split, curve
    return found


def draw_tasks(group: Group, title: str) -> bytes:
    """A small panel for each task, all of one scale."""
    curves = task_curves(group)
    names = short_names(group.record.tasks)
    figure, panels = new_panels(title, len(curves), 1.9)
    for axes, task in zip(panels, in_order(curves), strict=True):
        split, curve = curves[task]
        _draw_curve(axes, curve, BLUE if split == "train" else ORANGE, "-")
        test = " (test)" if split == "test" else ""
        panel_title(axes, f"{plain(names[task], 24)}{test}  {curve.mean[-1]:,.0f}")
        axes.sharey(panels[0])
        _step_axis(axes, ticks=4)
    figure.supxlabel("environment steps", fontsize=9, color=INK)
    return png(figure)


def _shades(tasks: Iterable[str]) -> dict[str, str]:
    """A scale from dark to light that keeps the order of tasks."""
    ordered = in_order(tasks)
    shades = colormaps["viridis"](np.linspace(0, 0.92, len(ordered)))
    return {task: to_hex(shade) for task, shade in zip(ordered, shades, strict=True)}


def draw_drivers(run: LearningRun, title: str) -> bytes:
    """A strip for each task: who drove its episodes; beside it how often, which is the legend."""
    train, shades = run.record.train, _shades(run.record.train)
    names = {task: plain(name, 20) for task, name in short_names(run.record.tasks).items()}
    drivers = known_drivers(run)
    greys = dict(zip([d for d in drivers if d not in (RANDOM, *train)], _OWN * 9, strict=False))
    colours = {d: _RANDOM if d == RANDOM else greys.get(d) or shades[d] for d in drivers}
    ends = np.unique([episode.step for episode in run.episodes])
    strips = np.full((len(train), len(ends)), -1)
    counts = np.zeros((len(train), len(drivers)), dtype=int)
    for step, task, driver in run.episodes:
        if task in train and driver in drivers:
            row, kind = train.index(task), drivers.index(driver)
            strips[row, np.searchsorted(ends, step)] = kind
            counts[row, kind] += 1

    figure = new_figure(title, 1.6 + 0.32 * len(train))
    strip, table = figure.subplots(1, 2, width_ratios=(16, max(4, len(drivers))), sharey=True)
    strip.pcolormesh(
        np.concatenate(([0], ends)), np.arange(len(train) + 1) - 0.5,
        np.ma.masked_less(strips, 0), cmap=ListedColormap(list(colours.values())),
        vmin=-0.5, vmax=len(drivers) - 0.5,
    )  # fmt: skip
    for edge in range(1, len(train)):
        strip.axhline(edge - 0.5, color="white", lw=3)
    _step_axis(strip)
    strip.set_xlabel("environment steps")
    strip.set_yticks(range(len(train)), [names[task] for task in train])
    strip.set_ylim(len(train) - 0.5, -0.5)
    strip.grid(visible=False)
    strip.spines["left"].set_visible(False)
    _draw_counts(table, counts, [names.get(driver, driver) for driver in drivers], colours)
    for axes in (strip, table):
        axes.tick_params(axis="y", length=0)
    return png(figure)


def _draw_counts(
    axes: Axes, counts: NDArray[np.int64], names: Sequence[str], colours: Mapping[str, str]
) -> None:
    """Episodes by task and driver, the driver's colour under each column."""
    for (row, column), count in np.ndenumerate(counts):
        if count:
            axes.text(column, row, str(count), ha="center", va="center", fontsize=8, color=INK)
    below = ScaledTranslation(0, -0.1, axes.figure.dpi_scale_trans)  # inches
    axes.scatter(
        range(len(names)), np.zeros(len(names)), s=70, marker="s", c=list(colours.values()),
        transform=axes.get_xaxis_transform() + below, clip_on=False,
    )  # fmt: skip
    axes.set_xlim(-0.6, len(names) - 0.4)
    axes.set_xticks(range(len(names)), names, rotation=50, ha="right", rotation_mode="anchor")
    axes.tick_params(axis="x", length=0, pad=14, labelsize=8.5, labelcolor=INK)
    axes.tick_params(axis="y", labelleft=False)
    axes.spines[:].set_visible(False)
    panel_title(axes, "episodes by driver")


def draw_contexts(run: LearningRun, contexts: Contexts, title: str) -> bytes:
    """Contexts in the plane, coloured by the order of their tasks."""
    figure = new_figure(title, 4.4)
    axes = figure.add_subplot()
    axes.set_xlabel(_scatter_contexts(axes, run, contexts))
    figure.legend(loc="outside right upper", frameon=False, fontsize=8.5, markerscale=1.6)
    return png(figure)


def draw_context_pair(runs: Mapping[str, LearningRun], title: str) -> bytes:
    """Contexts of the training tasks of several runs side by side, by label (Figure 10)."""
    figure, panels = new_panels(title, len(runs), 3.4)
    caption = ""
    for axes, (label, run) in zip(panels, runs.items(), strict=True):
        caption = _scatter_contexts(axes, run, run.trained_contexts())
        panel_title(axes, plain(label))
    handles, names = panels[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower left", frameon=False, fontsize=8.5,
                  markerscale=1.6, ncols=5, title=caption, title_fontsize=9,
                  alignment="left")  # fmt: skip
    return png(figure)


def _scatter_contexts(axes: Axes, run: LearningRun, contexts: Contexts) -> str:
    """Draw them; returns how they were projected, in words."""
    step = -(-len(contexts.points) // TSNE_POINTS)
    places, caption = project(contexts.points[::step], run.record.seed)
    tasks = np.array(contexts.tasks)[::step]
    names = short_names(run.record.tasks)
    style(axes, grid=None)
    for place, (task, shade) in enumerate(_shades(dict.fromkeys(contexts.tasks)).items()):
        x, y = places[tasks == task].T
        test = task in run.record.test
        axes.scatter(
            x, y, s=17, marker="osD^vP"[place % 6], linewidths=1.1,
            facecolors="none" if test else [shade], edgecolors=[shade],
            label=plain(names.get(task, task)) + (" (test)" if test else ""),
        )  # fmt: skip
    axes.set(xticks=(), yticks=())
    axes.spines[:].set_visible(False)
    return caption
