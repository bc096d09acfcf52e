"""The units in which networks see states and their changes."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from mcat.datasets.checks import CONSTANT
from mcat.datasets.views import Episodes


class Units(nn.Module):
    """Spreads of states and of their changes, measured once and then kept."""

    state: Tensor
    change: Tensor
    known: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        self.register_buffer("state", torch.ones(size))
        self.register_buffer("change", torch.ones(size))
        self.register_buffer("known", torch.zeros(()))

    def measure(self, episodes: Episodes) -> None:
        """Take those of these episodes, unless there are some already."""
        if self.known:
            return
        rows = episodes.transitions(np.arange(len(episodes)))
        change = rows.next_observations - rows.observations
        for own, values in ((self.state, rows.observations), (self.change, change)):
            own.copy_(torch.from_numpy(values.std(0, dtype=np.float64)).clamp(min=CONSTANT))
        self.known.fill_(1.0)
