"""What an exit code means for a sweep: the one table that decides about another attempt."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from mcat.agents.runs.record import read_failure
from mcat.errors import DataError, StorageError, printable
from mcat.safe_io import is_file, read_json, write_json
from mcat.sweeps.folder import Sweep
from mcat.sweeps.runs import PlannedRun

Kind = Literal["done", "stopped", "busy", "killed", "diverged", "mistake"]

_KINDS: dict[int, Kind] = {
    0: "done",
    75: "stopped",  # on request, and saved
    130: "stopped",
    -2: "stopped",
    -15: "stopped",
    143: "stopped",
    73: "busy",  # somebody else works on it, or something is in its place
    3: "diverged",  # the physics, or
    4: "diverged",  # a loss: a result, and shown as one
    2: "mistake",
    65: "mistake",
    66: "mistake",
}
WAITS = (10.0, 60.0, 300.0)  # seconds before the next attempt at one that was killed
LINE = 300  # characters of its last words


@dataclass(frozen=True, kw_only=True)
class Ending:
    """How the last attempt at a run ended."""

    kind: Kind  # what the exit code means
    code: int  # the exit code; negative for a signal
    line: str  # the last line that the run said
    killed: int  # attempts so far that were killed, or whose disk or machine failed
    time: float  # when it ended, in seconds of the epoch
    attempts: int  # attempts so far

    def over(self, retries: int) -> bool:
        """Whether there shall be no further attempt."""
        return self.kind in ("diverged", "mistake") or self.killed > retries

    @property
    def again_at(self) -> float:
        """When the next attempt may begin, in seconds of the epoch."""
        if self.kind == "busy":
            return self.time + 1.0
        if self.kind == "killed":
            return self.time + WAITS[min(self.killed, len(WAITS)) - 1]
        return self.time


def kind_of(code: int, *, made: bool, busy: bool) -> Kind:
    """What an exit code means for a run that has, or has not, made what it should."""
    kind = _KINDS.get(code, "killed")
    if kind == "done" and not made:
        return "killed"
    return "mistake" if kind == "busy" and not busy else kind


def read_ending(sweep: Sweep, run: PlannedRun) -> Ending | None:
    """How the last attempt ended; None if none has, or its file is no ending."""
    noted = _noted(sweep, run)
    if noted is not None and noted.kind == "diverged":
        return noted
    lost = read_failure(sweep.out(run))  # as of a run whose driver was no more when it diverged
    if lost is None:
        return noted
    return Ending(
        kind="diverged", code=lost.code, line=lost.line, killed=0, time=time.time(),
        attempts=1 + (noted.attempts if noted is not None else 0),
    )  # fmt: skip


def _noted(sweep: Sweep, run: PlannedRun) -> Ending | None:
    """The ending that somebody saw and noted, on the disk or so far in memory only."""
    if run.name in sweep.unwritten:
        keep(sweep, run, sweep.unwritten[run.name])
    if run.name in sweep.unwritten:
        return sweep.unwritten[run.name]
    path = sweep.ending(run)
    try:
        return Ending(**read_json(path)) if is_file(path) else None
    except (DataError, TypeError):  # what it held is not worth a sweep: the run is tried again
        return None


def keep(sweep: Sweep, run: PlannedRun, ending: Ending) -> None:
    """Write an ending down; where the disk is full, remember it, and try again at the next look."""
    sweep.unwritten[run.name] = ending
    with suppress(StorageError):
        write_json(sweep.ending(run), asdict(ending), overwrite=True)
        del sweep.unwritten[run.name]


def write_ending(
    sweep: Sweep, run: PlannedRun, code: int, *, made: bool, busy: bool = False, line: str = ""
) -> Ending:
    """Note how an attempt ended; see `kind_of`. Without a `line`, the last that the run said."""
    before = _noted(sweep, run)
    kind = kind_of(code, made=made, busy=busy)
    killed = before.killed if before is not None else 0
    ending = Ending(
        kind=kind,
        code=code,
        line=line or _last_line(sweep, run),
        killed=killed + (kind == "killed"),
        time=time.time(),
        attempts=1 + (before.attempts if before is not None else 0),
    )
    keep(sweep, run, ending)
    more: dict[str, Any] = {} if kind == "done" else {"line": ending.line}
    sweep.note(kind, run, code=code, **more)
    return ending


def forgive(sweep: Sweep, run: PlannedRun) -> None:
    """Forget failures that another attempt may mend; one that diverged would do so again."""
    ending = read_ending(sweep, run)
    if ending is not None and ending.kind in ("mistake", "killed", "busy"):
        keep(sweep, run, replace(ending, kind="stopped", killed=0, time=0.0))


def _last_line(sweep: Sweep, run: PlannedRun) -> str:
    try:
        with sweep.log(run).open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - 4096))
            lines = file.read().decode(errors="replace").strip().splitlines()
    except OSError:
        return ""
    return printable(lines[-1], LINE) if lines else ""
