"""What `mcat adapt` is given: logs of the changed machine, and a policy that acts on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mcat.agents.adaptation.config import AdaptConfig
from mcat.agents.adaptation.machine import require_bounds
from mcat.datasets.cards import Card
from mcat.datasets.views import Episodes
from mcat.envs.tasks import Task
from mcat.errors import DataError, UsageError
from mcat.progress import Notify, ignore
from mcat.safe_io import dump_json, io_errors
from mcat.tensor_files import digest
from mcat.transfer.logs import Logs, load_logs
from mcat.types import NamedPolicy, PolicyFunction


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """What is known of a machine.

    Actions are in [-1, 1] throughout, also those of policies.
    """

    logs: Episodes  # what happened on it
    log_task: Task | None  # what made the logs; None for a machine that mcat cannot simulate
    policy: PolicyFunction | None  # a policy for it, translated or as it is; None if there is none
    # The source policy without the translator; None if there is none, or it has other spaces.
    plain: PolicyFunction | None
    made_of: dict[str, str]  # hashes by which logs and policy are known again
    card: Card | None = None  # what its numbers are; None if the logs do not say


def known_inputs(
    config: AdaptConfig,
    files: Sequence[str],
    policy: str | None = None,
    translator: Path | None = None,
    source: str | None = None,
    *,
    notify: Notify = ignore,
) -> Inputs:
    """Load what is known of a machine.

    Raises:
        DataError: if nothing can be learned from the logs.
        UsageError: if logs, policy and machine do not fit together.
    """
    found = load_logs(files, history=1)
    for note in found.notes:
        notify(f"note: {note}")
    _require_machine(config, found, notify)
    _require_rewards(config, found, has_policy=policy is not None or translator is not None)
    _note_rewards(found, notify)
    made_of = {f"log {number}": value for number, value in enumerate(found.hashes)}
    named, plain = _policy(config, found, policy, translator, source, notify)
    acting = None if named is None else named.act
    if named is not None:
        made_of["policy"] = named.sha256 or digest({}, named.name)
    if found.card is not None and found.card.scaled:
        made_of["bounds"] = digest({}, dump_json(found.card.to_metadata()))
        unchanged = plain is acting
        acting = None if acting is None else found.card.in_unit(acting)
        plain = acting if unchanged else None if plain is None else found.card.in_unit(plain)
    return Inputs(
        logs=found.episodes,
        log_task=found.task,
        policy=acting,
        plain=plain,
        made_of=made_of,
        card=found.card,
    )


def _require_machine(config: AdaptConfig, logs: Logs, notify: Notify) -> None:
    """Refuse logs of another machine than the one to act on."""
    task, made_by = config.task, logs.task
    if task is None:
        return
    sizes = task.spec.observation_size, task.spec.action_size
    other_robot = made_by is not None and made_by.robot != task.robot
    if logs.sizes != sizes or other_robot:
        name = f" of {made_by.label()}" if made_by is not None else ""
        raise UsageError(
            f"{logs.files[0]} is a log{name} with {logs.sizes[0]} observations and {logs.sizes[1]}"
            f" actions, and {task.label()} is another machine with {sizes[0]} and {sizes[1]}"
        )
    if logs.card is not None and logs.card.scaled and not task.own:
        env = task.make()
        require_bounds(task.label(), env.unwrapped.action_space, logs.card)
        env.close()
    if made_by is not None and made_by.params != task.params:
        notify(
            f"note: the logs are of {made_by.label()}, and real steps are made on {task.label()}"
        )


def _require_rewards(config: AdaptConfig, logs: Logs, *, has_policy: bool) -> None:
    """Refuse logs without rewards where they are needed; say what can be done without."""
    clones = config.learner.greed == 0 and (config.anchor != "better" or not has_policy)
    if logs.has_rewards or (clones and not (config.steps and config.log_share)):
        return
    ways = ["log rewards", "--clone --anchor logged makes a policy of what was done there"]
    if has_policy:
        ways.append("--clone --anchor policy one of what the translated policy would do")
    if config.steps:
        ways.append("--log-share 0 learns from real steps alone after either of these")
    raise DataError(
        f"{logs.files[0]} has no rewards, so nothing in it tells good from bad: {'; '.join(ways)}"
    )


def _note_rewards(logs: Logs, notify: Notify) -> None:
    rewards = logs.episodes.column("rewards")
    if logs.has_rewards and np.ptp(rewards) == 0:
        notify(
            f"note: {logs.files[0]}: every reward is {rewards[0]:g}, so these logs tell nothing of"
            " what is good; real steps may"
        )


def _policy(
    config: AdaptConfig,
    logs: Logs,
    policy: str | None,
    translator: Path | None,
    source: str | None,
    notify: Notify,
) -> tuple[NamedPolicy[PolicyFunction] | None, PolicyFunction | None]:
    """The policy to start from with its name and hash, and the same without a translator."""
    from mcat.agents.policies.names import find_outside_policy, find_source_policy
    from mcat.transfer.collectors import policy_hash, transferred_policy
    from mcat.transfer.deploy import untranslated

    target = config.task or logs.task
    if translator is not None:
        named = transferred_policy(translator, policy, target, source, notify=notify)
        moved = named.act.translator
        if (moved.observation_size, moved.action_size) != logs.sizes:
            raise UsageError(
                f"the translator in {translator} is for {moved.observation_size} observations and"
                f" {moved.action_size} actions, the logs have {logs.sizes[0]} and {logs.sizes[1]}"
            )
        return named, untranslated(named.act)
    if source is not None:
        raise UsageError("--from names a task of a translator: give --translator too")
    if policy is None:
        return None, None
    if target is not None:
        plain = find_source_policy(policy, target, np.random.default_rng(config.seed))
    else:
        plain = find_outside_policy(policy, *logs.sizes, "the machine of the logs", logs.card)
    return NamedPolicy(policy, plain, policy_hash(plain)), plain


def fitted_translator(
    sources: Sequence[str],
    targets: Sequence[str],
    out: Path,
    *,
    seed: int = 0,
    threads: int = 1,
    quiet: bool = False,
    notify: Notify = ignore,
) -> Path:
    """The folder of a translator for an adaptation, learned now or found beside it."""
    from mcat.transfer.config import TransferConfig
    from mcat.transfer.run import translate

    config = TransferConfig(
        sources=tuple(sources), targets=tuple(targets), episodes=0, seed=seed, threads=threads
    )
    folder = out.with_name(f"{out.name}-translator")
    with io_errors(folder.parent, "write"):
        folder.parent.mkdir(parents=True, exist_ok=True)
    translate(config, folder, resume=True, quiet=quiet, notify=notify)
    return folder
