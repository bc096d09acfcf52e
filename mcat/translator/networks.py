"""The small networks of the translator, and how their inputs are scaled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

Activation = Literal["relu", "swish"]

CONSTANT = 1e-6  # a dimension that spreads less than this does not move


def mlp(inputs: int, hidden: Sequence[int], outputs: int, activation: Activation) -> nn.Sequential:
    """Linear layers with an activation after each but the last."""
    layers: list[nn.Module] = []
    for width in hidden:
        layers += [nn.Linear(inputs, width), nn.ReLU() if activation == "relu" else nn.SiLU()]
        inputs = width
    return nn.Sequential(*layers, nn.Linear(inputs, outputs))


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
