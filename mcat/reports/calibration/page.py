"""`mcat calibrate`'s outcome as JSON, Markdown and a picture."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path

from mcat.errors import counted
from mcat.provenance import provenance
from mcat.reports.calibration.cases import Agreement, Case, agreement, counts, to_json
from mcat.reports.tables import markdown_table
from mcat.safe_io import ensure_writable_output, io_errors, write_file, write_json

NAME = "calibration"
_WORDS = (  # from this rank correlation on, so much can be said
    (0.7, "the estimate orders transfers well"),
    (0.4, "the estimate orders transfers roughly"),
    (-1.0, "the estimate says little about the gain"),
)


def write_calibration(cases: Sequence[Case], folder: Path) -> list[Path]:
    """Write `calibration.json`, `.md` and, with matplotlib, `.png`; earlier ones are replaced."""
    found = agreement(cases)
    paths = [folder / f"{NAME}.{end}" for end in ("json", "md", "png")]
    with io_errors(folder, "write"):
        folder.mkdir(parents=True, exist_ok=True)
    ensure_writable_output(paths[0], overwrite=True)
    content = to_json(cases, found) | {"provenance": provenance()}
    write_json(paths[0], content, overwrite=True)
    if importlib.util.find_spec("matplotlib") is None:
        paths.pop()
    else:
        from mcat.reports.calibration.figures import draw_cases

        picture = draw_cases(cases, headline(found))
        write_file(paths[2], picture, overwrite=True)
    write_file(paths[1], markdown(cases, found, picture=len(paths) == 3), overwrite=True)
    return paths


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


def markdown(cases: Sequence[Case], found: Agreement, *, picture: bool) -> str:
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
