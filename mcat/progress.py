"""Progress on stderr: a bar with rate and ETA on a terminal, a plain line now and then in a log."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self

Notify = Callable[[str], None]  # told in a sentence what is odd, or what takes long


def ignore(text: str) -> None:
    """A `Notify` for whom nothing is worth telling."""


PLAIN_INTERVAL = 30.0  # seconds between lines when stderr is not a terminal
SHORTEST_LABEL, SHORTEST_METER, LONGEST_METER = 11, 4, 30  # characters


class Progress:
    """Shows how far a long job is.

    with Progress("collecting", total=100_000, unit="steps") as progress:
        progress.advance(1000, note="return 312")
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
        self._meter: Any = None  # the drawn part of the bar

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
            self._show()
        elif not self.quiet and time.monotonic() - self._last_line >= PLAIN_INTERVAL:
            self._print_line()

    def note(self, text: str) -> None:
        """Change the text beside the bar."""
        self.advance(0, note=text)

    @property
    def rate(self) -> float:
        """Units per second in this process."""
        return (self.done - self._first) / max(time.monotonic() - self._started, 1e-9)

    def _count(self) -> str:
        return f"{self.done:,}/{self.total:,}"

    def _left(self) -> str:
        """How long it will take, as far as it can be known."""
        if not (0 < self.done < self.total and self.rate > 0):
            return ""
        return f"{_clock((self.total - self.done) / self.rate)} left"

    def _print_line(self) -> None:
        self._last_line = time.monotonic()
        left = f", {self._left()}" if self._left() else ""
        note = f" · {self._note}" if self._note else ""
        print(
            f"{self.description}: {self._count()} {self.unit} ({self.rate:,.0f}/s{left}){note}",
            file=sys.stderr,
            flush=True,
        )

    def _open_bar(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as RichProgress

        self._meter = BarColumn()
        self._bar = RichProgress(
            TextColumn("{task.description}", markup=False),
            self._meter,
            TextColumn("{task.fields[facts]}", markup=False),
            console=Console(stderr=True),
        )
        self._bar.add_task("", total=self.total, facts="")
        self._show()
        self._bar.start()

    def _show(self) -> None:
        """Fit everything into the terminal's width, what matters most first."""
        facts = [self._count(), self._left() or "-:--:--"]
        room = self._bar.console.width - sum(len(fact) + 1 for fact in facts)
        room -= SHORTEST_METER + min(len(self.description), SHORTEST_LABEL) + 1
        speed = f"{self.rate:,.0f} {self.unit}/s"
        if len(speed) < room:
            facts.insert(1, speed)
            room -= len(speed) + 1
        note = _shortened(self._note, room - 1)
        room -= len(note) + 1
        label = _shortened(self.description, SHORTEST_LABEL + max(room, 0))
        room -= len(label) - min(len(self.description), SHORTEST_LABEL)
        self._meter.bar_width = min(SHORTEST_METER + max(room, 0), LONGEST_METER)
        self._bar.update(
            self._bar.task_ids[0],
            completed=self.done,
            description=label,
            facts=" ".join([*facts, note]),
        )


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


def _shortened(text: str, length: int) -> str:
    """At most `length` characters of `text`, the last being … if some are missing."""
    return text if len(text) <= length else text[: max(length - 1, 0)] + "…" * (length > 0)


def _clock(seconds: float) -> str:
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"
