"""The state of a run as a function of its folder: nobody has to have been watching."""

from __future__ import annotations

import csv
import fcntl
import json
import math
import os
import socket
import time
from collections import Counter
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal

from mcat.agents.runs.record import RESULT_FILE
from mcat.leases import is_held, lease_of, start_of
from mcat.sweeps.endings import Ending, read_ending
from mcat.sweeps.folder import Sweep
from mcat.sweeps.runs import FILES, PlannedRun

State = Literal["done", "running", "queued", "waiting", "blocked", "stopped", "failed", "diverged"]
Result = dict[str, Any]  # what result.json says; empty of a command that makes a file
_SHOWN = ("eval/test", "eval/train", "eval/return")  # the first that a table has
_EARNED = ("test_return", "train_return", "mean_return")  # and that a result has
STALLED = 5.0  # times as long without a new row as a row takes


@dataclass(frozen=True, kw_only=True)
class Holder:
    """Who runs it, as its lock says."""

    pid: int = 0
    start: int = 0  # when it began, as numbers of processes are used again
    host: str = ""
    cores: tuple[int, ...] = ()
    since: float = 0.0  # when it took the lock

    @property
    def here(self) -> bool:
        """Whether it is a process of this machine."""
        return self.host == socket.gethostname() and self.pid > 0

    @property
    def lives(self) -> bool:
        """Whether it is one, and can be seen to be alive."""
        return self.here and bool(self.start) and start_of(self.pid) == self.start


@dataclass(frozen=True, kw_only=True)
class RunState:
    """What can be seen of a run."""

    run: PlannedRun  # which
    state: State  # what is to be done about it
    step: int = 0  # how far it has come
    seconds: float = 0.0  # what that took
    # Its latest mean return on test tasks, or on training tasks without those.
    test: float = math.nan
    age: float = math.nan  # seconds since it last wrote a row; NaN before the first
    holder: Holder | None = None  # who runs it; only of those that are running, and of all those
    ending: Ending | None = None  # how the last attempt ended

    @property
    def left(self) -> float:
        """Seconds that it will take, at its pace so far; NaN if that is not known."""
        if self.run.steps is None or not self.step or not self.seconds:
            return math.nan
        return max(0, self.run.steps - self.step) * self.seconds / self.step

    @property
    def stalled(self) -> bool:
        """Whether it runs, but has written nothing for far too long."""
        rows = max(1.0, self.step / 5000)
        return self.state == "running" and self.age > max(600.0, STALLED * self.seconds / rows)


def look(sweep: Sweep, *, detailed: bool = True) -> list[RunState]:
    """The states of all runs of a sweep, in their order; `detailed` ones say how far they are."""
    found: list[RunState] = []
    known: dict[str, State] = {}
    marks = sweep.folder / "stops"  # a copy of a sweep's results has none
    stops = set(os.listdir(marks)) if marks.is_dir() else set()
    made = {run.name: result for run in sweep.runs if (result := _made(sweep, run)) is not None}
    made = {name: {} for name in _unneeded(sweep, made)} | made
    for run in sweep.runs:
        state = _look_at(sweep, run, known, made, run.name in stops, detailed)
        known[run.name] = state.state
        found.append(state)
    return found


def _unneeded(sweep: Sweep, made: Collection[str]) -> set[str]:
    """Inputs of runs that are all made: those need not be there, as in a copy of the results."""
    needed: set[str] = set()
    for run in reversed(sweep.runs):  # inputs come before what needs them
        if run.name not in made and (run.variant or run.name in needed):
            needed |= set(run.needs)
    return {run.name for run in sweep.runs if not run.variant} - needed


def _look_at(
    sweep: Sweep, run: PlannedRun, known: dict[str, State], made: Mapping[str, Result], stop: bool,
    detailed: bool,
) -> RunState:  # fmt: skip
    progress: dict[str, Any] = {}
    if detailed and run.steps is not None:
        progress = _outcome(made.get(run.name, {})) or _progress(sweep.out(run))
    if run.name in made:
        ending = read_ending(sweep, run) if detailed else None
        return RunState(run=run, state="done", ending=ending, **progress)
    holder = holder_of(sweep, run)
    if holder is not None:
        # One that goes on has been silent for no longer than it runs again.
        silent = min(progress.pop("age", math.nan), time.time() - holder.since)
        return RunState(run=run, state="running", holder=holder, age=silent, **progress)
    ending = read_ending(sweep, run)
    state: State = "waiting"
    if ending is not None and ending.over(sweep.resources.retries):
        state = "diverged" if ending.kind == "diverged" else "failed"
    elif stop:
        state = "stopped"
    elif not all(known.get(name) == "done" for name in run.needs):
        state = "blocked"
    return RunState(run=run, state=state, ending=ending, **progress)


def is_made(sweep: Sweep, run: PlannedRun) -> bool:
    """Whether it has made what it should: the last file that it writes is there."""
    return _made(sweep, run) is not None


def _made(sweep: Sweep, run: PlannedRun) -> Result | None:
    """What a run says of itself that has made what it should; None of others."""
    out = sweep.out(run)
    if run.command in FILES:
        return {} if out.is_file() else None
    try:
        result = json.loads((out / RESULT_FILE).read_bytes())
        enough = run.steps is None or int(result["step"]) >= run.steps
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return dict(result) if enough else None


def _outcome(result: Result) -> dict[str, Any]:
    """What `_progress` would say of a run that is done; empty if its result does not tell."""
    earned = next((result[name] for name in _EARNED if result.get(name) is not None), None)
    if earned is None or "seconds" not in result:
        return {}
    seconds, test = (_number(str(value)) for value in (result["seconds"], earned))
    return {"step": int(result["step"]), "seconds": seconds, "test": test}


def holder_of(sweep: Sweep, run: PlannedRun) -> Holder | None:
    """Who runs it; None if nobody does.

    Its lock tells. Where a file system has none, its process does, if it is of this machine, or the
    lease that the run itself holds as soon as it works.
    """
    try:
        with open(sweep.lock(run), "rb") as file:
            holder = _holder(file.read(4096), os.fstat(file.fileno()).st_mtime)
            held = _is_held(file)
    except OSError:
        return None
    if held is None:
        held = holder.lives or any(map(is_locked, sweep.own_locks(run)))
    return holder if held else None


def is_locked(lock: Path) -> bool:
    """Whether a process holds a lock of mcat's, or its lease where there are no locks."""
    try:
        with open(lock, "rb") as file:
            held = _is_held(file)
    except OSError:
        return False
    return is_held(lease_of(lock)) if held is None else held


def _is_held(lock: BinaryIO) -> bool | None:
    """Whether an open lock is held; None if the file system has none."""
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    except OSError:
        return None


def _holder(content: bytes, since: float) -> Holder:
    with suppress(ValueError, TypeError, KeyError):
        said = json.loads(content)
        return Holder(
            pid=int(said["pid"]),
            start=int(said.get("start") or 0),
            host=str(said["host"]),
            cores=tuple(said["cores"]),
            since=since,
        )
    return Holder(since=since)


def _progress(out: Path) -> dict[str, Any]:
    """What the last row of metrics.csv says; the file may be long, so only its ends are read."""
    try:
        with (out / "metrics.csv").open("rb") as file:
            header = next(csv.reader([file.readline().decode()]), [])
            status = os.fstat(file.fileno())
            file.seek(max(0, status.st_size - 16384))
            end = file.read()
    except (OSError, UnicodeDecodeError):
        return {}
    shown = next((name for name in _SHOWN if name in header), "")
    last: dict[str, str] = {}
    test = math.nan
    for line in reversed(end.splitlines()[-12:]):
        row = line.decode(errors="replace").split(",")
        if len(row) == len(header) and not math.isfinite(test):
            cells = dict(zip(header, row, strict=True))
            last, test = last or cells, _number(cells.get(shown))
    return {
        "step": int(_number(last.get("step"), 0.0)),
        "seconds": _number(last.get("time/seconds"), 0.0),
        "test": test,
        "age": time.time() - status.st_mtime,
    }


def _number(text: str | None, otherwise: float = math.nan) -> float:
    try:
        value = float(text) if text else otherwise
    except ValueError:
        return otherwise
    return value if math.isfinite(value) else otherwise


def counts(states: Collection[RunState]) -> Counter[State]:
    """How many runs are in each state, those that occur."""
    return Counter(state.state for state in states)
