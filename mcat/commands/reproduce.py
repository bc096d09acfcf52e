"""`mcat reproduce`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from mcat.commands.help import Explained, group
from mcat.commands.options import quiet_option, threads_option, workers_option
from mcat.interrupts import stopping_at_once

if TYPE_CHECKING:
    from mcat.translator.configs import Loss


@click.command(
    cls=Explained,
    examples=(
        "mcat reproduce table1",
        "mcat reproduce table1 --row halfcheetah --seeds 0",
        "mcat reproduce table1 --method cloning --method offline-rl",
    ),
)
@click.argument("table", metavar="table1|heatmaps|pairs|rewards|extension")
@group(
    "Settings",
    click.option("--row", "rows", multiple=True, metavar="NAME",
                 help="Only this row; may be repeated (default: all)."),
    click.option("--method", "methods", multiple=True, metavar="NAME",
                 help="Only this column, such as ours, cycle, cloning or offline-rl; may be "
                 "repeated (default: all)."),
    click.option("--preset", default="cpu", show_default=True, metavar="NAME",
                 help="cpu (at most an hour a row), paper (as printed, three days a translator), "
                 "released (as the authors' code, an hour; table1, heatmaps), smoke (seconds)."),
    click.option("--transfer-loss", type=click.Choice(["l1", "nll"]),
                 help="L_trans: distance to F's mean, or likelihood under F (default: the "
                 "preset's; nll in paper, else l1)."),
    click.option("--seeds", default="0,1,2", show_default=True, metavar="N,N,...",
                 help="One training of each method per seed."),
    click.option("--episodes", default=100, show_default=True, type=click.IntRange(1),
                 help="Episodes of each policy."),
    threads_option,
    workers_option,
)  # fmt: skip
@group(
    "The result",
    click.option("--work", default="runs/reproduce", show_default=True, metavar="FOLDER",
                 type=click.Path(path_type=Path),
                 help="Logs and translators; what is there is not made again."),
    click.option("--out", default="results", show_default=True, metavar="FOLDER",
                 type=click.Path(path_type=Path), help="Where the table goes."),
    quiet_option,
)  # fmt: skip
def reproduce(
    table: str,
    rows: tuple[str, ...],
    methods: tuple[str, ...],
    preset: str,
    transfer_loss: Loss | None,
    seeds: str,
    episodes: int,
    work: Path,
    out: Path,
    threads: int,
    workers: int,
    quiet: bool,
) -> None:
    """Repeat the paper's transfer experiments and write them beside its numbers.

    Can be stopped and called again: what is finished is kept. Several calls may work in one --work
    folder at once: what one of them is making, the others wait for.
    """
    with stopping_at_once(
        f"stopped: finished logs and translators are kept in {work}; the same command goes on"
    ):
        from mcat.errors import UsageError
        from mcat.paper.run import ReproduceConfig
        from mcat.paper.run import reproduce as run
        from mcat.reports.reproduction.page import require_writable, write_reproduction

        try:
            numbers = tuple(int(part) for part in seeds.split(","))
        except ValueError:
            raise UsageError(f"--seeds takes numbers such as 0,1,2, not '{seeds}'") from None
        config = ReproduceConfig(
            table=table,
            rows=rows,
            methods=methods,
            preset=preset,
            transfer_loss=transfer_loss,
            seeds=numbers,
            episodes=episodes,
            threads=threads,
        )
        require_writable(out, table)
        summary = run(
            config,
            work,
            quiet=quiet,
            notify=lambda text: click.echo(text, err=True),
            workers=workers,
        )
        paths = write_reproduction(summary, out)
    for path in paths:
        click.echo(path)
