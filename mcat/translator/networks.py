"""The small networks of the translator, and how their inputs are scaled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from mcat.datasets.checks import CONSTANT
from mcat.translator.configs import Activation


@contextmanager
def seeded(rng: np.random.Generator) -> Iterator[None]:
    """Networks made in here get their initial weights from `rng`.

    torch.nn draws them from global state, which is left as it was.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(rng.integers(2**31)))
        yield


def mlp(inputs: int, hidden: Sequence[int], outputs: int, activation: Activation) -> nn.Sequential:
    """Linear layers with an activation after each but the last."""
    layers: list[nn.Module] = []
    for width in hidden:
        layers += [nn.Linear(inputs, width), nn.ReLU() if activation == "relu" else nn.SiLU()]
        inputs = width
    return nn.Sequential(*layers, nn.Linear(inputs, outputs))


def zero_last_layer(network: nn.Sequential) -> None:
    """Make the output of a network start at zero."""
    last = network[-1]
    assert isinstance(last, nn.Linear)
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)


def optimise(optimiser: torch.optim.Optimizer, loss: Tensor) -> None:
    """Go down the gradient of `loss` by what `optimiser` holds, and by nothing else."""
    optimiser.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    optimiser.step()


class _Clip(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, action: Tensor) -> Tensor:
        ctx.save_for_backward(action)
        return action.clamp(-1, 1)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (action,) = ctx.saved_tensors
        outward = ((action > 1) & (gradient < 0)) | ((action < -1) & (gradient > 0))
        return gradient.masked_fill(outward, 0)


def clip(action: Tensor) -> Tensor:
    """Clip to [-1, 1], with a gradient that still calls back what lies outside.

    Good actions often sit at the limits. The gradient of an ordinary clip vanishes as soon as one
    is overshot, so that it never comes back; a gradient that ignored the clip would push it ever
    further. Here only steps that lead further outside are dropped.
    """
    clipped: Tensor = _Clip.apply(action)  # type: ignore[no-untyped-call]
    return clipped


class Normaliser(nn.Module):
    """Shifts and scales each dimension to mean 0 and spread 1; constant ones become 0."""

    mean: Tensor
    std: Tensor
    moves: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("std", torch.ones(size))
        self.register_buffer("moves", torch.ones(size, dtype=torch.bool))

    def fit(self, values: Tensor) -> None:
        """Take mean and spread from `(n, size)` values."""
        std = values.double().std(dim=0).float()
        self.mean.copy_(values.double().mean(dim=0))
        self.moves.copy_(std > CONSTANT)
        self.std.copy_(torch.where(self.moves, std, torch.ones_like(std)))

    def forward(self, values: Tensor) -> Tensor:
        """Normalised values."""
        return (values - self.mean) / self.std


def ends_epoch(step: int, steps: int, epochs: int) -> bool:
    """Whether one of `epochs` equal parts of `steps` ends with `step`."""
    return step * epochs // steps > (step - 1) * epochs // steps
