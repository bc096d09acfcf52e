"""The page that compares many runs: its first sentence is the answer; it needs no other file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from mcat.errors import MissingInputError
from mcat.reports.comparison.contrast import Comparison
from mcat.reports.comparison.results import ComparedRun, result_rows, write_results
from mcat.reports.comparison.sections import (
    curves_section,
    failures_section,
    intervals_section,
    making,
    notes,
    pairwise_section,
    paper_section,
    profile_section,
)
from mcat.reports.comparison.verdict import verdict
from mcat.reports.files import NO_PICTURES, can_draw, write_pictures
from mcat.reports.html import Html, document, section_of, table, tag
from mcat.reports.sections import Section
from mcat.safe_io import io_errors, write_file

PAGE_FILE = "report.html"


def write_comparison(
    runs: Sequence[ComparedRun],
    folder: Path,
    *,
    title: str,
    progress: str = "",
    about: Sequence[tuple[str, str]] = (),
    refresh: int | None = None,
) -> Iterator[Path]:
    """Write what runs earned as tables, pictures and a page; earlier ones are replaced.

    Runs may be unfinished or lost, and of one variant, family or seed: the page says what is
    missing. Without matplotlib it has tables only, and says what to install.

    Args:
        runs: What is compared; the variant of the first one is the reference.
        folder: Where to write; made if it is not there.
        title: The name of the comparison.
        progress: How many of the planned runs there are, if there will be more.
        about: What else to say about how it was made: pairs of a name and a text.
        refresh: Seconds after which a browser shall read the page again.

    Yields:
        The path of each file as soon as it is there, the page last.

    Raises:
        MissingInputError: if there are no runs.
        CannotCreateError: if the folder refuses files.
    """
    if not runs:
        raise MissingInputError("nothing to compare: there are no runs")
    comparison = Comparison(runs=tuple(runs))
    with io_errors(folder, "write"):
        folder.mkdir(parents=True, exist_ok=True)
    yield from write_results(list(result_rows(runs, title)), folder)
    body = [_opening(comparison, title, progress), section_of(paper_section(comparison))]
    found = list(_sections(comparison))
    pictures = _draw(found, comparison)
    for name, png in pictures.items():
        yield from write_pictures(folder, {name: png})
    if found and not pictures:
        body.append(tag("p", NO_PICTURES, class_="soft"))
    body += [section_of(section, pictures.get(section.name)) for section in found]
    if len(comparison.variants) > 1 and comparison.final:
        body.append(section_of(pairwise_section(comparison)))
    if (failures := failures_section(comparison)) is not None:
        body.append(section_of(failures))
    body.append(_making(comparison, about))
    page = document(title, body, refresh=refresh)
    path = folder / PAGE_FILE
    write_file(path, page, overwrite=True)
    yield path


def _opening(comparison: Comparison, title: str, progress: str) -> Html:
    found = verdict(comparison)
    parts = [tag("p", title, class_="soft"), tag("h1", found.headline)]
    parts += [tag("p", line) for line in (progress, *found.details) if line]
    if missing := list(notes(comparison)):
        lines = tag("ul", *(tag("li", line) for line in missing))
        parts.append(tag("details", tag("summary", "What is missing yet"), lines))
    return tag("header", *parts, class_=f"verdict {found.tone}")


def _sections(comparison: Comparison) -> Iterator[Section]:
    """What there is to see, in the order of the page."""
    if not comparison.final:
        return
    yield intervals_section(comparison)
    if comparison.split == "test":
        yield curves_section(comparison, "test", "step")
    yield curves_section(comparison, "train", "step")
    cpu = curves_section(comparison, comparison.split, "cpu")
    if len(cpu.rows) > 1:
        yield cpu
    yield profile_section(comparison)


def _draw(found: Sequence[Section], comparison: Comparison) -> dict[str, bytes]:
    """Section → PNG, where there is something to draw; empty without matplotlib."""
    if not can_draw():
        return {}
    from mcat.reports.comparison import figures

    drawn = {section.name: figures.draw(section, comparison) for section in found}
    return {name: picture for name, picture in drawn.items() if picture is not None}


def _making(comparison: Comparison, about: Sequence[tuple[str, str]]) -> Html:
    facts, rows = making(comparison)
    return tag(
        "section",
        tag("h2", "How it was made"),
        table([("what", ""), *about, *facts]),
        tag("details", tag("summary", "Every run"), table(rows)),
        id="making",
    )
