"""A table of the paper that is made from runs of `mcat metatrain`, as JSON, Markdown and pictures.

Numbers are means over seeds ± standard error, as the paper has them; the page of `mcat sweep
report` has intervals and probabilities.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mcat.agents.returns import SUCCESS
from mcat.paper.experiments import TEST, TEST_SUCCESS, TRAIN, TRAIN_SUCCESS, Experiment
from mcat.paper.meta import (
    LEARNER_NOTE,
    OTHER_LEARNER,
    Printed,
    method_of,
    printed_for,
)
from mcat.provenance import provenance
from mcat.reports.comparison.equal import equal_section
from mcat.reports.comparison.looks import FamilyRuns, families_of, variants_of
from mcat.reports.comparison.results import ComparedRun, provenance_of
from mcat.reports.comparison.sections import mirror_note
from mcat.reports.files import can_draw, require_writable, write_table
from mcat.reports.groups import Group, contexts_apart, mean_and_error
from mcat.reports.runs import LearningRun
from mcat.reports.sections import Rows, thousands, with_error
from mcat.reports.tables import markdown_table

COLUMNS = {
    TEST: "test return",
    TRAIN: "train return",
    TRAIN_SUCCESS: "train success",
    TEST_SUCCESS: "test success",
}
_RATES = (TRAIN_SUCCESS, TEST_SUCCESS)
_NONE = "–"


@dataclass(frozen=True, kw_only=True)
class Line:
    """What one variant earned on one family, beside what the paper printed of that setting."""

    family: str  # with what else it was tried with, such as a delay
    variant: str  # as the plan calls it
    steps: int | None  # when all runs of the family had come as far; None before any was evaluated
    earned: Mapping[str, Mapping[int, float]]  # column → seed → mean over tasks
    printed: Mapping[str, Printed]  # column → the paper's number, where it has one
    same_learner: bool  # whether that was earned by the same learner


def lines_of(experiment: Experiment, runs: Sequence[ComparedRun]) -> list[Line]:
    """A line for each family and variant that has a run, at equal steps within a family."""
    found = []
    for family in families_of(runs):
        for variant in variants_of(runs):
            members = [run for run in family.runs if run.variant == variant]
            if members:
                found.append(_line(experiment, family, variant, members[0]))
    return found


def _line(experiment: Experiment, family: FamilyRuns, variant: str, run: ComparedRun) -> Line:
    at, record = family.steps, run.run.record
    earned: dict[str, Mapping[int, float]] = {}
    printed: dict[str, Printed] = {}
    for column in experiment.columns:
        split = "test" if column in (TEST, TEST_SUCCESS) else "train"
        measure = ComparedRun.success_rates if column in _RATES else ComparedRun.returns
        if at is not None:
            earned[column] = family.scores(split, at, measure=measure).get(variant, {})
        paper = printed_for(record, column, experiment.steps or int(at or 0))
        printed |= {} if paper is None else {column: paper}
    method = method_of(record)
    return Line(
        family=family.name,
        variant=variant,
        steps=None if at is None else int(at),
        earned=earned,
        printed=printed,
        same_learner=method is not None and method.same_learner,
    )


def table_of(experiment: Experiment, lines: Sequence[Line]) -> Rows:
    """The lines as text, the heading first; of two variants also what the second one gains."""
    rows: list[tuple[str, ...]] = [
        ("family", "variant", "seeds", "steps", *(COLUMNS[name] for name in experiment.columns))
    ]
    for family in dict.fromkeys(line.family for line in lines):
        own = [line for line in lines if line.family == family]
        for line in own:
            seeds = {seed for values in line.earned.values() for seed in values}
            steps = _NONE if line.steps is None else thousands(line.steps)
            cells = (_cell(line, column) for column in experiment.columns)
            listed = ", ".join(map(str, sorted(seeds))) or _NONE
            rows.append((family, line.variant, listed, steps, *cells))
        if len(own) == 2:
            gains = (_gain(own[0], own[1], column) for column in experiment.columns)
            rows.append((family, "improvement", "", "", *gains))
    return rows


def _cell(line: Line, column: str) -> str:
    scale, unit = (100, " %") if column in _RATES else (1, "")
    values = line.earned.get(column, {})
    ours = _NONE
    if values:
        mean, error = map(float, mean_and_error(np.array(list(values.values()))))
        ours = with_error(mean * scale, error * scale if len(values) > 1 else None) + unit
    paper = line.printed.get(column)
    if paper is None:
        return ours
    theirs = with_error(paper.mean * scale, None if paper.error is None else paper.error * scale)
    mark = "" if line.same_learner else f" {OTHER_LEARNER}"
    return f"{ours} [{theirs}{unit} at {thousands(paper.steps)}{mark}]"


def _gain(first: Line, second: Line, column: str) -> str:
    """What the second earns more than the first, as the paper counts it."""
    if column in _RATES:
        return ""
    values = [list(line.earned.get(column, {}).values()) for line in (first, second)]
    ours = _percent(*map(np.mean, values)) if all(values) else _NONE
    papers = [line.printed.get(column) for line in (first, second)]
    if None in papers or len({paper.steps for paper in papers if paper}) > 1:
        return ours
    return f"{ours} [{_percent(*(paper.mean for paper in papers if paper))}]"


def _percent(first: Any, second: Any) -> str:
    return f"{100 * (second - first) / abs(first):+,.1f} %" if first else _NONE


def write_experiment(
    name: str, experiment: Experiment, runs: Sequence[ComparedRun], folder: Path, command: str
) -> list[Path]:
    """Write `<name>.json`, `.md` and, with matplotlib, pictures; earlier ones are replaced.

    Raises:
        CannotCreateError: if the folder refuses files.
    """
    require_writable(folder, name)
    lines = lines_of(experiment, runs)
    pair = _context_pair(runs) if experiment.contexts else {}
    pictures = _draw(name, experiment, runs, pair)
    text = _page(experiment, lines, runs, command, list(pictures), pair)
    return write_table(folder, name, _as_json(name, experiment, lines), text, pictures)


def _as_json(name: str, experiment: Experiment, lines: Sequence[Line]) -> dict[str, Any]:
    rows = []
    for line in lines:
        printed = {column: paper._asdict() for column, paper in line.printed.items()}
        rows.append({**vars(line), "printed": printed})
    return {
        "table": name,
        "title": experiment.title,
        "paper_steps": experiment.steps,
        "rows": rows,
        "provenance": provenance(),
    }


def _page(
    experiment: Experiment, lines: Sequence[Line], runs: Sequence[ComparedRun], command: str,
    pictures: Sequence[str], pair: Mapping[str, LearningRun],
) -> str:  # fmt: skip
    rows = table_of(experiment, lines)
    parts = [f"# {experiment.title}", _how(experiment, lines, runs, command)]
    parts += [f"![{experiment.title}]({picture}.png)" for picture in pictures]
    parts.append(markdown_table(rows))
    if any(line.printed and not line.same_learner for line in lines):
        parts.append(LEARNER_NOTE)
    if any(column in _RATES for column in experiment.columns):
        parts.append(SUCCESS)
    if note := mirror_note(runs):
        parts.append(note)
    if (equal := equal_section(_groups(runs))) is not None:
        parts += [f"## {equal.title}", equal.reading, markdown_table(equal.rows)]
    for label, run in pair.items():
        parts.append(
            f"{label}: {contexts_apart(run, run.trained_contexts())[0]} ({run.record.name})."
        )
    return "\n\n".join(parts) + "\n"


def _how(
    experiment: Experiment, lines: Sequence[Line], runs: Sequence[ComparedRun], command: str
) -> str:
    presets = ", ".join(dict.fromkeys(run.run.record.preset for run in runs))
    commits = sorted({str(provenance_of(run.run).get("commit"))[:10] for run in runs})
    ours = ", ".join(dict.fromkeys(thousands(line.steps) for line in lines if line.steps)) or "no"
    theirs = "not said" if experiment.steps is None else thousands(experiment.steps)
    unfinished = sum(run.state != "done" for run in runs)
    return (
        f"`{command}`, preset {presets}, commit {', '.join(commits)}.\n"
        f"Budget: {ours} steps; the paper's: {theirs}. Numbers are means over seeds ± standard"
        " error, at the latest step that all finished runs of a family have reached; in brackets"
        " the paper's of the same method, tasks and delay, where it prints one."
        + f" {unfinished} of {len(runs)} runs are not finished."
        * bool(unfinished)
    )


def _draw(
    name: str, experiment: Experiment, runs: Sequence[ComparedRun],
    pair: Mapping[str, LearningRun],
) -> dict[str, bytes]:  # fmt: skip
    """Name → PNG; none without matplotlib, or before anything was evaluated."""
    groups = [group for group in _groups(runs) if group.curve(TRAIN) or group.curve(TEST)]
    if not groups or not can_draw():
        return {}
    from mcat.reports.figures import draw_curves
    from mcat.reports.reproduction.figures import draw_context_pair

    found = {name: draw_curves(groups, experiment.title)}
    if len(pair) > 1:
        found[f"{name}-contexts"] = draw_context_pair(pair, "Contexts of training tasks")
    return found


def _groups(runs: Sequence[ComparedRun]) -> list[Group]:
    """A curve for each variant and whatever else it was tried with."""
    found: dict[tuple[str, str], list[LearningRun]] = {}
    for run in (run for family in families_of(runs) for run in family.runs):
        label = ", ".join(filter(None, (run.variant, run.where)))
        found.setdefault((run.run.record.family, label), []).append(run.run)
    return [Group(label=label, runs=tuple(own)) for (_, label), own in found.items()]


def _context_pair(runs: Sequence[ComparedRun]) -> dict[str, LearningRun]:
    """The first run of each variant on the first family, those that have contexts."""
    found: dict[str, LearningRun] = {}
    family = runs[0].run.record.family
    for run in sorted(runs, key=lambda run: run.run.record.seed):
        if run.run.record.family == family and run.run.contexts is not None:
            found.setdefault(run.variant, run.run)
    return {variant: found[variant] for variant in variants_of(runs) if variant in found}
