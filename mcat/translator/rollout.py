"""H through several steps of F in a row, for what a single step is too short to show.

What an action does may be less in one step than F is wrong by, and yet be what moves a hand in
ten. So H acts for a whole stretch of the source's log, as it will on the target: each step starts
where F says that the last one led, and F is told of the steps that H has made.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from mcat.datasets.views import Episodes
from mcat.errors import DataError
from mcat.translator.configs import ContextConfig
from mcat.translator.context import ContextModel
from mcat.translator.windows import recent_steps, translated_past


class Stretches(NamedTuple):
    """Some consecutive steps of the source, n times."""

    obs: Tensor  # (n, S), where they begin
    actions: Tensor  # (n, h, A)
    reached: Tensor  # (n, S), where the source was after them
    past: Tensor  # before them, as in `Windows`
    before: Tensor | None

    def follow(
        self, model: ContextModel, translate: Callable[[Tensor, Tensor], Tensor], feature: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Let the target do the same, translated, as F predicts it.

        Returns:
            How far each number of the state ends from where the source was, `(n, S)`, in spreads of
            a change and per step; and how far actions were changed, on average.
        """
        scale, steps = model.change_scale, self.actions.shape[1]
        context = feature.expand(len(self.obs), -1)
        obs, left = self.obs, torch.zeros(())
        past = translated_past(self.past, self.before, translate)
        for action in self.actions.unbind(dim=1):
            new = translate(obs, action)
            mean, _ = model.predict(obs, new, past, context)
            change = torch.where(scale.moves, mean * scale.std + scale.mean, 0.0)
            latest = torch.cat((change, new), dim=1) if self.before is not None else change
            past = torch.cat((past, latest[:, None]), dim=1)[:, 1:]
            obs, left = obs + change, left + (new - action).abs().mean() / steps
        return (obs - self.reached).abs() / scale.std / steps, left


def require_length(task: Episodes, steps: int) -> None:
    """Refuse a log in which no episode has so many steps."""
    if (longest := int(task.lengths.max())) < steps:
        raise DataError(f"horizon is {steps}, and the longest episode of the source {longest}")


def sample_stretches(
    task: Episodes, config: ContextConfig, rng: np.random.Generator, n: int, steps: int
) -> Stretches:
    """Up to n stretches of so many steps; those that an episode's end cuts short are left out.

    Raises:
        DataError: if no episode is long enough.
    """
    require_length(task, steps)
    whole = np.zeros(n, dtype=bool)
    while not whole.any():
        starts = rng.integers(len(task), size=n)
        numbers, inside = task.futures(starts, steps)
        whole = np.asarray(inside.all(axis=1))
    rows = task.transitions(numbers[whole])
    past, before = recent_steps(task, starts[whole], config)
    return Stretches(
        obs=torch.from_numpy(rows.observations[:, 0]),
        actions=torch.from_numpy(rows.actions),
        reached=torch.from_numpy(rows.next_observations[:, -1]),
        past=past,
        before=before,
    )
