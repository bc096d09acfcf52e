"""The folder of a sweep: what it is made of, and where everything about a run lies.

plan.toml        as it was given
plan.lock.json   every run: its command line, its folder, what it needs
plan.configs.json  what each command makes of that
runs/, inputs/   what the runs make: ordinary folders of runs, and files
logs/            what each run said
endings/         how the last attempt at each run ended
locks/           held while a run is alive
stops/           runs that shall not go on
events.jsonl     what happened when, for people
report/          what came out of it
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcat.config import from_json, to_json
from mcat.errors import DataError, MissingInputError
from mcat.formats import require_format, stamp
from mcat.safe_io import io_errors, is_file, new_file, read_json, write_json
from mcat.sweeps.plan import Plan, Resources
from mcat.sweeps.runs import PlannedRun

if TYPE_CHECKING:
    from mcat.sweeps.endings import Ending

PLAN_FILE, LOCK_FILE, FORMAT = "plan.toml", "plan.lock.json", 2
CONFIGS_FILE = "plan.configs.json"  # apart, as it is ten times as long and seldom read
DRIVER_LOCK = ".driver.lock"  # held by whoever drives the sweep
_FOLDERS = ("runs", "inputs", "logs", "endings", "locks", "stops")


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """A sweep that has a folder."""

    folder: Path
    name: str
    runs: tuple[PlannedRun, ...]
    resources: Resources
    made_by: dict[str, Any]
    about: str = ""  # what its page shall say of it
    # Endings of runs that no disk took yet, by their names.
    unwritten: dict[str, Ending] = field(default_factory=dict, compare=False)

    def run(self, name: str) -> PlannedRun:
        """The run of that name.

        Raises:
            MissingInputError: if there is none.
        """
        for run in self.runs:
            if run.name == name:
                return run
        raise MissingInputError(f"{self.folder} has no run '{name}': see mcat sweep status")

    def out(self, run: PlannedRun) -> Path:
        """What it makes."""
        return self.folder / run.out

    def log(self, run: PlannedRun) -> Path:
        """What it said."""
        return self.folder / "logs" / f"{run.name}.log"

    def ending(self, run: PlannedRun) -> Path:
        """How its last attempt ended."""
        return self.folder / "endings" / f"{run.name}.json"

    def lock(self, run: PlannedRun) -> Path:
        """Held while it is alive."""
        return self.folder / "locks" / run.name

    def own_locks(self, run: PlannedRun) -> tuple[Path, Path]:
        """What the run itself holds while it works: in its folder, or beside its file."""
        out = self.out(run)
        return out / ".lock", out.with_name(f".{out.name}.part") / "lock"

    def stop_mark(self, run: PlannedRun) -> Path:
        """There if it shall not go on."""
        return self.folder / "stops" / run.name

    def note(self, event: str, run: PlannedRun | None = None, **more: Any) -> None:
        """Add a line to events.jsonl; nobody's decisions depend on it."""
        line = {"time": round(time.time(), 3), "host": socket.gethostname(), "event": event}
        line |= ({} if run is None else {"run": run.name}) | more
        with suppress(OSError), (self.folder / "events.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")


def create_sweep(plan: Plan, text: str, runs: Sequence[PlannedRun], folder: Path) -> Sweep:
    """Make the folder of a sweep, or renew the plan of the one that is there.

    What runs made stays, whatever the plan says now: points that are no longer in it are left
    alone.
    """
    from mcat.provenance import provenance  # here because whoever only looks would wait for it

    with io_errors(folder, "write"):
        for name in _FOLDERS:
            (folder / name).mkdir(parents=True, exist_ok=True)
    made_by = provenance()
    with new_file(folder / PLAN_FILE, overwrite=True) as part:
        part.write_text(text, encoding="utf-8")
    # With those of runs that are in the plan no more: they are known again if they come back.
    configs = configs_of(folder) | {run.name: run.config for run in runs}
    write_json(folder / CONFIGS_FILE, {**stamp(FORMAT), "configs": configs}, overwrite=True)
    content = {
        **stamp(FORMAT),
        "name": plan.name,
        "about": plan.about,
        "resources": to_json(plan.resources),
        "made_by": made_by,
        "runs": [run.to_json() for run in runs],
    }
    write_json(folder / LOCK_FILE, content, overwrite=True)
    return open_sweep(folder)


def open_sweep(folder: Path) -> Sweep:
    """The sweep in a folder.

    Raises:
        MissingInputError: if there is none.
        DataError: if its files are damaged.
    """
    path = folder / LOCK_FILE
    if not path.is_file():
        raise MissingInputError(f"{folder} is no sweep: it has no {LOCK_FILE} (mcat sweep run)")
    content = _read(path)
    try:
        return Sweep(
            folder=folder,
            name=str(content["name"]),
            runs=tuple(PlannedRun.from_json(run) for run in content["runs"]),
            resources=from_json(Resources, content["resources"]),
            made_by=dict(content["made_by"]),
            about=str(content.get("about", "")),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{path}: not the runs of a sweep ({error})") from error


def configs_of(folder: Path) -> dict[str, dict[str, Any]]:
    """What the commands make of the runs of a sweep, by name; empty if there is no sweep.

    Raises:
        DataError: if the file is damaged.
    """
    path = folder / LOCK_FILE
    try:
        runs = _read(path)["runs"] if is_file(path) else ()
        found = {run["name"]: run["config"] for run in runs if "config" in run}  # of format 1
        path = folder / CONFIGS_FILE
        return found | (_read(path)["configs"] if is_file(path) else {})
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{path}: not the runs of a sweep ({error})") from error


def _read(path: Path) -> dict[str, Any]:
    content = read_json(path)
    if not isinstance(content, dict):
        raise DataError(f"{path}: not the runs of a sweep")
    if content.get("format") != 1:  # in which runs had their configs
        require_format(content, FORMAT, path)
    return content
