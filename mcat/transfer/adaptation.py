"""What `mcat adapt` is given: logs of the changed machine, and a policy of another, translated."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from mcat.datasets.views import Episodes
from mcat.envs.tasks import Task
from mcat.errors import DataError, UsageError
from mcat.progress import Notify, ignore
from mcat.tensor_files import digest
from mcat.transfer.collectors import collector_policy
from mcat.transfer.deploy import open_transfer
from mcat.transfer.logs import load_logs
from mcat.types import PolicyFunction


class Inputs(NamedTuple):
    """Logs, a policy, and the hashes by which they are known again."""

    logs: Episodes
    policy: PolicyFunction | None
    made_of: dict[str, str]


def known_inputs(
    files: Sequence[str],
    task: Task,
    policy: str | None,
    translator: Path | None,
    source: str | None,
    *,
    notify: Notify = ignore,
) -> Inputs:
    """Load what is known of a machine.

    Args:
        files: Its logs.
        task: The machine.
        policy: The source policy, as `find_policy` takes it; None the default one.
        translator: What `mcat translate` wrote; None for logs alone.
        source: Which of a translator's several tasks the policy comes from.
        notify: Told of what is odd.

    Raises:
        DataError: if the logs have no rewards.
        UsageError: if logs, policy and machine do not fit together.
    """
    found = load_logs(files, history=1)
    for note in found.notes:
        notify(f"note: {note}")
    sizes = task.spec.observation_size, task.spec.action_size
    if found.sizes != sizes:
        raise UsageError(
            f"{files[0]} has {found.sizes[0]} observations and {found.sizes[1]} actions,"
            f" {task.label()} {sizes[0]} and {sizes[1]}: these are logs of another machine"
        )
    if not found.has_rewards:
        raise DataError(
            f"{files[0]} has no rewards to learn from: mcat translate needs none, or log them"
        )
    made_of = {f"log {number}": value for number, value in enumerate(found.hashes)}
    if translator is None:
        if policy is not None or source is not None:
            raise UsageError("--policy and --from are of the source machine: give --translator too")
        return Inputs(found.episodes, None, made_of)
    opened = open_transfer(translator, policy, task, source, notify=notify)
    named = collector_policy(policy, task, translator=translator, source=source)
    made_of["policy"] = named.sha256 or digest({}, named.name)
    return Inputs(found.episodes, opened.policy, made_of)
