"""Ctrl-C and a scheduler's signals, seen by the work at moments when it can stop well."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from mcat.errors import RetryError

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)


class StoppedError(RetryError):
    """A signal stopped the work; the message says what is kept and how to go on."""

    def __init__(self, message: str, signal_number: signal.Signals) -> None:
        super().__init__(f"{message} ({signal_number.name})")
        self.signal = signal_number
        # The shell's convention for Ctrl-C; EX_TEMPFAIL asks a scheduler to queue the job again.
        self.exit_code = 130 if signal_number == signal.SIGINT else 75


class Interrupts:
    """While entered, signals only set a flag that the work polls between two steps.

        with Interrupts() as stop:
            for step in range(steps):
                work(step)
                if stop.requested:
                    save()
                    raise stop.error(f"stopped after {step} steps, saved to {path}")

    A second Ctrl-C raises KeyboardInterrupt at once. Outside the main thread, where Python
    delivers no signals, this does nothing.
    """

    def __init__(self) -> None:
        self.requested: signal.Signals | None = None
        self._previous: dict[signal.Signals, signal._HANDLER] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous.clear()

    def error(self, message: str) -> StoppedError:
        """The error to raise once everything is saved; it carries the exit code."""
        assert self.requested is not None, "no signal arrived"
        return StoppedError(message, self.requested)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and self.requested == signal.SIGINT:
            raise KeyboardInterrupt
        self.requested = signal.Signals(number)


@contextmanager
def stopping_at_once(message: str) -> Iterator[None]:
    """While entered, a signal raises `StoppedError(message)` wherever the work is.

    For work that has nothing to save: what it unwinds through must leave things as they were. Where
    the work uses `Interrupts` within, that decides when to stop, and this what is said.
    """

    def stop(number: int, frame: FrameType | None) -> NoReturn:
        raise StoppedError(message, signal.Signals(number))

    previous = {}
    if threading.current_thread() is threading.main_thread():
        previous = {number: signal.signal(number, stop) for number in SIGNALS}
    try:
        yield
    except StoppedError as stopped:
        raise StoppedError(message, stopped.signal) from stopped
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
