"""A policy that is told by a code which task it acts on: one per task it was trained on.

Its file holds the actor, the codes with the names of their tasks, the code for all others and,
where codes are inferred from trial episodes, the network that does it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mcat.agents.learner import finite
from mcat.agents.networks import MLP
from mcat.agents.policies.inference import Inference
from mcat.agents.policies.meta_policy import MetaPolicy, Shapes
from mcat.datasets.views import Episodes
from mcat.tensor_files import Arrays, part
from mcat.types import require_observations


class CodedPolicy(MetaPolicy):
    """An actor, and the codes it is given beside a state.

    Attributes:
        actor: Maps states with codes to raw actions.
        codes: `(tasks, code)`, of the tasks in `tasks`.
        unseen: `(code,)`, for all others.
        tasks: Names.
        inference: Finds the code of a task in trial episodes; None if nothing does.
        metadata: The rest of the file's header.
    """

    kind, format = "coded policy", 1

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
        super().__init__(actor, metadata)
        self.codes, self.unseen, self.tasks = codes, unseen, tuple(tasks)
        self.inference = inference

    @property
    def trials(self) -> int:
        """Episodes on a task from which its code is inferred."""
        return 0 if self.inference is None else self.inference.trials

    @property
    def observation_size(self) -> int:
        """Numbers in a state."""
        return self.actor.sizes[0] - len(self.unseen)

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

    def header(self) -> dict[str, Any]:
        """The names of the tasks and how codes are inferred, as JSON."""
        inference = None if self.inference is None else self.inference.header()
        return {"tasks": list(self.tasks), "inference": inference}

    @classmethod
    def shapes(cls, header: dict[str, Any], arrays: Arrays) -> Shapes:
        """Those of the codes and of what infers them."""
        sizes, tasks, inferred = header["actor_sizes"], header["tasks"], header["inference"]
        if not all(type(name) is str for name in tasks) or not tasks:
            raise ValueError("no tasks")
        (code,) = arrays["unseen"].shape
        states = sizes[0] - code
        if states < 1:
            raise ValueError("no states")
        wanted: Shapes = {"codes": (len(tasks), code), "unseen": (code,)}
        if inferred is not None:
            wanted |= Inference.shapes(inferred, states, sizes[-1], code)
        return wanted

    @classmethod
    def built(cls, header: dict[str, Any], arrays: Arrays) -> Self:
        """The policy of a header and of arrays that fit it."""
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
        actor = MLP(header["actor_sizes"], 1)
        actor.load_state_dict(part("actor.", tensors))
        inferred = header["inference"]
        return cls(
            actor.requires_grad_(False),
            tensors["codes"],
            tensors["unseen"],
            header["tasks"],
            inference=None if inferred is None else Inference.of_file(inferred, tensors),
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
        inputs = torch.cat((torch.from_numpy(rows), codes), 1)
        found = finite(torch.tanh(self._actor(inputs)[0]))
        return found if np.ndim(states) == 2 else found[0]
