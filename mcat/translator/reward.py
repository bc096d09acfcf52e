"""R, a model of the reward, for translations that should not change what is earned (C.3)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from mcat.datasets.views import Episodes
from mcat.progress import Progress
from mcat.translator.context import ContextModel
from mcat.translator.networks import Normaliser, mlp, optimise, seeded
from mcat.translator.windows import Windows, sample_windows


class RewardModel(nn.Module):
    """R: the normalised reward of an action, from the same inputs as F."""

    def __init__(self, model: ContextModel) -> None:
        super().__init__()
        config = model.config  # docs/decisions.md#rewards-that-depend-on-the-action
        self.scale = Normaliser(1)
        self.network = mlp(model.input_size, config.forward_hidden, 1, config.forward_activation)

    def forward(
        self, model: ContextModel, rows: Windows, action: Tensor, context: Tensor
    ) -> Tensor:
        """Normalised rewards `(n,)` of `action` in the situations of `rows`."""
        predicted: Tensor = self.network(model.inputs(rows.obs, action, rows.past, context))
        return predicted[:, 0]

    def error(self, model: ContextModel, rows: Windows, action: Tensor, context: Tensor) -> Tensor:
        """Mean |R - reward of `rows`|, in units of the reward's spread."""
        wanted = self.scale(rows.reward[:, None])[:, 0]
        error: Tensor = (self(model, rows, action, context) - wanted).abs().mean()
        return error


def train_reward(
    model: ContextModel,
    tasks: Sequence[Episodes],
    *,
    steps: int = 3000,
    seed: int = 0,
    quiet: bool = False,
) -> RewardModel:
    """Fit R to the rewards of all tasks; C is frozen and tells it which one."""
    rng = np.random.default_rng(seed)
    with seeded(rng):
        reward = RewardModel(model)
    reward.scale.fit(
        torch.from_numpy(np.concatenate([t.column("rewards") for t in tasks]))[:, None]
    )
    adam = torch.optim.Adam(reward.network.parameters(), model.config.learning_rate)
    with Progress("learning rewards", steps, "steps", quiet=quiet) as progress:
        for _ in range(steps):
            task = tasks[int(rng.integers(len(tasks)))]
            rows = sample_windows(task, model.config, rng, 2 * model.config.batch_size)
            context = model.encode(rows.context_past)[rows.window]
            loss = reward.error(model, rows, rows.action, context)
            optimise(adam, loss)
            progress.advance(1, note=f"error {loss.item():.4f}")
    return reward.requires_grad_(False).eval()
