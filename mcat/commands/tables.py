"""Tables on the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from mcat.errors import printable


def print_table(title: str, rows: Sequence[Sequence[str]], *, err: bool = False) -> None:
    """Print rows, the first being the heading; piped output is not wrapped, to be searchable.

    Cells may hold what files say: it is text, neither markup nor orders to the terminal.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    rows = [[printable(cell, 1000) for cell in row] for row in rows]
    table = Table(
        title=Text(printable(title)), box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False
    )
    heading, *body = rows
    for column in heading:
        table.add_column(column, overflow="fold")
    for row in body:
        table.add_row(*(Text(cell) for cell in row))
    console = Console(stderr=err)
    if not console.is_terminal:
        console.width = 200
    console.print(table)
