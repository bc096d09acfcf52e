"""`mcat calibrate`'s outcome as JSON, Markdown and a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mcat.errors import counted
from mcat.provenance import provenance
from mcat.reports.calibration.cases import Agreement, Case, agreement, calibration_json, counts
from mcat.reports.files import can_draw, require_writable, write_table
from mcat.reports.tables import markdown_table

NAME = "calibration"
_WORDS = (  # from this rank correlation on, so much can be said
    (0.7, "the estimate orders transfers well"),
    (0.4, "the estimate orders transfers roughly"),
    (-1.0, "the estimate says little about the gain"),
)


def write_calibration(cases: Sequence[Case], folder: Path) -> list[Path]:
    """Write `calibration.json`, `.md` and, with matplotlib, `.png`; earlier ones are replaced."""
    require_writable(folder, NAME)
    found = agreement(cases)
    pictures = {}
    if can_draw():
        from mcat.reports.calibration.figures import draw_cases

        pictures[NAME] = draw_cases(cases, headline(found))
    content = calibration_json(cases, found) | {"provenance": provenance()}
    text = _markdown(cases, found, picture=bool(pictures))
    return write_table(folder, NAME, content, text, pictures)


def headline(found: Agreement) -> str:
    """The answer in one sentence."""
    pairs = counted(found.pairs, "pair")
    if found.correlation is None or found.interval is None:
        return f"Too few transfers to say ({pairs})"
    low, high = found.interval
    words = next(text for least, text in _WORDS if found.correlation >= least)
    if low <= 0 <= high:
        words = "whether the estimate says anything about the gain is open"
    return (
        f"Rank correlation {found.correlation:.2f} (95 % interval {low:.2f} to {high:.2f},"
        f" {pairs} of machines): {words}"
    )


def _markdown(cases: Sequence[Case], found: Agreement, *, picture: bool) -> str:
    """The page."""
    commits = ", ".join(sorted({case.commit[:10] for case in cases}))
    parts = [
        "# Does the estimated mismatch predict the gain?",
        f"**{headline(found)}.** `mcat calibrate` on {counted(len(cases), 'transfer')}, commit"
        f" {commits}. Estimate: the share of the one-step mismatch that translation removes, from"
        " logs alone. Gain: what translation changed of the return, in percent of what the policy"
        " earns on its own machine, ± its standard error.",
    ]
    if picture:
        parts.append(f"![estimate against gain]({NAME}.png)")
    parts += [markdown_table(outcome_rows(cases)), markdown_table(case_rows(cases))]
    return "\n\n".join(parts) + "\n"


def outcome_rows(cases: Sequence[Case]) -> list[tuple[str, ...]]:
    """What followed each grade."""
    found = counts(cases)
    outcomes = list(next(iter(found.values())))
    return [("grade", *outcomes)] + [
        (grade, *(str(row[outcome]) for outcome in outcomes)) for grade, row in found.items()
    ]


def case_rows(cases: Sequence[Case]) -> list[tuple[str, ...]]:
    """One line a transfer, the largest estimate first."""
    rows: list[tuple[str, ...]] = [
        ("pair", "preset", "seed", "grade", "mismatch removed (%)", "gain (%)")
    ]
    return rows + [
        (
            case.pair,
            case.preset,
            str(case.seed),
            case.grade,
            f"{100 * case.removed:+.0f}",
            f"{100 * case.gain:+.1f} ± {100 * case.error:.1f}",
        )
        for case in sorted(cases, key=lambda case: -case.removed)
    ]
