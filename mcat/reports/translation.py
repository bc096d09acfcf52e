"""The report of `mcat translate`: one page that needs no other file, and its pictures as PNG."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from mcat.agents.transfer_result import TransferResult
from mcat.reports.findings import Rows, Section, sections
from mcat.reports.verdict import verdict
from mcat.safe_io import dump_json, new_file

_SHORT = 7  # rows of a table that is shown without being asked for
_NO_PICTURES = "Pictures need matplotlib: pip install 'mcat[plot]'. The tables say the same."

_STYLE = """
:root { color-scheme: light dark; --ink: #222; --soft: #666; --line: #ddd; --paper: #fff;
  --good: #0072b2; --bad: #d55e00; --unclear: #8c8c8c; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e4e4; --soft: #a5a5a5; --line: #444; --paper: #191919; } }
body { max-width: 54rem; margin: 0 auto; padding: 1.5rem 1rem 4rem; color: var(--ink);
  background: var(--paper); font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.8rem; line-height: 1.2; margin: .2rem 0 .5rem; }
h2 { font-size: 1.25rem; margin: 2.5rem 0 .3rem; }
h3 { font-size: 1.05rem; margin: 1.8rem 0 .3rem; }
p { margin: .4rem 0; }
.soft, summary { color: var(--soft); font-size: .92rem; }
.verdict { border-left: .4rem solid var(--unclear); padding: .2rem 0 .2rem 1rem; }
.verdict.good { border-color: var(--good); }
.verdict.bad { border-color: var(--bad); }
.wide { overflow-x: auto; margin: .8rem 0; }
.wide img { display: block; max-width: 100%; height: auto; border-radius: 4px; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .9rem .25rem 0; border-bottom: 1px solid var(--line);
  text-align: left; vertical-align: top; }
th { color: var(--soft); font-weight: 600; }
th, td:first-child { white-space: nowrap; }
pre, code { font: .85rem/1.4 ui-monospace, monospace; white-space: pre-wrap; }
@media (max-width: 40rem) { .wide img { max-width: 40rem; } }
@media print { body { max-width: none; padding: 0; } section { break-inside: avoid; } }
"""


class _Html(str):
    """Markup. Any other text is escaped when it is put into markup: names are strangers'."""


def _tag(name: str, *content: str, **attributes: str) -> _Html:
    inside = "".join(c if isinstance(c, _Html) else escape(c) for c in content)
    given = "".join(f' {key.strip("_")}="{escape(text)}"' for key, text in attributes.items())
    return _Html(f"<{name}{given}>{inside}</{name}>")


def write_page(result: TransferResult, folder: Path) -> Path:
    """Write `report.html` and the pictures it shows into `folder`, which is there already.

    Without matplotlib the page has tables only, and says what to install.

    Returns:
        The page's path.
    """
    found = list(sections(result))
    pictures = _draw(found, result)
    for name, png in pictures.items():
        with new_file(folder / f"{name}.png", overwrite=True) as part:
            part.write_bytes(png)
    page = folder / "report.html"
    with new_file(page, overwrite=True) as part:
        part.write_text(_page(result, found, pictures), encoding="utf-8")
    return page


def _draw(found: Iterable[Section], result: TransferResult) -> dict[str, bytes]:
    """Section → PNG; empty without matplotlib."""
    try:
        from mcat.reports import figures
    except ImportError:
        return {}
    return {section.name: figures.draw(section, result) for section in found}


def _page(result: TransferResult, found: Sequence[Section], pictures: dict[str, bytes]) -> str:
    between = ", " if result.contexts else " → "  # many tasks, or a pair
    title = f"Transfer {between.join(machine.name for machine in result.machines)}"
    body = [_opening(result, title)]
    if found and not pictures:
        body.append(_tag("p", _NO_PICTURES, class_="soft"))
    for section in found:
        if section.name == "mismatch":
            body.append(_trust(result))
        body.append(_section(section, pictures.get(section.name)))
    body.append(_provenance(result))
    head = _Html(
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        '<meta http-equiv="Content-Security-Policy"'
        " content=\"default-src 'none'; img-src data:; style-src 'unsafe-inline'\">"
    )
    style = _tag("style", _Html(_STYLE))
    document = _tag(
        "html", _tag("head", head, _tag("title", title), style), _tag("body", *body), lang="en"
    )
    return f"<!doctype html>\n{document}\n"


def _opening(result: TransferResult, title: str) -> _Html:
    found = verdict(result)
    recipe = f"policy “{result.policy}”, method {result.method}, preset {result.preset}"
    parts = [
        _tag("p", f"{title}: {recipe}, seed {result.seed}", class_="soft"),
        _tag("h1", found.headline),
        _tag("p", found.details),
    ]
    if result.skipped:
        reason = result.skipped[0].upper() + result.skipped[1:]
        parts.append(_tag("p", _tag("strong", "Why returns are missing. "), reason))
    return _tag("header", *parts, class_=f"verdict {found.tone}")


def _trust(result: TransferResult) -> _Html:
    assert result.trust is not None
    sentences = [_tag("li", sentence) for sentence in result.trust.sentences()]
    reading = (
        "An estimate from logs alone, before anything moves: it asks the forward model where"
        " actions lead from states of the target, so it is as good as that model."
    )
    heading = _tag("h2", "How far can I trust this transfer?")
    return _tag("div", heading, _tag("p", reading, class_="soft"), _tag("ul", *sentences))


def _section(section: Section, png: bytes | None) -> _Html:
    level = "h3" if section.name in ("mismatch", "dimensions") else "h2"  # parts of the trust
    parts = [_tag(level, section.title), _tag("p", section.reading, class_="soft")]
    if png is None:
        parts += [_tag("p", section.finding), _table(section.rows)]
    else:
        source = "data:image/png;base64," + b64encode(png).decode()
        width = int.from_bytes(png[16:20]) * 100 // 144  # drawn at 144 pixels an inch, shown at 100
        image = _Html(f'<img src="{source}" width="{width}" alt="{escape(section.finding)}">')
        opened = {"open": ""} if len(section.rows) <= _SHORT else {}
        numbers = _tag("details", _tag("summary", "The numbers"), _table(section.rows), **opened)
        parts += [_tag("div", image, class_="wide"), numbers]
    return _tag("section", *parts, id=section.name)


def _table(rows: Rows) -> _Html:
    heading, *body = rows
    lines = [_tag("tr", *(_tag("th", cell) for cell in heading))]
    lines += [_tag("tr", *(_tag("td", cell) for cell in row)) for row in body]
    return _tag("div", _tag("table", *lines), class_="wide")


def _provenance(result: TransferResult) -> _Html:
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
    config = _tag("pre", dump_json(result.config, indent=2))
    return _tag(
        "section",
        _tag("h2", "Where this comes from"),
        _tag("p", "What it takes to make the same page again.", class_="soft"),
        _table(rows),
        _tag("h3", "Data"),
        _table(data),
        _tag("details", _tag("summary", "All settings"), config),
        id="provenance",
    )


def _pairs(facts: dict[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in facts.items())
