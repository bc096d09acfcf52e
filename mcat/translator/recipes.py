"""Complete settings under one name."""

from __future__ import annotations

from dataclasses import dataclass, field

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
        joint: C and F see both machines of a pair, not the target alone as printed.
        state: G and its inverse, for machines with other spaces or rewards.
        cycle: The baseline, for machines with equal spaces.
        cycle_spaces: The baseline for others.
    """

    context: ContextConfig = field(default_factory=ContextConfig)
    action: ActionConfig = field(default_factory=ActionConfig)
    joint: bool = False
    state: StateConfig = field(default_factory=StateConfig)
    cycle: CycleConfig = field(default_factory=CycleConfig)
    cycle_spaces: SpacesCycleConfig = field(default_factory=SpacesCycleConfig)


# As printed and read in docs/decisions.md: 30 epochs of 10,000 steps for C and F, of 3,000 for H.
_PRINTED_CONTEXT = ContextConfig(
    all_future=True,
    decay=False,
    recent=0,
    shared_only=False,
    evenness=0.0,
    learning_rate=1e-3,
    batch_size=1024,
    max_steps=300_000,
    evaluate_every=10_000,
    patience=30,
)
_SHORT_CONTEXT = ContextConfig(
    encoder_hidden=(32,), forward_hidden=(64, 64), max_steps=200, evaluate_every=100
)

RECIPES = {
    "cpu": Recipe(),
    "paper": Recipe(
        context=_PRINTED_CONTEXT,
        action=ActionConfig(
            residual=False, proximity=0.0, weighed=False, batch_size=1024, steps=90_000
        ),
        state=StateConfig(
            context=_PRINTED_CONTEXT,
            adversarial=10.0,
            state_proximity=0.0,
            action_proximity=0.0,
            learning_rate=1e-4,
            steps=90_000,
        ),
        cycle=CycleConfig.paper(),
        cycle_spaces=SpacesCycleConfig.paper(),
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
"""cpu: the default; quick: a quarter of it; paper: as printed, days; smoke: to try things."""
