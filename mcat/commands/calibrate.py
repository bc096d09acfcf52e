"""`mcat calibrate`."""

from __future__ import annotations

import json
from pathlib import Path

import click

from mcat.commands.help import Explained, json_option
from mcat.commands.options import out_option
from mcat.commands.tables import print_table


@click.command(
    cls=Explained,
    examples=(
        "mcat calibrate a-to-b a-to-c b-to-c",
        "mcat calibrate results/calibration.json runs/reproduce --out results   # adds to a page",
    ),
)
@click.argument("folders", metavar="FOLDER...", nargs=-1, required=True,
                type=click.Path(path_type=Path))  # fmt: skip
@out_option("FOLDER", "Where the page goes.", default="calibration", show_default=True)
@json_option
def calibrate(folders: tuple[Path, ...], out: Path, as_json: bool) -> None:
    """Ask whether estimates of trust came true: estimate against measured gain.

    Takes folders of mcat translate, or folders with such in them (the --work of mcat reproduce),
    and writes the rank correlation, what followed each grade, and a picture. The calibration.json
    of an earlier page counts too; of one pair, preset and seed, what is named last.
    """
    from mcat.reports.calibration.cases import agreement, calibration_json, read_cases
    from mcat.reports.calibration.page import headline, outcome_rows, write_calibration

    cases, others = read_cases(folders)
    if others:
        click.echo(f"note: {others} other results have no estimate or no returns", err=True)
    found = agreement(cases)
    paths = write_calibration(cases, out)
    if as_json:
        files = [str(path) for path in paths]
        click.echo(json.dumps(calibration_json(cases, found) | {"files": files}))
        return
    print_table("What followed each grade", outcome_rows(cases), err=True)
    click.echo(f"{headline(found)}.", err=True)
    for path in paths:
        click.echo(path)
