"""Self-imitation (Oh et al. 2018): good episodes, drawn by how much the critics undervalue them.

The critics learn from them that a state-action pair is worth at least the return R that once
followed it: L_sil = Σ_l w max(R - Q_l, 0)² (docs/decisions.md#self-imitation).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mcat.agents.configs import ImitationConfig
from mcat.datasets.episodes import EpisodeStore
from mcat.datasets.views import Episodes, Floats, Indices
from mcat.errors import DataError, UsageError

SMALLEST_GAIN = 1e-6  # so that every row is drawn now and then


class SelfImitation:
    """The buffer D of Algorithm 1.

    Args:
        observation_size: Numbers in an observation.
        action_size: Numbers in an action.
        config: How much is kept, and how it is drawn.
        discount: γ of the returns.

    Attributes:
        episodes: What is kept.
        returns: `(len,)` R of each transition of `episodes`: the discounted rewards as received,
            to the end of the episode.
        priorities: `(len,)` float64, what each is drawn in proportion to: its gain to the power α.
    """

    def __init__(
        self, observation_size: int, action_size: int, config: ImitationConfig, discount: float
    ) -> None:
        self.config, self.discount = config, discount
        self.episodes = EpisodeStore(observation_size, action_size, capacity=config.capacity)
        self.returns: Floats = np.empty(0, dtype=np.float32)
        self.priorities: NDArray[np.float64] = np.empty(0)
        self._largest = np.ones(())  # priority so far

    def __len__(self) -> int:
        return len(self.episodes)

    def add(self, episodes: Episodes) -> None:
        """Take in the episodes that count; they will be drawn before any that was seen to gain."""
        if self.config.positive_only:
            pays = [
                number
                for number in range(episodes.num_episodes)
                if (episodes.select([number]).rewards > 0).any()
            ]
            episodes = episodes.select(pays)
        if episodes.num_episodes == 0:
            return
        self.episodes.extend(episodes)
        # The store numbers its transitions anew when old episodes go: what stays is at the end.
        kept = slice(-len(self.episodes), None)
        new_returns = episodes.discounted_returns(self.discount)
        self.returns = np.concatenate([self.returns, new_returns])[kept]
        new_priorities = np.full(len(episodes), self._largest)
        self.priorities = np.concatenate([self.priorities, new_priorities])[kept]

    def sample(
        self, rng: np.random.Generator, n: int, among: NDArray[np.bool_] | None = None
    ) -> tuple[Indices, Floats]:
        """Draw `n` transition numbers, with replacement.

        Args:
            rng: Draws them.
            n: How many.
            among: Which transitions may be drawn; None for all. If it names none, those that are
                drawn weigh nothing.

        Returns:
            The numbers, and importance weights (N p)^-β, divided by the largest there could be:
            that of the row with the smallest probability.
        """
        if len(self) == 0:
            raise UsageError("cannot sample self-imitation rows: no episode has paid yet")
        if among is not None and not among.any():
            return np.zeros(n, np.int64), np.zeros(n, np.float32)
        rows = np.arange(len(self)) if among is None else np.flatnonzero(among)
        priorities = self.priorities[rows]
        cumulative = priorities.cumsum()
        drawn = np.searchsorted(cumulative, rng.random(n) * cumulative[-1], side="right")
        places = np.minimum(drawn, len(rows) - 1)  # the product may be rounded up to the sum
        weights = (priorities.min() / priorities[places]) ** self.config.beta
        return rows[places].astype(np.int64, copy=False), weights.astype(np.float32)

    def update(self, indices: Indices, gains: NDArray[np.floating]) -> None:
        """Set the priorities of rows just learned from: gains Σ_l max(R - Q_l, 0) as found then."""
        clipped = np.minimum(gains, self.config.clip or np.inf, dtype=np.float64)
        new = (clipped + SMALLEST_GAIN) ** self.config.alpha
        self.priorities[indices] = new
        self._largest[...] = max(self._largest, new.max())

    def tensors(self) -> dict[str, Tensor]:
        """What adding the same episodes again would not restore, by name (no copies)."""
        return {
            "mass": torch.from_numpy(self.priorities),
            "largest": torch.from_numpy(self._largest),
        }

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over what `tensors` gave, after the same episodes were added."""
        for name, own in self.tensors().items():
            found = tensors.get(name)
            if found is None or found.shape != own.shape or found.dtype != own.dtype:
                raise DataError(f"the self-imitation state has no fitting '{name}'")
            own.copy_(found)
