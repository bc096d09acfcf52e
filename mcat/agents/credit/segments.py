"""Stretches of episodes that were paid for together."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mcat.datasets.views import Episodes, Floats, Indices
from mcat.errors import UsageError


class Segments(NamedTuple):
    """Stretches of episodes that were paid for together, by transition number."""

    starts: Indices
    lengths: Indices
    payments: Floats

    @property
    def step_rewards(self) -> Floats:
        """The payment of each segment divided by its length."""
        return (self.payments / self.lengths).astype(np.float32)


def paid_segments(episodes: Episodes, delay: int, horizon: int | None = None) -> Segments:
    """All segments that were paid, in order: every `delay` steps of an episode, and what remains.

    A payment comes with the last step of its segment. It is found by summing the segment, because
    nothing else was received in it.

    Args:
        episodes: The episodes.
        delay: Steps between two payments.
        horizon: Steps of an episode that nobody cut. The remainder of one that was cut, and did not
            end by itself, was never paid. None if all are whole.
    """
    if delay < 1:
        raise UsageError(f"delay must be at least 1 step, not {delay}")
    if len(episodes) == 0:
        none = np.empty(0, dtype=np.int64)
        return Segments(none, none, np.empty(0, dtype=np.float32))
    counts = -(-episodes.lengths // delay)
    earlier = np.repeat(np.cumsum(counts) - counts, counts)  # segments of the episodes before
    place = np.arange(counts.sum()) - earlier  # within the episode
    starts = np.repeat(episodes.episode_ends - episodes.lengths, counts) + place * delay
    lengths = np.diff(starts, append=len(episodes))
    payments = np.add.reduceat(episodes.rewards, starts)
    paid = (lengths == delay) | np.repeat(_ended(episodes, horizon), counts)
    return Segments(starts[paid], lengths[paid], payments[paid])


def _ended(episodes: Episodes, horizon: int | None) -> NDArray[np.bool_]:
    """Which episodes ended by themselves or by the time limit, as opposed to having been cut."""
    if horizon is None:
        return np.ones(episodes.num_episodes, dtype=bool)
    terminal = episodes.transitions(episodes.episode_ends - 1).terminals > 0
    return terminal | (episodes.lengths >= horizon)


def uniform_rewards(episodes: Episodes, delay: int) -> Floats:
    """`(len,)`: each step's even share of the payment it is part of; all segments must be paid."""
    segments = paid_segments(episodes, delay)
    return np.repeat(segments.step_rewards, segments.lengths)
