"""`mcat sweep status`, `stop` and `report`: what there is of a sweep, and what it says."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mcat.commands.help import Explained, json_option
from mcat.commands.options import out_option, say
from mcat.errors import MissingInputError, UsageError, counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mcat.reports.comparison.results import ComparedRun
    from mcat.sweeps.folder import Sweep

_GOES_ON = {"running", "queued", "waiting", "blocked"}  # states of runs that may still earn more


@click.command(
    cls=Explained,
    examples=("mcat sweep status transfer", "mcat sweep status sweeps/transfer --watch"),
)
@click.argument("name", metavar="SWEEP")
@click.option("--watch", is_flag=True, help="Show it again every two seconds.")
@click.option("--runs", "each", is_flag=True, help="One row for each run.")
@json_option
def status(name: str, watch: bool, each: bool, as_json: bool) -> None:
    """Show how far the runs of a sweep have come, from any machine that sees its folder."""
    from mcat.commands import sweep_table
    from mcat.sweeps.slurm import with_queue
    from mcat.sweeps.state import counts, look

    found = open_named(name)
    if watch:
        with sweep_table.Watcher(f"sweep {found.name}") as watcher:
            while _GOES_ON & counts(states := with_queue(found, look(found))).keys():
                watcher(states)
                time.sleep(2)
    sweep_table.print_states(found, with_queue(found, look(found)), as_json=as_json, each=each)


@click.command(
    cls=Explained,
    examples=("mcat sweep stop transfer", "mcat sweep stop transfer RUN RUN"),
)
@click.argument("name", metavar="SWEEP")
@click.argument("runs", metavar="[RUN]...", nargs=-1)
def stop(name: str, runs: tuple[str, ...]) -> None:
    """Ask runs to save and end; `run` and `submit` go on with them."""
    from mcat.sweeps.driver import stop_runs
    from mcat.sweeps.slurm import cancel_waiting

    found = open_named(name)
    alive = stop_runs(found, runs)
    cancel_waiting(found, runs or [run.name for run in found.runs])
    click.echo(f"{counted(len(alive), 'run')} asked to save and end", err=True)


@click.command(
    cls=Explained,
    examples=(
        "mcat sweep copy sweeps/transfer results/transfer      # again later, only what is new",
        "mcat sweep run results/transfer                       # goes on from a copy",
    ),
)
@click.argument("name", metavar="SWEEP")
@click.argument("folder", type=click.Path(path_type=Path))
def copy(name: str, folder: Path) -> None:
    """Copy what is finished without policies and checkpoints: small enough for git or a mail.

    The sweep may be under way. Where the copy is, even on another machine, `mcat sweep run` takes
    the runs in it as done and makes the others.
    """
    from mcat.sweeps.copies import copy_finished

    copied = copy_finished(open_named(name), folder)
    click.echo(f"{counted(len(copied), 'run')} copied to {folder}", err=True)


@click.command(hidden=True)
@click.argument("folder", type=click.Path(path_type=Path))
@click.argument("name", metavar="RUN")
def attempt(folder: Path, name: str) -> int:
    """One attempt at one run, as a job of a scheduler; 75 asks for another."""
    from mcat.interrupts import Interrupts
    from mcat.sweeps.attempt import attempt as make_attempt
    from mcat.sweeps.folder import open_sweep

    with Interrupts() as stop:
        ending = make_attempt(folder, name, lambda: stop.requested is not None)
    found = open_sweep(folder)
    if ending.kind == "done":
        return 0
    if found.stop_mark(found.run(name)).exists() or ending.over(found.resources.retries):
        click.echo(f"error: {ending.line}", err=True)
        return 1
    return 75


@click.command(
    cls=Explained,
    examples=(
        "mcat sweep report transfer",
        "mcat sweep report transfer --every 60          # while it runs",
        "mcat sweep report runs/*                       # any runs of metatrain and train",
    ),
)
@click.argument("names", metavar="SWEEP|RUN...", nargs=-1, required=True)
@out_option("FOLDER", "Where to (default: report in the folder of the sweep, or here).")
@click.option(
    "--labels",
    default="",
    metavar="NAME,NAME",
    help="Of runs that no sweep names: what to call the variants.",
)
@click.option(
    "--every",
    type=click.IntRange(1),
    metavar="SECONDS",
    help="Write it again until all runs of the sweep have ended.",
)
@json_option
def report(
    names: tuple[str, ...], out: Path | None, labels: str, every: int | None, as_json: bool
) -> None:  # fmt: skip
    """Compare what runs earned, finished or not: tables, pictures and a page.

    The first sentence of report.html is the answer. The first variant is what the others are
    compared with. results.csv and results.parquet have a row for each run, task and split.
    """
    found = _sweep_of(names)
    if found is None and every is not None:
        raise UsageError("--every waits for the runs of a sweep: name one")
    folder = out or (Path("report") if found is None else found.folder / "report")
    while True:
        going_on = found is not None and every is not None and _goes_on(found)
        runs = _runs_of(names, labels) if found is None else compared(found)
        paths = _write(found, runs, folder, every if going_on else None)
        if not going_on or every is None:
            break
        time.sleep(every)
    if as_json:
        import json

        click.echo(json.dumps([str(path) for path in paths]))
        return
    for path in paths:
        click.echo(path)


def compared(sweep: Sweep) -> list[ComparedRun]:
    """The runs of a sweep that have begun, with what became of them.

    Raises:
        MissingInputError: if none has.
        UsageError: if they are of a command that learns nothing.
    """
    from mcat.agents.runs.record import KINDS, RECORD_FILE
    from mcat.reports.comparison.results import ComparedRun
    from mcat.reports.runs import read_run
    from mcat.sweeps.state import look

    if not any(run.command in KINDS for run in sweep.runs if run.variant):
        raise UsageError(f"{sweep.name} trains nothing: its runs are in {sweep.folder / 'runs'}")
    found = []
    for state in look(sweep):
        run, ending = state.run, state.ending
        if run.variant and run.command in KINDS and (sweep.out(run) / RECORD_FILE).is_file():
            found.append(
                ComparedRun(
                    run=read_run(sweep.out(run)),
                    variant=run.variant,
                    state="waiting" if state.state in ("blocked", "stopped") else state.state,
                    attempts=ending.attempts if ending else 1,
                    failure=ending.line if ending and state.state != "done" else "",
                    where=run.where,
                )
            )
    if not found:
        raise MissingInputError(f"no run of {sweep.name} has begun yet")
    order = list(dict.fromkeys(run.variant for run in sweep.runs if run.variant))
    return sorted(found, key=lambda item: order.index(item.variant))


def _write(
    sweep: Sweep | None, runs: Sequence[ComparedRun], folder: Path, refresh: int | None
) -> list[Path]:
    from mcat.reports.comparison.page import write_comparison

    about, progress = [], ""
    if sweep is not None:
        progress = " ".join(filter(None, (sweep.about, _progress(sweep))))
        about = [("plan", str(sweep.folder / "plan.toml"))]
        about += [("planned by", str(sweep.made_by.get("command", "")))]
    title = "comparison" if sweep is None else sweep.name
    return list(
        write_comparison(runs, folder, title=title, progress=progress, about=about, refresh=refresh)
    )


def _progress(sweep: Sweep) -> str:
    """How many of the planned runs are done, unless all are."""
    from mcat.sweeps.state import counts, look

    states = [state for state in look(sweep, detailed=False) if state.run.variant]
    found = counts(states)
    if found.get("done") == len(states):
        return ""
    rest = ", ".join(f"{number} {state}" for state, number in found.items() if state != "done")
    return f"{found.get('done', 0)} of {len(states)} planned runs are done ({rest})."


def _goes_on(sweep: Sweep) -> bool:
    from mcat.sweeps.state import counts, look

    return bool(_GOES_ON & counts(look(sweep, detailed=False)).keys())


def _sweep_of(names: Sequence[str]) -> Sweep | None:
    """The sweep, if one is named; None if these are folders of runs."""
    from mcat.agents.runs.record import RECORD_FILE

    if len(names) > 1 or (Path(names[0]) / RECORD_FILE).is_file():
        return None
    return open_named(names[0])


def _runs_of(names: Sequence[str], labels: str) -> tuple[ComparedRun, ...]:
    from mcat.reports.comparison.results import compared_runs
    from mcat.reports.runs import read_runs

    runs = read_runs(map(Path, names), say)
    return compared_runs(runs, [name.strip() for name in labels.split(",") if name.strip()])


def open_named(name: str) -> Sweep:
    """A sweep by its folder, or by its name."""
    from mcat.sweeps.folder import open_sweep

    folder = Path(name)
    if not folder.is_dir() and (Path("sweeps") / name).is_dir():
        folder = Path("sweeps") / name
    if not folder.is_dir():
        known = sorted(path.name for path in Path("sweeps").glob("*") if path.is_dir())
        there = f": there are {', '.join(known)}" if known else ""
        raise MissingInputError(f"no sweep '{name}' here or in sweeps/{there}")
    return open_sweep(folder.absolute())
