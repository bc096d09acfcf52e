"""`mcat reproduce`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from mcat.commands.help import Explained, group, json_option
from mcat.commands.options import out_option, quiet_option, say, threads_option, workers_option
from mcat.commands.settings import preset_option
from mcat.errors import UsageError, unknown
from mcat.interrupts import stopping_at_once
from mcat.paper.experiments import EXPERIMENTS
from mcat.safe_io import read_json

# Options that only one sort of table has a use for.
OF_TRANSFER, OF_RUNS = ("methods", "best_of", "threads", "workers"), ("steps", "jobs", "no_run")
# And those that say which runs there shall be.
OF_NEW_RUNS = ("rows", "preset", "transfer_loss", "seeds", "episodes", "steps", "jobs")
TABLES_HELP = (
    "\b\nTables of translators (5.1, C.2, C.3, E):\n  table1, heatmaps, rewards, extension\n\n"
    "\b\nTables and figures of runs (5.2, 5.3, C.4, D), each a plan of mcat sweep:\n"
    + "\n".join(f"  {name:<15} {found.title}" for name, found in EXPERIMENTS.items())
)


@click.command(
    cls=Explained,
    examples=(
        "mcat reproduce table1",
        "mcat reproduce table1 --row halfcheetah --seeds 0",
        "mcat reproduce table1 --method cloning --method offline-rl",
        "mcat reproduce transfer-effect --row ant-damping --steps 100000 --seeds 0,1",
        "mcat reproduce contrastive --no-run          # the table of the runs that are there",
    ),
    epilog=TABLES_HELP,
)
@click.argument("table", metavar="TABLE")
@group(
    "Settings",
    click.option("--row", "rows", multiple=True, metavar="NAME",
                 help="Only this row, of tables of runs a family; may be repeated (default: all)."),
    click.option("--method", "methods", multiple=True, metavar="NAME",
                 help="Only this column, such as ours, cycle, cloning or offline-rl; may be "
                 "repeated (default: all)."),
    preset_option("cpu (at most an hour a row), paper (as printed, three days a translator), "
                  "released (as the authors' code, an hour; table1, heatmaps) or smoke (seconds); "
                  "of runs those of mcat metatrain (default: cpu; of runs the plan's)"),
    click.option("--transfer-loss", type=click.Choice(["l1", "nll"]),
                 help="L_trans: distance to F's mean, or likelihood under F (default: the "
                 "preset's; nll in paper, else l1)."),
    click.option("--seeds", default="0,1,2", show_default=True, metavar="N,N,...",
                 help="One training of each method per seed."),
    click.option("--episodes", type=click.IntRange(1), metavar="N",
                 help="Episodes of each policy (default: 100; of runs, an evaluation's per task, "
                 "the preset's)."),
    click.option("--best-of", type=click.IntRange(0), metavar="N",
                 help="Try a translator on the target after each of N parts of its training and "
                 "tell the best too, as the paper does: optimistic (default: 30 in table1, else "
                 "and in smoke 0)."),
    threads_option,
    workers_option,
)  # fmt: skip
@group(
    "Tables of runs",
    click.option("--steps", type=click.IntRange(1), metavar="N",
                 help="Of each run (default: the plan's); one that is there goes on to more."),
    click.option("--jobs", type=click.IntRange(1), metavar="N",
                 help="Runs at once (default: one per core)."),
    click.option("--no-run", is_flag=True,
                 help="Start nothing: write the table of the runs that are there."),
)  # fmt: skip
@group(
    "The result",
    click.option("--work", metavar="FOLDER", type=click.Path(path_type=Path),
                 help="Logs and translators (default: runs/reproduce), or sweeps of runs (default: "
                 "sweeps, as of mcat sweep); what is there is not made again."),
    out_option("FOLDER", "Where the table goes.", default="results", show_default=True),
    quiet_option,
    json_option,
)  # fmt: skip
@click.pass_context
def reproduce(context: click.Context, /, table: str, **options: Any) -> int:
    """Repeat the paper's experiments and write them beside its numbers.

    Can be stopped and called again: what is finished is kept. Several calls may work in one --work
    folder at once: what one of them is making, the others wait for.
    """
    seeds, out, quiet = _seeds(options["seeds"]), options["out"], options["quiet"]
    _require_of_table(context, table)
    if table in EXPERIMENTS:
        from mcat.commands.reproduced import reproduce_runs

        given = ("preset", "steps", "episodes", "transfer-loss")
        paths, finished = reproduce_runs(
            table, rows=options["rows"], seeds=seeds, work=options["work"], out=out,
            settings={name: options[name.replace("-", "_")] for name in given},
            jobs=options["jobs"], start=not options["no_run"], quiet=quiet,
        )  # fmt: skip
        _tell(paths, options["as_json"])
        return 0 if finished else 1
    work = options["work"] or Path("runs/reproduce")
    with stopping_at_once(
        f"stopped: finished logs and translators are kept in {work}; the same command goes on"
    ):
        from mcat.paper.config import ReproduceConfig
        from mcat.paper.run import reproduce as run
        from mcat.reports.files import require_writable
        from mcat.reports.reproduction.page import write_reproduction

        names = ("rows", "methods", "transfer_loss", "best_of", "threads")
        config = ReproduceConfig(
            table=table, seeds=seeds, preset=options["preset"] or "cpu",
            episodes=options["episodes"] or 100, **{name: options[name] for name in names},
        )  # fmt: skip
        require_writable(out, table)
        summary = run(config, work, quiet=quiet, notify=say, workers=options["workers"])
        paths = write_reproduction(summary, out)
    _tell(paths, options["as_json"])
    return 0


def _tell(paths: Sequence[Path], as_json: bool) -> None:
    """Name the files of a table, or print what the first of them holds."""
    if as_json:
        click.echo(json.dumps(read_json(paths[0]) | {"files": list(map(str, paths))}))
        return
    for path in paths:
        click.echo(path)


def _seeds(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise UsageError(f"--seeds takes numbers such as 0,1,2, not '{text}'") from None


def _require_of_table(context: click.Context, table: str) -> None:
    """Refuse an unknown table, and options that it has no use for."""
    from mcat.paper.tables import TABLES

    if table not in TABLES and table not in EXPERIMENTS:
        raise unknown("table", table, [*TABLES, *EXPERIMENTS])
    given = {
        option.name: option.opts[0]
        for option in context.command.params
        if context.get_parameter_source(option.name or "") != ParameterSource.DEFAULT
    }
    for name in OF_TRANSFER if table in EXPERIMENTS else OF_RUNS:
        if name in given:
            made = "runs of mcat metatrain" if table in EXPERIMENTS else "translators"
            raise UsageError(f"{table} is made from {made}: leave out {given[name]}")
    for name in OF_NEW_RUNS if "no_run" in given else ():
        if name in given:
            raise UsageError(f"--no-run takes the runs that are there: leave out {given[name]}")
