"""Credit for delayed payments: what each single step was worth, though only sums were ever paid.

`uniform` spreads a payment evenly over the steps it is for. `learned` fits a reward model
r̂(s, a, s'), one for all tasks, to the payments (randomised return decomposition, Ren et al. 2022).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mcat.agents.configs import CreditConfig
from mcat.agents.networks import MLP, Adam
from mcat.datasets.views import Episodes, Floats, Indices
from mcat.errors import DataError, UsageError

CONSTANT = 1e-6  # a spread below this is rounding, not motion
SCALE_ROWS = 50_000  # rows enough to tell means and spreads


class Segments(NamedTuple):
    """Stretches of episodes that were paid for together, by transition number."""

    starts: Indices
    lengths: Indices
    payments: Floats

    @property
    def wages(self) -> Floats:
        """The payment per step."""
        return (self.payments / self.lengths).astype(np.float32)


def paid_segments(episodes: Episodes, delay: int) -> Segments:
    """All segments, in order: every `delay` steps of an episode, and what remains at its end.

    Episodes are whole, so each segment's payment has arrived, with its last step. It is found by
    summing the segment, because nothing else was received in it.
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
    return Segments(starts, lengths, np.add.reduceat(episodes.rewards, starts))


def uniform_rewards(episodes: Episodes, delay: int) -> Floats:
    """`(len,)`: each step's even share of the payment it is part of."""
    segments = paid_segments(episodes, delay)
    return np.repeat(segments.wages, segments.lengths)


def sample_steps(lengths: Indices, count: int, rng: np.random.Generator) -> tuple[Indices, Floats]:
    """Places `(segments, count)` within segments, and the share of each in the segment's mean.

    One place is drawn from each of `count` equal parts of a segment. The noise of a sampled mean
    punishes an r̂ that varies, and it is less so than with independent draws. A segment of fewer
    steps is taken whole, without noise; its surplus places have no share.
    """
    lengths = lengths[:, None]
    drawn = np.minimum(lengths, count)
    parts = np.arange(count)
    within = (parts + rng.random((len(lengths), count))) * lengths / drawn
    shares = np.where(parts < drawn, 1 / drawn, 0).astype(np.float32)
    return np.minimum(within.astype(np.int64), lengths - 1), shares


class CreditModel:
    """r̂(s, a, s'): its mean over a paid segment is the payment divided by the segment's length.

    The network sees s, a and s' - s and answers, all in units of their mean and spread. When these
    change, its first and last layers change with them, so that r̂ does not (as in Pop-Art, van
    Hasselt et al. 2016).

    Args:
        observation_size: Length of an observation, without any context.
        action_size: Length of an action.
        config: The hyperparameters.
        generator: Draws the initial weights.
    """

    def __init__(
        self,
        observation_size: int,
        action_size: int,
        config: CreditConfig,
        generator: torch.Generator,
    ) -> None:
        self.config = config
        inputs = 2 * observation_size + action_size
        self._network = MLP((inputs, *config.hidden, 1), 1, generator)
        self._adam = Adam(self._network, config.learning_rate)
        self._input_mean, self._input_spread = torch.zeros(inputs), torch.ones(inputs)
        self._wage_mean, self._wage_spread = torch.zeros(1), torch.ones(1)

    @torch.no_grad()
    def fit_scales(self, episodes: Episodes, segments: Segments) -> None:
        """Measure the scales of inputs and payments anew."""
        if len(segments.starts) == 0:
            raise UsageError("cannot learn credit from a store without episodes")
        rows = np.linspace(0, len(episodes) - 1, min(len(episodes), SCALE_ROWS)).astype(np.int64)
        input_mean, input_spread = _scale(_inputs(episodes, rows).double())
        wage_mean, wage_spread = _scale(torch.from_numpy(segments.wages).double().unsqueeze(1))
        if self._adam.steps > 0:  # else there is nothing learned to keep
            first, first_bias, *_, last, last_bias = self._network.parameters
            first_bias += first @ ((input_mean - self._input_mean) / self._input_spread)
            first *= input_spread / self._input_spread
            last *= self._wage_spread / wage_spread
            last_bias.mul_(self._wage_spread).add_(self._wage_mean - wage_mean).div_(wage_spread)
        self._input_mean.copy_(input_mean)
        self._input_spread.copy_(input_spread)
        self._wage_mean.copy_(wage_mean)
        self._wage_spread.copy_(wage_spread)

    def step(self, episodes: Episodes, segments: Segments, rng: np.random.Generator) -> Tensor:
        """One step of Adam on random segments; returns the loss, in units of the wages' spread."""
        chosen = rng.integers(len(segments.starts), size=self.config.segments)
        places, shares = sample_steps(segments.lengths[chosen], self.config.steps, rng)
        indices = segments.starts[chosen, None] + places
        estimates = self._estimate(_inputs(episodes, indices.ravel())).view(indices.shape)
        wages = torch.from_numpy(segments.payments[chosen] / segments.lengths[chosen]).float()
        target = (wages - self._wage_mean) / self._wage_spread
        loss = ((estimates * torch.from_numpy(shares)).sum(1) - target).square().mean()
        self._adam.minimise(loss)
        return loss.detach()

    @torch.no_grad()
    def rewards(self, obs: Tensor, action: Tensor, next_obs: Tensor) -> Tensor:
        """r̂ `(n, 1)` of transitions, observations without context."""
        inputs = torch.cat((obs, action, next_obs - obs), 1)
        return self._estimate(inputs) * self._wage_spread + self._wage_mean

    def _estimate(self, inputs: Tensor) -> Tensor:
        scaled = (inputs - self._input_mean) / self._input_spread
        return self._network(scaled)[0]

    def tensors(self) -> dict[str, Tensor]:
        """Everything that learning changes, by name (no copies)."""
        return {
            "network": self._network.flat,
            "adam.mean": self._adam.mean,
            "adam.square": self._adam.square,
            "adam.steps": self._adam.steps,
            "input.mean": self._input_mean,
            "input.spread": self._input_spread,
            "wage.mean": self._wage_mean,
            "wage.spread": self._wage_spread,
        }

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over what `tensors` gave; learning goes on as if it had never stopped."""
        for name, own in self.tensors().items():
            found = tensors.get(name)
            if found is None or found.shape != own.shape or found.dtype != own.dtype:
                raise DataError(f"the credit state has no fitting '{name}'; was it another model?")
        for name, own in self.tensors().items():
            own.copy_(tensors[name])


def _inputs(episodes: Episodes, indices: NDArray[np.int64]) -> Tensor:
    """`(n, obs + act + obs)`: s, a and s' - s of transitions."""
    batch = episodes.transitions(indices)
    change = batch.next_observations - batch.observations
    return torch.from_numpy(np.concatenate((batch.observations, batch.actions, change), axis=1))


def _scale(values: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and spread of each column of `(n, size)` values; the spread of a constant one is 1."""
    spread, mean = torch.std_mean(values, dim=0, correction=0)
    return mean.float(), torch.where(spread > CONSTANT, spread, 1.0).float()
