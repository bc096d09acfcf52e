"""Policies as files: one safetensors file with the actor, and where it comes from."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from mcat.agents.networks import MLP, parameter_shapes
from mcat.envs.tasks import Task
from mcat.errors import DataError, UsageError
from mcat.safe_io import Arrays, StrPath, load_safetensors, save_safetensors
from mcat.types import PolicyFunction

FORMAT = 1
LEVELS = ("good", "mediocre")
PACKAGED = Path(__file__).parents[1] / "policies"


class Policy:
    """A trained actor: maps observations `(n, obs)` to actions `(n, act)`.

    Attributes:
        task: The task it was trained on.
        metadata: The rest of the file's header: step, mean_return, seed, command, versions ...
    """

    def __init__(self, actor: MLP, task: Task, metadata: dict[str, Any]) -> None:
        self.actor, self.task, self.metadata = actor, task, metadata

    @torch.no_grad()
    def __call__(self, obs: NDArray[np.floating]) -> NDArray[np.float32]:
        """The deterministic actions."""
        actions: NDArray[np.float32] = torch.tanh(self.actor(_tensor(obs))[0]).numpy()
        return actions


def _tensor(array: NDArray[np.floating]) -> torch.Tensor:
    return torch.from_numpy(np.asarray(array, dtype=np.float32))


def save_policy(
    path: StrPath, actor: MLP, task: Task, metadata: dict[str, Any], *, overwrite: bool = False
) -> None:
    """Write an actor; layers are named and laid out as in `torch.nn.Linear`."""
    header = {
        "format": FORMAT,
        "kind": "policy",
        "task": task.to_dict(),
        "actor_sizes": list(actor.sizes),
    }
    arrays = {
        _layer("actor", index): parameter.detach().numpy()
        for index, parameter in enumerate(actor.layers)
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
        actor = _network("actor", metadata["actor_sizes"], arrays)
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{path}: its header does not describe a policy ({error})") from error
    return Policy(actor, task, metadata)


def _network(name: str, sizes: list[int], arrays: Arrays) -> MLP:
    """The network whose layers are among `arrays`; nothing is allocated before they fit."""
    shapes = parameter_shapes(sizes, 1)
    if not shapes:
        raise ValueError(f"no layers of '{name}'")
    for index, shape in enumerate(shapes):
        found = arrays.get(_layer(name, index))
        if found is None or found.shape != shape or found.dtype != np.float32:
            raise ValueError(f"no fitting '{_layer(name, index)}' in it")
    network = MLP(sizes, 1)
    for index, parameter in enumerate(network.layers):
        parameter.data.copy_(torch.from_numpy(arrays[_layer(name, index)]))
    return network.requires_grad_(False)


def _layer(name: str, index: int) -> str:
    """`actor.0.weight`, `actor.0.bias`, `actor.1.weight` ..."""
    return f"{name}.{index // 2}.{'bias' if index % 2 else 'weight'}"


class PackagedPolicy(NamedTuple):
    """One line of `mcat policies list`."""

    task: Task
    level: str
    step: int
    mean_return: float
    path: Path


def packaged_policies() -> list[PackagedPolicy]:
    """The policies that come with the package, `mcat/policies/<task>-<level>.safetensors`."""
    found = []
    for path in sorted(PACKAGED.glob("*.safetensors")):
        level = path.stem.rpartition("-")[2]
        metadata = load_safetensors(path)[1]
        task = Task.from_dict(metadata["task"])
        found.append(PackagedPolicy(task, level, metadata["step"], metadata["mean_return"], path))
    return found


def find_policy(name: str, task: Task, rng: np.random.Generator) -> PolicyFunction:
    """The policy that `name` means for `task`.

    Args:
        name: "good" or "mediocre" (packaged), "random", "scripted", "scripted:push" (another
            robot's), or a path.
        task: What it shall act on; rewards' delay and the horizon do not matter.
        rng: Draws the actions of "random".

    Raises:
        UsageError: if there is no such policy, or it is made for other spaces.
    """
    if name == "random":
        size = task.spec.action_size
        return lambda obs: rng.uniform(-1, 1, (len(obs), size)).astype(np.float32)
    if name.partition(":")[0] == "scripted":
        return _scripted(name, task)
    if name in LEVELS:
        return load_policy(packaged_path(name, task))
    if not Path(name).is_file():
        raise UsageError(
            f"no policy '{name}': choose {', '.join(LEVELS)}, random, scripted or a file"
        )
    policy = load_policy(name)
    spaces = task.spec.observation_size, task.spec.action_size
    if (policy.actor.sizes[0], policy.actor.sizes[-1]) != spaces:
        raise UsageError(
            f"policy {name} is for {policy.task.label()} and does not fit {task.label()}:"
            f" {policy.actor.sizes[0]} observations and {policy.actor.sizes[-1]} actions"
            f" against {spaces[0]} and {spaces[1]}"
        )
    return policy


def _scripted(name: str, task: Task) -> PolicyFunction:
    from mcat.envs.scripted import SCRIPTED, scripted_policy

    robot = name.partition(":")[2]
    if robot and task.robot not in SCRIPTED:
        raise UsageError(f"policy {name} is for Meta-World and does not fit {task.label()}")
    # It aims at its own task's goal, not at one that it reads: also when it acts on another task.
    goal = None if robot else task.params.get("goal")
    return scripted_policy(robot or task, goal if isinstance(goal, tuple) else None)


def packaged_path(level: str, task: Task) -> Path:
    """The file of a policy that comes with the package.

    Raises:
        UsageError: if there is none of that level for the task.
    """
    stock = task.replace(delay=1, horizon=task.spec.horizon)
    policies = packaged_policies()
    for policy in policies:
        if policy.level == level and policy.task == stock:
            return policy.path
    alike = [p.task for p in policies if p.level == level and p.task.robot == task.robot]
    others = sorted({other.label() for other in alike})
    have = f"there are some for {', '.join(others)}" if others else "there is none for this robot"
    raise UsageError(
        f"no packaged {level} policy for {stock.label()} ({have}): train one with mcat train"
    )
