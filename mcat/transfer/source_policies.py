"""Which policies `mcat translate` moves from machine to machine, and why it cannot run some."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from mcat.agents.policies.names import find_source_policy, source_policy_name
from mcat.errors import UsageError
from mcat.transfer.config import TransferConfig
from mcat.transfer.logs import Logs
from mcat.types import NamedPolicy, PolicyFunction


def source_policy(
    config: TransferConfig, source: Logs, target: Logs | None = None
) -> NamedPolicy[PolicyFunction | None]:
    """The policy to transfer, found before training; without `target` to whatever target.

    Raises:
        UsageError: if one was named that does not exist or fit.
    """
    own_robots = [logs.files[0] for logs in (source, target) if logs and logs.task is None]
    name, function, skipped = config.policy or "none", None, None
    if source.task is not None:
        name = source_policy_name(config.policy, source.task, target.task if target else None)
        try:
            function = find_source_policy(name, source.task, np.random.default_rng(config.seed))
        except UsageError as error:
            if config.policy is not None:
                raise
            skipped = str(error)
    if own_robots:
        skipped = (
            f"mcat cannot simulate the machine of {own_robots[0]}; run a"
            " TransferredPolicy on the machine itself"
        )
    if config.episodes == 0:
        skipped = "--episodes 0"
    return NamedPolicy(name, function, skipped=skipped)


def require_use(
    config: TransferConfig,
    policies: Sequence[NamedPolicy[PolicyFunction | None]],
    *,
    used: bool = False,
) -> None:
    """Refuse a policy that would neither be run nor, otherwise, `used`."""
    reasons = [policy.skipped for policy in policies]
    if config.policy is not None and all(reasons) and not used:
        raise UsageError(f"leave out --policy, which would not be used: {reasons[0]}")


def told(policies: Sequence[NamedPolicy[PolicyFunction | None]]) -> str | None:
    """Why episodes were not run, in one line."""
    reasons = list(dict.fromkeys(policy.skipped for policy in policies if policy.skipped))
    if not reasons:
        return None
    whose = "" if all(policy.skipped for policy in policies) else " with some of the policies"
    return f"no episodes were run{whose}: {'; '.join(reasons)}"


def task_policies(
    config: TransferConfig, logs: Sequence[Logs]
) -> list[NamedPolicy[PolicyFunction | None]]:
    """Each task's own policy, where there is one.

    Raises:
        UsageError: if one was named that no task has.
    """
    if config.policy is not None and Path(config.policy).is_file():
        raise UsageError("several tasks need a policy each: name good, mediocre or scripted")
    policies, missing = [], []
    for item in logs:
        try:
            policies.append(source_policy(config, item))
        except UsageError as error:
            missing.append(error)
            policies.append(NamedPolicy(str(config.policy), None, skipped=str(error)))
    if len(missing) == len(logs):
        raise missing[0]
    return policies
