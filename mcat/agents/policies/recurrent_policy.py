"""MQL's policy: it reads the last steps, with their rewards, to find out which machine it is on.

Its file holds the meta-trained actor: it acts without the adaptation to a task that a run makes.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray

from mcat.agents.learner import finite
from mcat.agents.policies.meta_policy import MetaPolicy, Shapes, require_sizes
from mcat.agents.recurrent import Reader, RecurrentMLP, pushed, step_rows
from mcat.tensor_files import Arrays, part
from mcat.types import ActsInEpisodes, require_observations


class RecurrentPolicy(ActsInEpisodes, MetaPolicy):
    """An actor that reads windows."""

    kind, format = "recurrent policy", 1
    actor: RecurrentMLP

    def __init__(
        self, actor: RecurrentMLP, delay: int, metadata: dict[str, Any] | None = None
    ) -> None:
        super().__init__(actor, metadata)
        self.delay = delay

    @property
    def observation_size(self) -> int:
        """Numbers in a state."""
        return self.actor.sizes[0] - self.actor.reader.memory

    def start_episode(self) -> ActingRecurrentPolicy:
        """The policy at the start of episodes, with an empty memory."""
        return ActingRecurrentPolicy(self.actor, self.delay)

    def arrays(self) -> Arrays:
        """All weights, by the names they have in a file."""
        return {f"actor.{k}": v.detach().numpy() for k, v in self.actor.state_dict().items()}

    def header(self) -> dict[str, Any]:
        """The sizes of what reads windows, as JSON."""
        reader = self.actor.reader
        return {"history": reader.history, "memory": reader.memory, "delay": self.delay}

    @classmethod
    def shapes(cls, header: dict[str, Any], arrays: Arrays) -> Shapes:
        """Those of the GRU that reads windows."""
        sizes, memory = header["actor_sizes"], header["memory"]
        require_sizes(sizes, memory, header["history"], header["delay"])
        states = sizes[0] - memory
        if states < 1:
            raise ValueError("no states")
        gru = "actor.reader.gru"
        return {
            f"{gru}.weight_ih_l0": (3 * memory, sizes[-1] + 1 + states),
            f"{gru}.weight_hh_l0": (3 * memory, memory),
            f"{gru}.bias_ih_l0": (3 * memory,),
            f"{gru}.bias_hh_l0": (3 * memory,),
        }

    @classmethod
    def built(cls, header: dict[str, Any], arrays: Arrays) -> Self:
        """The policy of a header and of arrays that fit it."""
        sizes, memory = header["actor_sizes"], header["memory"]
        row = sizes[-1] + 1 + sizes[0] - memory
        actor = RecurrentMLP(sizes, Reader(row, header["history"], memory))
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
        actor.load_state_dict(part("actor.", tensors))
        return cls(actor.requires_grad_(False), header["delay"], header)


class ActingRecurrentPolicy:
    """A `PolicyFunction` for any number of episodes in lockstep, called once per step.

    Attributes:
        windows: `(n, h, row)`, what went before the last actions.
        contexts: `(n, memory)`, what the actor made of it.
    """

    def __init__(self, actor: RecurrentMLP, delay: int) -> None:
        self._actor, self._delay = actor, delay
        self._size = actor.sizes[0] - actor.reader.memory
        self._taken: NDArray[np.float32] | None = None
        self._states = self._rewards = np.zeros(0, np.float32)
        self.windows = np.zeros(0, np.float32)
        self.contexts = torch.zeros(0)

    @torch.no_grad()
    def __call__(self, states: NDArray[Any]) -> NDArray[np.float32]:
        """The actions for the states that the last ones led to; one state gives one action.

        Raises:
            UsageError: if the states have another shape, or another number than before.
            DataError: if one is NaN or infinite.
        """
        begun = None if self._taken is None else len(self._taken)
        rows, reader = require_observations(states, self._size, begun), self._actor.reader
        if self._taken is None:
            self.windows = np.zeros((len(rows), reader.history, reader.row), np.float32)
        else:
            last = step_rows(self._taken, self._rewards, self._states, self._delay)
            self.windows = pushed(self.windows, last)
        self.contexts = reader(torch.from_numpy(self.windows))
        inputs = torch.cat((torch.from_numpy(rows), self.contexts), 1)
        found = finite(torch.tanh(self._actor.after_reading(inputs)[0]))
        self._states, self._taken = rows, found.copy()
        self._rewards = np.zeros(len(rows), np.float32)
        return found if np.ndim(states) == 2 else found[0]

    def took(self, actions: NDArray[Any]) -> None:
        """Say what was done in place of the last actions, where noise or a limit changed them."""
        self._taken = np.array(actions, np.float32).reshape(-1, self._actor.sizes[-1])

    def paid(self, rewards: NDArray[Any]) -> None:
        """Say what the last actions earned; without it, nothing."""
        self._rewards = np.array(rewards, np.float32).reshape(-1)
