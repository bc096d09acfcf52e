"""The report of `mcat translate`: one page that needs no other file, and its pictures as PNG."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mcat.reports.files import NO_PICTURES, can_draw, write_pictures
from mcat.reports.html import Html, document, section_of, table, tag
from mcat.reports.sections import Section
from mcat.reports.translation.sections import sections
from mcat.reports.translation.verdict import verdict
from mcat.safe_io import dump_json, write_file
from mcat.transfer.result import TransferResult

PAGE_FILE = "report.html"
_TRUST = "How far can I trust this transfer?"


def write_page(result: TransferResult, folder: Path) -> Path:
    """Write `report.html` and the pictures it shows into `folder`, which is there already.

    Without matplotlib the page has tables only, and says what to install.

    Returns:
        The page's path.
    """
    found = list(sections(result))
    pictures: dict[str, bytes] = {}
    if can_draw():
        from mcat.reports.translation.figures import draw

        pictures = {section.name: draw(section, result) for section in found}
    write_pictures(folder, pictures)
    page = folder / PAGE_FILE
    write_file(page, _page(result, found, pictures), overwrite=True)
    return page


def _page(result: TransferResult, found: Sequence[Section], pictures: dict[str, bytes]) -> str:
    between = ", " if result.contexts else " → "  # many tasks, or a pair
    title = f"Transfer {between.join(machine.name for machine in result.machines)}"
    body = [_opening(result, title)]
    if found and not pictures:
        body.append(tag("p", NO_PICTURES, class_="soft"))
    if result.trust is None:
        body.append(_no_trust(result))
    for section in found:
        if section.name == "mismatch":
            body.append(_trust(result))
        level = "h3" if section.name in ("mismatch", "dimensions") else "h2"  # parts of the trust
        body.append(section_of(section, pictures.get(section.name), level))
    body.append(_provenance(result))
    return document(title, body)


def _opening(result: TransferResult, title: str) -> Html:
    found = verdict(result)
    policy = "no policy" if result.policy == "none" else f"policy “{result.policy}”"
    recipe = f"{policy}, method {result.method}, preset {result.preset}"
    parts = [
        tag("p", f"{title}: {recipe}, seed {result.seed}", class_="soft"),
        tag("h1", found.headline),
        tag("p", found.details),
    ]
    if result.skipped:
        reason = result.skipped[0].upper() + result.skipped[1:]
        parts.append(tag("p", tag("strong", "Why returns are missing. "), reason))
    return tag("header", *parts, class_=f"verdict {found.tone}")


def _trust(result: TransferResult) -> Html:
    assert result.trust is not None
    sentences = [tag("li", sentence) for sentence in result.trust.sentences()]
    reading = (
        "An estimate from logs alone, before anything moves: it asks forward models of both"
        " machines where actions lead from states of the source that they have not seen."
    )
    heading = tag("h2", _TRUST)
    return tag("div", heading, tag("p", reading, class_="soft"), tag("ul", *sentences))


def _no_trust(result: TransferResult) -> Html:
    """Says that nothing is known, lest silence is taken for consent."""
    kinds = "for one pair, --method ours and no --map"
    told = f"Not known: the estimate from logs alone is made {kinds}."
    if not (result.returns or result.matrix):
        told += " Nor were episodes run: try it where failing is cheap."
    return tag("div", tag("h2", _TRUST), tag("p", told))


def _provenance(result: TransferResult) -> Html:
    facts = result.provenance
    changed = " with local changes" if facts.get("dirty") else ""
    rows = [
        ("what", "value"),
        ("command", result.command),
        ("seed", str(result.seed)),
        ("commit", f"{facts.get('commit') or 'unknown'}{changed}"),
        ("versions", _pairs(facts.get("versions", {}))),
        ("computer", _pairs(facts.get("host", {}))),
        ("seconds", _pairs({name: f"{taken:.1f}" for name, taken in result.seconds.items()})),
    ]
    data = [("machine", "file", "episodes", "transitions", "SHA-256 of the transitions")]
    for machine in result.machines:
        counts = (f"{machine.episodes:,}", f"{machine.transitions:,}")
        for file, sha in zip(machine.files, machine.hashes, strict=True):
            data.append((machine.name, file, *counts, sha))
            counts = ("", "")  # they are of all files together
    config = tag("pre", dump_json(result.config, indent=2))
    return tag(
        "section",
        tag("h2", "Where this comes from"),
        tag("p", "What it takes to make the same page again.", class_="soft"),
        table(rows),
        tag("h3", "Data"),
        table(data),
        tag("details", tag("summary", "All settings"), config),
        id="provenance",
    )


def _pairs(facts: dict[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in facts.items())
