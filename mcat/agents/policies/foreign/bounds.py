"""The smallest and the largest action that a policy of elsewhere gives."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Bounds(NamedTuple):
    """The smallest and the largest action, `(act,)` each."""

    low: NDArray[np.float32]
    high: NDArray[np.float32]

    @property
    def within_unit(self) -> bool:
        """Whether all actions lie in [-1, 1], as those of our machines do."""
        return bool((self.low >= -1).all() and (self.high <= 1).all())

    @property
    def unit(self) -> bool:
        """Whether they are -1 and 1."""
        return bool((self.low == -1).all() and (self.high == 1).all())

    def __str__(self) -> str:
        lows, highs = ({f"{n:g}" for n in side} for side in self)
        if len(lows) == len(highs) == 1:
            return f"[{lows.pop()}, {highs.pop()}]"
        return f"[{self.low.min():g}, {self.high.max():g}], some of them less"
