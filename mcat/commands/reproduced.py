"""`mcat reproduce` for tables of meta-training: a plan of `mcat sweep`, and its page."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mcat.errors import MissingInputError, UsageError, unknown
from mcat.paper.experiments import EXPERIMENTS, Experiment

if TYPE_CHECKING:
    from mcat.sweeps.folder import Sweep

RUNS_FOLDER = Path("sweeps")  # as of mcat sweep: runs that are there serve both


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """What the command line asks of the runs; None and nothing leave it to the plan."""

    families: Sequence[str] = ()
    preset: str | None = None
    steps: int | None = None
    seeds: Sequence[int] = ()
    episodes: int | None = None
    transfer_loss: str | None = None

    def settings(self) -> tuple[str, ...]:
        """As `mcat sweep --set` takes them."""
        given = {
            "preset": self.preset,
            "steps": self.steps,
            "episodes": self.episodes,
            "transfer-loss": self.transfer_loss,
        }
        return tuple(f"{key}={value}" for key, value in given.items() if value is not None)


def reproduce_runs(
    name: str, wishes: Wishes, *, work: Path | None, out: Path, jobs: int | None, start: bool,
    quiet: bool,
) -> int:  # fmt: skip
    """Get the runs of a table done, unless they are, and write it; 1 if some are not."""
    from mcat.commands.sweep import get_done
    from mcat.commands.sweep_watch import compared
    from mcat.reports.reproduction.experiment import lines_of, table_of, write_experiment
    from mcat.reports.reproduction.page import require_writable
    from mcat.reports.tables import markdown_table
    from mcat.sweeps.local import LocalEngine

    experiment = EXPERIMENTS[name]
    require_writable(out, name)
    folder = ((work or RUNS_FOLDER) / experiment.plan).absolute()
    finished = True
    if start:
        with _planned(experiment, wishes, folder) as made:
            _tell_budget(experiment, made)
            states = get_done(made, LocalEngine(made, jobs), quiet=quiet)
        finished = all(state.state == "done" for state in states)
    else:
        made = _there(folder, name)
    runs = compared(made)
    options = _as_options(wishes) if start else ["no-run"]
    command = " ".join(["mcat reproduce", name, *(f"--{text}" for text in options)])
    for path in write_experiment(name, experiment, runs, out, command):
        click.echo(path)
    click.echo(markdown_table(table_of(experiment, lines_of(experiment, runs))), err=True)
    return 0 if finished else 1


def _as_options(wishes: Wishes) -> list[str]:
    rows = [f"row {family}" for family in wishes.families]
    seeds = [f"seeds {','.join(map(str, wishes.seeds))}"] if wishes.seeds else []
    return [*rows, *(text.replace("=", " ") for text in wishes.settings()), *seeds]


def _planned(experiment: Experiment, wishes: Wishes, folder: Path) -> AbstractContextManager[Sweep]:
    """The sweep of an experiment, with what was asked for changed in its plan."""
    from mcat.agents.meta.config import PRESETS
    from mcat.commands.sweep import created
    from mcat.sweeps.plan_files import load_plan

    plan, _ = load_plan(experiment.plan)
    families = plan.grid.get("family", (plan.common.get("family"),))
    for family in wishes.families:
        if family not in families:
            raise unknown("row", family, families)
    preset = wishes.preset or str(plan.common["preset"])
    if preset not in PRESETS:
        raise unknown("preset", preset, PRESETS)
    if experiment.imitates and not PRESETS[preset].mcat.imitate:
        able = ", ".join(name for name, found in PRESETS.items() if found.mcat.imitate)
        raise UsageError(f"preset {preset} has no self-imitation to leave out: take one of {able}")
    grid = [f"seed={','.join(map(str, wishes.seeds))}"] if wishes.seeds else []
    if wishes.families and "family" in plan.grid:
        grid.append(f"family={','.join(wishes.families)}")
    return created(
        plan=experiment.plan,
        name=None,
        kind=None,
        settings=wishes.settings(),
        grid=tuple(grid),
        variants=experiment.variants,
        cpus=None,
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
