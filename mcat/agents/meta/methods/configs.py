"""The numbers of the methods that MCAT is compared with; no torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from mcat.agents.configs import (
    CreditConfig,
    CrossQConfig,
    ImitationConfig,
    SACConfig,
    TD3Config,
)
from mcat.agents.meta.run_config import RunConfig
from mcat.errors import UsageError
from mcat.ranges import require_ranges


@dataclass(frozen=True, kw_only=True)
class MethodConfig:
    """What every one of them has; the defaults are those of preset `cpu`.

    Attributes:
        start_steps: Environment steps of random actions before anything is learned.
        batch_size: Transitions of an update, of all tasks together; each has as many.
        replay_capacity: Transitions that are kept, of all tasks together; the oldest episodes go
            first.
        updates_per_step: Updates per environment step.
        learn_while_acting: Update after every step of a round, with what has just happened; else
            after the round.
        scale_rewards: Learn from rewards in units of their spread, and without their mean where no
            episode ends by itself and nothing is imitated.
        novelty: Reward for moving an object, where there is one, to a place where it has not been;
            the more often it was there the less (see `Novelty`).
        imitate: Self-imitation.
        imitation: The numbers of self-imitation, if `imitate`.
        credit: How rewards for TD learning are made from delayed payments.
    """

    start_steps: int = 25_000
    batch_size: int = 256
    replay_capacity: int = 1_000_000
    updates_per_step: float = 1.0
    learn_while_acting: bool = False
    scale_rewards: bool = False
    novelty: float = 0.0
    imitate: bool = False
    imitation: ImitationConfig = field(default_factory=ImitationConfig)
    credit: CreditConfig = field(default_factory=CreditConfig)

    def __post_init__(self) -> None:
        if self.start_steps < 0 or not self.updates_per_step > 0:
            raise UsageError("start_steps must not be negative, updates_per_step positive")
        require_ranges(self, at_least_1=["batch_size"], not_negative=["novelty"])


@dataclass(frozen=True, kw_only=True)
class PCGradConfig(MethodConfig):
    """Gradients of tasks that disagree are projected (Yu et al. 2020).

    Attributes:
        sac: The numbers of SAC.
    """

    sac: SACConfig = field(default_factory=SACConfig)


@dataclass(frozen=True, kw_only=True)
class DistralConfig(MethodConfig):
    """A policy for each task and one that they are distilled into (Teh et al. 2017).

    Attributes:
        sac: The numbers of SAC; its temperature is 1/β whatever they say.
        alpha: How much of the reward for entropy is one for being like the distilled policy.
        beta: What reward is worth beside entropy (docs/decisions.md#the-beta-of-distral).
    """

    sac: SACConfig = field(
        default_factory=lambda: SACConfig(spread_floor=-5.0, temperature_rate=0.0)
    )
    alpha: float = 0.5
    beta: float = 10.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require_ranges(self, share=["alpha"], positive=["beta"])
        if self.sac.temperature_rate:
            raise UsageError("temperature_rate must be 0: Distral's temperature is 1/beta")


@dataclass(frozen=True, kw_only=True)
class HiPBMDPConfig(MethodConfig):
    """Hidden parameters of each task, learned with a model of its dynamics (Zhang et al. 2021).

    Attributes:
        sac: The numbers of SAC.
        size: Numbers in a task's hidden parameters θ.
        model_hidden: Layer widths of the model.
        model_rate: Adam's, for the model and θ.
        metric: What the distances of θ count beside the model's error.
    """

    sac: SACConfig = field(default_factory=SACConfig)
    size: int = 10
    model_hidden: tuple[int, ...] = (256,)
    model_rate: float = 1e-3
    metric: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        positive = ("size", "model_rate")
        require_ranges(self, positive=positive, not_negative=["metric"], widths=["model_hidden"])


@dataclass(frozen=True, kw_only=True)
class PEARLConfig(MethodConfig):
    """A latent task z, inferred from what happened in trials (Rakelly et al. 2019).

    Attributes:
        sac: The numbers of SAC; the reward scale stands for a learned temperature.
        encoder_hidden: Layer widths of the encoder.
        latent: Numbers in z.
        kl: What the distance of z's posterior from its prior counts beside the critics' loss.
        context_rows: Transitions of each task that z is inferred from in an update.
        regularisation: What the squares of mean and log spread of actions cost.
    """

    sac: SACConfig = field(
        default_factory=lambda: SACConfig(temperature=1.0, temperature_rate=0.0, reward_scale=5.0)
    )
    encoder_hidden: tuple[int, ...] = (128, 128)
    latent: int = 5
    kl: float = 0.1
    context_rows: int = 64
    regularisation: float = 1e-3

    def __post_init__(self) -> None:
        super().__post_init__()
        require_ranges(
            self, positive=["latent", "context_rows"], not_negative=["kl", "regularisation"],
            widths=["encoder_hidden"],
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class MQLAdaptation:
    """How MQL learns from a task's trial.

    Attributes:
        new_updates: Updates on the trial alone.
        old_updates: Updates on rows of the replay after that, weighed by how much they are like it.
        old_batches: Batches in each of these.
        inverse_penalty: C of the logistic regression that tells old rows from new ones.
        clip: The largest weight is e to the power of it.
        proximity: What distance from the meta-trained weights costs where the rows' effective
            number says nothing of it.
        by_sample_size: Let that number say so.
        with_state: Tell rows apart by their states too, not by contexts alone.
    """

    new_updates: int = 10
    old_updates: int = 50
    old_batches: int = 2
    inverse_penalty: float = 0.06
    clip: float = 1.1
    proximity: float = 0.1
    by_sample_size: bool = True
    with_state: bool = True

    def __post_init__(self) -> None:
        not_negative = ("new_updates", "old_updates", "clip", "proximity")
        positive = ("old_batches", "inverse_penalty")
        require_ranges(self, not_negative=not_negative, positive=positive)


@dataclass(frozen=True, kw_only=True)
class MQLConfig(MethodConfig):
    """TD3 whose networks read what went before, adapted to each task (Fakoor et al. 2020).

    Attributes:
        learner: TD3 as in the paper, or CrossQ.
        td3: The numbers of TD3, if it is the learner.
        crossq: The numbers of CrossQ, if it is the learner.
        history: Steps that the networks read.
        memory: Numbers in the GRU's state.
        exploration: Standard deviation of the noise on actions.
        adapt: How it learns from a trial.
    """

    learner: Literal["crossq", "td3"] = "td3"
    td3: TD3Config = field(default_factory=TD3Config)
    crossq: CrossQConfig = field(default_factory=CrossQConfig)
    history: int = 10
    memory: int = 20
    exploration: float = 0.1
    adapt: MQLAdaptation = field(default_factory=MQLAdaptation)

    def __post_init__(self) -> None:
        super().__post_init__()
        require_ranges(self, positive=["history", "memory"], not_negative=["exploration"])

    @property
    def numbers(self) -> CrossQConfig | TD3Config:
        """Those of the learner."""
        return self.crossq if self.learner == "crossq" else self.td3


@dataclass(frozen=True, kw_only=True)
class PCGradRun(RunConfig):
    """A run of PCGrad.

    Attributes:
        pcgrad: What is its own.
    """

    method: ClassVar[str] = "pcgrad"
    pcgrad: PCGradConfig = field(default_factory=PCGradConfig)


@dataclass(frozen=True, kw_only=True)
class DistralRun(RunConfig):
    """A run of Distral.

    Attributes:
        distral: What is its own.
    """

    method: ClassVar[str] = "distral"
    distral: DistralConfig = field(default_factory=DistralConfig)


@dataclass(frozen=True, kw_only=True)
class HiPBMDPRun(RunConfig):
    """A run of HiP-BMDP.

    Attributes:
        hipbmdp: What is its own.
    """

    method: ClassVar[str] = "hipbmdp"
    hipbmdp: HiPBMDPConfig = field(default_factory=HiPBMDPConfig)


@dataclass(frozen=True, kw_only=True)
class PEARLRun(RunConfig):
    """A run of PEARL.

    Attributes:
        pearl: What is its own.
    """

    method: ClassVar[str] = "pearl"
    pearl: PEARLConfig = field(default_factory=PEARLConfig)


@dataclass(frozen=True, kw_only=True)
class MQLRun(RunConfig):
    """A run of MQL.

    Attributes:
        mql: What is its own.
    """

    method: ClassVar[str] = "mql"
    mql: MQLConfig = field(default_factory=MQLConfig)
