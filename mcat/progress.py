"""Progress on stderr: a bar with rate and ETA on a terminal, a plain line now and then in a log."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

PLAIN_INTERVAL = 30.0  # seconds between lines when stderr is not a terminal


class Progress:
    """Shows how far a long job is.

    with Progress("collecting", total=100_000, unit="steps") as progress:
        progress.advance(1000, note="return 312")

    Args:
        description: What is being done.
        total: How many units there are.
        unit: What is counted.
        done: Units finished before (a resumed job).
        quiet: Show nothing.
    """

    def __init__(
        self, description: str, total: int, unit: str = "steps", *, done: int = 0,
        quiet: bool = False,
    ) -> None:  # fmt: skip
        self.description = description
        self.total = total
        self.unit = unit
        self.done = done
        self.quiet = quiet
        self._first = done
        self._note = ""
        self._started = self._last_line = time.monotonic()
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Self:
        self._started = self._last_line = time.monotonic()
        if not self.quiet and sys.stderr.isatty():
            self._open_bar()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._bar is not None:
            self._bar.stop()
        elif not self.quiet:
            self._print_line()

    def advance(self, units: int = 1, note: str | None = None) -> None:
        """Count `units` more as done; `note` is shown until the next one."""
        self.done += units
        if note is not None:
            self._note = note
        if self._bar is not None:
            self._bar.update(self._task, completed=self.done, note=self._note, rate=self.rate)
        elif not self.quiet and time.monotonic() - self._last_line >= PLAIN_INTERVAL:
            self._print_line()

    def note(self, text: str) -> None:
        """Change the text beside the bar."""
        self.advance(0, note=text)

    @property
    def rate(self) -> float:
        """Units per second in this process."""
        return (self.done - self._first) / max(time.monotonic() - self._started, 1e-9)

    def _print_line(self) -> None:
        self._last_line = time.monotonic()
        left = (self.total - self.done) / self.rate if self.rate > 0 else 0.0
        eta = f", {_clock(left)} left" if 0 < self.done < self.total else ""
        note = f" · {self._note}" if self._note else ""
        print(
            f"{self.description}: {self.done:,}/{self.total:,} {self.unit}"
            f" ({self.rate:,.0f}/s{eta}){note}",
            file=sys.stderr,
            flush=True,
        )

    def _open_bar(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        self._bar = RichProgress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]:,.0f} " + self.unit + "/s"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
            console=Console(stderr=True),
        )
        self._task = self._bar.add_task(
            self.description, total=self.total, completed=self.done, note="", rate=0.0
        )
        self._bar.start()


class Stopwatch:
    """How long each phase takes."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def time(self, phase: str) -> Iterator[None]:
        """Count what happens meanwhile as `phase`."""
        started = time.monotonic()
        yield
        self.seconds[phase] = round(time.monotonic() - started, 2)


def _clock(seconds: float) -> str:
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"
