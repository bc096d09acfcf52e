"""`mcat doctor`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

from mcat.commands.help import Explained, json_option
from mcat.commands.tables import print_table
from mcat.errors import McatError, counted


class UnwellError(McatError):
    """Something is broken without which mcat cannot work."""

    exit_code = 1


@click.command(
    cls=Explained,
    examples=("mcat doctor", "mcat doctor --at /scratch/runs --json"),
)
@click.option(
    "--at",
    "folder",
    type=click.Path(path_type=Path),
    default=Path(),
    metavar="FOLDER",
    help="Where results shall go (default: here): its locks and its free space.",
)
@json_option
def doctor(folder: Path, as_json: bool) -> None:
    """Look at this machine: what is there, what is missing, and for which commands.

    Imports what is installed, draws a picture and takes a lock, each where a crash does no harm.
    Ends with 0 unless something is broken that every command needs.
    """
    from mcat.commands.examination import examine

    findings = examine(folder)
    if as_json:
        click.echo(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        rows = [("", "", "found", "for", "what to do")]
        rows += [(f.state, f.name, f.found, f.needed_for, f.advice) for f in findings]
        print_table("This machine", rows)
    broken = [finding for finding in findings if finding.state == "broken"]
    if broken:
        count = counted(len(broken), "thing")
        raise UnwellError(f"{count} broken: {', '.join(finding.name for finding in broken)}")
