"""Least-squares adversaries: they learn to tell fake samples from real ones (LSGAN)."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from mcat.translator.networks import mlp, optimise


def discriminator(inputs: int) -> nn.Sequential:
    """Two outputs, both regressed to the label: 1 for real, 0 for fake (Zhang et al. 2020)."""
    return mlp(inputs, (256, 64), 2, "relu")


class HistoryPool:
    """Remembers samples, so that an adversary does not forget what used to fool it.

    Until the pool is full, samples are kept and passed on. After that every second one, by chance,
    takes the place of a kept one, which is passed on instead.
    """

    def __init__(self, size: int, rng: np.random.Generator) -> None:
        self.size, self._rng = size, rng
        self.kept: Tensor | None = None

    def swap(self, samples: Tensor) -> Tensor:
        """As many samples as were given, some of them old; at most `size`."""
        kept = samples[:0] if self.kept is None else self.kept
        room = self.size - len(kept)
        first, rest = samples[:room], samples[room:].clone()
        self.kept = kept = torch.cat((kept, first))
        chosen = torch.from_numpy(np.flatnonzero(self._rng.random(len(rest)) < 0.5))
        places = torch.from_numpy(self._rng.permutation(self.size)[: len(chosen)])
        rest[chosen], kept[places] = kept[places], rest[chosen]
        return torch.cat((first, rest))


class Adversary:
    """A discriminator while it is trained."""

    def __init__(
        self, network: nn.Module, pool: int, learning_rate: float, rng: np.random.Generator
    ) -> None:
        self.network = network
        self.adam = torch.optim.Adam(network.parameters(), learning_rate, fused=True)
        self._pool, self._rng = pool, rng
        self.forget()

    def forget(self) -> None:
        """Empty the memory."""
        self._fake, self._real = (HistoryPool(self._pool, self._rng) for _ in range(2))

    def learn(self, fake: Tensor, real: Tensor) -> Tensor:
        """One step towards telling `fake` from `real`; the loss before it."""
        fake, real = self._fake.swap(fake.detach()), self._real.swap(real)
        loss = 0.5 * (_distance(self.network(fake), 0) + _distance(self.network(real), 1))
        optimise(self.adam, loss)
        return loss.detach()

    def generator_loss(self, fake: Tensor) -> Tensor:
        """How far samples are from passing as real: what their generator makes small."""
        return _distance(self.network(fake), 1)


def _distance(outputs: Tensor, label: float) -> Tensor:
    return (outputs - label).square().mean()
