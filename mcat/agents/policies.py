"""Policies as files: one safetensors file with the actor, and where it comes from."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from mcat.agents.context_policy import KIND as CONTEXT_POLICY
from mcat.agents.context_policy import ContextPolicy
from mcat.agents.networks import MLP, parameter_shapes
from mcat.agents.run_record import policy_file
from mcat.envs.tasks import Task
from mcat.errors import DataError, MissingInputError, UsageError
from mcat.formats import require_format, stamp
from mcat.safe_io import Arrays, StrPath, load_safetensors, save_safetensors
from mcat.types import AnyPolicy, PolicyFunction, Remembering, require_observations

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
        _layer("actor", index): parameter.detach().numpy()
        for index, parameter in enumerate(actor.layers)
    }
    save_safetensors(path, arrays, metadata | header, overwrite=overwrite)


def load_policy(path: StrPath) -> Policy | ContextPolicy:
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
    if metadata.get("kind") == CONTEXT_POLICY:
        return ContextPolicy.of_file(arrays, metadata, path)
    if metadata.get("kind") != "policy":
        raise DataError(f"{path}: not a policy of mcat")
    require_format(metadata, FORMAT, path)
    try:
        task = Task.from_dict(metadata["task"])
        actor = _network("actor", metadata["actor_sizes"], arrays)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
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


def find_policy(name: str, task: Task, rng: np.random.Generator) -> AnyPolicy:
    """The policy that `name` means for `task`.

    Args:
        name: "good" or "mediocre" (packaged), "random", "scripted", "scripted:push" (another
            robot's), or what `load_policy` takes.
        task: What it shall act on; rewards' delay and the horizon do not matter.
        rng: Draws the actions of "random".

    Raises:
        UsageError: if there is no such policy, or it is made for other spaces.
        MissingInputError: if there is no such file.
    """
    if name == "random":
        size = task.spec.action_size
        return lambda obs: rng.uniform(-1, 1, (len(obs), size)).astype(np.float32)
    if name.partition(":")[0] == "scripted":
        return _scripted(name, task)
    if name in LEVELS:
        return load_policy(packaged_path(name, task))
    if not Path(name).exists():
        if Path(name).name != name or Path(name).suffix:
            raise MissingInputError(f"there is no policy {name}")
        raise UsageError(
            f"no policy '{name}': choose {', '.join(LEVELS)}, random, scripted, a file or a run"
        )
    policy = load_policy(name)
    sizes = policy.observation_size, policy.action_size
    spaces = task.spec.observation_size, task.spec.action_size
    if sizes != spaces:
        made_for = policy.task.label() if isinstance(policy, Policy) else policy.family
        raise UsageError(
            f"policy {name} is for {made_for} and does not fit {task.label()}: {sizes[0]}"
            f" observations and {sizes[1]} actions against {spaces[0]} and {spaces[1]}"
        )
    return policy


def find_source_policy(name: str, task: Task, rng: np.random.Generator) -> PolicyFunction:
    """`find_policy`, of policies whose actions can be translated.

    Raises:
        UsageError: also if it is one of `mcat metatrain`.
    """
    policy = find_policy(name, task, rng)
    if isinstance(policy, Remembering):
        raise UsageError(
            f"policy {name} finds out by itself which machine it is on, so there is nothing to"
            f" translate: run it by mcat evaluate --policy {name} --env {task.robot}"
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
