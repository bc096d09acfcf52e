"""`mcat envs list` and `show` in terminals of any width."""

import re

import pytest
from click.testing import CliRunner

from mcat.cli import cli
from mcat.envs import FAMILIES, ROBOTS


def shown(command, width, monkeypatch):
    """The lines a terminal of that width shows, without their colours."""
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich then takes the output for a terminal
    monkeypatch.setenv("COLUMNS", str(width))
    result = CliRunner().invoke(cli, command.split())
    assert result.exit_code == 0
    return re.sub(r"\x1b\[[0-9;]*m", "", result.output).splitlines()


@pytest.mark.parametrize("width", [80, 60])
def test_no_name_is_broken(width, monkeypatch):
    lines = shown("envs list", width, monkeypatch)
    assert max(map(len, lines)) <= width
    words = {word for line in lines for word in line.split()}
    assert words >= ROBOTS.keys() | FAMILIES.keys() | {r.env_id for r in ROBOTS.values()}
    assert words >= {p.name for robot in ROBOTS.values() for p in robot.parameters}
    for name in ("ant-damping-released", "reach-goals", "metaworld-objects"):
        item = FAMILIES[name]
        lines = shown(f"envs show {name}", width, monkeypatch)
        words = {word for line in lines for word in line.split()}
        assert words >= {task.spec.env_id for task in item.tasks}
        labels = {task.label(item.varies[0]) for task in item.tasks}
        assert words >= {label for label in labels if len(label) < width - 20}
    for name in ("ant", "reach"):
        lines = shown(f"envs show {name}", width, monkeypatch)
        words = {word for line in lines for word in line.split()}
        assert words >= {p.name for p in ROBOTS[name].parameters}


def test_the_list_is_a_table_in_an_ordinary_terminal(monkeypatch):
    """One line for most families, not a paragraph."""
    lines = shown("envs list", 80, monkeypatch)
    assert sum(line.startswith(tuple(FAMILIES)) for line in lines) == len(FAMILIES)
