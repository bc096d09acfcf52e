"""Tables on the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from mcat.errors import printable

if TYPE_CHECKING:
    from rich.table import Table

GAP = 2  # between two columns


def print_table(title: str, rows: Sequence[Sequence[str]], *, err: bool = False) -> None:
    """Print rows, the first being the heading; piped output is not wrapped, to be searchable.

    Cells may hold what files say: it is text, neither markup nor orders to the terminal.
    """
    from rich.console import Console

    rows = [[printable(cell, 1000) for cell in row] for row in rows]
    console = Console(stderr=err)
    if not console.is_terminal:
        console.width = 200
    # click writes it: rich ends the program when nobody reads on (`mcat envs list | head`).
    with console.capture() as captured:
        console.print(_table(printable(title), rows, console.width))
    click.echo(captured.get(), err=err)


def _table(title: str, rows: Sequence[Sequence[str]], room: int) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    heading, body = rows[0], rows[1:]
    widths = _widths(rows, room)
    if widths is None:  # too narrow: the cells of a row below one another
        names = max(map(len, heading))
        widths = [names, max(room - names - GAP, 1)]
        body = [pair for row in body for pair in (*zip(heading, row, strict=True), ("", ""))][:-1]
        heading = "", ""
    table = Table(
        title=Text(title),
        title_justify="left",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        show_header=any(heading),
        pad_edge=False,
        padding=(0, GAP - 1, 0, 0),
    )
    for name, width in zip(heading, widths, strict=True):
        table.add_column(Text(name), overflow="fold", width=width)
    for row in body:
        table.add_row(*map(Text, row))
    return table


def _widths(rows: Sequence[Sequence[str]], room: int) -> list[int] | None:
    """Widths at which no word is broken, or None if `room` is too small for that."""
    columns = list(zip(*rows, strict=True))
    least = [
        max(len(word) for cell in column for word in (cell.split() or [""])) for column in columns
    ]
    widths = [max(map(len, column)) for column in columns]
    room -= GAP * (len(columns) - 1)
    while sum(widths) > room:
        able = [n for n, width in enumerate(widths) if width > least[n]]
        if not able:
            return None
        widths[max(able, key=widths.__getitem__)] -= 1
    return widths
