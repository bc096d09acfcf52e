"""The numbers of learning from logs and, after them, from real steps."""

from __future__ import annotations

from dataclasses import dataclass, field

from mcat.envs.tasks import Task
from mcat.errors import UsageError

# What may differ when an adaptation goes on; everything else would make it another one.
RESUME_MAY_CHANGE = frozenset({"steps"})


@dataclass(frozen=True, kw_only=True)
class AnchoredConfig:
    """Of `Anchored`.

    Attributes:
        hidden: Widths of the hidden layers.
        learning_rate: Of all networks.
        discount: γ.
        target_rate: How far targets follow the networks after a step of the actor.
        deployed_rate: The same of the actor that a user gets.
        target_noise: On next actions.
        target_noise_clip: At most so much of it.
        policy_delay: Critic updates for each of the actor.
        greed: What the critics' judgement counts next to the distance to the anchor.
    """

    hidden: tuple[int, ...] = (256, 256)
    learning_rate: float = 3e-4
    discount: float = 0.99
    target_rate: float = 0.005
    deployed_rate: float = 0.003
    target_noise: float = 0.2
    target_noise_clip: float = 0.5
    policy_delay: int = 2
    greed: float = 2.5


@dataclass(frozen=True, kw_only=True)
class AdaptConfig:
    """Everything that the numbers of an adaptation depend on, apart from logs and policies.

    Attributes:
        task: The changed machine, if there is one to act on: a simulator here.
        steps: Real steps on it; 0 learns from logs alone.
        seed: The root of all random numbers.
        offline_updates: Updates on the logs before the first real step.
        updates_per_step: Updates after each real step.
        batch_size: Transitions of an update.
        log_share: How much of a batch comes from the logs once there are real steps.
        exploration: Standard deviation of the noise on real actions.
        evaluate_every: Real steps between two evaluations.
        evaluation_episodes: Whole episodes of each; 0 for none, as on a real machine.
        threads: torch threads; the last bits depend on it.
        learner: The numbers of the learner.
    """

    task: Task | None = None
    steps: int = 0
    seed: int = 0
    offline_updates: int = 10_000
    updates_per_step: int = 3
    batch_size: int = 256
    log_share: float = 0.5
    exploration: float = 0.1
    evaluate_every: int = 5_000
    evaluation_episodes: int = 10
    threads: int = 1
    learner: AnchoredConfig = field(default_factory=AnchoredConfig)

    def __post_init__(self) -> None:
        for name in ("updates_per_step", "batch_size", "evaluate_every", "threads"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} must be at least 1, not {getattr(self, name)}")
        for name in ("steps", "seed", "offline_updates", "exploration", "evaluation_episodes"):
            if getattr(self, name) < 0:
                raise UsageError(f"{name} must not be negative, not {getattr(self, name)}")
        if not 0 <= self.log_share < 1:
            raise UsageError(f"log_share must be from 0 to below 1, not {self.log_share}")
        if self.steps and self.task is None:
            raise UsageError("real steps need a machine: describe it by --env, or ask for 0 steps")
