"""`mcat reproduce` for tables of meta-training: a plan of `mcat sweep`, and its page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mcat.errors import MissingInputError, UsageError, unknown
from mcat.paper.experiments import EXPERIMENTS, Experiment

if TYPE_CHECKING:
    from mcat.sweeps.folder import Sweep

RUNS_FOLDER = Path("sweeps")  # as of mcat sweep: runs that are there serve both


def reproduce_runs(
    name: str, *, rows: Sequence[str], seeds: Sequence[int], settings: Mapping[str, Any],
    work: Path | None, out: Path, jobs: int | None, start: bool, quiet: bool,
) -> tuple[list[Path], bool]:  # fmt: skip
    """Get the runs of a table done, unless they are, and write it.

    Without `rows` all families of the plan are wanted; `settings` that are None stay as there.

    Returns:
        The files of the table, and whether all runs are finished.
    """
    from mcat.commands.sweep import get_done
    from mcat.commands.sweep_watch import compared
    from mcat.reports.files import require_writable
    from mcat.reports.reproduction.experiment import lines_of, table_of, write_experiment
    from mcat.reports.tables import markdown_table
    from mcat.sweeps.local import LocalEngine

    experiment = EXPERIMENTS[name]
    require_writable(out, name)
    folder = ((work or RUNS_FOLDER) / experiment.plan).absolute()
    finished = True
    if start:
        wanted = tuple(f"{key}={value}" for key, value in settings.items() if value is not None)
        with _planned(experiment, rows, seeds, wanted, folder) as made:
            _tell_budget(experiment, made)
            states = get_done(made, LocalEngine(made, jobs), quiet=quiet)
        finished = all(state.state == "done" for state in states)
        options = [f"row {family}" for family in rows] + [text.replace("=", " ") for text in wanted]
        options += [f"seeds {','.join(map(str, seeds))}"]
    else:
        made, options = _there(folder, name), ["no-run"]
    runs = compared(made)
    command = " ".join(["mcat reproduce", name, *(f"--{text}" for text in options)])
    paths = write_experiment(name, experiment, runs, out, command)
    click.echo(markdown_table(table_of(experiment, lines_of(experiment, runs))), err=True)
    return paths, finished


def _planned(
    experiment: Experiment, rows: Sequence[str], seeds: Sequence[int], settings: tuple[str, ...],
    folder: Path,
) -> AbstractContextManager[Sweep]:  # fmt: skip
    """The sweep of an experiment, with what was asked for changed in its plan."""
    from mcat.agents.meta.config import PRESETS
    from mcat.commands.sweep import created
    from mcat.sweeps.plan_files import load_plan

    plan, _ = load_plan(experiment.plan)
    families = plan.grid.get("family", (plan.common.get("family"),))
    for family in rows:
        if family not in families:
            raise unknown("row", family, families)
    preset = str(dict(text.split("=") for text in settings).get("preset", plan.common["preset"]))
    if preset not in PRESETS:
        raise unknown("preset", preset, PRESETS)
    if experiment.imitates and not PRESETS[preset].mcat.imitate:
        able = ", ".join(name for name, found in PRESETS.items() if found.mcat.imitate)
        raise UsageError(f"preset {preset} has no self-imitation to leave out: take one of {able}")
    grid = [f"seed={','.join(map(str, seeds))}"]
    if rows and "family" in plan.grid:
        grid.append(f"family={','.join(rows)}")
    return created(
        plan=experiment.plan,
        settings=settings,
        grid=tuple(grid),
        variants=experiment.variants,
        out=folder,
    )


def _tell_budget(experiment: Experiment, made: Sweep) -> None:
    ours = sorted({run.steps for run in made.runs if run.steps is not None})
    theirs = "does not say" if experiment.steps is None else f"has {experiment.steps:,}"
    told = " and ".join(f"{steps:,}" for steps in ours)
    click.echo(f"{len(made.runs)} runs of {told} steps each; the paper {theirs}", err=True)


def _there(folder: Path, name: str) -> Sweep:
    from mcat.sweeps.folder import open_sweep

    if not folder.is_dir():
        raise MissingInputError(f"there are no runs in {folder}: mcat reproduce {name} makes them")
    return open_sweep(folder)
