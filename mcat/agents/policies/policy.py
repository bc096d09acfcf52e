"""Policies as files: one safetensors file with the actor, and where it comes from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from mcat.agents.networks import MLP, parameter_shapes
from mcat.agents.policies.coded_policy import CodedPolicy
from mcat.agents.policies.context_policy import ContextPolicy
from mcat.agents.policies.meta_policy import MetaPolicy
from mcat.agents.policies.recurrent_policy import RecurrentPolicy
from mcat.agents.runs.record import policy_file
from mcat.envs.tasks import Task
from mcat.errors import DataError
from mcat.formats import require_format, stamp
from mcat.safe_io import StrPath
from mcat.tensor_files import Arrays, load_safetensors, save_safetensors
from mcat.types import require_observations

FORMAT = 1


class Policy:
    """A trained actor: maps observations `(n, obs)` to actions `(n, act)`.

    Attributes:
        actor: Maps observations to raw actions, of which tanh is taken.
        task: The task it was trained on.
        metadata: The rest of the file's header: step, mean_return, seed, command, versions ...
    """

    def __init__(self, actor: MLP, task: Task, metadata: dict[str, Any]) -> None:
        self.actor, self.task, self.metadata = actor, task, metadata

    @property
    def observation_size(self) -> int:
        """Numbers in an observation."""
        return self.actor.sizes[0]

    @property
    def action_size(self) -> int:
        """Numbers in an action."""
        return self.actor.sizes[-1]

    @torch.no_grad()
    def __call__(self, obs: NDArray[np.floating]) -> NDArray[np.float32]:
        """The deterministic actions; one observation `(obs,)` gives one action `(act,)`.

        Raises:
            UsageError: if the observations have another shape.
            DataError: if one is NaN or infinite.
        """
        rows = torch.from_numpy(require_observations(obs, self.observation_size))
        actions: NDArray[np.float32] = torch.tanh(self.actor(rows)[0]).numpy()
        return actions if np.ndim(obs) == 2 else actions[0]


def save_policy(
    path: StrPath, actor: MLP, task: Task, metadata: dict[str, Any], *, overwrite: bool = False
) -> None:
    """Write an actor; layers are named and laid out as in `torch.nn.Linear`."""
    header = {
        **stamp(FORMAT),
        "kind": "policy",
        "task": task.to_dict(),
        "actor_sizes": list(actor.sizes),
    }
    arrays = {
        _layer(index): parameter.detach().numpy() for index, parameter in enumerate(actor.layers)
    }
    save_safetensors(path, arrays, metadata | header, overwrite=overwrite)


_META: dict[str, type[MetaPolicy]] = {
    kind.kind: kind for kind in (ContextPolicy, CodedPolicy, RecurrentPolicy)
}


def load_policy(path: StrPath) -> Policy | MetaPolicy:
    """Read a policy of `mcat train` or `mcat metatrain`; no code in the file is ever run.

    Args:
        path: The file, or the folder of a run, which means its latest one.

    Raises:
        MissingInputError: if it is not there.
        DataError: if it is damaged or not a policy.
    """
    if Path(path).is_dir():
        path = policy_file(Path(path))
    arrays, metadata = load_safetensors(path)
    kind = metadata.get("kind")
    if isinstance(kind, str) and kind in _META:
        return _META[kind].of_file(arrays, metadata, path)
    if kind != "policy":
        raise DataError(f"{path}: not a policy of mcat")
    require_format(metadata, FORMAT, path)
    try:
        task = Task.from_dict(metadata["task"])
        actor = _actor(metadata["actor_sizes"], arrays)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise DataError(f"{path}: its header does not describe a policy ({error})") from error
    return Policy(actor, task, metadata)


def _actor(sizes: list[int], arrays: Arrays) -> MLP:
    """The actor whose layers are among `arrays`; nothing is allocated before they fit."""
    shapes = parameter_shapes(sizes, 1)
    if not shapes:
        raise ValueError("no layers of 'actor'")
    for index, shape in enumerate(shapes):
        found = arrays.get(_layer(index))
        if found is None or found.shape != shape or found.dtype != np.float32:
            raise ValueError(f"no fitting '{_layer(index)}' in it")
    network = MLP(sizes, 1)
    for index, parameter in enumerate(network.layers):
        parameter.data.copy_(torch.from_numpy(arrays[_layer(index)]))
    return network.requires_grad_(False)


def _layer(index: int) -> str:
    """`actor.0.weight`, `actor.0.bias`, `actor.1.weight` ..."""
    return f"actor.{index // 2}.{'bias' if index % 2 else 'weight'}"
