"""A reward model r̂(s, a, s') learned from payments.

After randomised return decomposition (Ren et al. 2022): the mean of r̂ over some steps of a segment,
drawn anew each time, is to be the payment per step.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mcat.agents.configs import CreditConfig
from mcat.agents.credit.segments import Segments
from mcat.agents.networks import MLP, minimise
from mcat.datasets.checks import CONSTANT
from mcat.datasets.views import Episodes, Floats, Indices
from mcat.errors import DataError, UsageError
from mcat.translator.networks import Normaliser
from mcat.translator.tensors import Part, load_tensors, tensors_of

SCALE_ROWS = 50_000  # rows enough to tell means and spreads


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
        self._adam = torch.optim.Adam(self._network.parameters(), config.learning_rate, fused=True)
        self._input, self._target = Normaliser(inputs), Normaliser(1)

    @torch.no_grad()
    def fit_scales(self, episodes: Episodes, segments: Segments) -> None:
        """Measure the scales of inputs and payments anew."""
        if len(segments.starts) == 0:
            raise UsageError("cannot learn credit from a store without episodes")
        rows = np.linspace(0, len(episodes) - 1, min(len(episodes), SCALE_ROWS)).astype(np.int64)
        input_mean, input_std = _scale(_inputs(episodes, rows).double())
        step_rewards = torch.from_numpy(segments.step_rewards)
        target_mean, target_std = _scale(step_rewards.double().unsqueeze(1))
        inputs, target = self._input, self._target
        if self._adam.state:  # else there is nothing learned to keep
            first, first_bias, *_, last, last_bias = self._network.layers
            first_bias += first @ ((input_mean - inputs.mean) / inputs.std)
            first *= input_std / inputs.std
            last *= target.std / target_std
            last_bias.mul_(target.std).add_(target.mean - target_mean).div_(target_std)
        inputs.mean.copy_(input_mean)
        inputs.std.copy_(input_std)
        target.mean.copy_(target_mean)
        target.std.copy_(target_std)

    def step(self, episodes: Episodes, segments: Segments, rng: np.random.Generator) -> Tensor:
        """One step of Adam on random segments; returns the loss, in the targets' spread."""
        chosen = rng.integers(len(segments.starts), size=self.config.segments)
        places, shares = sample_steps(segments.lengths[chosen], self.config.steps, rng)
        indices = segments.starts[chosen, None] + places
        estimates = self._estimate(_inputs(episodes, indices.ravel())).view(indices.shape)
        step_rewards = segments.payments[chosen] / segments.lengths[chosen]
        targets = torch.from_numpy(step_rewards).float()
        targets = (targets - self._target.mean) / self._target.std
        loss = ((estimates * torch.from_numpy(shares)).sum(1) - targets).square().mean()
        minimise(self._adam, loss)
        return loss.detach()

    @torch.no_grad()
    def rewards(self, obs: Tensor, action: Tensor, next_obs: Tensor) -> Tensor:
        """r̂ `(n, 1)` of transitions, observations without context."""
        inputs = torch.cat((obs, action, next_obs - obs), 1)
        return self._estimate(inputs) * self._target.std + self._target.mean

    def _estimate(self, inputs: Tensor) -> Tensor:
        estimate: Tensor = self._network(self._input(inputs))[0]
        return estimate

    @property
    def _parts(self) -> dict[str, Part]:
        return {
            "network": self._network,
            "adam": self._adam,
            "input": self._input,
            "wage": self._target,
        }

    def tensors(self) -> dict[str, Tensor]:
        """Everything that learning changes, by name (no copies)."""
        return tensors_of(**self._parts)

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over what `tensors` gave; learning goes on as if it had never stopped."""
        try:
            load_tensors(tensors, **self._parts)
        except ValueError as error:
            raise DataError(f"not a state of this credit model: {error}") from error


def _inputs(episodes: Episodes, indices: NDArray[np.int64]) -> Tensor:
    """`(n, obs + act + obs)`: s, a and s' - s of transitions."""
    batch = episodes.transitions(indices)
    change = batch.next_observations - batch.observations
    return torch.from_numpy(np.concatenate((batch.observations, batch.actions, change), axis=1))


def _scale(values: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and spread of each column of `(n, size)` values; the spread of a constant one is 1."""
    spread, mean = torch.std_mean(values, dim=0, correction=0)
    return mean.float(), torch.where(spread > CONSTANT, spread, 1.0).float()
