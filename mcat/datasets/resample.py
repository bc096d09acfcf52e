"""Logs at another rate: what a controller that ticks evenly would have seen and done."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mcat.datasets.episodes import EpisodeStore
from mcat.datasets.named import RawLog
from mcat.datasets.pace import MAX_GAP, pace_of
from mcat.errors import DataError, counted


def resample(log: RawLog, rate_hz: float) -> tuple[EpisodeStore, list[str]]:
    """The episodes of a log at an even rate, and what became of it, in words.

    Observations are interpolated. The action of a tick is the mean of what was commanded in it, and
    its reward the sum, so that neither impulse nor return is lost. Where nothing was logged for
    long, an episode ends and another begins.

    Raises:
        DataError: if it has no time, or one that stands still or runs backwards.
    """
    if log.time is None:
        raise DataError("it has no time by which to resample: name its column by --time")
    pace = pace_of(log.time, log.ends)
    if pace is None:
        raise DataError("its time never goes on, so there is nothing to resample")
    longest = MAX_GAP * max(pace.usual, 1 / rate_hz)
    parts, dropped, pauses = [], 0, 0
    for first, end in zip(log.ends - np.diff(log.ends, prepend=0), log.ends, strict=True):
        steps = np.diff(log.time[first:end])
        if (steps <= 0).any():
            row = first + 1 + int(np.argmax(steps <= 0))
            raise DataError(f"its time does not go on at row {row}: mcat dataset repair mends that")
        cuts = np.flatnonzero(steps > longest) + 1
        pauses += len(cuts)
        for piece in np.split(np.arange(first, end), cuts):
            ticks = int((log.time[piece[-1]] - log.time[piece[0]]) * rate_hz + 1e-6)
            if ticks < 1:
                dropped += len(piece)
            else:
                parts.append(_at_ticks(log, piece, ticks, rate_hz))
    if not parts:
        raise DataError(f"no episode is as long as one tick of {rate_hz:g} Hz")
    lengths = [len(part["actions"]) for part in parts]
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    store = EpisodeStore.from_arrays(**joined, episode_ends=np.cumsum(lengths))
    said = [f"resampled from {pace} to {rate_hz:g} Hz: {len(log.actions):,} rows to {len(store):,}"]
    if pauses:
        said.append(f"{counted(pauses, 'pause')} of more than {longest:.3g} s end an episode each")
    if dropped:
        said.append(f"{counted(dropped, 'row')} in pieces shorter than a tick left out")
    return store, said


def _at_ticks(
    log: RawLog, piece: NDArray[np.int64], ticks: int, rate_hz: float
) -> dict[str, NDArray[np.float64]]:
    """The arrays of an episode made of the rows `piece`."""
    assert log.time is not None
    time = log.time[piece] - log.time[piece[0]]
    moments = np.arange(ticks + 1) / rate_hz
    seen = _interpolated(moments, time, log.observations[piece])
    # A command holds until the next one: its integral is a line between rows.
    held = np.diff(time)[:, None] * log.actions[piece[:-1]]
    commanded = np.diff(_interpolated(moments, time, _summed(held)), axis=0) * rate_hz
    used = log.actions[piece]
    arrays = {
        "observations": seen[:-1],
        "next_observations": seen[1:],
        "actions": np.clip(commanded, used.min(axis=0), used.max(axis=0)),  # of rounding errors
    }
    if log.rewards is not None:
        paid = _summed(log.rewards[piece[:-1], None])
        arrays["rewards"] = np.diff(_interpolated(moments, time, paid), axis=0)[:, 0]
    return arrays


def _summed(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The sum of all rows before each, and of all of them."""
    return np.concatenate([np.zeros((1, values.shape[1])), np.cumsum(values, axis=0)])


def _interpolated(
    moments: NDArray[np.float64], time: NDArray[np.float64], values: NDArray[np.float64]
) -> NDArray[np.float64]:
    return np.column_stack([np.interp(moments, time, column) for column in values.T])
