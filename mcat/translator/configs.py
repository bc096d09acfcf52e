"""The numbers of the translators' parts, without torch: mistakes in them are told at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Self

from mcat.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor

TRANSLATOR_FILE = "translator.safetensors"  # in a folder that `mcat translate` makes
Activation = Literal["relu", "swish"]
Loss = Literal["l1", "nll"]


@dataclass(frozen=True, kw_only=True)
class ContextConfig:
    """How C and F are built and trained.

    Attributes:
        history: K, the steps C sees.
        future: M, the steps ahead whose transitions share one context.
        all_future: Predict all M of them, as printed; else one drawn at random per row, which has
            the same expected gradient at an M-th of the cost.
        recent: Last steps whose state changes F sees directly; 0 as printed.
        shared_only: See `ContextModel.shared`; False as printed.
        evenness: See `forward_loss`; 0 as printed.
        decay: Let the learning rate fall to 0 over `max_steps`, which gets there in fewer of them.
        max_steps: Optimiser steps, if held-out error does not stop falling before.
        patience: Evaluations without progress after which training stops.
    """

    history: int = 10
    future: int = 10
    all_future: bool = False
    recent: int = 3
    shared_only: bool = True
    context_size: int = 10
    encoder_hidden: tuple[int, ...] = (256, 128, 64)
    forward_hidden: tuple[int, ...] = (200, 200, 200, 200)
    encoder_activation: Activation = "swish"
    forward_activation: Activation = "relu"
    evenness: float = 0.5
    contrastive_weight: float = 1.0
    margin: float = 1.0
    learning_rate: float = 2e-3
    decay: bool = True
    batch_size: int = 256
    max_steps: int = 4000
    evaluate_every: int = 250
    patience: int = 6
    feature_samples: int = 1024

    def __post_init__(self) -> None:
        if not 0 <= self.recent <= self.history:
            raise UsageError(f"recent must be 0 to {self.history} (history), not {self.recent}")
        if min(self.history, self.future, self.batch_size, self.max_steps, self.patience) < 1:
            raise UsageError("history, future, batch_size, max_steps and patience must be positive")


@dataclass(frozen=True, kw_only=True)
class ActionConfig:
    """How H is built and trained.

    Attributes:
        residual: H adds to the source action, starting with nothing; else it makes a new one.
        proximity: Cost of |translated - source action|, in units of the normalised L1 error. It
            keeps H from exploiting F's mistakes far from the actions it has seen.
        loss: "l1" to F's mean, or "nll" under F's Gaussian, which H can lower by steering to where
            F is confidently wrong (docs/decisions.md#the-loss-of-h).
        weighed: Dimensions of the state count by how far actions can move them, as no action can
            mend the others; else all that move count alike, as printed.
        reward_aware: Also ask that the reward stays what it was (L_trans,r).
        state_weight: λ, what L_trans weighs against the reward's error when reward_aware.
    """

    residual: bool = True
    proximity: float = 0.3
    loss: Loss = "l1"
    weighed: bool = True
    reward_aware: bool = False
    state_weight: float = 10.0
    embedding: int = 128
    hidden: tuple[int, ...] = (256, 256, 256)
    learning_rate: float = 3e-4
    batch_size: int = 512
    steps: int = 3000

    def __post_init__(self) -> None:
        if self.proximity < 0 or self.steps < 1 or self.batch_size < 1:
            raise UsageError("proximity must not be negative, steps and batch_size positive")


@dataclass(frozen=True, kw_only=True)
class StateConfig:
    """How G, its inverse, H and the discriminator are built and trained.

    Attributes:
        context: How C and F of the target are trained.
        adversarial: Weight of L_adv, 10 as printed. With 30 a goal far from where the hand map says
            is found in full; with 10 bodies that differ are disturbed less.
        back: Weight of L_back.
        transition: Weight of L_trans,s,a.
        state_proximity: Cost of leaving the hand maps of states, in spreads of the state.
        action_proximity: Cost of leaving the hand map of actions, as in `ActionConfig`, weighed
            like L_trans,s,a.
        steps: Optimiser steps; 0 leaves the hand maps as they are.
    """

    context: ContextConfig = field(default_factory=ContextConfig)
    adversarial: float = 30.0
    back: float = 30.0
    transition: float = 100.0
    state_proximity: float = 1.0
    action_proximity: float = 0.1
    hidden: tuple[int, ...] = (128, 128)
    learning_rate: float = 3e-3
    batch_size: int = 128
    steps: int = 3000

    def __post_init__(self) -> None:
        weights = self.adversarial, self.back, self.transition
        if min(*weights, self.state_proximity, self.action_proximity) < 0:
            raise UsageError("weights and proximities must not be negative")
        if self.steps < 0 or self.batch_size < 1:
            raise UsageError("steps must not be negative, batch_size positive")


@dataclass(frozen=True, kw_only=True)
class BaselineConfig:
    """How F1 is trained, and what the rest has in common.

    Attributes:
        forward_learning_rates: One for each equal part of F1's training.
        epochs: Parts into which a training is cut for curves and hooks.
        pool: Samples of either kind that an adversary remembers.
    """

    forward_steps: int = 6000
    forward_learning_rates: tuple[float, ...] = (1e-3, 3e-4, 1e-4)
    batch_size: int = 512
    epochs: int = 30
    pool: int = 4096

    def __post_init__(self) -> None:
        if min(self.forward_steps, self.batch_size, self.epochs) < 1:
            raise UsageError("forward_steps, batch_size and epochs must be positive")
        if self.pool < self.batch_size:
            raise UsageError(f"pool must be at least {self.batch_size} (batch_size)")


@dataclass(frozen=True, kw_only=True)
class CycleConfig(BaselineConfig):
    """How F1, Phi, Psi and the adversary are built and trained.

    By default they see as many samples as in the original, in fewer and larger batches: a CPU
    gets through them several times as fast.

    Attributes:
        learning_rates: One for each equal part of the training of Phi, Psi and the adversary.
    """

    dynamics_weight: float = 20.0
    domain_weight: float = 1.0
    adversarial_weight: float = 1.0
    embedding: tuple[int, ...] = (128,)
    hidden: tuple[int, ...] = (256,)
    steps: int = 6000
    learning_rates: tuple[float, ...] = (1e-3, 3e-4, 1e-4)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.steps < 1:
            raise UsageError("steps must be positive")

    @classmethod
    def paper(cls) -> Self:
        """Every number as in the original: 30 epochs of 3,000 batches of 32, twice."""
        return cls(batch_size=32, forward_steps=90_000, steps=90_000, pool=256)

    def total(self, dynamics: Tensor, domain: Tensor, adversarial: Tensor) -> Tensor:
        """The weighted sum of the three losses."""
        return (
            self.dynamics_weight * dynamics
            + self.domain_weight * domain
            + self.adversarial_weight * adversarial
        )


@dataclass(frozen=True, kw_only=True)
class SpacesCycleConfig(BaselineConfig):
    """How the maps, F1 and the adversaries are built and trained.

    By default the maps see as many samples as in the original, in fewer and larger batches.

    Attributes:
        forward_learning_rates: The original halves it after 30 and 70 % of the training; here it
            is after each third.
        rounds: How often G, then the action maps, get their turn.
        turn_steps: Optimiser steps of one turn.
        smallest_spread: State dimensions that spread less are not scaled up.
    """

    forward_steps: int = 4000
    forward_learning_rates: tuple[float, ...] = (1e-3, 5e-4, 2.5e-4)
    epochs: int = 7
    rounds: int = 3
    turn_steps: int = 700
    learning_rate: float = 3e-4
    discriminator_learning_rate: float = 1e-3
    adversarial_weight: float = 10.0
    dynamics_weight: float = 100.0
    action_cycle_weight: float = 30.0
    embedding: tuple[int, ...] = (64, 128)
    hidden: tuple[int, ...] = (64,)
    state_hidden: tuple[int, ...] = (64, 256)
    action_hidden: tuple[int, ...] = (256, 64)
    smallest_spread: float = 1e-3

    def __post_init__(self) -> None:
        super().__post_init__()
        if min(self.rounds, self.turn_steps) < 0:
            raise UsageError("rounds and turn_steps must not be negative")

    @classmethod
    def paper(cls) -> Self:
        """Every number as in the original; F1 sees a million transitions ten times."""
        return cls(
            batch_size=32, forward_steps=312_500, turn_steps=7000, learning_rate=1e-4, pool=128,
            smallest_spread=0.1,
        )  # fmt: skip
