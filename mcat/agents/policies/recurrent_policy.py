"""MQL's policy: it reads the last steps, with their rewards, to find out which machine it is on.

Its file holds the meta-trained actor: it acts without the adaptation to a task that a run makes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from mcat.agents.networks import parameter_shapes
from mcat.agents.recurrent import Reader, RecurrentMLP, pushed, step_rows
from mcat.errors import DataError, DivergedError, UsageError
from mcat.formats import require_format, stamp
from mcat.safe_io import StrPath
from mcat.tensor_files import Arrays, load_safetensors, save_safetensors
from mcat.types import require_observations

FORMAT, KIND = 1, "recurrent policy"


class RecurrentPolicy:
    """An actor that reads windows.

    Attributes:
        actor: Maps states with windows to raw actions.
        delay: What rewards are divided by.
        metadata: The rest of the file's header.
    """

    def __init__(
        self, actor: RecurrentMLP, delay: int, metadata: dict[str, Any] | None = None
    ) -> None:
        self.actor, self.delay, self.metadata = actor, delay, metadata or {}

    @property
    def observation_size(self) -> int:
        """Numbers in a state."""
        return self.actor.sizes[0] - self.actor.reader.memory

    @property
    def action_size(self) -> int:
        """Numbers in an action."""
        return self.actor.sizes[-1]

    @property
    def family(self) -> str:
        """The tasks it was trained on, where its file says so."""
        return str(self.metadata.get("family", "other tasks"))

    def __call__(self, states: NDArray[Any]) -> NDArray[np.float32]:
        """Refuse: what this policy does depends on the episode so far.

        Raises:
            UsageError: always.
        """
        raise UsageError(
            "this policy remembers: act with policy.start_episode(), anew for every episode"
        )

    def start_episode(self) -> ActingRecurrentPolicy:
        """The policy at the start of episodes, with an empty memory."""
        return ActingRecurrentPolicy(self.actor, self.delay)

    def arrays(self) -> Arrays:
        """All weights, by the names they have in a file."""
        return {f"actor.{k}": v.detach().numpy() for k, v in self.actor.state_dict().items()}

    def save(self, path: StrPath, metadata: dict[str, Any], *, overwrite: bool = False) -> None:
        """Write it as one file.

        Args:
            path: The file.
            metadata: JSON types that go with it, such as `family`.
            overwrite: Replace a file that is there already.
        """
        reader = self.actor.reader
        header = {
            **stamp(FORMAT),
            "kind": KIND,
            "actor_sizes": list(self.actor.sizes),
            "history": reader.history,
            "memory": reader.memory,
            "delay": self.delay,
        }
        save_safetensors(path, self.arrays(), metadata | header, overwrite=overwrite)

    @classmethod
    def load(cls, path: StrPath) -> RecurrentPolicy:
        """Read one; no code in the file is ever run.

        Raises:
            DataError: if it is damaged or something else.
        """
        arrays, header = load_safetensors(path)
        if header.get("kind") != KIND:
            raise DataError(f"{path}: not a recurrent policy of mcat metatrain")
        return cls.of_file(arrays, header, path)

    @classmethod
    def of_file(cls, arrays: Arrays, header: dict[str, Any], path: StrPath) -> RecurrentPolicy:
        """The policy of a file that was read; nothing is allocated before sizes and arrays fit.

        Args:
            arrays: What the file holds, by name.
            header: What it says of them.
            path: Named in errors.
        """
        require_format(header, FORMAT, path)
        try:
            sizes, memory = header["actor_sizes"], header["memory"]
            history, delay = header["history"], header["delay"]
            numbers = (*sizes, memory, history, delay)
            if len(sizes) < 2 or not all(type(n) is int and n > 0 for n in numbers):
                raise ValueError("no sizes")
            states = sizes[0] - memory
            row = sizes[-1] + 1 + states
            layers = enumerate(parameter_shapes(sizes, 1))
            gru = "actor.reader.gru"
            wanted: dict[str, tuple[int, ...]] = {
                **{f"actor.layers.{index}": shape for index, shape in layers},
                f"{gru}.weight_ih_l0": (3 * memory, row),
                f"{gru}.weight_hh_l0": (3 * memory, memory),
                f"{gru}.bias_ih_l0": (3 * memory,),
                f"{gru}.bias_hh_l0": (3 * memory,),
            }
            if states < 1 or wanted != {name: array.shape for name, array in arrays.items()}:
                raise ValueError("other arrays")
            if {array.dtype for array in arrays.values()} != {np.dtype(np.float32)}:
                raise ValueError("no float32")
        except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
            raise DataError(f"{path}: its header does not describe its arrays") from error
        actor = RecurrentMLP(sizes, Reader(row, history, memory))
        actor.load_state_dict(
            {k.removeprefix("actor."): torch.from_numpy(v) for k, v in arrays.items()}
        )
        return cls(actor.requires_grad_(False), delay, header)


class ActingRecurrentPolicy:
    """A `PolicyFunction` for any number of episodes in lockstep, called once per step.

    Args:
        actor: Maps states with windows to raw actions.
        delay: What rewards are divided by.

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
        rows, reader = require_observations(states, self._size), self._actor.reader
        if self._taken is None:
            self.windows = np.zeros((len(rows), reader.history, reader.row), np.float32)
        elif len(rows) != len(self._taken):
            raise UsageError(
                f"{len(rows)} observations of {len(self._taken)} episodes: start_episode() anew"
            )
        else:
            last = step_rows(self._taken, self._rewards, self._states, self._delay)
            self.windows = pushed(self.windows, last)
        self.contexts = reader(torch.from_numpy(self.windows))
        inputs = torch.cat((torch.from_numpy(rows), self.contexts), 1)
        actions = torch.tanh(self._actor.after_reading(inputs)[0])
        if not actions.isfinite().all():
            raise DivergedError("the actor's actions became NaN: try a lower learning rate")
        found: NDArray[np.float32] = actions.numpy()
        self._states, self._taken = rows, found.copy()
        self._rewards = np.zeros(len(rows), np.float32)
        return found if np.ndim(states) == 2 else found[0]

    def took(self, actions: NDArray[Any]) -> None:
        """Say what was done in place of the last actions, where noise or a limit changed them."""
        self._taken = np.array(actions, np.float32).reshape(-1, self._actor.sizes[-1])

    def paid(self, rewards: NDArray[Any]) -> None:
        """Say what the last actions earned; without it, nothing."""
        self._rewards = np.array(rewards, np.float32).reshape(-1)
