"""Which policy collects a data set, found by name or trained on the spot."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from torch.nn.utils import parameters_to_vector

from mcat.agents.policies.meta_policy import MetaPolicy
from mcat.agents.policies.names import find_policy, packaged_policies
from mcat.agents.policies.policy import Policy, load_policy
from mcat.envs.tasks import Task
from mcat.errors import UsageError
from mcat.progress import Notify, ignore
from mcat.tensor_files import digest, load_safetensors
from mcat.transfer.deploy import open_transfer
from mcat.translator.policy import TransferredPolicy, translator_file
from mcat.types import AnyPolicy, NamedPolicy

# Preset and steps of `mcat train`. The paper's Ant has 20K steps, all of them at random in its TD3,
# so ours is CrossQ's (docs/decisions.md#the-mediocre-ant).
MEDIOCRE = {"ant": ("fast", 20_000)}
DEFAULT_MEDIOCRE = ("paper", 80_000)
STEPS_PER_SECOND = 130  # of training on one core, for the announcement; the bar knows better


def collector_policy(
    name: str | None,
    task: Task,
    *,
    translator: Path | None = None,
    source: str | None = None,
    runs: Path = Path("runs"),
    notify: Notify = ignore,
) -> NamedPolicy[AnyPolicy | None]:
    """The policy to collect `task` with.

    Args:
        name: mediocre, good, random, scripted, scripted:ROBOT, a file or a run. None takes the
            scripted policy on Meta-World, a mediocre one on mcat's other robots and random actions
            elsewhere.
        task: The task to act on.
        translator: What `mcat translate` wrote, to act with a policy of another task; `name` is
            then as `open_transfer` takes it.
        source: Which of the translator's tasks that is.
        runs: Where a mediocre policy is trained if none comes with the package.
        notify: Told before such a training starts, or that a translator is for another machine.
    """
    if translator is not None:
        return transferred_policy(translator, name, task, source, notify=notify)
    if source is not None:
        raise UsageError("--from names a task of a translator: give --translator too")
    if name is None:
        name = "scripted" if task.on_table else "mediocre" if task.own else "random"
    if name == "random":
        return NamedPolicy(name, None)
    policy = (
        load_policy(_mediocre_file(task, runs, notify))
        if name == "mediocre"
        else find_policy(name, task, np.random.default_rng(0))
    )
    return NamedPolicy(name, policy, policy_hash(policy))


def transferred_policy(
    folder: Path,
    name: str | None,
    task: Task | None,
    source: str | None,
    *,
    notify: Notify = ignore,
) -> NamedPolicy[TransferredPolicy]:
    """`open_transfer`, with a hash that tells the policy from others."""
    found = open_transfer(folder, name, task, source, notify=notify)
    source_weights = policy_hash(found.act.policy) or ""
    arrays, _ = load_safetensors(translator_file(folder))
    return found._replace(sha256=digest(arrays, f"{found.name} {source_weights}"))


def policy_hash(policy: AnyPolicy) -> str | None:
    """A SHA-256 that tells policies apart wherever their files lie; None of one without weights."""
    if isinstance(policy, Policy):
        return digest({"actor": parameters_to_vector(policy.actor.parameters()).numpy()})
    if isinstance(policy, MetaPolicy):
        return digest(policy.arrays())
    return getattr(policy, "sha256", None)  # of an imported one, or of an ONNX file


def _mediocre_file(task: Task, runs: Path, notify: Notify) -> Path:
    """The packaged mediocre policy, or one trained now (or by an earlier call)."""
    dense = task.stock()
    for packaged in packaged_policies():
        if packaged.task == dense and packaged.level == "mediocre":
            return packaged.path
    from mcat.agents.single.config import PRESETS, TrainConfig
    from mcat.agents.single.run import train

    preset, steps = MEDIOCRE.get(task.robot, DEFAULT_MEDIOCRE)
    out = runs / f"{dense.label()}-mediocre"
    path = out / f"policy-{steps}.safetensors"
    if not path.is_file():
        notify(
            f"no mediocre policy comes with the package for {dense.label()}: training one in {out}"
            f" ({steps:,} steps, about {steps / STEPS_PER_SECOND / 60:.0f} min on one core)"
        )
        train(TrainConfig(task=dense, steps=steps, **PRESETS[preset]), out, resume=True)
    return path
