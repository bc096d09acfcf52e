"""How fast C and F learn: held-out errors against the CPU time spent, that of judging left out."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np

from mcat.datasets.views import Episodes
from mcat.translator.configs import ContextConfig
from mcat.translator.context import held_out_errors
from mcat.translator.online import ContextLearner
from mcat.translator.windows import sample_windows


@dataclass(frozen=True, kw_only=True)
class Point:
    """The state of a training of C and F."""

    steps: int
    seconds: float  # of the CPU
    error: float  # held out


def learning_curve(
    config: ContextConfig, training: list[Episodes], held_out: list[Episodes], steps: int
) -> list[Point]:
    """Forty points of the first steps."""
    sizes = training[0].observation_size, training[0].action_size
    config = replace(config, max_steps=steps)
    learner = ContextLearner(*sizes, len(training), config, seed=0)
    # All are judged by the same transitions.
    one_step = replace(config, all_future=False, likelihood="mean")
    rng = np.random.default_rng(0)
    tests = [sample_windows(task, one_step, rng, 1024) for task in held_out]
    points: list[Point] = []
    spent, resumed = 0.0, time.process_time()

    def on_progress(done: int, total: int) -> None:
        nonlocal spent, resumed
        if done and done % max(1, steps // 40) == 0:
            spent += time.process_time() - resumed
            error = float(held_out_errors(learner.model, tests).mean())
            points.append(Point(steps=done, seconds=spent, error=error))
            resumed = time.process_time()

    learner.learn(training, [], on_progress)
    return points
