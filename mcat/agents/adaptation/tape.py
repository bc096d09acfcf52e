"""Every real step, written down as it happens: what a machine did once is not asked of it again."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mcat.errors import DataError
from mcat.safe_io import io_errors, open_input

Row = NDArray[np.float64]
_BYTES = np.dtype(np.float64).itemsize
_OVER, _CUT = 1.0, 2.0  # how an episode ended: by the machine, or because the process did


class Recorded(NamedTuple):
    """One step as it is on tape; one that is `lost` led nobody knows where."""

    obs: Row
    action: NDArray[np.float32]
    reward: float
    next_obs: Row
    terminal: bool
    over: bool
    cut: bool
    lost: bool


class Tape:
    """A file of steps, one row of numbers each, that only grows.

    The first part of a row, observation and action, is written before the action is taken. So a
    step during which the process was killed is known to have been made, though not where it led.
    """

    def __init__(self, path: Path, obs_size: int, act_size: int) -> None:
        self.path = path
        # obs, action | reward, next_obs, terminal, how it ended, lost
        self._cuts = np.cumsum([obs_size, act_size, 1, obs_size, 1, 1])
        self._asked, self._width = obs_size + act_size, 2 * obs_size + act_size + 4
        with io_errors(path, "write"):
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        self._rows: list[Row] = []
        self._read()

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, number: int) -> Recorded:
        obs, action, reward, next_obs, terminal, end, lost = np.split(
            self._rows[number], self._cuts
        )
        return Recorded(
            obs, action.astype(np.float32), float(reward[0]), next_obs, bool(terminal[0]),
            bool(end[0]), end[0] == _CUT, bool(lost[0]),
        )  # fmt: skip

    def ask(self, obs: Row, action: NDArray[np.float32]) -> None:
        """Write what is about to be done."""
        self._rows.append(np.concatenate((obs, action)))
        self._write(self._rows[-1])

    def answer(self, reward: float, next_obs: Row, *, terminal: bool, over: bool) -> None:
        """Write where it led."""
        self._complete(np.concatenate(((reward,), next_obs, (terminal, _OVER * over, False))))

    def lose(self) -> None:
        """Write that where it led is not known; the episode is over."""
        missing = np.zeros(self._width - self._asked)
        missing[-2:] = _CUT, True
        self._complete(missing)

    def cut(self) -> None:
        """Note that the last episode was broken off."""
        self._rows[-1][-2] = _CUT
        with io_errors(self.path, "write"):
            # In place; a file that is open for appending could only grow.
            place = os.open(self.path, os.O_WRONLY)
            try:
                os.pwrite(place, np.float64(_CUT).tobytes(), (len(self) * self._width - 2) * _BYTES)
            finally:
                os.close(place)

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._file)

    def _complete(self, rest: Row) -> None:
        self._rows[-1] = np.concatenate((self._rows[-1], rest))
        self._write(rest)
        if rest[-2]:  # a power cut costs no more than the episode that runs
            with io_errors(self.path, "write"):
                os.fsync(self._file)

    def _write(self, values: Row) -> None:
        data = values.astype(np.float64).tobytes()
        with io_errors(self.path, "write"):
            if os.write(self._file, data) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _read(self) -> None:
        """Take in what is there; a last row that is not whole is completed or dropped."""
        with open_input(self.path) as file:
            data = file.read()
        whole, rest = divmod(len(data) // _BYTES, self._width)
        numbers = np.frombuffer(data[: (whole * self._width + rest) * _BYTES], np.float64)
        if not np.isfinite(numbers).all():
            raise DataError(f"{self.path}: damaged, it holds numbers that are not finite")
        self._rows = list(numbers[: whole * self._width].reshape(whole, self._width).copy())
        asked = rest >= self._asked
        kept = whole * self._width + (self._asked if asked else 0)
        with io_errors(self.path, "write"):
            os.ftruncate(self._file, kept * _BYTES)
        if asked:
            start = whole * self._width
            self._rows.append(numbers[start : start + self._asked].copy())
            self.lose()
