"""A plan made definite: every run with its command line, its folder and its name."""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from mcat.agents.runs.record import RECORD_FILE
from mcat.errors import McatError, UsageError
from mcat.safe_io import dump_json, read_json
from mcat.sweeps.plan import Plan, Point, Settings, in_order

FILES = {"collect": ".h5", "evaluate": ".json"}  # commands that make one file, not a folder
COMMANDS = ("metatrain", "train", "adapt", "translate", "collect", "evaluate")
THREADED = ("metatrain", "train", "adapt", "translate")  # with --threads, the others --workers
SHARING = ("translate", "collect", "evaluate")
COUNTING = ("metatrain", "train", "adapt")  # whose runs go on if more steps are asked for
NOT_YET_MADE = "/dev/null"  # stands for an input while a plan is checked
LONGEST_NAME = 120


class Interpreter(Protocol):
    """What knows the commands: their options, and what they make of them."""

    def arguments(self, command: str, settings: Settings) -> list[str]:
        """Settings as the command line has them; raises `UsageError` for an unknown one."""
        ...

    def config(self, command: str, arguments: Sequence[str]) -> dict[str, Any]:
        """What the command would do, as JSON; raises `UsageError` if it would refuse."""
        ...

    def defaults(self, command: str, config: Mapping[str, Any]) -> dict[str, Any]:
        """The settings in such a config that need not be given, under dotted keys."""
        ...


@dataclass(frozen=True, kw_only=True)
class PlannedRun:
    """One run of a sweep."""

    name: str  # of its folder, its log and its lock
    variant: str  # which row of the comparison it belongs to; empty for an input
    command: str  # of mcat
    arguments: tuple[str, ...]  # the command line, without where to write and how loudly
    out: str  # what it makes, in the folder of the sweep
    steps: int | None  # how many it shall have made; None where the command counts none
    needs: tuple[str, ...]  # the names of the runs whose results it takes
    of: str  # the family or the robot that it is about, for people
    where: str = ""  # what it is tried with, apart from family and seed, such as "delay 200"
    # What the command makes of its arguments; empty in a sweep that was opened, see `configs_of`.
    config: dict[str, Any] = field(default_factory=dict, compare=False)

    def command_line(self, folder: Path, cpus: int) -> list[str]:
        """What to start: it begins the run, goes on with it or finds it done."""
        line = [sys.executable, "-m", "mcat", self.command, *self.arguments]
        line = [part.replace("{sweep}", str(folder)) for part in line]
        line += ["--out", str(folder / self.out), "--quiet"]
        if self.command in THREADED:
            line += ["--threads", str(_begun_with(folder / self.out) or cpus)]
        line += ["--workers", str(cpus)] if self.command in SHARING else []
        return [*line, "--resume"]

    def to_json(self) -> dict[str, Any]:
        """For `plan.lock.json`, without its config; `from_json` is the way back."""
        whole = {**vars(self), "arguments": list(self.arguments), "needs": list(self.needs)}
        return {name: value for name, value in whole.items() if name != "config"}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> PlannedRun:
        """The run of which `to_json` made that, now or when configs were part of it."""
        lists = {name: tuple(data[name]) for name in ("arguments", "needs")}
        of = data["of"] if "of" in data else _of(data["command"], data["config"])
        return cls(**{**data, **lists, "of": of})


def _of(command: str, config: Mapping[str, Any]) -> str:
    return str(config.get("family", config.get("env", command)))


def _begun_with(out: Path) -> int | None:
    """The threads of a run that was begun: with others it would be another run, and refuse."""
    try:
        return int(read_json(out / RECORD_FILE)["config"]["threads"])
    except (McatError, KeyError, TypeError, ValueError):  # not begun, or it says itself what is odd
        return None


def resolve(plan: Plan, commands: Interpreter) -> list[PlannedRun]:
    """Every run of a plan, inputs first; nothing is started or written.

    Raises:
        UsageError: if a run would be refused, or two are the same.
    """
    made: dict[str, PlannedRun] = {}  # inputs by their names in the plan
    for name in in_order(plan.inputs):
        made[name] = _definite(plan.inputs[name], plan, made, commands, is_input=True)
    runs = [_definite(point, plan, made, commands, is_input=False) for point in plan.points()]
    first: dict[str, PlannedRun] = {}
    for run in runs:
        digest = run.name[-8:]
        if digest in first:
            twins = f"'{first[digest].variant}' and '{run.variant}' make"
            if first[digest].variant == run.variant:
                twins = "two points of the grid make"
            raise UsageError(f"{twins} the same run ({' '.join(run.arguments)}): leave one out")
        first[digest] = run
    used = {name for run in (*runs, *made.values()) for name in run.needs}
    return [*(run for run in made.values() if run.name in used), *runs]


def _definite(
    point: Point, plan: Plan, made: Mapping[str, PlannedRun], commands: Interpreter, is_input: bool
) -> PlannedRun:
    if point.command not in COMMANDS:
        raise UsageError(f"a plan runs {', '.join(COMMANDS)}, not '{point.command}'")
    paths = {name: f"{{sweep}}/{run.out}" for name, run in made.items()}
    arguments = commands.arguments(point.command, _with_inputs(point.settings, paths))
    trial = dict.fromkeys(paths, NOT_YET_MADE)
    checked = commands.arguments(point.command, _with_inputs(point.settings, trial))
    try:
        config = commands.config(point.command, checked)
    except UsageError as error:
        raise UsageError(
            f"{'input' if is_input else 'variant'} '{point.variant}': {error}"
        ) from None
    needs = tuple(made[name].name for name in point.needs)
    counts = point.command in COUNTING
    identity = {key: value for key, value in config.items() if key not in ("threads", "steps")}
    identity |= {} if counts else {"steps": config.get("steps")}
    digest = hashlib.sha256(dump_json([point.command, identity, needs]).encode()).hexdigest()[:8]
    name = f"{_readable(point, plan, is_input)}-{digest}"
    place = "inputs" if is_input else "runs"
    return PlannedRun(
        name=name,
        variant="" if is_input else point.variant,
        command=point.command,
        arguments=tuple(arguments),
        out=f"{place}/{name}{FILES.get(point.command, '')}",
        steps=int(config["steps"]) if counts else None,
        needs=needs,
        of=_of(point.command, config),
        config=config,
        where=", ".join(
            f"{key.rpartition('.')[2].replace('_', ' ')} {point.settings[key]}"
            for key in point.axes
            if key not in ("family", "env", "seed")
        ),
    )


def _with_inputs(settings: Settings, paths: Mapping[str, str]) -> Settings:
    """The settings, with paths for what they say of inputs."""

    def path(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return [path(item) for item in value]
        return paths[value[1:]] if isinstance(value, str) and value.startswith("@") else value

    return {key: path(value) for key, value in settings.items()}


def _readable(point: Point, plan: Plan, is_input: bool) -> str:
    """The part of a name that people read."""
    parts = [point.variant] if is_input or len(plan.variants) > 1 else []
    for key in sorted(point.axes, key=lambda key: (key != "family", key == "seed")):
        value = str(point.settings[key])
        parts.append(value if key in ("family", "env") else f"{key.rpartition('.')[2]}{value}")
    if not is_input and "family" in point.axes:
        parts.insert(0, parts.pop(1 if len(plan.variants) > 1 else 0))
    text = "-".join(parts) or point.command
    return re.sub(r"[^A-Za-z0-9.-]+", "-", text).strip("-.").lower()[:LONGEST_NAME] or "run"
