"""What an earlier version of mcat, or another machine, made of the same plan.

A run's name ends in a hash of its settings, so a version with more settings gives it another one.
What is finished under its earlier name is not made again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from mcat.config import completed
from mcat.safe_io import dump_json
from mcat.sweeps.folder import LOCK_FILE, configs_of, open_sweep
from mcat.sweeps.runs import COUNTING, Interpreter, PlannedRun
from mcat.sweeps.state import is_made


def with_earlier_names(
    runs: Sequence[PlannedRun], folder: Path, commands: Interpreter
) -> list[PlannedRun]:
    """The same runs, those that are finished under another name with that one.

    A finished run is the same if all settings that it names are equal, and those that it does not
    know have their defaults. One that is unfinished cannot go on in another version: it is left
    where it is, and begun again.

    Raises:
        DataError: if the sweep that is there is damaged.
    """
    if not (folder / LOCK_FILE).is_file():
        return list(runs)
    sweep = open_sweep(folder)
    now = {run.name for run in runs}
    configs = configs_of(folder)
    there = {
        _identity(replace(run, config=configs[run.name]), run.needs, commands): run
        for run in sweep.runs
        if run.name not in now and run.name in configs
    }
    earlier: dict[str, str] = {}  # names, by those of today
    found: list[PlannedRun] = []
    for run in runs:
        needs = tuple(earlier.get(name, name) for name in run.needs)
        other = there.get(_identity(run, needs, commands))
        if other is not None:
            earlier[run.name] = other.name
            moved = replace(run, name=other.name, out=other.out)
            run = moved if is_made(sweep, moved) and not is_made(sweep, run) else run
        found.append(run)
    return _renamed(found, runs)


def _identity(run: PlannedRun, needs: Sequence[str], commands: Interpreter) -> str:
    """What tells a run from others, whichever version wrote its settings down."""
    settings = completed(run.config, commands.defaults(run.command, run.config))
    free = ("threads", "steps") if run.command in COUNTING else ("threads",)
    return dump_json([run.command, needs, {k: v for k, v in settings.items() if k not in free}])


def _renamed(found: Sequence[PlannedRun], runs: Sequence[PlannedRun]) -> list[PlannedRun]:
    """The runs, with what they take from others under the names that these have."""
    names = {old.name: new.name for old, new in zip(runs, found, strict=True)}
    paths = {old.out: new.out for old, new in zip(runs, found, strict=True) if old.out != new.out}

    def text(argument: str) -> str:
        for old, new in paths.items():
            argument = argument.replace(f"{{sweep}}/{old}", f"{{sweep}}/{new}")
        return argument

    return [
        replace(
            run,
            needs=tuple(names[name] for name in run.needs),
            arguments=tuple(map(text, run.arguments)),
        )
        for run in found
    ]
