"""Networks that read what went before: a GRU over the last steps, and an MLP behind it.

An observation is [s | the last h steps, oldest first], each step a row [a, r/n, s]; before the
start of an episode rows are zero. Rewards are divided by the delay n, as a payment is for n steps.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mcat.agents.networks import MLP, Tracking
from mcat.datasets.views import Episodes


class Reader(Tracking):
    """A GRU that starts at zero; its last state is the context."""

    def __init__(
        self, row: int, history: int, memory: int, generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        self.row, self.history, self.memory = row, history, memory
        self.gru = nn.GRU(row, memory, batch_first=True)
        with torch.no_grad():
            for parameter in self.gru.parameters():
                if generator is not None:
                    parameter.uniform_(-(memory**-0.5), memory**-0.5, generator=generator)

    def forward(self, windows: Tensor) -> Tensor:
        """The contexts `(n, memory)` of windows `(n, h * row)`."""
        _, last = self.gru(windows.reshape(len(windows), self.history, self.row))
        context: Tensor = last[0]
        return context

    def read(self, obs: Tensor) -> Tensor:
        """Observations with contexts in place of windows, `(n, S + memory)`."""
        state, windows = obs.tensor_split((obs.shape[1] - self.history * self.row,), dim=1)
        return torch.cat((state, self(windows)), 1)


class RecurrentMLP(MLP):
    """A network of its own reader, which takes observations with windows."""

    def __init__(
        self, sizes: Sequence[int], reader: Reader, generator: torch.Generator | None = None
    ) -> None:
        super().__init__(sizes, 1, generator)
        self.reader = reader

    def forward(self, x: Tensor, member: int | None = None) -> Tensor:
        """Map `(n, S + h * row)` to `(1, n, out)`."""
        return self.after_reading(self.reader.read(x))

    def after_reading(self, x: Tensor) -> Tensor:
        """Map states with contexts `(n, S + memory)` to `(1, n, out)`."""
        return super().forward(x)


def windows_of(
    episodes: Episodes, numbers: NDArray[np.int64], history: int, delay: int
) -> tuple[Tensor, Tensor]:
    """What went before transitions, and before the ones after them, `(..., h * row)` each."""
    names = ("actions", "rewards", "observations")
    actions, rewards, states = episodes.past(numbers, history, names)
    before = np.concatenate((actions, rewards[..., None] / delay, states), -1, dtype=np.float32)
    last = episodes.transitions(numbers)
    row = step_rows(last.actions, last.rewards, last.observations, delay)
    after = pushed(before, row)
    return torch.from_numpy(_flat(before)), torch.from_numpy(_flat(after))


def step_rows(
    actions: NDArray[np.float32],
    rewards: NDArray[np.floating],
    states: NDArray[np.floating],
    delay: int,
) -> NDArray[np.float32]:
    """Steps as a reader takes them, `(..., row)`."""
    parts = (actions, np.asarray(rewards)[..., None] / delay, states)
    return np.concatenate(parts, -1, dtype=np.float32, casting="same_kind")


def pushed(windows: NDArray[np.float32], rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Windows `(..., h, row)` one step later."""
    return np.concatenate((windows[..., 1:, :], rows[..., None, :]), -2)


def _flat(windows: NDArray[np.float32]) -> NDArray[np.float32]:
    return windows.reshape(*windows.shape[:-2], -1)
