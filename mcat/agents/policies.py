"""Policies as files: one safetensors file with actor and critics, and where they come from."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from mcat.agents.networks import MLP, parameter_shapes
from mcat.agents.td3 import TD3
from mcat.envs.tasks import Task
from mcat.errors import DataError
from mcat.safe_io import Arrays, StrPath, load_safetensors, save_safetensors

FORMAT = 1


class Policy:
    """A trained actor with its critics: maps observations `(n, obs)` to actions `(n, act)`.

    Attributes:
        task: The task it was trained on.
        metadata: The rest of the file's header: step, mean_return, seed, command, versions ...
    """

    def __init__(self, actor: MLP, critics: MLP, task: Task, metadata: dict[str, Any]) -> None:
        self.actor, self.critics = actor, critics
        self.task = task
        self.metadata = metadata

    @torch.no_grad()
    def __call__(self, obs: NDArray[np.floating]) -> NDArray[np.float32]:
        """The deterministic actions."""
        actions: NDArray[np.float32] = torch.tanh(self.actor(_tensor(obs))[0]).numpy()
        return actions

    @torch.no_grad()
    def q_values(
        self, obs: NDArray[np.floating], actions: NDArray[np.floating]
    ) -> NDArray[np.float32]:
        """What both critics expect of the actions, `(2, n)`."""
        inputs = torch.cat((_tensor(obs), _tensor(actions)), 1)
        values: NDArray[np.float32] = self.critics(inputs)[..., 0].numpy()
        return values


def _tensor(array: NDArray[np.floating]) -> torch.Tensor:
    return torch.from_numpy(np.asarray(array, dtype=np.float32))


def save_policy(
    path: StrPath, agent: TD3, task: Task, metadata: dict[str, Any], *, overwrite: bool = False
) -> None:
    """Write an agent's networks; layers are named and laid out as in `torch.nn.Linear`."""
    header = {
        "format": FORMAT,
        "kind": "policy",
        "task": task.to_dict(),
        "actor_sizes": list(agent.actor.sizes),
        "critic_sizes": list(agent.critics.sizes),
    }
    arrays = {
        _layer(name, index): parameter.detach().numpy()
        for name, network in (("actor", agent.actor), ("critics", agent.critics))
        for index, parameter in enumerate(network.parameters)
    }
    save_safetensors(path, arrays, metadata | header, overwrite=overwrite)


def load_policy(path: StrPath) -> Policy:
    """Read a policy; no code in the file is ever run.

    Raises:
        MissingInputError: if it is not there.
        DataError: if it is damaged or not a policy.
    """
    arrays, metadata = load_safetensors(path)
    if metadata.get("kind") != "policy":
        raise DataError(f"{path}: not a policy of mcat")
    if metadata.get("format") != FORMAT:
        raise DataError(f"{path}: format {metadata.get('format')}; this mcat reads {FORMAT}")
    try:
        task = Task.from_dict(metadata["task"])
        actor = _network("actor", metadata["actor_sizes"], 1, arrays)
        critics = _network("critics", metadata["critic_sizes"], 2, arrays)
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{path}: its header does not describe a policy ({error})") from error
    return Policy(actor, critics, task, metadata)


def _network(name: str, sizes: list[int], members: int, arrays: Arrays) -> MLP:
    """The network whose layers are among `arrays`; nothing is allocated before they fit."""
    shapes = parameter_shapes(sizes, members)
    if not shapes:
        raise ValueError(f"no layers of '{name}'")
    for index, shape in enumerate(shapes):
        found = arrays.get(_layer(name, index))
        if found is None or found.shape != shape or found.dtype != np.float32:
            raise ValueError(f"no fitting '{_layer(name, index)}' in it")
    network = MLP(sizes, members)
    for index, parameter in enumerate(network.parameters):
        parameter.copy_(torch.from_numpy(arrays[_layer(name, index)]))
    return network


def _layer(name: str, index: int) -> str:
    """`actor.0.weight`, `actor.0.bias`, `actor.1.weight` ..."""
    return f"{name}.{index // 2}.{'bias' if index % 2 else 'weight'}"
