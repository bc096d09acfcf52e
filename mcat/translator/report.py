"""What a training leaves behind for people to look at."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class FitReport:
    """How a translator was trained; plain numbers, so that it can be written as JSON.

    Attributes:
        curves: What was watched while training: title → (step, value).
        numbers: What came out in the end: name → value.
        forward_error: Held-out error of the forward model for each dimension of the state, in
            units of the spread of that dimension's one-step change.
    """

    curves: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    numbers: dict[str, float] = field(default_factory=dict)
    forward_error: list[float] = field(default_factory=list)

    def __or__(self, other: FitReport) -> FitReport:
        """Of two trainings, one of which was that of the forward model; this one comes first."""
        return FitReport(
            self.curves | other.curves,
            self.numbers | other.numbers,
            self.forward_error or other.forward_error,
        )
