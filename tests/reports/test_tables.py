"""Tables on terminals of any width: no name is ever broken in two."""

import io
import re

import pytest
from rich.console import Console

from mcat.commands.tables import _table, print_table
from mcat.reports.tables import family_rows, policy_rows, robot_rows


def drawn(rows, width):
    console = Console(width=width, file=io.StringIO(), color_system=None)
    console.print(_table("A title", rows, width))
    return console.file.getvalue()


@pytest.mark.parametrize("width", [60, 80, 100, 200])
@pytest.mark.parametrize("rows", [robot_rows(), family_rows(), policy_rows()], ids=len)
def test_no_word_is_broken_and_no_line_too_long(rows, width):
    text = drawn(rows, width)
    words = {word for row in rows for cell in row for word in cell.split()}
    assert words <= set(text.split())
    assert max(map(len, text.splitlines())) <= width


def test_where_columns_do_not_fit_the_cells_stand_below_one_another():
    rows = [("robot", "id"), ("hopper", "mcat/Hopper-v0"), ("ant", "mcat/Ant-v0")]
    assert drawn(rows, 40).splitlines()[1].split() == ["robot", "id"]
    narrow = drawn(rows, 21).splitlines()
    assert [line.split() for line in narrow[1:] if line.strip()] == [
        ["robot", "hopper"], ["id", "mcat/Hopper-v0"], ["robot", "ant"], ["id", "mcat/Ant-v0"],
    ]  # fmt: skip


def test_what_is_piped_is_not_wrapped_and_markup_is_text(capsys):
    print_table("t", [("a", "b"), ("[bold]x[/bold]", "word " * 20)])
    (line,) = (line for line in capsys.readouterr().out.splitlines() if "word" in line)
    assert "[bold]x[/bold]" in line
    assert len(re.findall("word", line)) == 20
