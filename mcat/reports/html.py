"""The parts of HTML pages that need no other file."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable
from html import escape

from mcat.reports.sections import Rows, Section

_SHORT = 7  # rows of a table that is shown without being asked for

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
  text-align: left; vertical-align: top; overflow-wrap: break-word; }
th { color: var(--soft); font-weight: 600; }
th, td:first-child { white-space: nowrap; }
pre, code { font: .85rem/1.4 ui-monospace, monospace; white-space: pre-wrap; }
@media (max-width: 40rem) { .wide img { max-width: 40rem; } }
@media print { body { max-width: none; padding: 0; } section { break-inside: avoid; } }
"""


class Html(str):
    """Markup. Any other text is escaped when it is put into markup: names are strangers'."""


def tag(name: str, *content: str, **attributes: str) -> Html:
    """One element."""
    inside = "".join(c if isinstance(c, Html) else escape(c) for c in content)
    given = "".join(f' {key.strip("_")}="{escape(text)}"' for key, text in attributes.items())
    return Html(f"<{name}{given}>{inside}</{name}>")


def document(title: str, body: Iterable[Html], *, refresh: int | None = None) -> str:
    """A whole page, which a browser reads again after `refresh` seconds."""
    again = "" if refresh is None else f'<meta http-equiv="refresh" content="{refresh}">'
    head = Html(
        f"{again}"
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        '<meta http-equiv="Content-Security-Policy"'
        " content=\"default-src 'none'; img-src data:; style-src 'unsafe-inline'\">"
    )
    style = tag("style", Html(_STYLE))
    page = tag("html", tag("head", head, tag("title", title), style), tag("body", *body), lang="en")
    return f"<!doctype html>\n{page}\n"


def section_of(section: Section, png: bytes | None = None, level: str = "h2") -> Html:
    """A picture with how to read it and its numbers; without the picture, the numbers."""
    parts = [tag(level, section.title), tag("p", section.reading, class_="soft")]
    if png is None:
        parts += [tag("p", section.finding)] if section.finding else []
        parts.append(table(section.rows))
    else:
        source = "data:image/png;base64," + b64encode(png).decode()
        width = int.from_bytes(png[16:20]) * 100 // 144  # drawn at 144 pixels an inch, shown at 100
        image = Html(f'<img src="{source}" width="{width}" alt="{escape(section.finding)}">')
        opened = {"open": ""} if len(section.rows) <= _SHORT else {}
        numbers = tag("details", tag("summary", "The numbers"), table(section.rows), **opened)
        parts += [tag("div", image, class_="wide"), numbers]
    return tag("section", *parts, id=section.name)


def table(rows: Rows) -> Html:
    """Rows, the heading first."""
    heading, *body = rows
    lines = [tag("tr", *(tag("th", cell) for cell in heading))]
    lines += [tag("tr", *(tag("td", cell) for cell in row)) for row in body]
    return tag("div", tag("table", *lines), class_="wide")
