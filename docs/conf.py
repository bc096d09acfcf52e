"""The documentation site: `make docs`.

The source folder is the repository itself, so that links between pages, results and pictures are
the same on a forge and here.
"""

import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import click
from sphinx.application import Sphinx

DOCS = Path(__file__).parent
sys.path[:0] = [str(DOCS.parent), str(DOCS / "_ext")]

from source_pages import linkcode_resolve  # noqa: E402, F401 - asked for by linkcode

from mcat import __version__  # noqa: E402

project = "mcat"
author = "The mcat developers"
copyright = author
release = __version__

root_doc = "docs/index"
include_patterns = ["*.md", "docs/**.md", "results/**.md", "benchmarks/*.md", "examples/*.md"]
# A walk through a virtual environment or through runs would take longer than the pages.
exclude_patterns = [".*", "demo", "dist", "docs/_build", "mcat", "runs", "tests"]

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.linkcode",
    "sphinx_click",
    "source_pages",
]
myst_heading_anchors = 4
default_role = "py:obj"  # a docstring's `name` is a link if the name is public, else code
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_type_aliases = {name: name for name in ("AnyPolicy", "ArrayLike", "PolicyFunction")}
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
maximum_signature_line_length = 90
napoleon_use_ivar = True  # fields are listed once, by the `Attributes:` of their class

html_theme = "furo"
html_title = f"mcat {release}"
html_copy_source = False
html_show_sphinx = False
html_additional_pages = {"index": "to_first_page.html"}  # the first page is docs/index.html
templates_path = ["_templates"]

PUBLIC = ("envs", "datasets", "translator", "agents", "robot", "transfer", "paper")


def load_lazy_names() -> None:
    """Autodoc sees only names that are there; those of our packages come on first use."""
    for package in (import_module(f"mcat.{name}") for name in PUBLIC):
        for name in package.__all__:
            setattr(package, name, getattr(package, name))


def add_contents(app: Sphinx, docname: str, source: list[str]) -> None:
    """Make the side bar from the map of the first page, which is plain Markdown for a forge."""
    if docname != root_doc:
        return
    for section in source[0].split("\n## ")[1:]:
        caption, _, text = section.partition("\n")
        pages = re.findall(r"^- \[(.+?)\]\((.+?)\.md\)", text, flags=re.MULTILINE)
        entries = "\n".join(f"{title} <{page}>" for title, page in pages)
        source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{entries}\n```\n"


def to_rst(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Docstrings point to pages by their path; a package's has code by its indent, as Markdown."""
    text = re.sub(r"\bdocs/([\w/-]+)\.md(#[\w-]+)?", r"`\1 <../\1.html\2>`__", "\n".join(lines))
    if what == "module":
        text = re.sub(r"(?<=\n\n)(?= {4}\S)", "::\n\n", text)
    lines[:] = text.split("\n")


def help_to_rst(app: Sphinx, context: click.Context, lines: list[str]) -> None:
    """Of a help, options are code, and so is what click must not rewrap, such as commands."""
    text = re.sub(r"(?:\A|(?<=\n\n))(?=\| )", "::\n\n", "\n".join(lines))
    text = re.sub(r"^\| ", "   ", text, flags=re.MULTILINE)
    text = re.sub(r"^(?!\.\. |   mcat ).*", options_as_code, text, flags=re.MULTILINE)
    lines[:] = text.split("\n")


def options_as_code(line: re.Match[str]) -> str:
    """Its dashes would become one long dash otherwise."""
    return re.sub(r"(?<![\w`-])--[a-z][\w-]*", r"``\g<0>``", line[0])


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    load_lazy_names()
    app.connect("source-read", add_contents)
    app.connect("autodoc-process-docstring", to_rst)
    for part in ("description", "options", "epilog"):
        app.connect(f"sphinx-click-process-{part}", help_to_rst)
