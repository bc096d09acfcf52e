"""What all pictures share: colours, sizes, style. Needs matplotlib: import it only when drawing."""

from __future__ import annotations

import io
import textwrap
import warnings

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke

from mcat.reports.sections import Array, share

_WIDTH = 8.4  # inches

# Okabe and Ito's colours, told apart by the colour-blind; each stands for one thing everywhere.
GREY, ORANGE, BLUE, GREEN = "#8C8C8C", "#D55E00", "#0072B2", "#009E73"


# Of curves and variants; from the seventh on the dashes tell them apart.
COLOURS = (BLUE, ORANGE, GREEN, "#CC79A7", "#56B4E9", "#E69F00")
DASHES = ("-", "--", ":")


INK = "#333333"


TSNE_POINTS = 1000  # more take minutes and look the same


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
