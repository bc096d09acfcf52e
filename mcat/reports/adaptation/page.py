"""The report of `mcat adapt`: one page that needs no other file, and its picture as PNG."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mcat.agents.runs.record import RECORD_FILE
from mcat.reports.adaptation.curves import ADAPTED, ReturnCurve, read_curves
from mcat.reports.files import NO_PICTURES, can_draw, write_pictures
from mcat.reports.html import Html, document, section_of, table, tag
from mcat.reports.sections import Section, number
from mcat.safe_io import dump_json, read_json, write_file

PAGE_FILE, PICTURE = "report.html", "adaptation"


def write_page(folder: Path) -> Path:
    """Write `report.html`, and the picture it shows, into the folder of an adaptation.

    Without matplotlib the page has the numbers only, and says what to install.

    Returns:
        The page's path.
    """
    record = read_json(folder / RECORD_FILE)
    curves = read_curves(folder)
    body = [_opening(record, curves)]
    if curves:
        section = _section(curves)
        picture = None
        if can_draw():
            from mcat.reports.adaptation.figures import draw_curves

            picture = draw_curves(curves, section.finding)
            write_pictures(folder, {PICTURE: picture})
        else:
            body.append(tag("p", NO_PICTURES, class_="soft"))
        body.append(section_of(section, picture))
    body.append(_provenance(record))
    page = folder / PAGE_FILE
    write_file(page, document(_title(record), body), overwrite=True)
    return page


def finding(curves: Sequence[ReturnCurve]) -> str:
    """What came out, in a sentence."""
    own, *others = curves
    when = "Without a real step" if own.flat else f"After {own.steps[-1]:,.0f} real steps"
    told = f"{when} the adapted policy earns {number(own.last)}"
    if not others:
        return told
    best = max(others, key=lambda curve: curve.last)
    if own.last > best.last:
        return f"{told}, more than any baseline ({best.label}: {number(best.last)})"
    return f"{told}, not more than a baseline ({best.label}: {number(best.last)})"


def _title(record: dict[str, Any]) -> str:
    from mcat.envs.tasks import Task

    config = record["config"]
    task, live = config["task"], config["live"]
    name = Task.from_dict(task).label() if task else live or "a machine without simulator"
    return f"Adaptation to {name}"


def _opening(record: dict[str, Any], curves: Sequence[ReturnCurve]) -> Html:
    config = record["config"]
    tone, headline = "unclear", "Adapted; what the policy earns was not measured"
    if curves:
        headline, own = finding(curves), curves[0].last
        others = [curve.last for curve in curves[1:]]
        tone = "unclear" if not others else "good" if own > max(others) else "bad"
    source = "a source policy and " if "policy" in record.get("made_of", {}) else ""
    said = (
        f"{_title(record)}: from {source}logs, {config['offline_updates']:,} updates offline,"
        f" {config['steps']:,} real steps, seed {config['seed']}"
    )
    details = "One seed: another may rank close ones otherwise."
    if not curves:
        details = "mcat evaluate runs it in a simulator; on a real machine, try it where failing"
        details += " is cheap."
    return tag(
        "header", tag("p", said, class_="soft"), tag("h1", headline), tag("p", details),
        class_=f"verdict {tone}",
    )  # fmt: skip


def _section(curves: Sequence[ReturnCurve]) -> Section:
    heading = ("what was done", "real steps", "mean return", "± standard error")
    rows = [heading]
    for curve in curves:
        places = range(len(curve.steps)) if curve.label == ADAPTED else (0, -1)
        for place in dict.fromkeys(range(len(curve.steps))[p] for p in places):
            error = curve.errors[place]
            spread = "–" if error != error else number(float(error))  # NaN is not itself
            rows.append(
                (curve.label, f"{curve.steps[place]:,.0f}", number(curve.returns[place]), spread)
            )
    return Section(
        name=PICTURE,
        title="What do real steps buy?",
        reading="Mean return of the policy after so many real steps, all from the same logs and the"
        " same starts; bands are standard errors over episodes. Level lines need no real step.",
        finding=finding(curves),
        rows=rows,
    )


def _provenance(record: dict[str, Any]) -> Html:
    rows = [("what", "value"), ("command", str(record.get("command")))]
    rows += [
        ("commit", f"{record.get('commit') or 'unknown'}" + " changed" * bool(record.get("dirty")))
    ]
    rows += [(f"SHA-256 of {name}", sha) for name, sha in record.get("made_of", {}).items()]
    settings = tag("pre", dump_json(record["config"], indent=2))
    return tag(
        "section",
        tag("h2", "Where this comes from"),
        table(rows),
        tag("details", tag("summary", "All settings"), settings),
        id="provenance",
    )
