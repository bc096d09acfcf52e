"""Trying a translator on the target while it is trained, to report the best as the paper does.

Why that flatters: docs/decisions.md#which-training-epoch-is-reported.
"""

from __future__ import annotations

import time

from mcat.agents.evaluation import Trial, first_start, run_episodes
from mcat.envs.tasks import Task
from mcat.transfer.config import TransferConfig
from mcat.transfer.result import TRANSFERRED
from mcat.translator import TransferredPolicy, Translator
from mcat.types import PolicyFunction


class Looks:
    """An `EpochHook` that runs the episodes by which the translator will be judged in the end."""

    def __init__(
        self, policy: PolicyFunction, target: Task, config: TransferConfig, workers: int
    ) -> None:
        self.policy, self.target, self.config, self.workers = policy, target, config, workers
        self.means: list[float] = []
        self.seconds = 0.0

    def __call__(self, epoch: int, translator: Translator) -> None:
        """Look at the translator as it is."""
        start = time.perf_counter()
        transferred = TransferredPolicy(self.policy, translator)
        (returns,), _ = run_episodes(
            [Trial(TRANSFERRED, transferred, self.target)],
            episodes=self.config.episodes,
            seed=first_start(self.config.seed),
            workers=self.workers,
            quiet=True,
        )
        self.means.append(returns.mean)
        self.seconds += time.perf_counter() - start
