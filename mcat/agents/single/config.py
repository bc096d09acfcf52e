"""The settings of a single-task training run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from mcat.agents.configs import FAST_SAC, CrossQConfig, LearnerKind, SACConfig, TD3Config
from mcat.agents.lengths import check_limits
from mcat.agents.limits import require_bearable
from mcat.config import flatten, to_json
from mcat.envs.tasks import Task
from mcat.errors import UsageError
from mcat.ranges import require_ranges

# What may differ when a run goes on; everything else would make it another run.
RESUME_MAY_CHANGE = frozenset({"steps", "snapshots", "checkpoint_every"})

PRESETS: dict[str, dict[str, Any]] = {
    "fast": {},
    "paper": {
        "learner": "td3",
        "scale_rewards": False,
        "credit": "none",
        "episode_lengths": None,
        "start_steps": 25_000,
        "exploration": 0.1,
        "batch_size": 256,
        "sac": SACConfig(),
    },
}
"""fast: what learns best here; paper: TD3 with the paper's numbers, or SAC as it is known."""


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Everything a training run depends on (docs/algorithms/td3.md).

    Attributes:
        task: The task; rewards are dense if its delay is 1.
        steps: Environment steps in all.
        snapshots: Steps at which the policy is saved; the last step always is.
        seed: The root of all random numbers.
        learner: CrossQ, TD3 as in the paper, or SAC.
        scale_rewards: Give the learner rewards in units of their spread and, as long as no episode
            ends by itself, without their mean.
        credit: What is made of delayed payments: `none` takes them as they come, `ridge` fits a
            linear reward to them (see `RidgeCredit`).
        episode_lengths: The shortest and the longest episode to collect (see
            `lengths.draw_length`); None for whole ones. Evaluation always runs whole ones.
        start_steps: Steps of uniformly random actions before learning starts.
        exploration: Standard deviation of the noise on the actions after that; SAC has its own.
        batch_size: Transitions of an update.
        replay_capacity: Transitions to keep, at least an episode; the oldest go first.
        evaluate_every: Environment steps between two evaluations.
        evaluation_episodes: Whole episodes of each evaluation.
        checkpoint_every: Environment steps between two checkpoints; a signal saves one at once.
        threads: torch threads; part of the config because the last bits depend on it.
        td3: The numbers of TD3, if it is the learner.
        crossq: The numbers of CrossQ, if it is the learner.
        sac: The numbers of SAC, if it is the learner.
    """

    task: Task
    steps: int = 300_000
    snapshots: tuple[int, ...] = ()
    seed: int = 0
    learner: LearnerKind = "crossq"
    scale_rewards: bool = True
    credit: Literal["none", "ridge"] = "ridge"
    episode_lengths: tuple[int, ...] | None = (100, 500)
    start_steps: int = 5_000
    exploration: float = 0.3
    batch_size: int = 128
    replay_capacity: int = 1_000_000
    evaluate_every: int = 5_000
    evaluation_episodes: int = 10
    checkpoint_every: int = 20_000
    threads: int = 1
    td3: TD3Config = field(default_factory=TD3Config)
    crossq: CrossQConfig = field(default_factory=CrossQConfig)
    sac: SACConfig = FAST_SAC

    def __post_init__(self) -> None:
        counts = ("steps", "batch_size", "evaluate_every", "evaluation_episodes",
                  "checkpoint_every", "threads")  # fmt: skip
        not_negative = ("seed", "start_steps", "exploration")
        require_ranges(self, at_least_1=counts, not_negative=not_negative)
        require_bearable(to_json(self))
        if self.episode_lengths is not None:
            check_limits(self.episode_lengths)
        if self.replay_capacity < self.task.horizon:
            raise UsageError(f"the replay must hold an episode of {self.task.horizon} steps")
        late = [step for step in self.snapshots if not 1 <= step <= self.steps]
        if late:
            raise UsageError(f"snapshot {late[0]} is outside the run's {self.steps} steps")

    @property
    def numbers(self) -> CrossQConfig | SACConfig | TD3Config:
        """Those of the learner."""
        if self.learner == "sac":
            return self.sac
        return self.crossq if self.learner == "crossq" else self.td3

    @property
    def may_change(self) -> frozenset[str]:
        """Keys that may differ when a run goes on; runs before there was SAC say nothing of it."""
        idle = {} if self.learner == "sac" else flatten({"sac": to_json(self.sac)})
        return RESUME_MAY_CHANGE | frozenset(idle)
