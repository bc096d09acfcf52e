"""What runs will cost, as far as that was measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from mcat.sweeps.runs import PlannedRun

# CPU seconds of one environment step by command and preset, on one core of 2.5 GHz or so;
# docs/sweep.md says how they were measured.
STEP_SECONDS = {
    ("metatrain", "fast"): 0.0071,
    ("metatrain", "cpu"): 0.02,
    ("metatrain", "smoke"): 0.0004,
    ("train", "fast"): 0.0051,
    ("train", "paper"): 0.01,
}
# What an update of another method takes if MCAT's is 1, in `fast` and in `cpu` (docs/methods.md).
RATIOS = {
    "mcat": (1.0, 1.0),
    "pearl": (1.6, 1.2),
    "mql": (2.4, 1.6),
    "distral": (1.5, 1.8),
    "hipbmdp": (1.5, 1.2),
    "pcgrad": (3.1, 3.1),
}


class Cost(NamedTuple):
    """What some runs will cost."""

    core_hours: float
    unknown: int  # runs that are not in it, as nobody measured such


def cost_of(runs: Sequence[PlannedRun], cpus: int) -> Cost:
    """What runs that a plan was resolved to cost in all, each on so many cores."""
    known = [seconds for run in runs if (seconds := _seconds(run)) is not None]
    return Cost(cpus * sum(known) / 3600, len(runs) - len(known))


def _seconds(run: PlannedRun) -> float | None:
    preset = str(run.config.get("preset"))
    step = STEP_SECONDS.get((run.command, preset))
    ratio = RATIOS.get(str(run.config.get("method", "mcat")))
    if run.steps is None or step is None or ratio is None:
        return None
    return run.steps * step * ratio[preset == "cpu"]
