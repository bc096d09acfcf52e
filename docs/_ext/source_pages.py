"""Python files as pages of the site: pages link to them, and documented names to their lines."""

from __future__ import annotations

import inspect
import os.path
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from docutils import nodes
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer
from sphinx.addnodes import download_reference
from sphinx.application import Sphinx

ROOT = Path(__file__).parents[2]
FOLDERS = ("mcat", "examples", "benchmarks")


def linkcode_resolve(domain: str, info: dict[str, str]) -> str | None:
    """Where a class or function is defined, seen from a page in docs/api; None for data."""
    found: Any = import_module(info["module"])
    for name in info["fullname"].split("."):
        found = getattr(found, name, None)
    found = inspect.unwrap(found.fget if isinstance(found, property) else found)
    try:
        path = Path(inspect.getfile(found)).relative_to(ROOT)
        line = inspect.getsourcelines(found)[1]
    except (TypeError, ValueError, OSError):
        return None
    return f"../../{path}.html#line-{line}"


def link_to_pages(app: Sphinx, doctree: nodes.document) -> None:
    """Lead links to a Python file to its page; without this they would download it."""
    here = Path(app.env.docname).parent
    for link in list(doctree.findall(download_reference)):
        path = os.path.normpath(here / link["reftarget"])
        if path.endswith(".py") and path.startswith(FOLDERS):
            page = f"{os.path.relpath(path, here)}.html"
            link.replace_self(nodes.reference("", "", *link.children, refuri=page))


def pages(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    """A page for every Python file."""
    look = HtmlFormatter(lineanchors="line", linenos="inline")
    for path in (path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")):
        name = str(path.relative_to(ROOT))
        code = highlight(path.read_text(), PythonLexer(), look)
        yield name, {"title": name, "body": f"<h1>{name}</h1>{code}"}, "page.html"


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("doctree-read", link_to_pages)
    app.connect("html-collect-pages", pages)
    return {"parallel_read_safe": True}
