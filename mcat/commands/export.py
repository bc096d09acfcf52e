"""`mcat export`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mcat.commands.help import Explained, group, json_option
from mcat.commands.options import (
    out_option,
    overwrite_option,
    policy_name,
    require_new_file,
    task_from,
    task_options,
    translator_options,
)
from mcat.errors import UsageError, unknown

if TYPE_CHECKING:
    from mcat.envs.tasks import Task
    from mcat.transfer.result import Machine, TransferResult
    from mcat.translator import Translator
    from mcat.types import AnyPolicy

    Found = tuple[AnyPolicy, dict[str, Any]]  # a policy, and what its file shall say of it


@click.group()
def export() -> None:
    """Policies as files that run without mcat."""


@export.command(
    cls=Explained,
    examples=(
        "mcat export onnx good --env halfcheetah --armature 0.1 --out cheetah.onnx",
        "mcat export onnx runs/halfcheetah-armature-fast-seed0 --out cheetahs.onnx",
        "mcat export onnx good --translator a-to-b --out b.onnx",
    ),
)
@click.argument("policy", callback=policy_name)
@group("A packaged policy", task_options)
@group(
    "On another machine",
    translator_options,
    click.option("--to", "target", metavar="TASK",
                 help="Which of a translator's several tasks it shall act on."),
)  # fmt: skip
@group(
    "The result",
    out_option("FILE.onnx", "Where to write.", required=True),
    overwrite_option,
    json_option,
)  # fmt: skip
def onnx(
    policy: str,
    translator: Path | None,
    source: str | None,
    target: str | None,
    out: Path,
    overwrite: bool,
    as_json: bool,
    env: str | None,
    **options: Any,
) -> None:
    """Write a policy as one ONNX file (opset 17), which onnxruntime runs on any machine.

    POLICY is a file, a run's folder, or good or mediocre with --env. What it remembers becomes
    inputs and outputs. The file is run against torch before it is written, and says in its
    metadata what its numbers are.
    """
    if out.suffix != ".onnx":
        raise UsageError(f"--out {out}: name it {out.stem}.onnx")
    if translator is None and (source or target):
        raise UsageError("--from and --to name tasks of a translator: give --translator too")
    if env is None and any(value is not None for value in options.values()):
        raise UsageError("these parameters describe a machine: name a robot by --env")
    if env is not None and translator is not None:
        raise UsageError("a translator knows its machines: leave out --env")
    from mcat.agents.policies.names import LEVELS, NAMES

    if policy.partition(":")[0] in set(NAMES) - set(LEVELS):
        raise UsageError(f"{policy} is code, not a network: there is nothing to export")
    if policy in LEVELS and env is None and translator is None:
        raise UsageError(f"a packaged policy is one of a machine: name it by --env, as {policy}")
    task = None if env is None else task_from(env, options)
    require_new_file(out, overwrite=overwrite)

    from mcat.agents.policies.foreign.export import export_onnx

    found, about = (
        _policy(policy, task)
        if translator is None
        else _transferred(policy, translator, source, target)
    )
    agreement = export_onnx(found, out, about=about, overwrite=overwrite)
    if as_json:
        told = {"path": str(out), "difference": agreement.usual, "extreme": agreement.extreme}
        click.echo(json.dumps(told))
        return
    click.echo(
        f"onnxruntime and torch differ by at most {agreement.usual:.1e}, and by"
        f" {agreement.extreme:.1e} on observations up to a thousand times as large",
        err=True,
    )
    click.echo(out)


def _policy(name: str, task: Task | None) -> Found:
    """A policy in a file, with what is known of it."""
    from mcat.agents.policies.foreign.machine import facts_of_task
    from mcat.agents.policies.foreign.onnx_policy import OnnxPolicy
    from mcat.agents.policies.names import LEVELS, find_policy, open_policy, packaged_path
    from mcat.agents.policies.policy import Policy
    from mcat.agents.runs.record import policy_file, read_record
    from mcat.envs.families import FAMILIES
    from mcat.own_code import names_code
    from mcat.tensor_files import content_digest

    if names_code(name):
        raise UsageError(f"{name} is code, not a network: there is nothing to export")
    path = packaged_path(name, task) if name in LEVELS and task is not None else Path(name)
    own_family = read_record(path).own_family if path.is_dir() else None
    path = policy_file(path) if path.is_dir() else path
    policy = open_policy(path)
    if isinstance(policy, OnnxPolicy):
        raise UsageError(f"{name} is an ONNX file already")
    if task is not None:
        import numpy as np

        find_policy(name, task, np.random.default_rng(0))  # refuses one of other sizes
    header = policy.metadata
    kept = ("mean_return", "returns", "family", "step", "seed", "from", "kind", "averaged")
    about = {key: header[key] for key in kept if header.get(key) is not None}
    about |= {"source": path.name, "source_sha256": content_digest(path)}
    owner = policy.task if isinstance(policy, Policy) else task
    if owner is not None:
        about |= {"task": owner.label(), **facts_of_task(owner)}
    elif family := own_family or FAMILIES.get(str(about.get("family"))):
        about |= facts_of_task(family.train[0])  # its tasks are alike in this
    return policy, about


def _transferred(name: str, folder: Path, source: str | None, target: str | None) -> Found:
    """A policy behind a translator; either machine may be one that mcat cannot simulate."""
    import numpy as np

    from mcat.agents.policies.foreign.machine import facts_of_task
    from mcat.agents.policies.names import (
        LEVELS,
        find_outside_policy,
        find_source_policy,
        packaged_path,
    )
    from mcat.envs.tasks import Task
    from mcat.tensor_files import content_digest
    from mcat.transfer.deploy import read_transfer
    from mcat.transfer.result import TRANSFERRED
    from mcat.translator import TransferredPolicy
    from mcat.translator.policy import translator_file

    result, translator = read_transfer(folder)
    translator, first, last = _between(translator, result, source, target)
    owner = None if first.task is None else Task.from_dict(first.task)
    file = packaged_path(name, owner) if owner is not None and name in LEVELS else _file(name)
    about: dict[str, Any] = {
        "kind": "translated policy",
        "source": f"{name} of {first.name}",
        "source_sha256": content_digest(file),
        "task": last.name,
        "translator_sha256": content_digest(translator_file(folder)),
    }
    if owner is not None:
        function = find_source_policy(name, owner, np.random.default_rng(0))
    else:
        sizes = translator.source_observation_size, translator.source_action_size
        function = find_outside_policy(name, *sizes, first.name, translator.source_card)
    earned = [returns.mean for returns in result.returns if returns.label == TRANSFERRED]
    if earned and not result.matrix:
        about["mean_return"] = earned[0]
    if last.task is not None:
        about |= facts_of_task(Task.from_dict(last.task))
    elif last.observation_names and translator.target_card is None:
        about["observation_names"] = list(last.observation_names)
    return TransferredPolicy(function, translator), about


def _between(
    translator: Translator, result: TransferResult, source: str | None, target: str | None
) -> tuple[Translator, Machine, Machine]:
    """The translator, for two of its machines if it knows several."""
    from mcat.translator import LearnedTranslator

    machines = {machine.name: machine for machine in result.machines}
    names = list(machines)
    several = isinstance(translator, LearnedTranslator) and translator.network.conditioned
    if several and (source is None or target is None):
        raise UsageError(
            f"this translator knows several tasks: name two by --from {names[0]} --to {names[-1]}"
        )
    first, last = source or names[0], target or names[-1]
    for given, known in ((first, names if several else names[:1]),
                         (last, names if several else names[-1:])):  # fmt: skip
        if given not in known:
            raise unknown("task", given, known)
    if several and isinstance(translator, LearnedTranslator):
        translator = translator.between(names.index(first), names.index(last))
    return translator, machines[first], machines[last]


def _file(name: str) -> Path:
    from mcat.agents.runs.record import policy_file

    path = Path(name)
    if not path.exists():
        raise UsageError(f"{name} is no file: what is exported must be one")
    return policy_file(path) if path.is_dir() else path
