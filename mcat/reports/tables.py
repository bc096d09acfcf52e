"""Tables of robots, families and policies, made from their declarations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mcat.envs.families import FAMILIES
from mcat.envs.robots import ROBOTS, Robot, as_text
from mcat.envs.tasks import Family, Task
from mcat.errors import printable

Rows = Sequence[tuple[str, ...]]


def robot_rows() -> Rows:
    """One row per robot, the heading first."""
    heading = ("robot", "gymnasium id", "obs", "act", "parameters", "what it is")
    return [heading] + [
        (
            robot.name,
            robot.env_id,
            str(robot.observation_size),
            str(robot.action_size),
            " ".join(parameter.name for parameter in robot.parameters),
            robot.summary,
        )
        for robot in ROBOTS.values()
    ]


def parameter_rows(robot: Robot) -> Rows:
    """One row per parameter of a robot, the heading first."""
    heading = ("parameter", "stock", "values", "what it does")
    return [heading] + [
        (p.name, as_text(p.default), p.describe(), p.help) for p in robot.parameters
    ]


def family_rows() -> Rows:
    """One row per family, the heading first."""
    heading = ("family", "varies", "train", "test", "delay")
    return [heading] + [
        (
            family.name,
            ", ".join(family.varies),
            _values(family, family.train),
            _values(family, family.test),
            str(family.train[0].delay),
        )
        for family in FAMILIES.values()
    ]


def _values(family: Family, tasks: Sequence[Task]) -> str:
    first = family.varies[0]
    if all(first in task.params for task in tasks):
        return " ".join(as_text(task.params[first]) for task in tasks)
    return " ".join(task.label() for task in tasks)


def markdown_table(rows: Iterable[Sequence[str]]) -> str:
    """A table, its heading first."""
    heading, *body = ([printable(cell, 1000) for cell in row] for row in rows)
    lines = [heading, ["---"] * len(heading), *body]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def page() -> str:
    """The whole of docs/environments.md below its introduction."""
    parts = ["## Robots", markdown_table(robot_rows())]
    for robot in ROBOTS.values():
        parts += [f"### {robot.name}", markdown_table(parameter_rows(robot))]
    parts += ["## Families", markdown_table(family_rows())]
    notes = [f"- `{f.name}`: {f.note}" for f in FAMILIES.values() if f.note]
    return "\n\n".join([*parts, "\n".join(notes)]) + "\n"


def policy_rows() -> Sequence[tuple[str, ...]]:
    """One row per packaged policy, the heading first."""
    from mcat.agents.policies.names import packaged_policies  # numpy: few commands need it

    heading = ("task", "level", "steps", "return", "file")
    return [heading] + [
        (
            item.path.stem.rpartition("-")[0],
            item.level,
            f"{item.step:,}",
            f"{item.mean_return:,.0f}",
            item.path.name,
        )
        for item in packaged_policies()
    ]
