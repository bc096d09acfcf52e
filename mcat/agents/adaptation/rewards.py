"""The rewards that an adaptation learns from: credited where payments come late."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from mcat.agents.credit.ridge import LEAST_PAYMENTS, RidgeCredit
from mcat.agents.credit.segments import Segments, paid_segments
from mcat.agents.learner import Batch
from mcat.agents.replay import as_episode
from mcat.datasets.views import Episodes

MOST_SEGMENTS = 5_000  # of a log; more tell a linear model nothing new
NEVER = 2**62  # steps of an episode that is never whole


class AdaptRewards:
    """What logged and real transitions earned.

    One model serves logs and machine, since it is the same machine. Rewards that came at once are
    taken as they are, yet the model learns from those of a log if the machine pays late.

    Args:
        logs: Of the machine.
        log_delay: Steps between two payments in them.
        delay: Steps between two payments of the machine itself.
        horizon: Steps of a logged episode that nobody cut; None if all are whole.
        credits: Whether there shall be a model at all.
    """

    def __init__(
        self, logs: Episodes, log_delay: int, delay: int, horizon: int | None, *, credits: bool
    ) -> None:
        self._logs, self._log_delay, self._delay = logs, log_delay, delay
        self._model: RidgeCredit | None = None
        self.fitted = False
        if credits and max(log_delay, delay) > 1:
            self._model = RidgeCredit(logs.observation_size, logs.action_size)
            self._model.add(logs, _thinned(paid_segments(logs, log_delay, horizon)))
            self._fit()

    @property
    def lacks_payments(self) -> bool:
        """Whether there is a model to be fitted, and too little to fit it to."""
        return self._model is not None and not self.fitted

    def of_logs(self) -> NDArray[np.float32]:
        """What each transition of the logs earned, as is known now."""
        if self._model is not None and self.fitted and self._log_delay > 1:
            return self._model.rewards_of(self._logs)
        return np.array(self._logs.column("rewards"), np.float32)

    def of(self, batch: Batch) -> Tensor:
        """What real transitions `(n, 1)` earned, their observations as they came."""
        if self._model is not None and self.fitted and self._delay > 1:
            return self._model.rewards(batch.obs, batch.action, batch.next_obs)
        return batch.reward

    def take_in(self, episode: Batch, *, whole: bool) -> bool:
        """Learn from the payments of a real episode; True if that may have changed the rewards.

        Args:
            episode: Its transitions in order.
            whole: Whether the machine ended it; what one that was cut is owed was never paid.
        """
        if self._model is None or self._delay == 1:
            return False
        store = as_episode(episode)
        self._model.add(store, paid_segments(store, self._delay, None if whole else NEVER))
        self._fit()
        return True

    def _fit(self) -> None:
        assert self._model is not None
        if len(self._model) >= LEAST_PAYMENTS:
            self._model.fit()
            self.fitted = True

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All arrays that change, by name."""
        return {} if self._model is None else self._model.arrays()

    def load_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Take over what `arrays` gave."""
        if self._model is not None:
            self._model.load_arrays(arrays)
            self.fitted = len(self._model) >= LEAST_PAYMENTS


def _thinned(segments: Segments) -> Segments:
    """At most `MOST_SEGMENTS` of them, evenly chosen."""
    count = len(segments.starts)
    chosen = np.linspace(0, count - 1, min(count, MOST_SEGMENTS)).astype(np.int64)
    starts, lengths, payments = segments
    return Segments(starts[chosen], lengths[chosen], payments[chosen])
