"""The numbers of the learners' parts, without torch: mistakes in them are told at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from mcat.errors import UsageError, unknown
from mcat.ranges import require_ranges

LearnerKind = Literal["crossq", "sac", "td3"]
CriticKind = Literal["tracked", "normalised"]
CreditKind = Literal["none", "uniform", "ridge", "learned", "auto"]

LATELY = 0.15  # the share of a run's updates that preset fast deploys the average of
FAR = 10.0  # standard deviations of a reward: preset fast's bound of errors that count squared
LARGEST_LOG_STD = 2.0  # of a raw action: it is nearly uniform over both ends then


def _require_sensible(config: TD3Config | CrossQConfig | SACConfig) -> None:
    """Refuse what makes no sense in any learner."""
    require_ranges(
        config, widths=["hidden"], positive=["learning_rate"], share=["discount"],
        at_least_1=["policy_delay"],
    )  # fmt: skip


def _require_settling(config: CrossQConfig | SACConfig) -> None:
    """Refuse what makes no sense in a learner that may settle."""
    require_ranges(
        config, at_least_1=["settling"], decay=["critic_beta", "deployed_share"],
        part=["momentum", "deployed_rate"], positive=["huber_delta"],
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class TD3Config:
    """The numbers of the paper's table of TD3 (Appendix C.2).

    Attributes:
        hidden: Layer widths of actor and critics.
        learning_rate: Adam's, for actor and critics.
        discount: γ, what a reward one step later is worth now.
        target_rate: How far the target networks go towards the learned ones at each of their
            updates (TD3's τ).
        target_noise: σ̃, the standard deviation of the noise on the actions of TD targets.
        target_noise_clip: c, the largest that noise may be.
        policy_delay: Critic updates per update of actor and target networks.
    """

    hidden: tuple[int, ...] = (256, 256)
    learning_rate: float = 3e-4
    discount: float = 0.99
    target_rate: float = 0.005  # tau
    target_noise: float = 0.2
    target_noise_clip: float = 0.5
    policy_delay: int = 2  # critic updates per actor and target update

    def __post_init__(self) -> None:
        _require_sensible(self)
        noise = ["target_noise", "target_noise_clip"]
        require_ranges(self, part=["target_rate"], not_negative=noise)


class Settling:
    """What a learner does more carefully the longer it learns."""

    learning_rate: float
    settling: int | None
    policy_delay: int
    deployed_rate: float
    deployed_share: float

    def rate(self, updates: int) -> float:
        """The learning rate after so many updates."""
        done = 0 if self.settling is None else updates / self.settling
        return float(self.learning_rate / (1 + done) ** 0.5)

    def following(self, updates: int) -> float:
        """How far the deployed actor goes to meet the one that learns, after so many updates.

        1 / (1 / rate + share * n) at the n-th update of the actor.
        """
        steps = updates // self.policy_delay
        return self.deployed_rate / (1 + self.deployed_rate * self.deployed_share * steps)


@dataclass(frozen=True, kw_only=True)
class CrossQConfig(Settling):
    """The numbers that were found to suit small networks on a laptop (docs/algorithms/crossq.md).

    Attributes:
        hidden: Layer widths of actor and critics.
        learning_rate: Adam's at first; after u updates it is divided by sqrt(1 + u / `settling`).
        settling: See there; None keeps the rate as it is. Early on a high one learns fast, later it
            keeps critics and actor from settling.
        critic_beta: Adam's β1 for the critics.
        momentum: How far the critics' running averages go to those of a batch.
        discount: γ, what a reward one step later is worth now.
        target_noise: σ̃, the standard deviation of the noise on the actions of TD targets.
        target_noise_clip: c, the largest that noise may be.
        policy_delay: Critic updates per actor update.
        raw_action_cost: What the square of an action before its tanh costs in the actor's loss, as
            a mean over its numbers. Without it most actions end up where tanh is flat, and there
            the actor hears nothing from the critics any more.
        deployed_rate: How far the actor that a user gets goes, after each update of the one that
            learns, to meet it; 1 makes them the same. The average of what the actor was of late
            earns more than what it is at any moment.
        deployed_share: As that rate falls with this, the average comes to be one over this share
            of all updates so far (polynomial-decay averaging, Shamir and Zhang 2013); 0 keeps the
            rate as it is.
        huber_delta: A critic's error counts squared up to this, and beyond it in proportion
            (Huber's loss); None counts all of them squared, so that a few large ones can drag the
            critics away from everything else.
    """

    hidden: tuple[int, ...] = (128, 128)
    learning_rate: float = 1e-3
    settling: int | None = 50_000
    critic_beta: float = 0.5
    momentum: float = 0.01
    discount: float = 0.99
    target_noise: float = 0.2
    target_noise_clip: float = 0.5
    policy_delay: int = 3
    deployed_rate: float = 0.003
    deployed_share: float = 0.0
    raw_action_cost: float = 0.01
    huber_delta: float | None = None

    def __post_init__(self) -> None:
        _require_sensible(self)
        _require_settling(self)
        noise = ["target_noise", "target_noise_clip"]
        require_ranges(self, not_negative=[*noise, "raw_action_cost"])


@dataclass(frozen=True, kw_only=True)
class SACConfig(Settling):
    """The numbers of SAC as it is known; `FAST_SAC` are those that go with normalised critics.

    Attributes:
        hidden: Layer widths of actor and critics.
        learning_rate: Adam's, for actor and critics; at first, see `settling`.
        settling: After u updates that rate is divided by sqrt(1 + u / `settling`); None keeps it.
        discount: γ, what a reward one step later is worth now.
        reward_scale: What rewards are multiplied by. With a fixed temperature it decides what they
            weigh beside entropy.
        temperature: α, what a nat of entropy is worth; if it is learned, at first.
        temperature_rate: Adam's, for the logarithm of α; 0 keeps α as it is. It is learned so that
            the entropy is minus the number of an action's numbers.
        spread_floor: The least logarithm of a standard deviation of raw actions.
        critics: `tracked` ones with target networks that follow them, or batch-`normalised` ones
            without, as CrossQ has them.
        target_rate: τ, how far target networks go towards the learned ones, if there are any.
        momentum: How far running averages of normalised critics go to those of a batch.
        critic_beta: Adam's β1 for the critics.
        policy_delay: Critic updates per update of actor, temperature and target networks.
        deployed_rate: How far the actor that a user gets goes, after each update of the one that
            learns, to meet it; 1 makes them the same.
        deployed_share: The average is over this share of all updates so far, as in `CrossQConfig`.
        huber_delta: Up to which error critics count it squared, as in `CrossQConfig`.
    """

    hidden: tuple[int, ...] = (256, 256)
    learning_rate: float = 3e-4
    settling: int | None = None
    discount: float = 0.99
    reward_scale: float = 1.0
    temperature: float = 0.1
    temperature_rate: float = 3e-4
    spread_floor: float = -20.0
    critics: CriticKind = "tracked"
    target_rate: float = 0.005
    momentum: float = 0.01
    critic_beta: float = 0.9
    policy_delay: int = 1
    deployed_rate: float = 1.0
    deployed_share: float = 0.0
    huber_delta: float | None = None

    def __post_init__(self) -> None:
        _require_sensible(self)
        _require_settling(self)
        require_ranges(
            self, positive=["reward_scale", "temperature"], not_negative=["temperature_rate"],
            part=["target_rate"],
        )  # fmt: skip
        if not self.spread_floor < LARGEST_LOG_STD:
            raise UsageError(
                f"spread_floor must be below {LARGEST_LOG_STD:g}, not {self.spread_floor}"
            )
        if self.critics not in get_args(CriticKind):
            raise unknown("kind of critics", self.critics, get_args(CriticKind))


FAST_CROSSQ = CrossQConfig(deployed_share=LATELY, huber_delta=FAR)
"""What preset `fast` of `mcat metatrain` has."""

FAST_SAC = SACConfig(
    hidden=(128, 128),
    learning_rate=1e-3,
    settling=50_000,
    critics="normalised",
    critic_beta=0.5,
    policy_delay=3,
    deployed_rate=0.003,
    deployed_share=LATELY,
    huber_delta=FAR,
)
"""SAC with what `CrossQConfig` has beside TD3."""


@dataclass(frozen=True, kw_only=True)
class CreditConfig:
    """How rewards for TD learning are made from payments.

    Attributes:
        kind: `none` leaves payments where they came, `uniform` shares them out, `ridge` and
            `learned` fit a linear model or a network to them, and `auto` takes the linear one
            unless it leaves more than `unexplained` of the payments' variance unexplained, which is
            asked once there are two payments for each of its weights.
        unexplained: See `auto`.
        hidden: Layer widths of the network of `learned`.
        learning_rate: Adam's, for that network.
        segments: Paid segments per step of its optimiser.
        steps: Steps sampled of each of these segments.
    """

    kind: CreditKind = "none"
    unexplained: float = 0.1
    hidden: tuple[int, ...] = (256, 256)
    learning_rate: float = 3e-4
    segments: int = 8
    steps: int = 32

    def __post_init__(self) -> None:
        if self.kind not in get_args(CreditKind):
            raise unknown("credit", self.kind, get_args(CreditKind))
        require_ranges(
            self, widths=["hidden"], positive=["learning_rate"], at_least_1=["segments", "steps"]
        )


@dataclass(frozen=True, kw_only=True)
class ImitationConfig:
    """Oh's numbers for MuJoCo, but for batch, weight and clip: docs/decisions.md#self-imitation.

    Attributes:
        capacity: Transitions to keep; the oldest episodes go first.
        batch_size: Rows per critic update, 512 in Oh's code.
        alpha: How much priorities count: 0 not at all.
        beta: How much of the bias that comes with them the importance weights take back.
        weight: What L_sil counts next to L_td3.
        positive_only: Keep only episodes in which some reward is positive, as Oh's code does;
            Algorithm 1 prints no such filter.
        clip: The largest priority, 1 in Oh's code. There rewards are normalised; at MuJoCo's own
            scale it would make all undervalued rows nearly equal, so None: no clip.
    """

    capacity: int = 50_000
    batch_size: int = 256
    alpha: float = 0.6
    beta: float = 0.1
    weight: float = 1.0
    positive_only: bool = True
    clip: float | None = None

    def __post_init__(self) -> None:
        require_ranges(
            self, at_least_1=["capacity", "batch_size"], not_negative=["alpha", "beta", "weight"],
            positive=["clip"],
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class SelectionConfig:
    """When to believe that a transferred policy is better.

    Attributes:
        memory: G, the environment steps of the run for which a return counts.
        transfer_memory: The same for returns of transferred policies; None for as long. A source
            that failed is tried again when it is over.
        margin: How much better it must be, as a fraction of the shared policy's mean return: 0 as
            printed, 0.5 in the authors' prototype.
        alternate: Let the shared policy drive a task after every round of a transferred one. A
            policy that learns fast earns more in every round, so of two it is the one asked last
            that looks better.
    """

    memory: int = 20_000
    transfer_memory: int | None = None
    margin: float = 0.0
    alternate: bool = False

    def __post_init__(self) -> None:
        require_ranges(self, at_least_1=["memory", "transfer_memory"], not_negative=["margin"])
