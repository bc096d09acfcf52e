"""`mcat sweep`: many runs, planned, started, watched, stopped and compared."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mcat.commands import sweep_watch
from mcat.commands.help import Explained, group, json_option, together
from mcat.commands.options import out_option
from mcat.errors import McatError, UsageError, counted

if TYPE_CHECKING:
    from mcat.sweeps.driver import Engine
    from mcat.sweeps.folder import Sweep
    from mcat.sweeps.plan import Plan
    from mcat.sweeps.runs import PlannedRun
    from mcat.sweeps.state import RunState


@click.group()
def sweep() -> None:
    """Many runs, on one machine or many, and one answer.

    A plan says which runs there shall be. `run` gets them done on this machine or a Ray cluster,
    `submit` hands them to Slurm; each may be killed at any moment and started again, and goes on
    where it was. `report` compares what there is so far.
    """


# What describes a plan: a file, options, or both.
plan_options = together(
    click.argument("plan", required=False, metavar="[PLAN]"),
    group(
        "The plan",
        click.option("--name", metavar="NAME", help="Of the sweep (default: the plan's)."),
        click.option("--command", "kind", metavar="COMMAND",
                     help="What is run: metatrain (default), train, adapt, translate, "
                     "collect or evaluate."),
        click.option("--set", "settings", multiple=True, metavar="KEY=VALUE",
                     help="A setting of all runs, an option's name or a key of "
                     "--print-config; may be repeated."),
        click.option("--grid", multiple=True, metavar="KEY=A,B",
                     help="A setting of which all values are run, such as family=a,b or "
                     "seed=0-4; may be repeated."),
        click.option("--variant", "variants", multiple=True, metavar="NAME[: KEY=VALUE,...]",
                     help="A row of the comparison, such as \"no transfer: "
                     "mcat.transfer=false\"; may be repeated."),
        click.option("--cpus", type=click.IntRange(1), metavar="N",
                     help="Of each run: threads, cores and reservation (default: 1)."),
    ),
    out_option("FOLDER", "Where to (default: sweeps/<name>)."),
)  # fmt: skip


@sweep.command(
    cls=Explained,
    examples=(
        "mcat sweep plan                       # the plans that come with the package",
        "mcat sweep plan transfer              # what it would run, and for how long",
        "mcat sweep plan my.toml --grid seed=0-9",
    ),
)
@plan_options
@json_option
def plan(as_json: bool, **options: Any) -> None:
    """Show the runs of a plan, what there is of them, and what they will cost; starts nothing."""
    from mcat.sweeps.plan_files import load_plan, packaged_plans

    if options["plan"] is None and not options["grid"] and not options["variants"]:
        for name in packaged_plans():
            found, _ = load_plan(name)
            click.echo(f"{name}: {counted(len(found.points()), 'run')} of mcat {found.command}")
        return
    chosen, _, runs, folder = resolved(**options)
    states = _states(runs, folder)
    if as_json:
        rows = [
            {
                "run": run.name,
                "variant": run.variant,
                "command": run.command_line(folder, chosen.resources.cpus)[3:],
                "state": states.get(run.name, "waiting"),
                "steps": run.steps,
            }
            for run in runs
        ]
        click.echo(json.dumps(rows, indent=2))
        return
    from mcat.commands.tables import print_table

    lines = [("run", "variant", "state", "steps", "command")]
    for run in runs:
        steps = "" if run.steps is None else f"{run.steps:,}"
        state = states.get(run.name, "waiting")
        line = f"mcat {run.command} {' '.join(run.arguments)}"
        lines.append((run.name, run.variant or "(input)", state, steps, line))
    print_table(f"Sweep {chosen.name} in {folder}", lines)
    click.echo(_cost(runs, states, chosen.resources.cpus), err=True)


@sweep.command(
    cls=Explained,
    examples=(
        "mcat sweep run transfer --jobs 2",
        "mcat sweep run my.toml",
        "mcat sweep run --grid seed=0-2 --variant MCAT --variant 'none: mcat.transfer=false'",
        "mcat sweep run transfer --engine ray --address auto",
    ),
)
@plan_options
@group(
    "How",
    click.option("--jobs", type=click.IntRange(1), metavar="N",
                 help="Runs at once (default: one per --cpus cores; of Ray what it has)."),
    click.option("--engine", type=click.Choice(["local", "ray"]), default="local",
                 show_default=True, help="Processes of this machine, or tasks of Ray."),
    click.option("--address", metavar="HOST:PORT", help="Of a Ray cluster (default: a new one)."),
    click.option("--plain", is_flag=True, help="Print lines, not a live table."),
    json_option,
)  # fmt: skip
def run(
    jobs: int | None, engine: str, address: str | None, plain: bool, as_json: bool, **options: Any
) -> int:
    """Get every run of a plan done; started again, it goes on.

    Ctrl-C asks the runs to save and end; a second one leaves at once, and the runs go on alone.
    Runs that were killed are started again, those that diverged count as results.
    """
    from mcat.commands import sweep_table
    from mcat.sweeps.local import LocalEngine

    if address is not None and engine != "ray":
        raise UsageError("--address is that of a Ray cluster: add --engine ray")
    with created(**options) as made:
        starter: Engine
        if engine == "ray":
            from mcat.sweeps.on_ray import RayEngine

            starter = RayEngine(made, jobs, address)
        else:
            starter = LocalEngine(made, jobs)
        states = get_done(made, starter, plain=plain or as_json)
    sweep_table.print_states(made, states, as_json=as_json)
    return 0 if all(state.state == "done" for state in states) else 1


def get_done(
    made: Sweep, starter: Engine, *, plain: bool = False, quiet: bool = False
) -> Sequence[RunState]:
    """Get every run of a sweep done, or stop when asked to; what has become of them."""
    from mcat.commands.sweep_table import Watcher
    from mcat.interrupts import Interrupts
    from mcat.sweeps.driver import Driver

    shown: AbstractContextManager[Callable[[Sequence[RunState]], None]]
    shown = (
        nullcontext(lambda states: None) if quiet else Watcher(f"sweep {made.name}", plain=plain)
    )
    with Interrupts() as stop, shown as watcher:
        return Driver(made, starter, watcher).drive(stop)


@sweep.command(
    cls=Explained,
    examples=(
        "mcat sweep submit transfer --partition cpu --time 4:00:00",
        "mcat sweep submit transfer --print > send.sh    # to be sent by yourself: sh send.sh",
    ),
)
@plan_options
@group(
    "Slurm",
    click.option("--partition", default="", help="Where to queue."),
    click.option("--account", default="", help="Who pays."),
    click.option("--time", "limit", default="", metavar="H:MM:SS",
                 help="Limit of one attempt; a run that needs longer goes on in the next "
                 "(default: the plan's, 4:00:00)."),
    click.option("--sbatch", "more", multiple=True, metavar="--OPTION=VALUE",
                 help="Any other option of sbatch; may be repeated."),
    click.option("--print", "only_print", is_flag=True,
                 help="Write the scripts, and print the lines that would send them."),
    json_option,
)  # fmt: skip
def submit(
    partition: str, account: str, limit: str, more: tuple[str, ...], only_print: bool,
    as_json: bool, **options: Any,
) -> None:  # fmt: skip
    """Hand the runs of a plan to Slurm and return; again, it sends only what is missing."""
    from mcat.sweeps import slurm
    from mcat.sweeps.driver import wanted_again

    wishes = slurm.SlurmOptions(partition=partition, account=account, time=limit, more=more)
    with created(**options) as made:
        wanted_again(made)
        if only_print:
            for line in slurm.lines_to_send(made, wishes):
                click.echo(line)
            return
        jobs = slurm.submit(made, wishes)
    if as_json:
        click.echo(json.dumps(jobs, indent=2))
        return
    click.echo(f"{counted(len(jobs), 'job')} queued: mcat sweep status {made.folder}", err=True)


def resolved(
    *,
    plan: str | None,
    name: str | None = None,
    kind: str | None = None,
    settings: tuple[str, ...],
    grid: tuple[str, ...],
    variants: tuple[str, ...],
    cpus: int | None = None,
    out: Path | None,
) -> tuple[Plan, str, list[PlannedRun], Path]:
    """The plan that `plan_options` describe, its text, its runs, and where they go."""
    from mcat.commands.planned import Commands
    from mcat.sweeps.earlier import with_earlier_names
    from mcat.sweeps.plan_files import SWEEPS, folder_of, load_plan
    from mcat.sweeps.runs import resolve

    if plan is None and not (grid or variants):
        raise UsageError("say what to run: a plan (mcat sweep plan lists some), or --grid")
    told = {"name": name, "command": kind, "resources.cpus": cpus}
    changes = {key: value for key, value in told.items() if value is not None}
    chosen, text = load_plan(plan, settings=settings, grid=grid, variants=variants, changes=changes)
    folder = (out or (plan and folder_of(plan)) or SWEEPS / chosen.name).absolute()
    commands = Commands()
    return chosen, text, with_earlier_names(resolve(chosen, commands), folder, commands), folder


@contextmanager
def created(**options: Any) -> Iterator[Sweep]:
    """The sweep that `plan_options` describe, in its folder, which nobody else drives meanwhile."""
    from mcat.sweeps.driver import driven
    from mcat.sweeps.folder import create_sweep

    plan, text, runs, folder = resolved(**options)
    with driven(folder):
        yield create_sweep(plan, text, runs, folder)


def _states(runs: Sequence[PlannedRun], folder: Path) -> dict[str, str]:
    """What is known of runs, if there is a sweep already."""
    from mcat.sweeps.folder import open_sweep
    from mcat.sweeps.state import look

    try:
        return {state.run.name: state.state for state in look(open_sweep(folder))}
    except McatError:
        return {}


def _cost(runs: Sequence[PlannedRun], states: dict[str, str], cpus: int) -> str:
    """What the runs that are not done will take, as far as that was measured."""
    from mcat.sweeps.cost import cost_of

    to_do = [run for run in runs if states.get(run.name) != "done"]
    text = f"{counted(len(runs), 'run')}, {len(to_do)} to do"
    cost = cost_of(to_do, cpus)
    if not cost.core_hours:
        return text
    unknown = f", and {counted(cost.unknown, 'run')} that nobody measured" * bool(cost.unknown)
    return f"{text}: about {cost.core_hours:,.1f} core-hours{unknown} (docs/sweep.md)"


for _command in (
    sweep_watch.status,
    sweep_watch.stop,
    sweep_watch.report,
    sweep_watch.copy,
    sweep_watch.attempt,
):
    sweep.add_command(_command)
