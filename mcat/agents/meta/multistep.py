"""TD rows of n steps: the rewards of n steps in a row, and the state that they led to.

A row of one step asks the critics for the value one step later, and what they get wrong there is
learned as if it were true. A row of n steps asks them n steps later: rewards travel back n times
as fast, and mistakes shrink by γ^n in place of γ each time. What was done in between is what the
policy did then, not what it would do now, so n stays small.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from mcat.agents.learner import Batch


def look_ahead(
    rows: Batch, lengths: NDArray[np.int64], n: int, discount: float, states: int
) -> None:
    """Make rows of one step ones of n, in place; the last ones of an episode have fewer.

    Args:
        rows: Those of whole episodes, one after the other.
        lengths: Of the episodes.
        n: How many steps a row shall have.
        discount: γ.
        states: How many numbers of an observation are the state; the context behind it stays.
    """
    count = int(lengths.sum())
    here = torch.arange(count)
    ends = torch.from_numpy(np.repeat(np.cumsum(lengths), lengths)) - 1
    reward = rows.reward[:count].clone()
    for k in range(1, n):
        inside = here[here + k <= ends]
        rows.reward[inside] += discount**k * reward[inside + k]
    last = torch.minimum(here + n - 1, ends)
    left = discount ** (last - here)[:, None]
    rows.next_obs[:count, :states] = rows.next_obs[last, :states]
    rows.terminal[:count] = 1 - left * (1 - rows.terminal[last])


class RunningRows:
    """The latest rows of episodes that are under way, to which each new step still belongs.

    Args:
        n: How many steps a row shall have.
        discount: γ.
        states: How many numbers of an observation are the state.
    """

    def __init__(self, n: int, discount: float, states: int) -> None:
        self._n, self._discount, self._states = n, discount, states
        self._places: dict[int, list[int]] = {}  # by task, of rows that lack steps, oldest first

    def extend(self, rows: Batch, first: int, tasks: Sequence[int]) -> None:
        """Add a new step of some tasks to the rows before it.

        Args:
            rows: All rows; the new ones, of one step, are among them already.
            first: Where the new ones begin.
            tasks: Whose they are, in order.
        """
        for new, task in enumerate(tasks, start=first):
            before = self._places.get(task, [])
            state = rows.obs[new, : self._states]
            if before and not torch.equal(rows.next_obs[before[-1], : self._states], state):
                before = []  # another episode has begun
            if before:
                weights = self._discount ** torch.arange(len(before), 0, -1)[:, None]
                rows.reward[before] += weights * rows.reward[new]
                rows.next_obs[before, : self._states] = rows.next_obs[new, : self._states]
                rows.terminal[before] = 1 - weights * (1 - rows.terminal[new])
            self._places[task] = [*before, new][1 - self._n :]
