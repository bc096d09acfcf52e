"""What is being done in an iteration: shown, timed, and stopped at a signal."""

from __future__ import annotations

import time
from pathlib import Path

from mcat.interrupts import Interrupts
from mcat.progress import Progress


class PhaseMonitor:
    """A `PhaseCallback`: shows what is being done, times it, and stops at a signal."""

    def __init__(self, out: Path, stop: Interrupts, progress: Progress, label: str) -> None:
        self._out, self._stop, self._progress, self._label = out, stop, progress, label
        self._seconds: dict[str, float] = {}
        self._phase = ""
        self._since = self._shown = time.monotonic()

    def __call__(self, phase: str, done: int, total: int) -> None:
        """Note that `done` of `total` small pieces of work in `phase` are over."""
        if self._stop.requested:
            raise self._stop.error(
                f"stopped in {self._label}, which starts again on resuming:"
                f" mcat metatrain --resume {self._out}"
            )
        now = time.monotonic()
        if phase != self._phase:
            self._turn(phase, now)
        if now - self._shown > 1 or done == 0:
            self._shown = now
            self._progress.note(f"{self._label}: {phase} {done:,}/{total:,}")

    def end(self) -> dict[str, float]:
        """End the last phase, and return the seconds that each phase took."""
        self._turn("", time.monotonic())
        self._seconds.pop("", None)
        return self._seconds

    def _turn(self, phase: str, now: float) -> None:
        self._seconds[self._phase] = self._seconds.get(self._phase, 0.0) + now - self._since
        self._phase, self._since = phase, now
