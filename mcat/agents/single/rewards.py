"""The rewards that a learner of one task is given: credited where delayed, in handy units."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mcat.agents.credit.ridge import LEAST_PAYMENTS, RidgeCredit
from mcat.agents.credit.segments import paid_segments
from mcat.agents.learner import Batch
from mcat.agents.replay import Replay, as_episode
from mcat.agents.single.config import TrainConfig

SCALE_ROWS = 10_000  # rewards enough to tell their mean and spread


class Rewards:
    """What is made of received rewards before TD learning sees them."""

    def __init__(self, config: TrainConfig, replay: Replay) -> None:
        self._task, self._scales, self._replay = config.task, config.scale_rewards, replay
        spec = config.task.spec
        self._credit: RidgeCredit | None = None
        if config.credit == "ridge" and config.task.delay > 1:
            self._credit = RidgeCredit(spec.observation_size, spec.action_size)
        self._credited = False
        self._mean, self._spread = 0.0, 1.0

    def take_in(self, length: int) -> None:
        """Take in an episode: the last `length` transitions of the replay."""
        if self._credit is None:
            return
        episode = as_episode(self._replay.latest(length))
        self._credit.add(episode, paid_segments(episode, self._task.delay, self._task.horizon))

    def measure(self, rng: np.random.Generator) -> None:
        """Fit the credit to the payments so far, and find the rewards' mean and spread anew."""
        if self._credit is not None and len(self._credit) >= LEAST_PAYMENTS:
            self._credit.fit()
            self._credited = True
        if not self._scales:
            return
        self._mean, self._spread = 0.0, 1.0
        rows = self._replay.sample(rng, SCALE_ROWS)
        rewards = self.of(rows).reward.double()
        # Without an end, a constant in every reward changes no policy's rank; with one it would.
        if not self._replay.ends:
            self._mean = float(rewards.mean())
        self._spread = max(float(rewards.std()), 1e-6)

    def of(self, batch: Batch) -> Batch:
        """The batch with the rewards that TD learning shall see."""
        reward = batch.reward
        if self._credit is not None and self._credited:
            reward = self._credit.rewards(batch.obs, batch.action, batch.next_obs)
        return batch._replace(reward=(reward - self._mean) / self._spread)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All arrays that change, by name."""
        found = {"scale": np.array([self._mean, self._spread, float(self._credited)])}
        if self._credit is not None:
            found |= {f"credit.{name}": array for name, array in self._credit.arrays().items()}
        return found

    def load_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Take over what `arrays` gave."""
        self._mean, self._spread, credited = arrays["scale"].tolist()
        self._credited = bool(credited)
        if self._credit is not None:
            own = {k.removeprefix("credit."): v for k, v in arrays.items() if k != "scale"}
            self._credit.load_arrays(own)
