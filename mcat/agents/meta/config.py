"""The numbers of Algorithm 1, and complete settings under one name."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

from mcat.agents.configs import (
    FAST_CROSSQ,
    CreditConfig,
    CrossQConfig,
    ImitationConfig,
    SelectionConfig,
    TD3Config,
)
from mcat.agents.meta.run_config import RunConfig
from mcat.envs.robots import ROBOTS
from mcat.errors import UsageError
from mcat.ranges import require_ranges
from mcat.translator.configs import ActionConfig, ContextConfig
from mcat.translator.recipes import PRINTED_ACTION, PRINTED_CONTEXT, RELEASED_CONTEXT


@dataclass(frozen=True, kw_only=True)
class MCATConfig:
    """How MCAT learns; the defaults are those of preset `cpu`.

    Attributes:
        learner: What learns π and its critics: TD3 as in the paper, or CrossQ.
        scale_rewards: Give it rewards in units of their spread, and without their mean where that
            changes nothing but the critics' ease (see `PolicyUpdates`).
        novelty: Reward for moving an object, where there is one, to a place where it has not been;
            the more often it was there the less (see `Novelty`).
        learn_while_acting: Update π and its critics after every step of a round, with what has
            just happened, and C, F and H before it; else all of them learn after the round.
        average_contexts: Give π the mean of z over the episode so far in place of z_t alone, which
            tells the machine with less noise.
        transfer: Let translated policies of other tasks collect episodes.
        imitate: Self-imitation.
        translator: H of the paper, or the one of Zhang et al. 2020 in its place (D.6).
        target_context: What H is told of the target: its feature, as printed, or the episode's z_t.
        start_steps: Environment steps of random actions before the policy learns
            (docs/decisions.md#random-actions-at-first).
        exploration: Standard deviation of the noise on the actions after that.
        batch_size: Transitions of an update of π and its critics.
        replay_capacity: Transitions that B keeps, of all tasks together; the oldest episodes go
            first.
        updates_per_step: Such updates per environment step.
        td_steps: n, the steps whose rewards a TD target adds up before it asks the critics what
            follows; 1 as printed. Credit by a network looks one step ahead whatever it is.
        good_enough: Held-out error of F below which a tenth of its steps will do, as in the
            authors' code; None for what suits the robot, 0 for never.
        td3: The numbers of TD3, if it is the learner.
        crossq: The numbers of CrossQ, if it is the learner.
        context: C and F; `max_steps` and `patience` are per iteration.
        action: H; `steps` are per iteration.
        imitation: The numbers of self-imitation, if `imitate`.
        credit: How rewards for TD learning are made from delayed payments.
        selection: When a transferred policy collects the next episode of a task.
    """

    learner: Literal["crossq", "td3"] = "td3"
    scale_rewards: bool = False
    novelty: float = 0.0
    learn_while_acting: bool = False
    average_contexts: bool = False
    transfer: bool = True
    imitate: bool = True
    translator: Literal["ours", "cycle"] = "ours"
    target_context: Literal["task_mean", "online"] = "task_mean"
    start_steps: int = 25_000
    exploration: float = 0.1
    batch_size: int = 256
    replay_capacity: int = 1_000_000
    updates_per_step: float = 1.0
    td_steps: int = 1
    good_enough: float | None = None
    td3: TD3Config = field(default_factory=TD3Config)
    crossq: CrossQConfig = field(default_factory=CrossQConfig)
    context: ContextConfig = field(
        default_factory=lambda: ContextConfig(
            learning_rate=1e-3,
            decay=False,
            shared_only=False,
            max_steps=500,
            evaluate_every=50,
            patience=3,
        )
    )
    action: ActionConfig = field(default_factory=lambda: ActionConfig(steps=250))
    imitation: ImitationConfig = field(default_factory=ImitationConfig)
    credit: CreditConfig = field(default_factory=CreditConfig)
    selection: SelectionConfig = field(default_factory=SelectionConfig)

    def __post_init__(self) -> None:
        if self.start_steps < 0 or self.exploration < 0 or not self.updates_per_step > 0:
            raise UsageError(
                "start_steps and exploration must not be negative, updates_per_step positive"
            )
        require_ranges(self, at_least_1=["batch_size", "td_steps"], not_negative=["novelty"])
        if self.context.decay:
            raise UsageError("context.decay ends learning after one iteration: leave it off")
        if self.context.cut_below:
            raise UsageError("context.cut_below is of logs: good_enough is its like here")
        if self.good_enough != 0 and not self.context.hold_out:
            raise UsageError(
                "context.hold_out=false leaves nothing to tell whether F is good_enough: set that"
                " to 0 too"
            )
        if self.context.recent_actions or self.action.horizon > 1:
            raise UsageError(
                "context.recent_actions and action.horizon are of a pair of machines: leave them"
                " off"
            )
        if self.action.rates or self.action.fresh_starts > 1:
            raise UsageError(
                "action.rates and action.fresh_starts are of a training with an end: here H has"
                " action.learning_rate"
            )

    @property
    def numbers(self) -> CrossQConfig | TD3Config:
        """Those of the learner."""
        return self.crossq if self.learner == "crossq" else self.td3

    @property
    def discount(self) -> float:
        """γ of the learner."""
        return self.numbers.discount


GOOD_ENOUGH = {"halfcheetah": 0.08, "hopper": 0.18, "ant": 0.25}
"""By robot, the authors' thresholds (squared errors of two batches) as mean absolute errors."""

# As printed (C.4) and read in docs/decisions.md: 10,000 steps of all M transitions, 1,000 of H.
# The batch of self-imitation is Oh et al.'s, to whose numbers the paper refers.
_PRINTED = MCATConfig(
    good_enough=0.0,
    context=replace(PRINTED_CONTEXT, learning_rate=5e-4, max_steps=10_000),
    action=replace(PRINTED_ACTION, rates=(), hidden=(256, 256), steps=1000),
    imitation=ImitationConfig(batch_size=512, positive_only=False),
)
# The authors' public code where it differs, and their prototype of the loop.
_RELEASED = replace(
    _PRINTED,
    good_enough=None,
    target_context="online",
    context=replace(
        _PRINTED.context,
        **RELEASED_CONTEXT,
        hold_out=True,  # their threshold is compared with the error on it
    ),
    action=replace(_PRINTED.action, loss="l1", raw_states=True, batch_size=256),
    imitation=ImitationConfig(),
    selection=SelectionConfig(margin=0.5),
)
_CPU = MCATConfig()
# Self-imitation takes payments for the value of the steps just before them, which contradicts the
# credit that was learned; together they learned far more slowly (docs/metatrain.md).
_FAST = replace(
    _CPU,
    learner="crossq",
    scale_rewards=True,
    learn_while_acting=True,
    average_contexts=True,
    imitate=False,
    start_steps=10_000,
    exploration=0.3,
    batch_size=128,
    updates_per_step=3.0,
    crossq=FAST_CROSSQ,
    credit=CreditConfig(kind="auto"),
    selection=SelectionConfig(transfer_memory=100_000, alternate=True),
)
_SMOKE = MCATConfig(
    start_steps=5000,
    updates_per_step=0.01,
    td3=TD3Config(hidden=(32, 32)),
    context=ContextConfig(
        encoder_hidden=(32,),
        forward_hidden=(32, 32),
        learning_rate=1e-3,
        decay=False,
        shared_only=False,
        batch_size=64,
        max_steps=20,
        evaluate_every=10,
        feature_samples=128,
    ),
    action=ActionConfig(embedding=16, hidden=(32, 32), batch_size=64, steps=10),
    credit=CreditConfig(kind="learned", hidden=(32, 32)),
)


@dataclass(frozen=True, kw_only=True)
class MetaTrainConfig(RunConfig):
    """A run of MCAT.

    Attributes:
        mcat: The algorithm's own numbers.
    """

    method: ClassVar[str] = "mcat"

    mcat: MCATConfig = field(default_factory=MCATConfig)


PRESETS: dict[str, MetaTrainConfig] = {
    "fast": MetaTrainConfig(
        episode_lengths=(100, 500), mirror=None, mirror_replay=True, mcat=_FAST
    ),
    "cpu": MetaTrainConfig(mcat=_CPU),
    "paper": MetaTrainConfig(steps=2_000_000, evaluation_episodes=10, mcat=_PRINTED),
    "released": MetaTrainConfig(steps=2_000_000, evaluation_episodes=10, mcat=_RELEASED),
    "smoke": MetaTrainConfig(steps=15_000, evaluate_every=2, evaluation_episodes=1, mcat=_SMOKE),
}
"""fast: cpu with a faster learner, and credit in place of self-imitation; cpu: the algorithm at a
laptop's cost; paper: the printed numbers; released: as the authors' code; smoke: seconds."""


def of_robots(learner: str) -> dict[str, dict[str, Any]]:
    """What robots have otherwise in `fast` whatever the method, so that none is favoured.

    Args:
        learner: The group of the learner's numbers in the method's own.
    """
    ants = {"updates_per_step": 2.0, f"{learner}.huber_delta": None}
    # They are paid nothing until an object is at its goal, which chance alone hardly finds.
    movers = {"novelty": 1.0, "updates_per_step": 2.0, f"{learner}.discount": 0.97}
    named = {name: movers for name, robot in ROBOTS.items() if robot.places is not None}
    return {"ant": ants, **named}


BY_ROBOT: dict[str, dict[str, dict[str, Any]]] = {
    "fast": {
        # It acts every 8 ms, a cheetah or an ant every 50: five of its steps are one of theirs.
        "hopper": {
            "td_steps": 5,
            "crossq.discount": 0.98,
            "crossq.huber_delta": 30.0,  # rewards of five steps are larger than those of one
        },
        **of_robots("crossq"),
    }
}
"""By preset and robot, what MCAT has otherwise than in `PRESETS`; `Method.preset` puts it in."""
