"""The report of `mcat plot`: pictures of how runs learn, and one page that needs no other file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from mcat.errors import MissingInputError
from mcat.paper.experiments import TEST, TRAIN
from mcat.reports.files import NEEDS, can_draw, write_pictures
from mcat.reports.groups import Group
from mcat.reports.html import document, section_of, tag
from mcat.reports.learning.sections import (
    contexts_section,
    curves_section,
    drivers_section,
    success_section,
    tasks_section,
    with_goals,
)
from mcat.reports.runs import LearningRun
from mcat.reports.sections import Section
from mcat.safe_io import io_errors, write_file

PAGE = "learning.html"
DETAILED = 3  # runs up to which each has pictures of its own; t-SNE takes seconds a run


def without_detail(groups: Sequence[Group], detail: bool | None = None) -> str:
    """Why there are no pictures of single runs; empty if there are, as there are of a few."""
    runs = sum(len(group.runs) for group in groups)
    if detail is None and runs > DETAILED:
        return f"{runs} runs: who drove and contexts are left out, --detail shows them"
    return "" if detail in (None, True) else "who drove and contexts are left out"


def write_learning(
    groups: Sequence[Group],
    folder: Path,
    *,
    detail: bool | None = None,
    last: Section | None = None,
) -> Iterator[Path]:
    """Write pictures as PNG and a page that shows them all; earlier ones are replaced.

    Args:
        groups: What is shown.
        folder: Where to write; made if it is not there.
        detail: Whether there are pictures of single runs (default: of a few).
        last: What the page ends with, if anything: a table without a picture.

    Yields:
        The path of each as soon as it is there, the page last.

    Raises:
        MissingInputError: without matplotlib.
    """
    with io_errors(folder, "write"):
        folder.mkdir(parents=True, exist_ok=True)
    body = [tag("h1", "How runs of mcat learn")]
    note = without_detail(groups, detail)
    if note:
        body.append(tag("p", note[0].upper() + note[1:] + ".", class_="soft"))
    for section, png in _pictures(groups, detail=not note):
        yield from write_pictures(folder, {section.name: png})
        body.append(section_of(section, png))
    if last is not None:
        body.append(section_of(last))
    page = folder / PAGE
    write_file(page, document("mcat plot", body), overwrite=True)
    yield page


def _pictures(groups: Sequence[Group], *, detail: bool) -> Iterator[tuple[Section, bytes]]:
    """What there is to see, each as PNG."""
    if not can_draw():
        raise MissingInputError(f"pictures need {NEEDS}")
    from mcat.reports.figures import draw_curves
    from mcat.reports.learning import figures

    if any(group.curve(column) for group in groups for column in (TRAIN, TEST)):
        section = curves_section(groups)
        yield section, draw_curves(groups, section.finding)
    if judged := with_goals(groups):
        section = success_section(judged)
        yield section, draw_curves(judged, section.finding, success=True)
    if len(groups) == 1 and figures.task_curves(groups[0]):
        section = tasks_section(groups[0])
        yield section, figures.draw_tasks(groups[0], section.finding)
    for name, run in _named_runs(groups).items() if detail else ():
        if run.episodes:
            section = drivers_section(run, f"drivers-{name}")
            yield section, figures.draw_drivers(run, section.finding)
        if run.contexts is not None:
            section = contexts_section(run, run.contexts, f"contexts-{name}")
            yield section, figures.draw_contexts(run, run.contexts, section.finding)


def _named_runs(groups: Sequence[Group]) -> dict[str, LearningRun]:
    """All runs by the names of their folders, which need not be different."""
    runs: dict[str, LearningRun] = {}
    for group in groups:
        for run in group.runs:
            name, number = run.record.name, 2
            while name in runs:
                name, number = f"{run.record.name}-{number}", number + 1
            runs[name] = run
    return runs
