"""Which runs there shall be: a TOML file, or options that say the same.

name = "armature"
about = "Is transfer worth it?"  # a line for the page of the sweep
command = "metatrain"
[common]                      # settings of all runs, as options or --set take them
preset = "fast"
[grid]                        # every combination; "0-4" are the numbers from 0 to 4
family = ["halfcheetah-armature", "hopper-size"]
seed = "0-2"
[[variant]]                   # what is compared, in the order of the report
name = "MCAT"
[[variant]]
name = "no transfer"
mcat.transfer = false
[[input]]                     # made once, for all that name it as "@logs"
name = "logs"
command = "collect"
env = "ant"
[resources]
cpus = 1
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from mcat.config import flatten, overlay
from mcat.errors import UsageError, printable, unknown

_KEYS = ("name", "about", "command", "common", "grid", "variant", "input", "resources")
_RANGE = re.compile(r"(\d+)-(\d+)")
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*")
MOST_RUNS = 100_000  # a slip in a range, not a plan

Settings = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Resources:
    """What one run takes."""

    # Threads, cores that it is kept on and cores that are reserved for it: one number.
    cpus: int = 1
    memory: str = "3GB"  # what Slurm and Ray reserve, such as "3GB"
    retries: int = 3  # how often a run that was killed, or whose disk failed, is started again
    # Slurm's limit of one attempt, such as "4:00:00"; the run goes on after it.
    time: str = "4:00:00"

    def __post_init__(self) -> None:
        if self.cpus < 1 or self.retries < 0:
            raise UsageError("resources: cpus must be at least 1, and retries not negative")
        if not re.fullmatch(r"\d+(\.\d+)?(KB|MB|GB|TB)", self.memory):
            raise UsageError(f"resources: memory takes a size such as 3GB, not '{self.memory}'")
        if not re.fullmatch(r"(\d+-)?\d+(:\d+){0,2}", self.time):
            raise UsageError(f"resources: time takes 4:00:00, not '{self.time}'")

    @property
    def memory_bytes(self) -> int:
        """The memory as a number."""
        size, unit = float(self.memory[:-2]), self.memory[-2:]
        return int(size * 1000 ** (1 + ("KB", "MB", "GB", "TB").index(unit)))


@dataclass(frozen=True, kw_only=True)
class Point:
    """A run as a plan describes it, before it is known what its command makes of that."""

    variant: str  # which row of the comparison it belongs to; of an input its name
    command: str  # of mcat
    settings: Settings  # by option or key
    axes: tuple[str, ...] = ()  # the settings that differ from run to run

    @property
    def needs(self) -> tuple[str, ...]:
        """The inputs that it names."""
        return tuple(dict.fromkeys(_references(self.settings.values())))


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a plan says, as it was given."""

    name: str  # of the sweep
    command: str = "metatrain"  # what the runs are of
    # Names and their settings, in the order of the report.
    variants: tuple[tuple[str, Settings], ...] = (("all", {}),)
    common: Settings  # settings of all runs
    grid: dict[str, tuple[Any, ...]]  # settings of which every combination is run
    inputs: dict[str, Point]  # what is made once, by name
    resources: Resources = Resources()  # what one run takes
    about: str = ""  # a line for the page of the sweep

    def points(self) -> list[Point]:
        """Every run: variants change before the grid's last axis does."""
        combinations = itertools.product(*self.grid.values())
        return [
            Point(
                variant=name,
                command=self.command,
                settings={**self.common, **dict(zip(self.grid, values, strict=True)), **own},
                axes=tuple(self.grid),
            )
            for values in combinations
            for name, own in self.variants
        ]


def plan_of(values: Mapping[str, Any], *, default_name: str = "sweep") -> Plan:
    """The plan that a TOML file describes.

    Raises:
        UsageError: naming what no plan can say.
    """
    for key in values:
        if key not in _KEYS:
            raise unknown("key of a plan", key, _KEYS)
    command = _text(values.get("command", "metatrain"), "command")
    plan = Plan(
        name=_name(values.get("name", default_name), "plan"),
        command=command,
        variants=_variants(values.get("variant", [])),
        common=flatten(table_of(values, "common")),
        grid={k: _axis(k, v) for k, v in flatten(table_of(values, "grid")).items()},
        inputs=_inputs(values.get("input", [])),
        resources=_resources(table_of(values, "resources")),
        about=printable(_text(values.get("about", ""), "about"), 500),
    )
    if len(plan.variants) * math.prod(map(len, plan.grid.values())) > MOST_RUNS:
        raise UsageError(f"these are more than {MOST_RUNS:,} runs: is a range too long?")
    _require_inputs(plan)
    return plan


def table_of(values: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """The table under a key of a plan, empty if there is none.

    Raises:
        UsageError: if something else is there.
    """
    table = values.get(key, {})
    if not isinstance(table, Mapping):
        raise UsageError(f"{key} is a table of settings, not {table!r:.60}")
    return table


def _axis(key: str, value: Any) -> tuple[Any, ...]:
    if isinstance(value, str) and (found := _RANGE.fullmatch(value)):
        first, last = map(int, found.groups())
        if last < first or last - first >= MOST_RUNS:
            raise UsageError(f"grid: {key} = {value} is no range from a smaller to a larger number")
        return tuple(range(first, last + 1))
    values = value if isinstance(value, list) else [value]
    if not values:
        raise UsageError(f"grid: {key} has no values, so there would be no run")
    if len({repr(item) for item in values}) < len(values):
        raise UsageError(f"grid: {key} lists a value twice")
    return tuple(tuple(item) if isinstance(item, list) else item for item in values)


def _tables(values: Any, kind: str) -> list[Mapping[str, Any]]:
    if not isinstance(values, list) or not all(isinstance(value, Mapping) for value in values):
        raise UsageError(f"{kind}s are tables: [[{kind}]]")
    return values


def _variants(tables: Any) -> tuple[tuple[str, Settings], ...]:
    found: dict[str, Settings] = {}
    for table in _tables(tables, "variant"):
        if "name" not in table:
            raise UsageError("a variant needs a name")
        name = _text(table["name"], "name of a variant")
        if name in found or not name.strip():
            raise UsageError(f"two variants are called '{name}', or one has no name")
        found[name] = flatten({key: value for key, value in table.items() if key != "name"})
    return tuple(found.items()) or (("all", {}),)


def _inputs(tables: Any) -> dict[str, Point]:
    found: dict[str, Point] = {}
    for table in _tables(tables, "input"):
        if not {"name", "command"} <= table.keys():
            raise UsageError("an input needs a name and a command")
        name = _name(table["name"], "input")
        if name in found:
            raise UsageError(f"two inputs are called '{name}'")
        own = {key: value for key, value in table.items() if key not in ("name", "command")}
        found[name] = Point(
            variant=name,
            command=_text(table["command"], "command"),
            settings=flatten(own),
        )
    return found


def _require_inputs(plan: Plan) -> None:
    """Refuse inputs that nobody makes, and those that wait for one another."""
    for point in (*plan.points(), *plan.inputs.values()):
        for name in point.needs:
            if name not in plan.inputs:
                raise unknown("input", f"@{name}", [f"@{known}" for known in plan.inputs])
    in_order(plan.inputs)


def in_order(inputs: Mapping[str, Point]) -> list[str]:
    """The names of inputs, each after those that it needs.

    Raises:
        UsageError: if some need one another.
    """
    order: list[str] = []
    while len(order) < len(inputs):
        ready = [
            name
            for name, point in inputs.items()
            if name not in order and set(point.needs) <= set(order)
        ]
        if not ready:
            left = " and ".join(name for name in inputs if name not in order)
            raise UsageError(f"inputs wait for one another in a circle: {left}")
        order += ready
    return order


def _references(values: Iterable[Any]) -> Iterable[str]:
    for value in values:
        if isinstance(value, list | tuple):
            yield from _references(value)
        elif isinstance(value, str) and value.startswith("@"):
            yield value[1:]


def _resources(table: Mapping[str, Any]) -> Resources:
    for key in table:
        names = [field.name for field in fields(Resources)]
        if key not in names:
            raise unknown("resource", key, names)
    return overlay(Resources(), table)


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise UsageError(f"{what} takes text, not {value!r:.60}")
    return value


def _name(value: Any, what: str) -> str:
    name = _text(value, f"name of the {what}")
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"the name of the {what} is also that of a folder: letters, digits, - . _ only,"
            f" not '{name}'"
        )
    return name
