"""Complete settings under one name."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from mcat.translator.configs import (
    ActionConfig,
    ContextConfig,
    CycleConfig,
    SpacesCycleConfig,
    StateConfig,
)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How every kind of translator is trained.

    Attributes:
        context: C and F.
        action: H.
        many_context: C and F of more than two machines; None for as of two.
        many_action: H of more than two machines; None for as of two.
        joint: C and F see both machines of a pair, not the target alone as printed.
        state: G and its inverse, for machines with other spaces or rewards.
        cycle: The baseline, for machines with equal spaces.
        cycle_spaces: The baseline for others.
    """

    context: ContextConfig = field(default_factory=ContextConfig)
    action: ActionConfig = field(default_factory=ActionConfig)
    many_context: ContextConfig | None = None
    many_action: ActionConfig | None = None
    joint: bool = False
    state: StateConfig = field(default_factory=StateConfig)
    cycle: CycleConfig = field(default_factory=CycleConfig)
    cycle_spaces: SpacesCycleConfig = field(default_factory=SpacesCycleConfig)

    def of_many(self) -> Recipe:
        """The recipe for more than two machines."""
        return replace(
            self, context=self.many_context or self.context, action=self.many_action or self.action
        )


# As printed and read in docs/decisions.md: 30 epochs of 10,000 steps for C and F, of 3,000 for H.
PRINTED_CONTEXT = ContextConfig(
    all_future=True,
    decay=False,
    recent=0,
    shared_only=False,
    likelihood="sum",
    evenness=0.0,
    hinge="printed",
    learning_rate=1e-3,
    batch_size=1024,
    max_steps=300_000,
    evaluate_every=10_000,
    hold_out=False,
)
# Three rates are printed, not when they change. As in the authors' code, of six parts of five
# epochs each the first has one, the next two another, the last three the third.
_RATES = (3e-4, 5e-5, 5e-5, 1e-5, 1e-5, 1e-5)
PRINTED_ACTION = ActionConfig(
    residual=False,
    proximity=0.0,
    loss="nll",
    weighed=False,
    rates=_RATES,
    batch_size=1024,
    steps=90_000,
)
# The authors' public code where it differs (docs/decisions.md#deviations-of-preset-released).
RELEASED_CONTEXT: dict[str, Any] = {
    "all_future": False,
    "likelihood": "mean",
    "hinge": "squared",
    "encoder_activation": "relu",
    "forward_activation": "swish",
    "norm_penalty": 2.5e-5,
    "learning_rate": 2e-4,
    "batch_size": 256,
}
"""What C and F of the authors' code have in other ways than printed, offline and online."""
_RELEASED_CONTEXT = replace(
    PRINTED_CONTEXT,
    **RELEASED_CONTEXT,
    cut_below=None,
)
_RELEASED_ACTION = replace(
    PRINTED_ACTION,
    loss="l1",
    hidden=(256,),
    raw_states=True,
    fresh_starts=30,
    batch_size=256,
)
_SHORT_CONTEXT = ContextConfig(
    encoder_hidden=(32,), forward_hidden=(64, 64), max_steps=200, evaluate_every=100
)

RECIPES = {
    "cpu": Recipe(),
    "paper": Recipe(
        context=PRINTED_CONTEXT,
        action=PRINTED_ACTION,
        many_context=replace(PRINTED_CONTEXT, learning_rate=5e-4),
        many_action=replace(PRINTED_ACTION, hidden=(256, 256), rates=(3e-4,), steps=100_000),
        state=StateConfig(
            context=PRINTED_CONTEXT,
            loss="nll",
            adversarial=10.0,
            state_proximity=0.0,
            action_proximity=0.0,
            learning_rate=1e-4,
            steps=90_000,
        ),
        cycle=CycleConfig.paper(),
        cycle_spaces=SpacesCycleConfig.paper(),
    ),
    "released": Recipe(
        context=_RELEASED_CONTEXT,
        action=_RELEASED_ACTION,
        many_action=replace(
            _RELEASED_ACTION, hidden=(256, 256), rates=(3e-4,), fresh_starts=1, steps=100_000
        ),
        cycle=CycleConfig.original(),
    ),
    "quick": Recipe(
        context=ContextConfig(max_steps=1500),
        action=ActionConfig(steps=1000),
        state=StateConfig(context=ContextConfig(max_steps=1500), steps=1000),
        cycle=CycleConfig(forward_steps=1500, steps=1500),
        cycle_spaces=SpacesCycleConfig(forward_steps=1000, turn_steps=200),
    ),
    "smoke": Recipe(
        context=_SHORT_CONTEXT,
        action=ActionConfig(hidden=(64, 64), embedding=32, steps=100),
        state=StateConfig(context=_SHORT_CONTEXT, hidden=(64,), steps=50),
        cycle=CycleConfig(forward_steps=60, steps=60, epochs=3),
        cycle_spaces=SpacesCycleConfig(forward_steps=60, turn_steps=20, epochs=3),
    ),
}
"""cpu: the default; quick: a quarter of it; paper: as printed, days; released: as the authors'
code, for what they published; smoke: to try things."""
