"""Normal distributions of raw actions, of which tanh is taken: SAC's policies."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from mcat.agents.configs import LARGEST_LOG_STD


class Drawn(NamedTuple):
    """Actions drawn from a policy."""

    action: Tensor  # (..., act), tanh of raw
    raw: Tensor  # (..., act)
    log_density: Tensor  # (..., 1), of the action


class Gaussian(NamedTuple):
    """Independent normal distributions of the numbers of a raw action."""

    mean: Tensor  # (..., act)
    log_std: Tensor  # (..., act)

    def draw(self, generator: torch.Generator) -> Drawn:
        """An action for each row; gradients reach mean and spread through it."""
        noise = torch.randn(self.mean.shape, generator=generator)
        raw = self.mean + self.log_std.exp() * noise
        return Drawn(torch.tanh(raw), raw, self._log_density(raw, noise))

    def log_density(self, raw: Tensor) -> Tensor:
        """The logarithm of the density of the actions tanh(`raw`), `(..., 1)`."""
        return self._log_density(raw, (raw - self.mean) / self.log_std.exp())

    def kl(self, other: Gaussian) -> Tensor:
        """KL(this ‖ other) of each row, `(..., 1)`; tanh of both changes nothing of it."""
        gap = (2 * self.log_std).exp() + (self.mean - other.mean).square()
        terms = other.log_std - self.log_std + gap / (2 * (2 * other.log_std).exp()) - 0.5
        return terms.sum(-1, keepdim=True)

    def _log_density(self, raw: Tensor, noise: Tensor) -> Tensor:
        normal = -noise.square() / 2 - self.log_std - math.log(2 * math.pi) / 2
        # log(1 - tanh²(u)) without its cancellation: exact where tanh(u) is rounded to 1 too.
        slope = 2 * (math.log(2) - raw - functional.softplus(-2 * raw))
        return (normal - slope).sum(-1, keepdim=True)


def gaussian(out: Tensor, floor: float) -> Gaussian:
    """What a network says of an action: its first half the means, its second the log spreads.

    Args:
        out: `(..., 2 act)`.
        floor: The least log of a standard deviation. Clamped, not squashed, so that an untrained
            network has spreads near 1.
    """
    mean, log_std = out.chunk(2, dim=-1)
    return Gaussian(mean, log_std.clamp(floor, LARGEST_LOG_STD))
