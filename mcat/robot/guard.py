"""A policy with limits around it: whatever it is shown or answers, motors get what they can do."""

from __future__ import annotations

from collections import Counter

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mcat.datasets.cards import Card
from mcat.errors import UsageError
from mcat.types import AnyPolicy, started

Vector = NDArray[np.float32]


class Guard:
    """Acts for a policy, one observation after the other, and never leaves the limits.

    An action is cut to its bounds, and changes no faster than `slew` allows. An observation that is
    NaN, infinite or out of range is not shown to the policy: the action before it is held, and
    after `hold` of them in a row the guard goes to rest and stays there. If the policy fails or
    answers nonsense, it does so at once. No call raises an error because of what a sensor says.

    Args:
        policy: Anything that acts; one with a memory begins an episode.
        card: Names and bounds; actions must have bounds, observations without are not looked at.
        slew: How fast an action may change, in its units a second; one number for all or one for
            each. None: as fast as it likes.
        rate_hz: Calls a second; None for the card's.
        hold: Bad observations in a row that are bridged by the action before them.
        rest: The action in which nothing can happen; zero, or what is nearest to it.

    Attributes:
        counts: How often what happened: "steps", "bad" (observations), "held", "cut" (to the
            bounds), "slowed", "failed" (answers of the policy).
        stopped: Why it is at rest; None while it acts.
        wanted: What was asked for at the last call, before the limits: worth a place in the log.

    Raises:
        UsageError: if the actions have no bounds, or numbers do not fit.
    """

    def __init__(
        self,
        policy: AnyPolicy,
        card: Card,
        *,
        slew: ArrayLike | None = None,
        rate_hz: float | None = None,
        hold: int = 3,
        rest: ArrayLike | None = None,
    ) -> None:
        limits, rate = card.limits, rate_hz or card.rate_hz
        if limits is None:
            raise UsageError("a guard needs the bounds of every action: give them in the card")
        if slew is not None and rate is None:
            raise UsageError("how far an action may go in a step depends on the rate: give rate_hz")
        self.policy, self.card, self.hold = policy, card, hold
        self._low, self._high = limits.inner()
        size = len(card.actions)
        self._rest = self._vector("rest", 0.0 if rest is None else rest, size)
        self._rest = np.clip(self._rest, self._low, self._high)
        self._step: Vector | None = None
        if slew is not None:
            self._step = self._vector("slew", slew, size) / np.float32(rate)
            if not (self._step > 0).all():
                raise UsageError("slew must be more than 0 for every action")
        self._seen_low, self._seen_high = (
            np.array([otherwise if side is None else side for side in sides], np.float64)
            for otherwise, sides in (
                (-np.inf, [channel.low for channel in card.observations]),
                (np.inf, [channel.high for channel in card.observations]),
            )
        )
        self.start_episode()

    @staticmethod
    def _vector(name: str, values: ArrayLike, size: int) -> Vector:
        try:
            found = np.broadcast_to(np.asarray(values, np.float32), (size,)).copy()
        except (TypeError, ValueError):
            raise UsageError(f"{name} must be one number, or one for each of {size}") from None
        if not np.isfinite(found).all():
            raise UsageError(f"{name} must be finite")
        return found

    def start_episode(self) -> Guard:
        """Begin anew, at rest: memory, counts and a stop are forgotten."""
        self._act = started(self.policy)
        self._last = self.wanted = self._rest
        self._bad_in_a_row = 0
        self.counts: Counter[str] = Counter()
        self.stopped: str | None = None
        return self

    def __call__(self, observation: ArrayLike) -> Vector:
        """The action for one observation `(obs,)`, `(act,)` within all limits."""
        self.counts["steps"] += 1
        problem, wanted = self._problem(observation), self._last
        if problem is not None:
            self.counts["bad"] += 1
            self.counts["held"] += 1
            self._bad_in_a_row += 1
            if self._bad_in_a_row > self.hold:
                self.stopped = self.stopped or problem
        elif self.stopped is None:
            self._bad_in_a_row = 0
            wanted = self._answer(observation)
        if self.stopped is not None:
            wanted = self._rest
        self.wanted = wanted.copy()
        self._last = self._limited(wanted)
        return self._last.copy()

    def _answer(self, observation: ArrayLike) -> Vector:
        """What the policy wants; rest, for good, if that makes no sense."""
        try:
            # In a row of its own: not every policy takes a lone observation.
            found = np.asarray(self._act(np.asarray(observation, np.float32)[None]), np.float64)
            answer = found.reshape(-1)
        except Exception as error:  # whatever it is, motors must not keep their last command
            return self._failed(f"the policy failed: {error}")
        if answer.shape != self._rest.shape or not np.isfinite(answer).all():
            return self._failed(f"the policy answered {np.array2string(answer, threshold=8)}")
        return np.clip(answer, -3e38, 3e38).astype(np.float32)

    def _failed(self, why: str) -> Vector:
        self.counts["failed"] += 1
        self.stopped = why
        return self._rest

    def _problem(self, observation: ArrayLike) -> str | None:
        """What is wrong with an observation, None if nothing is."""
        try:
            seen = np.asarray(observation, np.float64)
        except (TypeError, ValueError):
            return "an observation is no array of numbers"
        if seen.shape != self._seen_low.shape:
            return f"an observation has the shape {seen.shape}, not {self._seen_low.shape}"
        wrong = ~((seen >= self._seen_low) & (seen <= self._seen_high) & np.isfinite(seen))
        if not wrong.any():
            return None
        number = int(np.argmax(wrong))
        return f"{self.card.observations[number]} is {seen[number]:g}"

    def _limited(self, wanted: Vector) -> Vector:
        action = np.clip(wanted, self._low, self._high)
        self.counts["cut"] += bool((action != wanted).any())
        if self._step is not None:
            slow = np.clip(action, self._last - self._step, self._last + self._step)
            self.counts["slowed"] += bool((slow != action).any())
            action = np.clip(slow, self._low, self._high)
        return action.astype(np.float32)

    def __str__(self) -> str:
        counts = self.counts
        parts = [f"{counts['steps']} steps"]
        words = {"bad": "bad observations", "failed": "failed answers", "cut": "cut to bounds",
                 "slowed": "slowed down"}  # fmt: skip
        parts += [f"{counts[name]} {text}" for name, text in words.items() if counts[name]]
        end = f"; stopped: {self.stopped}" if self.stopped else ""
        return ", ".join(parts) + end
