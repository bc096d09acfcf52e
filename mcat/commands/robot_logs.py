"""`mcat dataset import` and `mcat dataset repair`: logs as they come off a robot."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import click

from mcat.commands.help import Explained, group, json_option, together
from mcat.commands.options import out_option, overwrite_option, there
from mcat.errors import CannotCreateError, UsageError, counted
from mcat.safe_io import exists_already, io_errors

_logs = together(
    click.argument("files", metavar="LOG...", nargs=-1, required=True,
                   type=click.Path(path_type=Path)),
    group(
        "Which columns",
        click.option("--robot", type=click.Path(path_type=Path), callback=there,
                     metavar="CARD.toml",
                     help="A card that names columns, units, bounds and rate; the options below "
                     "count more."),
        click.option("--obs", metavar="NAME,NAME...",
                     help="Columns of an observation, in this order; * stands for anything "
                     "(default: obs_*)."),
        click.option("--act", metavar="NAME,NAME...",
                     help="Columns of an action, as executed (default: act_*)."),
        click.option("--episode", metavar="NAME",
                     help="What changes when a new episode begins, a number or a text; each file "
                     "begins one anyway."),
        click.option("--time", metavar="NAME", help="The time of each row, in seconds unless "
                     "--units says otherwise, or as an ISO date."),
        click.option("--reward", metavar="NAME", help="What each row was paid."),
        click.option("--terminal", metavar="NAME",
                     help="Whether a row's action ended its episode for good."),
    ),
    group(
        "What they are",
        click.option("--units", metavar="NAME=UNIT,...", help="Such as q*=rad,tau*=N·m,t=ms."),
        click.option("--bounds", metavar="NAME=LIMIT,...",
                     help="What the machine can do: tau1=8 is from -8 to 8, grip=0:1 from 0 to 1. "
                     "Actions with bounds are learned from, and commanded, in their own units."),
        click.option("--clip", is_flag=True,
                     help="Cut actions beyond their bounds, as the motors did."),
        click.option("--rate", type=click.FloatRange(0, 1e6, min_open=True), metavar="HZ",
                     help="Bring all logs to this rate, by their time; without one, the rate that "
                     "they have."),
    ),
    group(
        "The result",
        out_option("FILE.h5", "Where to write.", required=True),
        overwrite_option,
        json_option,
    ),
)  # fmt: skip


@click.command(
    "import",
    cls=Explained,
    examples=(
        "mcat dataset import arm.csv --obs q1,dq1 --act tau1 --time t --bounds tau1=8 --out arm.h5",
        "mcat dataset import monday.parquet tuesday.parquet --robot arm.toml --out arm.h5",
    ),
)
@_logs
def import_log(**options: Any) -> None:
    """Make a data set of logs whose columns have names, units and bounds of their own.

    LOG is a .csv, .csv.gz, .parquet, .npz or .h5 file, or any other data set, such as LeRobot's,
    whose numbers shall get units and bounds. Several are logs of one machine. Names, units, bounds
    and rate stay with the data, and with translators and policies made of it.
    """
    _import(mend=False, **options)


@click.command(
    "repair",
    cls=Explained,
    examples=(
        "mcat dataset repair cut-off.csv --robot arm.toml --out saved.h5",
        "mcat dataset repair log.csv.gz --out saved.h5   # columns obs_0, …, act_0, …",
    ),
)
@_logs
def repair_log(**options: Any) -> None:
    """Save what can be saved of damaged logs, and say what could not.

    Lines that were cut off, rows with NaN or empty fields and repeated rows are left out; where
    rows are missing or time runs backwards, an episode ends and another begins. Nothing is made up,
    and LOG stays as it is.
    """
    _import(mend=True, **options)


def _import(
    *,
    mend: bool,
    files: tuple[Path, ...],
    robot: Path | None,
    clip: bool,
    out: Path,
    overwrite: bool,
    as_json: bool,
    **options: Any,
) -> None:
    if out.suffix.lower() not in (".h5", ".hdf5"):
        raise UsageError(f"--out {out}: data sets are HDF5, name it {out.stem}.h5")
    with io_errors(out, "write"):
        if os.path.lexists(out):
            if any(file.exists() and out.samefile(file) for file in files):
                raise CannotCreateError(f"{out} is the log itself: choose another --out")
            if not overwrite:
                raise exists_already(out)

    from mcat.datasets.columns import LogColumns, read_card, with_options
    from mcat.datasets.hdf5 import write_dataset
    from mcat.datasets.imports import import_logs

    columns = with_options(LogColumns() if robot is None else read_card(robot), **options)
    store, metadata, said = import_logs(files, columns, clip=clip, mend=mend)
    write_dataset(out, store, metadata, overwrite=overwrite)
    if as_json:
        told = {"path": str(out), "transitions": len(store), "episodes": store.num_episodes}
        click.echo(json.dumps(told | {"said": said, "rate_hz": metadata.get("rate_hz")}))
        return
    for line in said:
        click.echo(f"note: {line}", err=True)
    if mend and not said:
        click.echo("nothing was wrong", err=True)
    episodes = counted(store.num_episodes, "episode")
    click.echo(f"{counted(len(store), 'transition')} in {episodes}", err=True)
    click.echo(out)
