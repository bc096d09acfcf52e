"""Complete settings of the methods under one name: fast, cpu, paper and smoke, as MCAT has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from mcat.agents.configs import (
    FAR,
    FAST_CROSSQ,
    FAST_SAC,
    CreditConfig,
    SACConfig,
    TD3Config,
)
from mcat.agents.meta.methods.configs import (
    DistralConfig,
    DistralRun,
    HiPBMDPConfig,
    HiPBMDPRun,
    MethodConfig,
    MQLAdaptation,
    MQLConfig,
    MQLRun,
    PCGradConfig,
    PCGradRun,
    PEARLConfig,
    PEARLRun,
)
from mcat.agents.meta.run_config import RunConfig

# What MCAT's presets of these names have too, so that no method is favoured.
_FAST: Mapping[str, Any] = {
    "start_steps": 10_000,
    "batch_size": 128,
    "updates_per_step": 3.0,
    "learn_while_acting": True,
    "scale_rewards": True,
    "credit": CreditConfig(kind="auto"),
}
_SMOKE: Mapping[str, Any] = {
    "start_steps": 5000,
    "updates_per_step": 0.01,
    "credit": CreditConfig(kind="learned", hidden=(32, 32)),
}


def _presets(
    run: type[RunConfig],
    kind: type[MethodConfig],
    *,
    fast: Mapping[str, Any],
    paper: Mapping[str, Any],
    smoke: Mapping[str, Any],
) -> dict[str, RunConfig]:
    """The presets of a method, from what is its own in each."""

    def made(own: Mapping[str, Any], **more: Any) -> RunConfig:
        more[run.method] = kind(**own)
        return run(**more)

    return {
        "fast": made(
            {**_FAST, **fast}, episode_lengths=(100, 500), mirror=None, mirror_replay=True
        ),
        "cpu": made({}),
        "paper": made(paper, steps=2_000_000, evaluation_episodes=10),
        "smoke": made({**_SMOKE, **smoke}, steps=15_000, evaluate_every=2, evaluation_episodes=1),
    }


_PRINTED = SACConfig(hidden=(400, 400, 400))
_SMALL = SACConfig(hidden=(32, 32))
_DISTRAL, _PEARL = DistralConfig().sac, PEARLConfig().sac

PCGRAD = _presets(
    PCGradRun,
    PCGradConfig,
    fast={"sac": FAST_SAC},
    # What mtrl's SAC for states has, at 128 rows of each of five tasks.
    paper={
        "sac": replace(_PRINTED, temperature=1.0),
        "batch_size": 640,
        "updates_per_step": 0.2,
    },
    smoke={"sac": _SMALL},
)
DISTRAL = _presets(
    DistralRun,
    DistralConfig,
    fast={"sac": replace(FAST_SAC, spread_floor=-5.0, temperature_rate=0.0)},
    paper={
        "sac": replace(_DISTRAL, hidden=(400, 400, 400), learning_rate=1e-3),
        "updates_per_step": 0.2,
    },
    smoke={"sac": replace(_DISTRAL, hidden=(32, 32))},
)
HIPBMDP = _presets(
    HiPBMDPRun,
    HiPBMDPConfig,
    fast={"sac": FAST_SAC},
    paper={
        "sac": replace(_PRINTED, learning_rate=1e-3),
        "size": 50,
        "model_hidden": (512,),
        "updates_per_step": 0.2,
    },
    smoke={"sac": _SMALL, "model_hidden": (32,)},
)
PEARL = _presets(
    PEARLRun,
    PEARLConfig,
    fast={
        "sac": replace(
            FAST_SAC, temperature=1.0, temperature_rate=0.0, reward_scale=5.0, huber_delta=5 * FAR
        )
    },
    paper={
        "sac": replace(_PEARL, hidden=(300, 300, 300)),
        "encoder_hidden": (200, 200, 200),
        "context_rows": 256,
        "batch_size": 1280,
        "updates_per_step": 0.8,
    },
    smoke={"sac": replace(_PEARL, hidden=(32, 32)), "encoder_hidden": (32, 32)},
)
MQL = _presets(
    MQLRun,
    MQLConfig,
    fast={
        "learner": "crossq",
        "crossq": FAST_CROSSQ,
        "exploration": 0.3,
    },
    paper={
        "td3": TD3Config(hidden=(300, 300)),
        "memory": 30,
        "adapt": MQLAdaptation(old_updates=100, old_batches=5),
    },
    smoke={
        "td3": TD3Config(hidden=(32, 32)),
        "adapt": MQLAdaptation(new_updates=1, old_updates=2, old_batches=1),
    },
)
