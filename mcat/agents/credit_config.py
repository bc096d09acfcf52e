"""How rewards for TD learning are made from payments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from mcat.errors import UsageError, unknown

Kind = Literal["none", "uniform", "ridge", "learned", "auto"]


@dataclass(frozen=True, kw_only=True)
class CreditConfig:
    """How rewards for TD learning are made from payments.

    Attributes:
        kind: `none` leaves payments where they came, `uniform` shares them out, `ridge` and
            `learned` fit a linear model or a network to them, and `auto` takes the linear one
            unless it leaves more than `unexplained` of the payments' variance unexplained.
        unexplained: See `auto`.
        hidden: Widths of the reward model.
        segments: Paid segments per step of its optimiser, and
        steps: sampled steps of each.
    """

    kind: Kind = "none"
    unexplained: float = 0.1
    hidden: tuple[int, ...] = (256, 256)
    learning_rate: float = 3e-4
    segments: int = 8
    steps: int = 32

    def __post_init__(self) -> None:
        """Refuse what makes no sense."""
        if self.kind not in get_args(Kind):
            raise unknown("credit", self.kind, get_args(Kind))
        if not self.hidden or min(self.hidden) < 1:
            raise UsageError(f"hidden must be positive layer widths, not {self.hidden}")
        if not self.learning_rate > 0:
            raise UsageError(f"learning_rate must be positive, not {self.learning_rate}")
        if self.segments < 1 or self.steps < 1:
            raise UsageError("segments and steps of credit must be positive")
