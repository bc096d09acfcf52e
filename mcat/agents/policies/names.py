"""Policies by name: which there are, and which one is meant. Only loading one imports torch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mcat.agents.policies.foreign.own_code import load_code
from mcat.agents.runs.record import policy_file
from mcat.envs.robots import ROBOTS
from mcat.envs.scripted import SCRIPTS, SOURCE_POLICY, scripted_policy
from mcat.envs.tasks import Task
from mcat.errors import UsageError, no_name_or_file, unknown
from mcat.own_code import names_code, require_module
from mcat.tensor_files import load_metadata
from mcat.types import AnyPolicy, PolicyFunction, Remembering

if TYPE_CHECKING:
    from mcat.agents.policies.foreign.imported import ImportedPolicy
    from mcat.agents.policies.foreign.onnx_policy import OnnxPolicy
    from mcat.agents.policies.meta_policy import MetaPolicy
    from mcat.agents.policies.policy import Policy
    from mcat.datasets.cards import Card

LEVELS = ("good", "mediocre")
NAMES = (*LEVELS, "random", "scripted")
PACKAGED = Path(__file__).parents[2] / "policies"


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
        metadata = load_metadata(path)  # the arrays are read, and checked, with the policy
        task = Task.from_dict(metadata["task"])
        found.append(PackagedPolicy(task, level, metadata["step"], metadata["mean_return"], path))
    return found


def packaged_path(level: str, task: Task) -> Path:
    """The file of a policy that comes with the package.

    Raises:
        UsageError: if there is none of that level for the task.
    """
    stock = task.stock()
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


def source_policy_name(name: str | None, source: Task, target: Task | None = None) -> str:
    """The policy to run if none is named: a script on Meta-World, else the packaged good one.

    On a given target another script may be the one that can be transferred.
    """
    if name is not None:
        return name
    if not source.on_table:
        return "good"
    if source.robot == "push" and target is not None and target.robot in SOURCE_POLICY:
        return f"scripted:{SOURCE_POLICY[target.robot]}"
    return "scripted"


def require_policy_name(name: str) -> None:
    """Refuse what is neither a policy's name nor there, whatever the task.

    Raises:
        MissingInputError: if it is a file that is not there.
        UsageError: if it is no name either.
    """
    if name.partition(":")[0] in NAMES or Path(name).exists():
        return
    if not names_code(name):
        raise no_name_or_file("policy", name, NAMES)
    require_module("policy", name)


def require_policy(name: str, task: Task) -> None:
    """Refuse a name that means no policy for `task`.

    Raises:
        MissingInputError: if it is a file that is not there.
        UsageError: if there is no such policy.
    """
    require_policy_name(name)
    if name in LEVELS:
        packaged_path(name, task)
    kind, _, other = name.partition(":")
    if kind == "scripted":
        if other and not task.on_table:
            raise UsageError(f"policy {name} is for Meta-World and does not fit {task.label()}")
        script = other or task.robot
        if script not in SCRIPTS:
            raise unknown("scripted policy", script, SCRIPTS)
        if ROBOTS[SCRIPTS[script].robot].action_size != task.spec.action_size:
            raise UsageError(f"policy {name} does not fit {task.label()}: other states and actions")


def find_policy(name: str, task: Task, rng: np.random.Generator) -> AnyPolicy:
    """The policy that `name` means for `task`.

    Args:
        name: "good" or "mediocre" (packaged), "random", "scripted", "scripted:push" (another
            robot's), what `open_policy` takes, or `module:function`, a user's own code: it is run.
        task: What it shall act on; rewards' delay and the horizon do not matter.
        rng: Draws the actions of "random".

    Raises:
        UsageError: if there is no such policy, or it is made for other spaces.
        MissingInputError: if there is no such file.
    """
    require_policy(name, task)
    if name == "random":
        size = task.spec.action_size
        return lambda obs: rng.uniform(-1, 1, (len(obs), size)).astype(np.float32)
    if name.partition(":")[0] == "scripted":
        return _scripted(name.partition(":")[2], task)
    sizes = task.spec.observation_size, task.spec.action_size
    path = packaged_path(name, task) if name in LEVELS else None
    return find_policy_of_sizes(name, *sizes, machine=task.label(), path=path)


def find_policy_of_sizes(
    name: str,
    observation_size: int,
    action_size: int,
    *,
    machine: str = "this machine",
    path: Path | None = None,
    card: Card | None = None,
) -> AnyPolicy:
    """A policy for a machine of which no more than its sizes need be known.

    Args:
        name: What `open_policy` takes, or `module:function`, a user's own code: it is run.
        observation_size: Numbers in an observation.
        action_size: Numbers in an action.
        machine: What to call the machine in errors.
        path: The policy's file, if that is not its name.
        card: What the machine's numbers are; None for actions in [-1, 1].

    Raises:
        UsageError: if there is no such policy, or it is made for other spaces.
        MissingInputError: if there is no such file.
    """
    require_policy_name(name)
    if path is None and name.partition(":")[0] in NAMES and not Path(name).exists():
        raise UsageError(f"there is no policy {name} of {machine}: give a file or MODULE:FUNCTION")
    if names_code(name):
        return load_code(name, action_size)
    policy = open_policy(path or name)
    found, sizes = (policy.observation_size, policy.action_size), (observation_size, action_size)
    if found != sizes:
        raise UsageError(
            f"policy {name} is for {_made_for(policy)} and does not fit {machine}: {found[0]}"
            f" observations and {found[1]} actions against {sizes[0]} and {sizes[1]}"
        )
    bounds = getattr(policy, "bounds", None)
    units = card is not None and card.scaled  # a translator, or `Card.in_unit`, minds these
    if bounds is not None and not bounds.within_unit and not units:
        raise UsageError(
            f"policy {name} gives actions in {bounds} and does not fit {machine}, which takes"
            " those in [-1, 1]"
        )
    if card is not None:
        card.require_units_of(policy, f"policy {name}")
    return policy


def open_policy(path: str | Path) -> Policy | MetaPolicy | ImportedPolicy | OnnxPolicy:
    """Any policy in a file: of ours, imported or ONNX; no code in it is ever run.

    Args:
        path: The file, or the folder of a run, which means its latest one.

    Raises:
        MissingInputError: if it is not there.
        DataError: if it is damaged, hostile or not a policy.
    """
    path = Path(path)
    path = policy_file(path) if path.is_dir() else path
    if path.suffix == ".onnx":
        from mcat.agents.policies.foreign.onnx_policy import load_onnx

        return load_onnx(path)
    if path.is_file():
        from mcat.agents.policies.foreign.imported import KIND, ImportedPolicy

        if load_metadata(path).get("kind") == KIND:
            return ImportedPolicy.load(path)
    from mcat.agents.policies.policy import load_policy

    return load_policy(path)


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


def find_outside_policy(
    name: str | None,
    observation_size: int,
    action_size: int,
    machine: str,
    card: Card | None = None,
) -> PolicyFunction:
    """The policy of a machine that mcat cannot simulate: a file, or a user's own code.

    Raises:
        UsageError: if there is no such policy, it does not fit, or it has a memory.
    """
    if name is None:
        raise UsageError(
            f"mcat cannot simulate {machine} and has no policy of it: name yours by --policy FILE"
            " or MODULE:FUNCTION"
        )
    policy = find_policy_of_sizes(name, observation_size, action_size, machine=machine, card=card)
    if isinstance(policy, Remembering):
        raise UsageError(
            f"policy {name} has a memory: only what it does in a single state can be used here"
        )
    return policy


def _scripted(script: str, task: Task) -> PolicyFunction:
    # It aims at its own task's goal, not at one that it reads: also when it acts on another task.
    goal = None if script else task.params.get("goal")
    return scripted_policy(script or task, goal if isinstance(goal, tuple) else None)


def _made_for(policy: object) -> str:
    from mcat.agents.policies.meta_policy import MetaPolicy
    from mcat.agents.policies.policy import Policy

    if isinstance(policy, Policy):
        return policy.task.label()
    return policy.family if isinstance(policy, MetaPolicy) else "another machine"
