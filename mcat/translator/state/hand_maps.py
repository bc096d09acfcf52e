"""Maps between the spaces of two machines: made by hand, plus a network that starts at zero."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from mcat.translator.networks import Normaliser, mlp, zero_last_layer

INSIDE = 0.999  # hand-mapped actions are kept this far inside, where tanh has an inverse


class StateMap(nn.Module):
    """From states of the target to normalised states of the source.

    Without a hand map (all zeros) it starts at the mean state.
    A state that never changes on the source (a goal, say) is always shown as it was there.
    """

    hand: Tensor

    def __init__(self, source: int, target: int, hidden: Sequence[int]) -> None:
        super().__init__()
        self.source_scale, self.target_scale = Normaliser(source), Normaliser(target)
        self.register_buffer("hand", torch.zeros(source, target))
        self.correction = mlp(target, hidden, source, "relu")
        zero_last_layer(self.correction)

    def by_hand(self, obs: Tensor) -> Tensor:
        """The states that the hand map alone gives, normalised."""
        if not self.hand.any():
            return obs.new_zeros(*obs.shape[:-1], len(self.hand))
        normalised: Tensor = self.source_scale(obs @ self.hand.T)
        return normalised * self.source_scale.moves

    def forward(self, obs: Tensor) -> Tensor:
        """Normalised source states `(n, source)`."""
        correction: Tensor = self.correction(self.target_scale(obs))
        return self.by_hand(obs) + correction * self.source_scale.moves

    def in_source_units(self, mapped: Tensor) -> Tensor:
        """Source states as the source policy knows them."""
        return mapped * self.source_scale.std + self.source_scale.mean


class ActionMap(nn.Module):
    """From actions of one machine to actions of the other, whatever the state.

    Without a hand map (all zeros) it starts at the action 0.
    """

    hand: Tensor

    def __init__(self, inputs: int, outputs: int, hidden: Sequence[int]) -> None:
        super().__init__()
        self.register_buffer("hand", torch.zeros(outputs, inputs))
        self.correction = mlp(inputs, hidden, outputs, "relu")
        zero_last_layer(self.correction)

    def by_hand(self, action: Tensor) -> Tensor:
        """The actions that the hand map alone gives."""
        return (action @ self.hand.T).clamp(-INSIDE, INSIDE)

    def forward(self, action: Tensor) -> Tensor:
        """Actions `(n, outputs)` in [-1, 1]."""
        return torch.tanh(torch.atanh(self.by_hand(action)) + self.correction(action))
