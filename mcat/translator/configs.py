"""The numbers of the translators' parts, without torch: mistakes in them are told at once."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, Self, get_args

from mcat.errors import UsageError, unknown
from mcat.ranges import require_ranges

if TYPE_CHECKING:
    from torch import Tensor

TRANSLATOR_FILE = "translator.safetensors"  # in a folder that `mcat translate` makes
Activation = Literal["relu", "swish"]
Loss = Literal["l1", "nll"]
Hinge = Literal["squared", "printed"]
Likelihood = Literal["mean", "sum"]


@dataclass(frozen=True, kw_only=True)
class ContextConfig:
    """How C and F are built and trained.

    Attributes:
        history: K, the steps C sees.
        future: M, the steps ahead whose transitions share one context.
        all_future: Predict all M of them, as printed; else one drawn at random per row, which has
            the same expected gradient at an M-th of the cost.
        recent: Last steps whose state changes F sees directly; 0 as printed.
        recent_actions: F sees the actions of these steps too, half of whose effect may be still to
            come. Of a pair only: several machines could be told apart by them. Asked about the
            source, F gets those into which H would have translated them.
        shared_only: Hide from F and H the dimensions of the state in which machines never meet;
            False as printed.
        context_size: Numbers in a context z.
        encoder_hidden: Layer widths of C.
        forward_hidden: Layer widths of F.
        encoder_activation: Activation of C's layers (docs/decisions.md#activations-of-c-and-f).
        forward_activation: Activation of F's layers.
        likelihood: "sum" is L_forw as printed, -log F added up over the M steps of a history;
            "mean" is the average of twice that over steps and dimensions.
        evenness: Power of the predicted variance by which terms of L_forw are multiplied, lest
            what is hard to predict is given up; 0 as printed.
        norm_penalty: Cost of the norms of weights and biases in the first layers of C and F; in
            later ones it is 2 and 3 times that, in F's last one 4 times. 0 as printed.
        contrastive_weight: Weight of L_cont beside L_forw.
        margin: m, the distance that contexts of different tasks shall keep.
        hinge: What contexts of different tasks cost that are nearer: "printed" is how much nearer
            they are (Eq. 2), "squared" the square of it.
        learning_rate: Adam's, at first if `decay`.
        decay: Let the learning rate fall to 0 over `max_steps`, which gets there in fewer of them.
        batch_size: Histories of each of the two sides of a step.
        max_steps: Optimiser steps, if held-out error does not stop falling before.
        evaluate_every: Optimiser steps between two looks at the held-out error.
        patience: Evaluations without progress (1 %) after which training stops.
        hold_out: Keep a tenth of the data from C and F, to judge them by and to know when to stop;
            False as printed: all data, all steps, and the last model.
        cut_below: Error after which a tenth of the steps will do until the next look at it; None
            for what suits the robot, 0 as printed. Meta-training has `good_enough` for it.
        feature_samples: Histories whose contexts are averaged to the feature of a task.
    """

    history: int = 10
    future: int = 10
    all_future: bool = False
    recent: int = 3
    recent_actions: bool = False
    shared_only: bool = True
    context_size: int = 10
    encoder_hidden: tuple[int, ...] = (256, 128, 64)
    forward_hidden: tuple[int, ...] = (200, 200, 200, 200)
    encoder_activation: Activation = "swish"
    forward_activation: Activation = "relu"
    likelihood: Likelihood = "mean"
    evenness: float = 0.5
    norm_penalty: float = 0.0
    contrastive_weight: float = 1.0
    margin: float = 1.0
    hinge: Hinge = "squared"
    learning_rate: float = 2e-3
    decay: bool = True
    batch_size: int = 256
    max_steps: int = 4000
    evaluate_every: int = 250
    patience: int = 6
    hold_out: bool = True
    cut_below: float | None = 0.0
    feature_samples: int = 1024

    def __post_init__(self) -> None:
        if self.hinge not in get_args(Hinge):
            raise unknown("hinge", self.hinge, get_args(Hinge))
        if self.likelihood not in get_args(Likelihood):
            raise unknown("likelihood", self.likelihood, get_args(Likelihood))
        if self.likelihood == "sum" and not self.all_future:
            raise UsageError("likelihood=sum adds up all M future steps: set all_future=true too")
        if self.likelihood == "sum" and self.evenness:
            raise UsageError("likelihood=sum is L_forw as printed, not weighed: set evenness=0 too")
        require_ranges(
            self,
            at_least_1=["history", "future", "context_size", "batch_size", "max_steps",
                        "evaluate_every", "patience", "feature_samples"],
            positive=["learning_rate"],
            not_negative=["norm_penalty", "cut_below", "contrastive_weight", "margin", "evenness"],
            layers=["encoder_hidden", "forward_hidden"],
        )  # fmt: skip
        if not 0 <= self.recent <= self.history:
            raise UsageError(f"recent must be 0 to {self.history} (history), not {self.recent}")
        if self.recent_actions and not self.recent:
            raise UsageError("recent_actions are those of the recent steps: set recent too")


@dataclass(frozen=True, kw_only=True)
class ActionConfig:
    """How H is built and trained.

    Attributes:
        residual: H adds to the source action, starting with nothing; else it makes a new one.
        proximity: Cost of `|translated - source action|`, in units of the normalised L1 error. It
            keeps H from exploiting F's mistakes far from the actions it has seen.
        loss: "l1" to F's mean, or "nll" under F's Gaussian, which H can lower by steering to where
            F is confidently wrong (docs/decisions.md#the-loss-of-h).
        weighed: Dimensions of the state count by how far actions can move them, as no action can
            mend the others; else all that move count alike, as printed.
        horizon: Steps of F in a row after which the target shall be where the source was, of a
            pair; 1 as printed. More of them find what a single step is too short to show.
        reward_aware: Also ask that the reward stays what it was (L_trans,r).
        state_weight: λ, what L_trans weighs against the reward's error when reward_aware.
        embedding: Width to which H embeds state, action and each context before it joins them.
        hidden: Layer widths of H after that.
        raw_states: Show H states as they are; else scaled like F's.
        learning_rate: Adam's at first. It falls to 0 over `steps`; in meta-training, where `steps`
            are those of an iteration, it stays.
        rates: In place of that, one learning rate for each equal part of `steps`; one alone stays.
        fresh_starts: Equal parts of `steps` at whose beginnings Adam forgets what it knew.
        batch_size: Source transitions per step.
        steps: Optimiser steps.
    """

    residual: bool = True
    proximity: float = 0.3
    loss: Loss = "l1"
    weighed: bool = True
    horizon: int = 1
    reward_aware: bool = False
    state_weight: float = 10.0
    embedding: int = 128
    hidden: tuple[int, ...] = (256, 256, 256)
    raw_states: bool = False
    learning_rate: float = 3e-4
    rates: tuple[float, ...] = ()
    fresh_starts: int = 1
    batch_size: int = 512
    steps: int = 3000

    def __post_init__(self) -> None:
        require_ranges(
            self, at_least_1=["steps", "batch_size", "embedding", "fresh_starts", "horizon"],
            positive=["learning_rate"], not_negative=["proximity", "state_weight"],
            layers=["hidden"],
        )  # fmt: skip
        if self.loss not in get_args(Loss):
            raise unknown("transfer loss", self.loss, get_args(Loss))
        if self.horizon > 1 and (self.reward_aware or self.loss == "nll"):
            raise UsageError("a horizon beyond 1 goes with loss l1 and without reward_aware")
        if self.rates and not min(self.rates) > 0:
            raise UsageError(f"rates must be positive, not {min(self.rates)}")

    def rate(self, step: int) -> float:
        """The learning rate of a step of a whole training; the first is 0."""
        if self.rates:  # docs/decisions.md#the-schedule-of-h
            return self.rates[min(len(self.rates) * step // self.steps, len(self.rates) - 1)]
        return self.learning_rate * (1 - step / self.steps)

    def starts_fresh(self, step: int) -> bool:
        """Whether Adam forgets what it knew before that step; the first is 0."""
        part = self.fresh_starts * step // self.steps
        return step > 0 and part > self.fresh_starts * (step - 1) // self.steps


@dataclass(frozen=True, kw_only=True)
class StateConfig:
    """How G, its inverse, H and the discriminator are built and trained.

    Attributes:
        context: How C and F of the target are trained.
        adversarial: Weight of L_adv where states are guessed, 10 as printed. With 30 a goal far
            from where the hand map says is found in full; with 10 bodies that differ are disturbed
            less.
        adversarial_unguessed: The same where they are not: pulled harder, G matches how often
            states occur instead of what follows from them.
        held: Part of the steps for which H stays the guess where only actions are guessed: while
            states mean nothing yet it would learn nonsense.
        back: Weight of L_back.
        transition: Weight of L_trans,s,a.
        loss: "l1" to F's mean, or "nll" as printed, as in `ActionConfig`.
        state_proximity: Cost of leaving the hand maps of states, in spreads of the state.
        action_proximity: Cost of leaving the hand map of actions, as in `ActionConfig`, weighed
            like L_trans,s,a.
        hidden: Layer widths of each map.
        learning_rate: Adam's at first, for maps and discriminator; that of the maps falls to a
            twentieth over `steps`.
        batch_size: Transitions of the source, and states of the target, per step.
        steps: Optimiser steps; 0 leaves the hand maps as they are.
    """

    context: ContextConfig = field(default_factory=ContextConfig)
    adversarial: float = 30.0
    adversarial_unguessed: float = 10.0
    held: float = 0.5
    back: float = 30.0
    transition: float = 100.0
    loss: Loss = "l1"
    state_proximity: float = 1.0
    action_proximity: float = 0.1
    hidden: tuple[int, ...] = (128, 128)
    learning_rate: float = 3e-3
    batch_size: int = 128
    steps: int = 3000

    def __post_init__(self) -> None:
        require_ranges(
            self, at_least_1=["batch_size"], positive=["learning_rate"],
            not_negative=["adversarial", "adversarial_unguessed", "back", "transition",
                          "state_proximity", "action_proximity", "steps"],
            share=["held"], layers=["hidden"],
        )  # fmt: skip
        if self.context.recent_actions:
            raise UsageError("recent_actions is of machines with equal spaces, not of state maps")


@dataclass(frozen=True, kw_only=True)
class BaselineConfig:
    """How F1 is trained, and what the rest has in common.

    Attributes:
        forward_steps: Optimiser steps of F1.
        forward_learning_rates: One for each equal part of F1's training.
        batch_size: Transitions per step, of F1 and of the rest.
        epochs: Parts into which a training is cut for curves and hooks.
        pool: Samples of either kind that an adversary remembers.
    """

    forward_steps: int = 6000
    forward_learning_rates: tuple[float, ...] = (1e-3, 3e-4, 1e-4)
    batch_size: int = 512
    epochs: int = 30
    pool: int = 4096

    def __post_init__(self) -> None:
        counts, rates = ["forward_steps", "batch_size", "epochs"], ["forward_learning_rates"]
        require_ranges(self, at_least_1=counts, rates=rates)
        if self.pool < self.batch_size:
            raise UsageError(f"pool must be at least {self.batch_size} (batch_size)")


@dataclass(frozen=True, kw_only=True)
class CycleConfig(BaselineConfig):
    """How F1, Phi, Psi and the adversary are built and trained.

    By default they see as many samples as in the original, in fewer and larger batches: a CPU
    gets through them several times as fast.

    Attributes:
        dynamics_weight: Weight of the dynamics cycle: F1, asked about Phi's action, shall predict
            what followed on the target.
        domain_weight: Weight of the domain cycle: Psi shall turn Phi's action back.
        adversarial_weight: Weight of passing for real source actions.
        embedding: Layer widths by which networks embed state and action apart.
        hidden: Layer widths of networks after that.
        steps: Optimiser steps of Phi, Psi and the adversary.
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
        weights = ["dynamics_weight", "domain_weight", "adversarial_weight"]
        require_ranges(
            self, at_least_1=["steps"], not_negative=weights, widths=["embedding", "hidden"],
            rates=["learning_rates"],
        )  # fmt: skip

    @classmethod
    def original(cls) -> Self:
        """Zhang et al.'s own numbers: 30 epochs of 3,000 batches of 32, twice."""
        return cls(batch_size=32, forward_steps=90_000, steps=90_000, pool=256)

    @classmethod
    def paper(cls) -> Self:
        """As the MCAT paper prints it: two hidden layers, 30 epochs of 10,000 batches of 32."""
        return replace(cls.original(), hidden=(256, 256), forward_steps=300_000, steps=300_000)

    def total(self, dynamics: Tensor, domain: Tensor, adversarial: Tensor) -> Tensor:
        """The weighted sum of the three losses.

        Args:
            dynamics: Loss of the dynamics cycle.
            domain: Loss of the domain cycle.
            adversarial: Loss of passing for real source actions.
        """
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
        epochs: Parts into which F1's training and every turn is cut for curves and hooks.
        rounds: How often G, then the action maps, get their turn.
        turn_steps: Optimiser steps of one turn.
        learning_rate: Adam's, for the maps.
        discriminator_learning_rate: Adam's, for the adversaries.
        adversarial_weight: Weight of passing for real, for each adversary.
        dynamics_weight: Weight of the dynamics cycle: F1, asked about a mapped state and action,
            shall predict the mapped next state.
        action_cycle_weight: Weight of actions coming back from a way there and back.
        embedding: Layer widths by which F1 embeds state and action apart.
        hidden: Layer widths of F1 after that.
        state_hidden: Layer widths of G.
        action_hidden: Layer widths of the action maps.
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
        weights = ["adversarial_weight", "dynamics_weight", "action_cycle_weight"]
        require_ranges(
            self,
            positive=["learning_rate", "discriminator_learning_rate", "smallest_spread"],
            not_negative=["rounds", "turn_steps", *weights],
            widths=["embedding", "hidden", "state_hidden", "action_hidden"],
        )

    @classmethod
    def paper(cls) -> Self:
        """Zhang et al.'s own numbers, as none are printed; F1 sees a million rows ten times."""
        return cls(
            batch_size=32, forward_steps=312_500, turn_steps=7000, learning_rate=1e-4, pool=128,
            smallest_spread=0.1,
        )  # fmt: skip
