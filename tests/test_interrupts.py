"""Signals set a flag; the second Ctrl-C stops at once."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from mcat.interrupts import Interrupts


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 75), (signal.SIGUSR1, 75), (signal.SIGUSR2, 75)],
)
def test_signals_set_a_flag_and_the_exit_code(number, code):
    before = signal.getsignal(number)
    with Interrupts() as stop:
        assert stop.requested is None
        os.kill(os.getpid(), number)
        assert stop.requested == number
        error = stop.error("saved 3 steps")
    assert signal.getsignal(number) is before
    assert error.exit_code == code
    assert str(error) == f"saved 3 steps ({number.name})"


def test_a_second_ctrl_c_stops_at_once():
    with Interrupts() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.requested == signal.SIGINT
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_ctrl_c_after_sigterm_still_finishes_the_step():
    with Interrupts() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.requested == signal.SIGINT


def test_interrupts_do_nothing_in_another_thread():
    seen = []

    def work():
        with Interrupts() as stop:
            seen.append(stop.requested)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [None]
