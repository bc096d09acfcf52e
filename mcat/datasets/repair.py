"""What can be saved of a damaged log: rows that are whole, in the episodes that are left."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mcat.datasets.arrays import goes_on, steps_of
from mcat.datasets.named import RawLog
from mcat.datasets.pace import GAP, MAX_GAP, pace_of
from mcat.errors import DataError, counted

MIN_ROWS = 2  # of an episode: a step needs the row after it


def repair(log: RawLog) -> tuple[RawLog, list[str]]:
    """A log without the rows that cannot be used, and what was left out, in words.

    An episode with a hole becomes two, one before it and one after. Nothing is made up.

    Raises:
        DataError: if nothing is left.
    """
    said: list[str] = []
    log = _without(log, ~_finite(log), "NaN, infinite or empty", said)
    log = _in_time(log, said)
    if log.terminals is not None:
        log = _with_flags(log, said)
    lengths = np.diff(log.ends, prepend=0)
    short = np.repeat(lengths < MIN_ROWS, lengths)
    return _without(log, short, "without a row that follows", said), said


def _finite(log: RawLog) -> NDArray[np.bool_]:
    good = np.ones(len(log.actions), dtype=np.bool_)
    for name, values in log.columns.items():
        if name != "terminals":
            good &= np.isfinite(values.reshape(len(values), -1)).all(axis=1)
            if name != "time":  # beyond what a data set can hold
                good &= (np.abs(values.reshape(len(values), -1)) < 3e38).all(axis=1)
    return good


def _in_time(log: RawLog, said: list[str]) -> RawLog:
    """Without repeated rows, and in two where rows are missing or time runs backwards."""
    if log.time is None:
        return log
    again = (steps_of(log.ends) > 0) & np.append(False, np.diff(log.time) == 0)
    if again.any():
        said.append(f"{counted(int(again.sum()), 'row')} at the time of the row before: left out")
        log = log.kept(~again, np.zeros_like(again))
    assert log.time is not None
    pace = pace_of(log.time, log.ends)
    if pace is None:
        return log
    inside, steps = steps_of(log.ends) > 0, np.append(0.0, np.diff(log.time))
    pause = (GAP if pace.even else MAX_GAP) * pace.usual
    for wrong, what in (
        (inside & (steps < 0), "time runs backwards"),
        (inside & (steps > pause), f"nothing was logged for more than {pause:.3g} s"),
    ):
        if wrong.any():
            said.append(f"cut in two at {counted(int(wrong.sum()), 'place')} where {what}")
    return log.kept(np.ones_like(inside), inside & ((steps < 0) | (steps > pause)))


def _without(log: RawLog, bad: NDArray[np.bool_], why: str, said: list[str]) -> RawLog:
    if not bad.any():
        return log
    if bad.all():
        raise DataError("nothing can be saved: no two rows that follow one another are whole")
    said.append(f"{counted(int(bad.sum()), 'row')} {why}: left out")
    return log.kept(~bad, np.append(False, bad[:-1]))  # a hole ends an episode


def _with_flags(log: RawLog, said: list[str]) -> RawLog:
    """With flags of 0 and 1 only, at no row within an episode."""
    assert log.terminals is not None
    terminal = log.terminals == 1
    early = int((terminal & goes_on(log.ends)).sum())
    if early:
        said.append(f"cut in two at {counted(early, 'place')} after a terminal row")
    log.terminals = terminal.astype(np.float64)
    return log.kept(np.ones_like(terminal), np.append(False, terminal[:-1]))
