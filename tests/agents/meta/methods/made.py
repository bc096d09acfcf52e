"""Runs of the methods on point masses: tiny ones, and ones long enough to learn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from mcat.agents.meta.algorithm import TaskSet
from mcat.agents.meta.loop import MetaTrainer
from mcat.agents.meta.methods.registry import METHODS
from mcat.agents.meta.run_config import RunConfig
from mcat.config import overlay
from mcat.interrupts import Interrupts
from tests.agents.meta.point_mass import Gain, point_mass_task_set, tiny_task_set

NAMES = ("pcgrad", "distral", "hipbmdp", "pearl", "mql")

TINY = {
    "start_steps": 60,
    "updates_per_step": 1 / 6,  # ten a round
    "batch_size": 16,
    "replay_capacity": 240,  # four rounds
    "imitate": True,
    "imitation.capacity": 100,
    "imitation.batch_size": 8,
    "credit.kind": "learned",
    "credit.hidden": (8,),
}
"""Every part at work, none for long; memories overflow."""
TINY_OWN: dict[str, dict[str, Any]] = {
    "pcgrad": {"sac.hidden": (8, 8)},
    "distral": {"sac.hidden": (8, 8)},
    "hipbmdp": {"sac.hidden": (8, 8), "size": 3, "model_hidden": (8,)},
    "pearl": {"sac.hidden": (8, 8), "encoder_hidden": (8,), "latent": 2, "context_rows": 6},
    "mql": {
        "td3.hidden": (8, 8),
        "crossq.hidden": (8, 8),
        "history": 3,
        "memory": 4,
        "adapt.new_updates": 2,
        "adapt.old_updates": 3,
        "adapt.old_batches": 1,
    },
}
FAST = {
    "learn_while_acting": True,
    "scale_rewards": True,
    "imitate": False,
    "credit.kind": "auto",
}
"""As the presets of that name are beside `cpu`."""
FAST_SAC = {"sac.critics": "normalised", "sac.deployed_rate": 0.1, "sac.policy_delay": 2}
FAST_OWN = dict.fromkeys(NAMES, FAST_SAC) | {"mql": {"learner": "crossq"}}

# What is found in a few seconds: small networks, and a discount that suits 30 steps.
SAC = {"sac.hidden": (64, 64), "sac.learning_rate": 1e-3, "sac.discount": 0.9,
       "sac.target_rate": 0.05}  # fmt: skip
LEARNING = {"start_steps": 300, "batch_size": 64, "imitation.batch_size": 64}
LEARNING_OWN: dict[str, dict[str, Any]] = {
    "pcgrad": {**SAC, "sac.temperature_rate": 1e-3},
    "distral": SAC,
    "hipbmdp": {**SAC, "sac.temperature_rate": 1e-3, "size": 4, "model_hidden": (64,)},
    "pearl": {**SAC, "latent": 3, "context_rows": 30, "encoder_hidden": (64, 64)},
    "mql": {
        "td3.hidden": (64, 64),
        "td3.learning_rate": 1e-3,
        "td3.discount": 0.9,
        "td3.target_rate": 0.05,
        "history": 5,
        "memory": 10,
        "exploration": 0.2,
        "adapt.new_updates": 5,
        "adapt.old_updates": 20,
        "adapt.old_batches": 1,
        "adapt.inverse_penalty": 0.5,
        "adapt.clip": 1.0,
    },
}
# Nothing but the actuators tells the two apart, and each needs the other's opposite.
OPPOSITE = point_mass_task_set(
    (Gain(2.0), Gain(2.0, 180.0)), (Gain(1.5), Gain(1.5, 180.0)), reach=0.8
)
ALIKE = point_mass_task_set((Gain(1.0), Gain(2.0)), (Gain(1.5),), reach=0.8)


def tiny_run(method: str, *, fast: bool = False, steps: int = 360, **changes: Any) -> RunConfig:
    """Six rounds, of which every second is followed by an evaluation.

    Args:
        method: Its name.
        fast: As preset `fast` is: normalised critics, cut episodes, learning while acting.
        steps: Of the run.
        **changes: Of the run's other settings.
    """
    own = {**TINY, **TINY_OWN[method], **({**FAST, **FAST_OWN[method]} if fast else {})}
    settings = {"steps": steps, "evaluate_every": 2, "evaluation_episodes": 2}
    lengths = {"episode_lengths": (5, 15)} if fast else {}
    changed = {f"{method}.{key}": value for key, value in own.items()}
    return overlay(METHODS[method].presets["cpu"], {**settings, **lengths, **changed, **changes})


def learning_run(method: str, steps: int, seed: int, **changes: Any) -> RunConfig:
    """A run that is evaluated at its end."""
    own = {**LEARNING, **LEARNING_OWN[method], **changes}
    settings = {"steps": steps, "seed": seed, "evaluate_every": 10**6, "evaluation_episodes": 3}
    changed = {f"{method}.{key}": value for key, value in own.items()}
    return overlay(METHODS[method].presets["cpu"], {**settings, **changed})


def trainer(out: Path, config: RunConfig, task_set: TaskSet | None = None) -> MetaTrainer:
    """As `metatrain` makes one."""
    out.mkdir(parents=True, exist_ok=True)
    tasks = task_set or tiny_task_set()
    seed = np.random.SeedSequence(config.seed, spawn_key=(0,))
    return MetaTrainer(config, tasks, METHODS[config.method].make(tasks, config, seed), out)


def play(
    out: Path, config: RunConfig, *, resume: bool = False, task_set: TaskSet | None = None
) -> MetaTrainer:
    """A run to its end, or on to it."""
    work = trainer(out, config, task_set)
    if resume:
        work.restore()
    with Interrupts() as stop:
        work.run(stop, quiet=True)
    return work
