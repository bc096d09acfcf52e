"""What both forms of the baseline of Zhang et al. (2020) share: pair.py and spaces.py."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor, nn

from mcat.datasets.views import Episodes
from mcat.errors import DivergedError
from mcat.progress import Progress
from mcat.translator.configs import BaselineConfig
from mcat.translator.networks import Normaliser, ends_epoch, mlp, optimise
from mcat.translator.report import FitReport


class TransitionRows(NamedTuple):
    """Transitions as tensors, one a row."""

    obs: Tensor
    action: Tensor
    after: Tensor

    @classmethod
    def of(cls, task: Episodes) -> Self:
        """All transitions of a task."""
        columns = task.observations, task.actions, task.next_observations
        return cls(*(torch.tensor(column) for column in columns))

    def draw(self, rng: np.random.Generator, n: int) -> TransitionRows:
        """Some of the rows, drawn uniformly and with replacement."""
        chosen = torch.from_numpy(rng.integers(len(self.obs), size=n))
        return TransitionRows(*(column[chosen] for column in self))


class StateActionNet(nn.Module):
    """Embeds state and action apart before it looks at both."""

    def __init__(
        self, sizes: tuple[int, int], outputs: int, embedding: Sequence[int], hidden: Sequence[int]
    ) -> None:
        super().__init__()
        self.embed_obs, self.embed_action = (
            nn.Sequential(mlp(size, embedding[:-1], embedding[-1], "relu"), nn.ReLU())
            for size in sizes
        )
        self.trunk = mlp(2 * embedding[-1], hidden, outputs, "relu")

    def forward(self, obs: Tensor, action: Tensor) -> Tensor:
        """The outputs `(n, outputs)` for states and actions."""
        parts = self.embed_obs(obs), self.embed_action(action)
        out: Tensor = self.trunk(torch.cat(parts, dim=1))
        return out


class LossLog:
    """Averages losses over each epoch into the curves of a report."""

    def __init__(self, report: FitReport) -> None:
        self._curves = report.curves
        self._sums: dict[str, float] = {}
        self._added = 0

    def add(self, losses: dict[str, Tensor]) -> None:
        """Count the losses of one step."""
        for name, loss in losses.items():
            self._sums[name] = self._sums.get(name, 0.0) + loss.item()
        self._added += 1

    def close_epoch(self, step: int) -> str:
        """Write the averages since the last call; returns them in words."""
        means = {name: total / self._added for name, total in self._sums.items()}
        self._sums, self._added = {}, 0
        for name, mean in means.items():
            if not np.isfinite(mean):
                raise DivergedError(f"the loss '{name}' became {mean} by step {step}")
            self._curves.setdefault(name, []).append((step, mean))
        return ", ".join(f"{name} {mean:.3f}" for name, mean in means.items())


def scheduled(
    optimisers: Sequence[torch.optim.Optimizer], steps: int, rates: Sequence[float]
) -> Iterator[int]:
    """Counts from 1 to `steps` while the optimisers get one learning rate after the other."""
    for step in range(steps):
        for optimiser in optimisers:
            for group in optimiser.param_groups:
                group["lr"] = rates[len(rates) * step // steps]
        yield step + 1


def train_forward(
    network: StateActionNet,
    rows: TransitionRows,
    config: BaselineConfig,
    rng: np.random.Generator,
    log: LossLog,
    *,
    quiet: bool,
) -> None:
    """Fit F1 to the next states themselves (not to changes) by L1; from then on it is frozen."""
    adam = torch.optim.Adam(network.parameters(), fused=True)
    steps = config.forward_steps
    with Progress("learning the source's dynamics", steps, quiet=quiet) as progress:
        for step in scheduled([adam], steps, config.forward_learning_rates):
            batch = rows.draw(rng, config.batch_size)
            loss = (network(batch.obs, batch.action) - batch.after).abs().mean()
            optimise(adam, loss)
            log.add({"forward model": loss})
            progress.advance()
            if ends_epoch(step, steps, config.epochs):
                progress.note(log.close_epoch(step))
    network.requires_grad_(False)


def spread_of_change(rows: TransitionRows) -> Normaliser:
    """The scale in which reports give errors."""
    scale = Normaliser(rows.obs.shape[1])
    scale.fit(rows.after - rows.obs)
    return scale


def per_dimension(predicted: Tensor, wanted: Tensor, change: Normaliser) -> Tensor:
    """Mean |difference| of two next states in spreads of change, for each dimension."""
    return ((predicted - wanted) / change.std).abs().mean(dim=0)


def mismatch(predicted: Tensor, wanted: Tensor, change: Normaliser) -> float:
    """The mean of `per_dimension` over the dimensions that move."""
    return float(per_dimension(predicted, wanted, change)[change.moves].mean())
