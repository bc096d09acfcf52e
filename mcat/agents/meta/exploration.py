"""Driving the episodes of a round: by the shared policy or by another task's, translated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mcat.agents.policies.context_policy import ContextPolicy, Recognition
from mcat.translator.online import Translation


class Exploration:
    """A `PolicyFunction` for one episode of each training task in lockstep.

    Row i acts on task i by π(s, z_t), or if it has a source j by H(s, π(s, z_j), z_j, z_i), where
    z_i and z_j are the tasks' features; noise comes on top in both cases
    (docs/decisions.md#contexts-of-a-transferred-policy).

    Args:
        policy: π and C.
        translate: H; not called for rows without a source.
        features: z_i of every task.
        sources: The task whose policy is transferred to each row's; None for the shared one.
        rng: Draws the noise.
        noise: Its standard deviation.
        online: Give H the row's own z_t in place of z_i.

    Attributes:
        contexts: z_t of every row when the last actions were chosen.
    """

    def __init__(
        self,
        policy: ContextPolicy,
        translate: Translation,
        features: Tensor,
        sources: Sequence[int | None],
        *,
        rng: np.random.Generator,
        noise: float,
        online: bool,
    ) -> None:
        self._policy, self._translate = policy, translate
        self._rng, self._noise, self._online = rng, noise, online
        self._recognition = Recognition(policy)
        self._rows = torch.tensor([i for i, j in enumerate(sources) if j is not None])
        chosen = torch.tensor([j for j in sources if j is not None], dtype=torch.long)
        self._source = features[chosen]
        self._target = features[self._rows] if len(chosen) else self._source
        self.contexts = torch.zeros(0)

    def __call__(self, states: NDArray[Any]) -> NDArray[np.float32]:
        """The actions for the states that the last ones led to."""
        self.contexts = own = self._recognition.see(states)
        inputs = torch.from_numpy(np.asarray(states, np.float32))
        rows, contexts = self._rows, own
        if len(rows):
            contexts = own.index_copy(0, rows, self._source)
        actions = self._policy.act(inputs, contexts)
        if len(rows):
            target = own[rows] if self._online else self._target
            new = self._translate(inputs[rows], actions[rows], self._source, target)
            actions = actions.index_copy(0, rows, new)
        noise = self._noise * self._rng.standard_normal(actions.shape, dtype=np.float32)
        taken: NDArray[np.float32] = np.clip(actions.numpy() + noise, -1, 1)
        self._recognition.acted(taken)
        return taken
