"""What else the logs of a target give: a clone of what was done, and offline RL on the rewards.

Who has logs of the changed machine in which it does well needs no translation. These two are cheap
to try, so that a translation is never judged alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from mcat.agents.adaptation.config import AnchoredConfig
from mcat.agents.adaptation.known import known_of
from mcat.agents.adaptation.offline import clone, offline_rl
from mcat.agents.evaluation import Trial, first_start, run_episodes
from mcat.agents.networks import MLP
from mcat.agents.policies.policy import Policy
from mcat.agents.returns import Returns
from mcat.config import to_json
from mcat.datasets import Episodes
from mcat.datasets.checks import CONSTANT
from mcat.progress import Stopwatch
from mcat.provenance import provenance
from mcat.safe_io import write_json
from mcat.transfer.config import alternative_updates
from mcat.transfer.logs import Logs, load_logs
from mcat.transfer.result import (
    CLONED,
    LOGGED,
    LOGGED_SOURCE,
    OFFLINE,
    RESULT_FILE,
    AlternativeResult,
)
from mcat.workplaces import new_folder

LEARNERS: dict[str, Callable[..., MLP]] = {CLONED: clone, OFFLINE: offline_rl}


def learn_alternatives(
    target: Logs,
    *,
    updates: int,
    seed: int,
    quiet: bool = False,
    labels: Sequence[str] = (CLONED, OFFLINE),
) -> dict[str, Policy]:
    """The policies that the target's logs give by themselves, by label.

    Of logs with rewards the better half of the episodes is cloned: nobody would clone what failed.
    One whose learning went astray is left out, and so is offline RL where no reward differs from
    another.
    """
    assert target.task is not None
    found = {}
    for label in labels:
        if label == OFFLINE and not tells_good_from_bad(target):
            continue
        episodes = better_half(target) if label == CLONED else target.episodes
        known = known_of(episodes, episodes.rewards)
        actor = LEARNERS[label](known, AnchoredConfig(), updates=updates, seed=seed, quiet=quiet)
        if all(torch.isfinite(parameter).all() for parameter in actor.parameters()):
            metadata = {"learned": label, "made_of": list(target.hashes), "seed": seed}
            found[label] = Policy(actor, target.task, metadata | provenance())
    return found


def tells_good_from_bad(logs: Logs) -> bool:
    """Whether there are rewards, and not always the same one."""
    return logs.has_rewards and bool(np.ptp(logs.episodes.rewards) > CONSTANT)


def better_half(logs: Logs) -> Episodes:
    """The episodes that earned at least the median; all, where no reward differs from another."""
    if not tells_good_from_bad(logs):
        return logs.episodes
    returns = _episode_returns(logs)
    return logs.episodes.select(np.flatnonzero(returns >= np.median(returns)))


def logged_returns(source: Logs, target: Logs) -> tuple[Returns, ...]:
    """What the episodes in the logs earned; nothing of logs in which no reward ever changes."""
    return tuple(
        Returns(label=label, values=tuple(_episode_returns(logs).tolist()))
        for label, logs in ((LOGGED_SOURCE, source), (LOGGED, target))
        if tells_good_from_bad(logs)
    )


def _episode_returns(logs: Logs) -> NDArray[np.float64]:
    starts = logs.episodes.episode_ends - logs.episodes.lengths
    sums: NDArray[np.float64] = np.add.reduceat(logs.episodes.rewards.astype(np.float64), starts)
    return sums


def try_alternative(
    label: str,
    files: Sequence[str],
    out: Path,
    *,
    preset: str,
    episodes: int,
    seed: int,
    workers: int = 1,
    quiet: bool = False,
) -> AlternativeResult:
    """Learn one alternative, run it, and write what it earned into a folder.

    Raises:
        CannotCreateError: if the folder exists or cannot be made.
        BusyError: if another process is making it.
    """
    timings = Stopwatch()
    with new_folder(out) as folder:
        with timings.time("learn"):
            found = learn_alternatives(
                load_logs(files, history=1),
                updates=alternative_updates(preset),
                seed=seed,
                quiet=quiet,
                labels=(label,),
            )
        with timings.time("evaluate"):
            returns, _ = run_episodes(
                [Trial(label, policy, policy.task) for policy in found.values()],
                episodes=episodes,
                seed=first_start(seed),
                workers=workers,
                quiet=quiet,
            )
        result = AlternativeResult(
            returns=returns, seconds=timings.seconds, provenance=provenance()
        )
        write_json(folder / RESULT_FILE, to_json(result))
    return result
