"""A policy that is told by a code which task it acts on: one per task it was trained on.

Its file holds the actor, the codes with the names of their tasks, the code for all others and,
where codes are inferred from trial episodes, the network that does it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mcat.agents.networks import MLP, parameter_shapes
from mcat.agents.policies.inference import Inference
from mcat.datasets.views import Episodes
from mcat.errors import DataError, DivergedError
from mcat.formats import require_format, stamp
from mcat.safe_io import StrPath
from mcat.tensor_files import Arrays, load_safetensors, save_safetensors
from mcat.types import require_observations

FORMAT, KIND = 1, "coded policy"


class CodedPolicy:
    """An actor, and the codes it is given beside a state.

    Attributes:
        actor: Maps states with codes to raw actions.
        codes: `(tasks, code)`, of the tasks in `tasks`.
        unseen: `(code,)`, for all others.
        tasks: Names.
        inference: Finds the code of a task in trial episodes; None if nothing does.
        metadata: The rest of the file's header.
    """

    def __init__(
        self,
        actor: MLP,
        codes: Tensor,
        unseen: Tensor,
        tasks: Sequence[str],
        *,
        inference: Inference | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> None:
        self.actor, self.codes, self.unseen, self.tasks = actor, codes, unseen, tuple(tasks)
        self.inference, self.metadata = inference, metadata or {}

    @property
    def trials(self) -> int:
        """Episodes on a task from which its code is inferred."""
        return 0 if self.inference is None else self.inference.trials

    @property
    def observation_size(self) -> int:
        """Numbers in a state."""
        return self.actor.sizes[0] - len(self.unseen)

    @property
    def action_size(self) -> int:
        """Numbers in an action."""
        return self.actor.sizes[-1]

    @property
    def family(self) -> str:
        """The tasks it was trained on, where its file says so."""
        return str(self.metadata.get("family", "other tasks"))

    def __call__(self, states: NDArray[Any]) -> NDArray[np.float32]:
        """The actions on a task that it was not trained on; one state gives one action."""
        return ActingCodedPolicy(self.actor, self.unseen[None])(states)

    def begin(
        self, tasks: Sequence[int], names: Sequence[str], trials: Episodes | None = None
    ) -> ActingCodedPolicy:
        """The policy on these tasks.

        Args:
            tasks: The task of each row; a single one may be that of any number of rows.
            names: Of the tasks, by their numbers.
            trials: Episodes on them, by the same numbers; None before the first.
        """
        if self.inference is not None:
            codes = self.inference.codes(len(names), trials)
        else:
            known = dict(zip(self.tasks, self.codes, strict=True))
            codes = torch.stack([known.get(name, self.unseen) for name in names])
        own = codes[torch.as_tensor(tasks)]
        return ActingCodedPolicy(self.actor, own, inferred=self.inference is not None)

    def arrays(self) -> Arrays:
        """All weights, by the names they have in a file."""
        inference = {} if self.inference is None else self.inference.arrays()
        actor = {f"actor.{k}": v for k, v in self.actor.state_dict().items()}
        found = {**actor, "codes": self.codes, "unseen": self.unseen, **inference}
        return {name: np.ascontiguousarray(v.detach().numpy()) for name, v in found.items()}

    def save(self, path: StrPath, metadata: dict[str, Any], *, overwrite: bool = False) -> None:
        """Write it as one file.

        Args:
            path: The file.
            metadata: JSON types that go with it, such as `family`.
            overwrite: Replace a file that is there already.
        """
        header = {
            **stamp(FORMAT),
            "kind": KIND,
            "actor_sizes": list(self.actor.sizes),
            "tasks": list(self.tasks),
            "inference": None if self.inference is None else self.inference.header(),
        }
        save_safetensors(path, self.arrays(), metadata | header, overwrite=overwrite)

    @classmethod
    def load(cls, path: StrPath) -> CodedPolicy:
        """Read one; no code in the file is ever run.

        Raises:
            DataError: if it is damaged or something else.
        """
        arrays, header = load_safetensors(path)
        if header.get("kind") != KIND:
            raise DataError(f"{path}: not a coded policy of mcat metatrain")
        return cls.of_file(arrays, header, path)

    @classmethod
    def of_file(cls, arrays: Arrays, header: dict[str, Any], path: StrPath) -> CodedPolicy:
        """The policy of a file that was read; nothing is allocated before sizes and arrays fit.

        Args:
            arrays: What the file holds, by name.
            header: What it says of them.
            path: Named in errors.
        """
        require_format(header, FORMAT, path)
        try:
            sizes, tasks, inferred = header["actor_sizes"], header["tasks"], header["inference"]
            require_sizes(sizes)
            if not all(type(name) is str for name in tasks) or not tasks:
                raise ValueError("no tasks")
            (code,) = arrays["unseen"].shape
            states = sizes[0] - code
            shapes = enumerate(parameter_shapes(sizes, 1))
            wanted = {
                **{f"actor.layers.{index}": shape for index, shape in shapes},
                "codes": (len(tasks), code),
                "unseen": (code,),
            }
            if inferred is not None:
                wanted |= Inference.shapes(inferred, states, sizes[-1], code)
            if states < 1 or wanted != {name: array.shape for name, array in arrays.items()}:
                raise ValueError("other arrays")
            if {array.dtype for array in arrays.values()} != {np.dtype(np.float32)}:
                raise ValueError("no float32")
        except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
            raise DataError(f"{path}: its header does not describe its arrays") from error
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
        actor = MLP(sizes, 1)
        actor.load_state_dict(
            {k.removeprefix("actor."): v for k, v in tensors.items() if k.startswith("actor.")}
        )
        inference = None if inferred is None else Inference.of_file(inferred, tensors)
        return cls(
            actor.requires_grad_(False),
            tensors["codes"],
            tensors["unseen"],
            tasks,
            inference=inference,
            metadata=header,
        )


class ActingCodedPolicy:
    """A `PolicyFunction` on known tasks.

    Args:
        actor: Maps states with codes to raw actions.
        codes: `(rows, code)`, or `(1, code)` for any number of rows.
        inferred: Whether the codes were found in trials.

    Attributes:
        contexts: The codes of the rows; None if they are from a table, where nothing was found.
    """

    def __init__(self, actor: MLP, codes: Tensor, *, inferred: bool = False) -> None:
        self._actor, self._codes = actor, codes.detach()
        self.contexts = self._codes if inferred else None

    @torch.no_grad()
    def __call__(self, states: NDArray[Any]) -> NDArray[np.float32]:
        """The actions without noise; one state gives one action.

        Raises:
            DivergedError: if the weights have grown beyond all bounds.
        """
        rows = require_observations(states, self._actor.sizes[0] - self._codes.shape[1])
        codes = self._codes.expand(len(rows), -1)
        actions = torch.tanh(self._actor(torch.cat((torch.from_numpy(rows), codes), 1))[0])
        if not actions.isfinite().all():
            raise DivergedError("the actor's actions became NaN: try a lower learning rate")
        found: NDArray[np.float32] = actions.numpy()
        return found if np.ndim(states) == 2 else found[0]


def require_sizes(sizes: Any) -> None:
    """Refuse what are no layer widths of a network.

    Raises:
        ValueError: if they are not.
    """
    if len(sizes) < 2 or not all(type(number) is int and number > 0 for number in sizes):
        raise ValueError("no sizes")
