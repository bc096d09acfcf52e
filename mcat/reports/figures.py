"""What pictures share: colours, sizes, style, and whole pictures that several reports show.

Needs matplotlib: import it only when drawing.
"""

from __future__ import annotations

import io
import textwrap
import warnings
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke
from numpy.typing import ArrayLike

from mcat.paper.experiments import TEST, TEST_SUCCESS, TRAIN, TRAIN_SUCCESS
from mcat.reports.groups import Group, MeanCurve, in_order, short_names
from mcat.reports.printed import paper_value
from mcat.reports.runs import Contexts, LearningRun
from mcat.reports.sections import Array, gains, number, share, thousands
from mcat.transfer.result import CLONED, OFFLINE, ON_SOURCE, TRANSFERRED, UNTRANSLATED, ReturnMatrix

_WIDTH = 8.4  # inches
# Okabe and Ito's colours, told apart by the colour-blind; each stands for one thing everywhere.
GREY, ORANGE, BLUE, GREEN = "#8C8C8C", "#D55E00", "#0072B2", "#009E73"
# Of curves and variants; from the seventh on the dashes tell them apart.
COLOURS = (BLUE, ORANGE, GREEN, "#CC79A7", "#56B4E9", "#E69F00")
DASHES = ("-", "--", ":")
INK = "#333333"
_TSNE_POINTS = 1000  # more take minutes and look the same
# Of policies.
POLICY_COLOURS = {
    ON_SOURCE: GREY,
    UNTRANSLATED: ORANGE,
    TRANSFERRED: BLUE,
    CLONED: "#E69F00",
    OFFLINE: "#CC79A7",
}
_STYLES = {ON_SOURCE: "-", UNTRANSLATED: ":", TRANSFERRED: "--"}


def png(figure: Figure) -> bytes:
    """A figure as a file's content."""
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        # Names may be in a script the font lacks; the table beside the picture spells them.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure.savefig(buffer, format="png", dpi=144, metadata={"Software": None})
    return buffer.getvalue()


def new_figure(title: str, height: float, width: float = _WIDTH) -> Figure:
    """An empty one with a title that may take several lines."""
    figure = Figure(figsize=(width, height))
    figure.set_layout_engine("constrained", w_pad=0.12, h_pad=0.1)
    lines = textwrap.fill(plain(title, 300), round(10.5 * width))
    figure.suptitle(lines, x=0.015, ha="left", fontsize=11, fontweight="bold", color=INK)
    return figure


def plain(text: str, longest: int = 36) -> str:
    """Text as it is: matplotlib would typeset formulas between $ and fail on bad ones."""
    shown = text if len(text) <= longest else text[: longest - 1] + "…"
    return "".join(c if c.isprintable() else " " for c in shown).replace("$", r"\$")


def style(axes: Axes, *, grid: str | None = "y") -> Axes:
    """Quiet spines, ticks and grid."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color("#BBBBBB")
    axes.tick_params(labelsize=8.5, color="#BBBBBB", labelcolor=INK)
    axes.xaxis.label.set(fontsize=9, color=INK)
    axes.yaxis.label.set(fontsize=9, color=INK)
    if grid is not None:
        axes.grid(axis=grid, color="#E6E6E6", linewidth=0.8)  # type: ignore[arg-type]
        axes.set_axisbelow(True)
    return axes


def new_panels(title: str, number: int, height: float) -> tuple[Figure, list[Axes]]:
    """A figure of that many small panels, each of that height."""
    columns = number if number <= 4 else 4 if number % 4 == 0 else 3
    rows = -(-number // columns)
    figure = new_figure(title, 0.5 + height * rows)
    return figure, [figure.add_subplot(rows, columns, index + 1) for index in range(number)]


def paper_line(
    axes: Axes, value: float, label: str, *, right: bool = False, below: bool = False
) -> None:
    """A dashed line at what the paper has, with a label at one of its ends."""
    axes.axhline(value, color=INK, lw=1, ls=(0, (5, 4)))
    axes.annotate(
        label, (0.99 if right else 0.01, value), (0, -3 if below else 3),
        ha="right" if right else "left", va="top" if below else "baseline",
        xycoords=("axes fraction", "data"), textcoords="offset points",
        fontsize=6.5 if right else 8, color=INK,
        path_effects=[withStroke(linewidth=3, foreground="white")],
    )  # fmt: skip


def panel_title(axes: Axes, text: str) -> None:
    """A small heading over one panel."""
    axes.set_title(text, loc="left", fontsize=9, color=INK)


def project(points: Array, seed: int) -> tuple[Array, str]:
    """Two coordinates for each point, and how they were made."""
    try:
        from sklearn.manifold import TSNE
    except ImportError:
        TSNE = None
    if points.shape[1] < 2:
        points = np.pad(points, ((0, 0), (0, 2 - points.shape[1])))
    if TSNE is None or len(points) < 10 or not np.ptp(points, axis=0).any():
        centred = points - points.mean(0)
        _, sizes, directions = np.linalg.svd(centred, full_matrices=False)
        shares = np.square(sizes) / max(float(np.square(sizes).sum()), 1e-12)
        caption = (
            f"principal components of the contexts ({share(shares[:2].sum())} of the variance)"
        )
        return centred @ directions[:2].T, caption
    perplexity = min(30.0, (len(points) - 1) / 3)
    model = TSNE(perplexity=perplexity, init="pca", random_state=seed, n_jobs=1)
    caption = "t-SNE of the contexts: near means alike, distances between groups mean little"
    return np.asarray(model.fit_transform(points), dtype=np.float64), caption


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
            step_axis(axes)
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


def line_style(number: int) -> tuple[str, str]:
    """Colour and dash of a curve, by its number."""
    return COLOURS[number % 6], DASHES[number // 6 % 3]


def _draw_group(axes: Axes, group: Group, column: str, number: int) -> Line2D | None:
    colour, dash = line_style(number)
    curve = group.curve(column)
    if curve is None:
        return None
    if len(group.runs) > 1:
        for run in group.runs:
            axes.plot(*run.curve(column), color=colour, ls=dash, lw=0.7, alpha=0.4)
    return draw_curve(axes, curve, colour, dash)


def draw_curve(axes: Axes, curve: MeanCurve, colour: str, dash: str) -> Line2D:
    """A line with a band of one standard error."""
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


def step_axis(axes: Axes, ticks: int = 6) -> None:
    """Steps to the right from 0, as in "200K"."""
    style(axes)
    axes.set_xlim(left=0)
    axes.locator_params(axis="x", nbins=ticks)
    axes.xaxis.set_major_formatter(lambda step, _: thousands(step))
    axes.yaxis.set_major_formatter("{x:,.10g}")


def scatter_contexts(
    axes: Axes, points: Array, tasks: Sequence[Any], labels: Mapping[Any, str], seed: int,
    hollow: Container[Any] = (),
) -> str:  # fmt: skip
    """Contexts in the plane, coloured by the order of the labels of their tasks.

    Those of `hollow` tasks are not filled. Returns how they were projected, in words.
    """
    step = -(-len(points) // _TSNE_POINTS)
    places, caption = project(points[::step], seed)
    shown = np.array(tasks)[::step]
    style(axes, grid=None)
    # The shape helps where hues are close.
    for place, (task, shade) in enumerate(shades(labels).items()):
        x, y = places[shown == task].T
        axes.scatter(
            x, y, s=17, marker="osD^vP"[place % 6], linewidths=1.1, edgecolors=[shade],
            facecolors="none" if task in hollow else [shade], label=labels[task],
        )  # fmt: skip
    axes.set(xticks=(), yticks=())
    axes.spines[:].set_visible(False)
    return caption


def scatter_run(axes: Axes, run: LearningRun, contexts: Contexts) -> str:
    """Contexts of a run, those of its test tasks hollow; returns how they were projected."""
    names = short_names(run.record.tasks)
    labels = {
        task: plain(names.get(task, task)) + " (test)" * (task in run.record.test)
        for task in in_order(dict.fromkeys(contexts.tasks))
    }
    return scatter_contexts(
        axes, contexts.points, contexts.tasks, labels, run.record.seed, run.record.test
    )


def shades(tasks: Iterable[Any]) -> dict[Any, str]:
    """A scale from dark to light that keeps the order of tasks."""
    ordered = list(tasks)
    colours = colormaps["viridis"](np.linspace(0, 0.92, len(ordered)))
    return {task: to_hex(colour) for task, colour in zip(ordered, colours, strict=True)}


def draw_heat_map(axes: Axes, matrix: ReturnMatrix) -> None:
    """The improvement from every task to every other."""
    names = [plain(name) for name in matrix.names]
    percent, clear = gains(matrix)
    style(axes, grid=None)
    # Beyond doubling or losing everything all are equally blue or red.
    limit = min(100.0, max(1.0, float(np.nanmax(np.abs(percent), initial=1.0))))
    image = axes.imshow(np.ma.masked_invalid(percent), cmap="RdBu", vmin=-limit, vmax=limit)
    for (row, column), gain in np.ndenumerate(percent):
        known = not np.isnan(gain)
        axes.text(
            column,
            row,
            f"{gain:+.0f}" if known else "–",
            ha="center",
            va="center",
            fontsize=8,
            fontweight="bold" if clear[row, column] else "normal",
            color="white" if known and abs(gain) > 0.65 * limit else INK,
        )
    axes.set_xticks(range(len(names)), names, rotation=40, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(len(names)), names)
    axes.set_xlabel("run on (bold: more than twice the standard error)")
    axes.set_ylabel("policy of")
    beyond = "both" if np.nanmax(np.abs(percent), initial=0.0) > limit else "neither"
    bar = axes.figure.colorbar(image, ax=axes, extend=beyond, shrink=0.8)
    bar.set_label("change of the return (%)", fontsize=8.5, color=INK)
    bar.ax.tick_params(labelsize=8)


def draw_paths(paths: Mapping[str, Sequence[ArrayLike]], title: str) -> Figure:
    """Paths of a hand from above and from the side, by who moved it (Figure 4)."""
    figure, panels = new_panels(title, 2, 3.6)
    views = [("from above", 1, "y (m), away from the robot"), ("from the side", 2, "z (m), height")]
    lines = {}
    for axes, (view, axis, label) in zip(panels, views, strict=True):
        for name, episodes in paths.items():
            colour, line = POLICY_COLOURS.get(name, GREEN), _STYLES.get(name, "-.")
            for points in map(np.array, episodes):
                (lines[name],) = axes.plot(points[:, 0], points[:, axis], line, color=colour)
                axes.plot(*points[0, [0, axis]], "o", ms=4, mfc="white", color=colour)
                axes.plot(*points[-1, [0, axis]], "s", ms=5, color=colour)
        panel_title(axes, f"{view} (circle: start, square: end)")
        axes.set(xlabel="x (m)", ylabel=label)
        axes.locator_params(nbins=6)
        axes.set_aspect("equal", adjustable="datalim")
        style(axes, grid="both")
    keys, handles = zip(*lines.items(), strict=True)
    figure.legend(handles, keys, loc="outside lower center", frameon=False, fontsize=9, ncols=3)
    return figure
