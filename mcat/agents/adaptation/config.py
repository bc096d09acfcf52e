"""The numbers of learning from logs and, after them, from real steps."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from mcat.agents.configs import TD3Config
from mcat.agents.limits import require_bearable
from mcat.config import to_json
from mcat.envs.tasks import Task
from mcat.errors import UsageError
from mcat.ranges import require_ranges

# What may differ when an adaptation goes on; everything else would make it another one.
RESUME_MAY_CHANGE = frozenset({"steps", "checkpoint_every"})
USUAL_EPISODES = 10  # of an evaluation where it costs no real steps


@dataclass(frozen=True, kw_only=True)
class AnchoredConfig(TD3Config):
    """The numbers of `Anchored`: those of TD3, and what keeps its actor near what is known.

    Attributes:
        deployed_rate: How far the actor that a user gets goes, after each update of the one that
            learns, to meet it; it starts as a plain mean.
        greed: λ, what the critics' judgement counts next to the distance to the anchor; 0 clones
            the anchor, and the larger it is, the more it is plain TD3.
    """

    deployed_rate: float = 0.003
    greed: float = 2.5

    def __post_init__(self) -> None:
        super().__post_init__()
        require_ranges(self, part=["deployed_rate"], not_negative=["greed"])


@dataclass(frozen=True, kw_only=True)
class AdaptConfig:
    """Everything that the numbers of an adaptation depend on, apart from logs and policies.

    Attributes:
        task: The changed machine, if mcat can simulate it.
        live: In place of it, the gymnasium id of a machine to act on; None without one.
        live_args: Its keyword arguments, each as "name=value".
        delay: Steps between two payments of the live machine; a task has its own.
        log_delay: The same of the logs; None for what their task says, or else 1.
        steps: Real steps; 0 learns from logs alone and touches no machine.
        seed: The root of all random numbers.
        anchor: What the actor is drawn to in logged states: what was done there, what the policy
            would do, or whichever of the two the critics value more.
        online_anchor: What the distance to the anchor counts in logged states once there are real
            steps: 0 nothing, as in RLPD, 1 as much as before them.
        offline_updates: Updates on the logs before the first real step.
        updates_per_step: Updates after each real step.
        batch_size: Transitions of an update.
        log_share: How much of a batch comes from the logs once there are real steps.
        random_steps: Real steps of random actions before the first of the policy.
        exploration: Standard deviation of the noise on real actions.
        credit: What is made of delayed payments: `none` takes them as they come, `ridge` fits a
            linear reward to them (see `RidgeCredit`).
        evaluate_every: Real steps between two rows of metrics.
        evaluation_episodes: Whole episodes in the simulator for each row; None for 10 if there are
            real steps, and none without. A live machine is never used for it.
        checkpoint_every: Updates between two checkpoints; a signal saves one at once.
        threads: torch threads; the last bits depend on it.
        learner: The numbers of the learner.
    """

    may_change: ClassVar[frozenset[str]] = RESUME_MAY_CHANGE

    task: Task | None = None
    live: str | None = None
    live_args: tuple[str, ...] = ()
    delay: int = 1
    log_delay: int | None = None
    steps: int = 0
    seed: int = 0
    anchor: Literal["better", "logged", "policy"] = "better"
    online_anchor: float = 0.0
    offline_updates: int = 10_000
    updates_per_step: int = 3
    batch_size: int = 256
    log_share: float = 0.5
    random_steps: int = 0
    exploration: float = 0.1
    credit: Literal["none", "ridge"] = "ridge"
    evaluate_every: int = 5_000
    evaluation_episodes: int | None = None
    checkpoint_every: int = 2_500
    threads: int = 1
    learner: AnchoredConfig = field(default_factory=AnchoredConfig)

    def __post_init__(self) -> None:
        counts = ("updates_per_step", "batch_size", "evaluate_every", "checkpoint_every", "threads",
                  "delay", "log_delay")  # fmt: skip
        not_negative = ("steps", "seed", "offline_updates", "random_steps", "exploration",
                        "online_anchor", "evaluation_episodes")  # fmt: skip
        require_ranges(self, at_least_1=counts, not_negative=not_negative, share=["log_share"])
        require_bearable({k: v for k, v in to_json(self).items() if v is not None})
        self._check_machine()

    def _check_machine(self) -> None:
        if self.task is not None and self.live is not None:
            raise UsageError("there is one machine: give --env or --live")
        if self.steps and self.task is None and self.live is None:
            raise UsageError("real steps need a machine: name it by --env or --live")
        if self.task is not None and self.delay != 1:
            raise UsageError("delay is that of a live machine: a task has its own, --delay")
        if self.live is None and self.live_args:
            raise UsageError("--live-arg is of --live ID")
        if self.evaluation_episodes and self.task is None:
            raise UsageError(
                "an evaluation needs a simulator (--env): on a live machine it would cost real"
                " steps, and its own episodes are noted anyway"
            )

    @property
    def episodes_to_look(self) -> int:
        """Episodes of each evaluation, as far as they may be run."""
        if self.evaluation_episodes is not None:
            return self.evaluation_episodes
        return USUAL_EPISODES if self.task is not None and self.steps else 0

    @property
    def evaluation_seed(self) -> int:
        """Of the episodes' starts, from a stream that nothing else draws from."""
        return int(np.random.SeedSequence(self.seed).spawn(5)[-1].generate_state(1)[0] >> 1)

    @property
    def machine_delay(self) -> int:
        """Steps between two payments of the machine."""
        return self.delay if self.task is None else self.task.delay
