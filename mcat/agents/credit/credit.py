"""Credit for delayed payments: what each single step was worth, though only sums were ever paid.

`none` takes rewards as they came, `uniform` spreads a payment evenly over the steps it is for,
`ridge` and `learned` fit a reward model r̂(s, a, s'), one for all tasks, to the payments: a linear
one in closed form, or a network. `auto` takes the linear one while it foretells payments well.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from mcat.agents.configs import CreditConfig, CreditKind
from mcat.agents.credit.network import CreditModel
from mcat.agents.credit.ridge import LEAST_PAYMENTS, RidgeCredit
from mcat.agents.credit.segments import Segments, paid_segments, uniform_rewards
from mcat.datasets.views import Episodes, Indices


class Credit:
    """The rewards that TD learning is given for transitions.

    Args:
        observation_size: Length of an observation, without any context.
        action_size: Length of an action.
        config: What is made of payments.
        delay: Steps between two payments.
        horizon: Steps of an episode that nobody cut.
        generator: Draws the initial weights of the network.

    Attributes:
        used: How the rewards of this iteration are made.
    """

    def __init__(
        self,
        observation_size: int,
        action_size: int,
        config: CreditConfig,
        *,
        delay: int,
        horizon: int,
        generator: torch.Generator,
    ) -> None:
        self.config, self.delay, self.horizon = config, delay, horizon
        self.used: CreditKind = "none"
        self.ridge = RidgeCredit(observation_size, action_size)
        self.network = CreditModel(observation_size, action_size, config, generator)
        self._replay: Episodes | None = None
        self._segments: Segments | None = None

    @property
    def unexplained(self) -> float:
        """What the linear model leaves unexplained of payments it has not seen; NaN without one."""
        return self.ridge.unexplained

    def add(self, new: Episodes) -> None:
        """Take in episodes as they are collected."""
        if self.config.kind in ("ridge", "auto") and self.delay > 1:
            self.ridge.add(new, paid_segments(new, self.delay, self.horizon))

    def begin(self, replay: Episodes) -> None:
        """Decide how the rewards of these episodes are made until the next call."""
        self.used, self._replay = self._choose(), replay
        if self.used == "learned":
            self._segments = paid_segments(replay, self.delay, self.horizon)
            self.network.fit_scales(replay, self._segments)

    def _choose(self) -> CreditKind:
        kind = self.config.kind
        if kind in ("ridge", "auto"):
            if self.delay == 1 or len(self.ridge) < LEAST_PAYMENTS:
                return "none"
            self.ridge.fit()
            # With fewer payments its error says that they are few, not that rewards are not linear.
            judged = len(self.ridge) >= 2 * self.ridge.features
            bent = judged and self.unexplained > self.config.unexplained
            return "learned" if kind == "auto" and bent else "ridge"
        return kind

    def step(self, rng: np.random.Generator) -> Tensor:
        """One step on the network, if it is in use; returns its loss."""
        if self.used != "learned":
            return torch.zeros(())
        assert self._replay is not None, "begin was not called"
        assert self._segments is not None, "begin was not called"
        return self.network.step(self._replay, self._segments, rng)

    def rewards(self) -> Tensor:
        """The rewards `(len, 1)` of all transitions of the replay, as they are now."""
        assert self._replay is not None, "begin was not called"
        if self.used == "ridge":
            return torch.from_numpy(self.ridge.rewards_of(self._replay))[:, None]
        return self.rewards_of(self._replay, np.arange(len(self._replay)))

    def rewards_of(self, episodes: Episodes, numbers: Indices) -> Tensor:
        """The rewards `(n, 1)` of transitions of any episodes, made as those of the replay."""
        if self.used == "uniform":
            return torch.from_numpy(uniform_rewards(episodes, self.delay)[numbers])[:, None]
        rows = episodes.transitions(numbers)
        columns = rows.observations, rows.actions, rows.next_observations, rows.rewards[:, None]
        return self.estimate(*map(torch.from_numpy, columns))

    @property
    def at_once(self) -> bool:
        """Whether a transition's reward is known when it happens, not only once it is paid for."""
        return self.used != "uniform"

    def estimate(self, obs: Tensor, action: Tensor, next_obs: Tensor, received: Tensor) -> Tensor:
        """The rewards `(n, 1)` of single transitions.

        Args:
            obs: `(n, S)`, before each action.
            action: `(n, A)`.
            next_obs: `(n, S)`, after each action.
            received: `(n, 1)`, what was paid with them.
        """
        assert self.at_once, "a share of a payment is not known before it"
        if self.used == "ridge":
            return self.ridge.rewards(obs, action, next_obs)
        if self.used == "learned":
            return self.network.rewards(obs, action, next_obs)
        return received

    def tensors(self) -> dict[str, Tensor]:
        """What taking in the same episodes again would not restore, by name (no copies)."""
        return self.network.tensors()

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over what `tensors` gave, after the same episodes were added."""
        self.network.load_tensors(tensors)
