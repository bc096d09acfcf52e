"""`mcat plot`."""

from __future__ import annotations

import json
from pathlib import Path

import click

from mcat.commands.help import Explained, json_option
from mcat.commands.options import out_option, say


@click.command(
    cls=Explained,
    examples=(
        "mcat plot runs/*",
        "mcat plot runs/halfcheetah-armature-fast-seed0",
        "mcat plot runs/halfcheetah-armature-* --out plots/armature",
    ),
)
@click.argument("folders", metavar="RUN...", nargs=-1, required=True,
                type=click.Path(path_type=Path))  # fmt: skip
@out_option("FOLDER", "Where the pictures go.", default="plots", show_default=True)
@click.option("--labels", default="", metavar="NAME,NAME",
              help="What to call the curves (default: preset and what was changed).")  # fmt: skip
@click.option("--detail/--no-detail", default=None,
              help="Who drove and what contexts look like, for every run (default: for up to 3"
              " runs).")  # fmt: skip
@json_option
def plot(
    folders: tuple[Path, ...], out: Path, labels: str, detail: bool | None, as_json: bool
) -> None:
    """Show how runs of mcat metatrain and mcat train learn, finished or not.

    Learning curves on train and test tasks, how often they succeed where there are goals, which
    policy collected each episode, and contexts by task; runs that differ in their seed only are
    one curve with its standard error. Several methods on one family are also compared at equal
    steps and at equal CPU seconds.
    """
    from mcat.reports.comparison.equal import equal_section
    from mcat.reports.groups import group_runs
    from mcat.reports.learning.page import without_detail, write_learning
    from mcat.reports.learning.sections import (
        success_section,
        summary_numbers,
        summary_rows,
        with_goals,
    )
    from mcat.reports.printed import learner_note
    from mcat.reports.runs import read_runs
    from mcat.reports.tables import markdown_table

    runs = read_runs(folders, say)
    groups = group_runs(runs, [name.strip() for name in labels.split(",") if name.strip()])
    if detail is None and (note := without_detail(groups)):
        say(f"note: {note}")
    equal = equal_section(groups)
    if not as_json:
        rows = summary_rows(groups)
        click.echo(markdown_table(rows))
        if note := learner_note(rows):
            click.echo(f"\n{note}")
        if equal is not None:
            click.echo(f"\n{equal.reading}\n\n{markdown_table(equal.rows)}")
        if judged := with_goals(groups):
            section = success_section(judged)
            click.echo(f"\n{section.reading}\n\n{markdown_table(section.rows)}")
    paths = []
    for path in write_learning(groups, out, detail=detail, last=equal):
        paths.append(str(path))
        if not as_json:
            click.echo(path)
    if as_json:
        click.echo(json.dumps({"curves": summary_numbers(groups), "files": paths}))
