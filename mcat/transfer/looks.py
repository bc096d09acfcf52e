"""Trying a translator on the target while it is trained, to report the best as the paper does.

Why that flatters: docs/decisions.md#which-training-epoch-is-reported.
"""

from __future__ import annotations

import time

from mcat.agents.evaluation import Evaluator, first_start
from mcat.envs.tasks import Task
from mcat.transfer.config import TransferConfig
from mcat.translator import TransferredPolicy, Translator
from mcat.types import PolicyFunction


class Looks:
    """An `EpochHook` that runs the episodes by which the translator will be judged in the end."""

    def __init__(
        self, policy: PolicyFunction, target: Task, config: TransferConfig, workers: int
    ) -> None:
        self.policy = policy
        start = first_start(config.seed)
        self._evaluator = Evaluator(target, config.episodes, start, workers)
        self.means: list[float] = []
        self.seconds = 0.0

    def __call__(self, epoch: int, translator: Translator) -> None:
        """Look at the translator as it is."""
        start = time.perf_counter()
        returns = self._evaluator.returns(TransferredPolicy(self.policy, translator))
        self.means.append(float(returns.mean()))
        self.seconds += time.perf_counter() - start
