"""An even beat for a control loop, and how long a policy takes to answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from mcat.errors import UsageError
from mcat.types import AnyPolicy, started


class Ticks:
    """The ticks of a control loop, and how well they were kept.

    As in::

        ticks = Ticks(50)
        for _ in ticks.run(seconds=60):
            send(guard(read()))
        print(ticks)

    A tick whose work is not done when the next is due is late. The ticks that were missed are left
    out, not made up for: a burst of commands would be worse.

    Args:
        rate_hz: Ticks a second.
        clock: Says the time, in seconds.
        sleep: Waits for some seconds.

    Attributes:
        count: Ticks so far.
        late: How many of them were not done in time.
        missed: Ticks that were left out.
        worst: The longest that one took, in seconds.
    """

    def __init__(
        self,
        rate_hz: float,
        *,
        clock: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        if not 0 < rate_hz < float("inf"):
            raise UsageError(f"a rate is more than 0, not {rate_hz!r}")
        self.rate_hz, self._clock, self._sleep = rate_hz, clock, sleep
        self.count = self.late = self.missed = 0
        self.worst = 0.0

    def run(self, *, seconds: float | None = None) -> Iterator[int]:
        """The number of each tick when it is due; for some seconds, or until the loop is left."""
        period = 1 / self.rate_hz
        total = None if seconds is None else round(seconds * self.rate_hz)
        start = self._clock()
        tick = 0
        while total is None or tick < total:
            begun = self._clock()
            yield tick
            now = self._clock()
            self.count += 1
            self.worst = max(self.worst, now - begun)
            tick += 1
            due = start + tick * period
            if now > due:
                self.late += 1
                behind = int((now - due) / period)
                self.missed += behind
                tick += behind
                due += behind * period
            if now < due:
                self._sleep(due - now)

    def __str__(self) -> str:
        return (
            f"{self.count} ticks at {self.rate_hz:g} Hz: {self.late} late, {self.missed} missed,"
            f" the longest took {1e3 * self.worst:.3g} ms of {1e3 / self.rate_hz:.3g}"
        )


class Latency(NamedTuple):
    """How long a policy takes for one action, in seconds.

    Attributes:
        median: Half of the calls are faster.
        p99: Of a hundred calls one is slower.
        worst: The slowest.
    """

    median: float
    p99: float
    worst: float

    def __str__(self) -> str:
        median, p99, worst = (f"{1e6 * value:,.0f}" for value in self)
        return f"{median} µs for an action (99 of 100 within {p99}, the slowest {worst})"


def latency_of(
    policy: AnyPolicy, observation_size: int, *, calls: int = 500, seconds: float = 1.0
) -> Latency:
    """How long a policy takes on this machine as it is now, for one observation after another.

    Args:
        policy: Anything that acts.
        observation_size: Numbers in an observation; they are zero.
        calls: How many to time at most, after a tenth of as many that are not.
        seconds: After this long there are no more.
    """
    act, observation = started(policy), np.zeros((1, observation_size), np.float32)
    taken: list[float] = []
    while len(taken) < calls + calls // 10 and sum(taken) < seconds:
        begun = time.perf_counter()
        act(observation)
        taken.append(time.perf_counter() - begun)
    timed = np.array(taken[len(taken) // 11 :])
    return Latency(float(np.median(timed)), float(np.quantile(timed, 0.99)), float(timed.max()))
