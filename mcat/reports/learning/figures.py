"""The pictures of `mcat plot`. Needs matplotlib: import this module only when drawing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.transforms import ScaledTranslation
from numpy.typing import NDArray

from mcat.agents.meta.algorithm import RANDOM
from mcat.reports.figures import (
    BLUE,
    INK,
    ORANGE,
    draw_curve,
    new_figure,
    new_panels,
    panel_title,
    plain,
    png,
    scatter_run,
    shades,
    step_axis,
)
from mcat.reports.groups import Group, MeanCurve, in_order, short_names
from mcat.reports.learning.sections import known_drivers
from mcat.reports.runs import Contexts, LearningRun

_RANDOM, _OWN = "#E3E3E3", ("#A0A0A0", "#6C6C6C")  # the method's own policies


def task_curves(group: Group) -> dict[str, tuple[str, MeanCurve]]:
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
        draw_curve(axes, curve, BLUE if split == "train" else ORANGE, "-")
        test = " (test)" if split == "test" else ""
        panel_title(axes, f"{plain(names[task], 24)}{test}  {curve.mean[-1]:,.0f}")
        axes.sharey(panels[0])
        step_axis(axes, ticks=4)
    figure.supxlabel("environment steps", fontsize=9, color=INK)
    return png(figure)


def draw_drivers(run: LearningRun, title: str) -> bytes:
    """A strip for each task: who drove its episodes; beside it how often, which is the legend."""
    train, own = run.record.train, shades(in_order(run.record.train))
    names = {task: plain(name, 20) for task, name in short_names(run.record.tasks).items()}
    drivers = known_drivers(run)
    greys = dict(zip([d for d in drivers if d not in (RANDOM, *train)], _OWN * 9, strict=False))
    colours = {d: _RANDOM if d == RANDOM else greys.get(d) or own[d] for d in drivers}
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
    step_axis(strip)
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
    axes.set_xlabel(scatter_run(axes, run, contexts))
    figure.legend(loc="outside right upper", frameon=False, fontsize=8.5, markerscale=1.6)
    return png(figure)
