"""What the translator's shortcuts save, and how fast it answers.

    python benchmarks/translate.py [--transitions 50000] [--episodes 100]

1. Time until the forward model reaches a given held-out error: the default (256 contexts a side,
   one future step drawn for each) against all M = 10 steps as printed (1,024 contexts a side),
   with our inputs and with the printed ones; and against all M for as few contexts as the default
   has. Each is trained alone; the times are those the process got from the CPU.
2. 100 HalfCheetah episodes of a transferred policy: all in lockstep, and one after another (a few
   of them, scaled up).
3. One translated action, as a robot would ask for it, and batches.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from forward_curve import learning_curve

from mcat.agents.evaluation import Evaluator
from mcat.agents.policies.names import find_policy
from mcat.datasets import EpisodeStore, load
from mcat.datasets.collect import CollectConfig, collect
from mcat.envs.tasks import Task
from mcat.transfer.collectors import collector_policy
from mcat.translator import (
    ActionConfig,
    ContextConfig,
    LearnedTranslator,
    TransferredPolicy,
    fit_pair,
)
from mcat.translator.recipes import RECIPES
from mcat.translator.windows import split_episodes

SOURCE, TARGET = Task("halfcheetah", armature=0.1), Task("halfcheetah", armature=0.5)


def log_of(task: Task, folder: Path, transitions: int) -> EpisodeStore:
    path = folder / f"{task.label('armature')}.h5"
    config = CollectConfig(task=task, steps=transitions, noise=(0.0, 0.5))
    collect(config, collector_policy("mediocre", task).act, path, quiet=True)
    return load(path)[0]


def forward_model(target: EpisodeStore) -> None:
    """The default against others, each time up to what the worse of the two gets to."""
    default = replace(RECIPES["cpu"].context, decay=False)
    all_steps, printed = replace(default, all_future=True), RECIPES["paper"].context
    literal = {
        "all M, as printed": (replace(all_steps, batch_size=printed.batch_size), 250),
        "the same, printed inputs": (printed, 120),
        "all M, 256 contexts": (all_steps, 400),
    }
    training, held_out = split_episodes(target, np.random.default_rng(0))
    ours = learning_curve(default, [training], [held_out], 1000)
    for name, (config, steps) in literal.items():
        theirs = learning_curve(config, [training], [held_out], steps)
        wanted = max(min(point.error for point in curve) for curve in (ours, theirs))
        print(f"CPU seconds to a held-out error of {wanted:.3f}")
        fast, slow = (
            next(point for point in curve if point.error <= wanted) for curve in (ours, theirs)
        )
        print(f"  {'one of M (default)':<28}{fast.seconds:>8.1f}, {fast.steps} steps")
        print(f"  {name:<28}{slow.seconds:>8.1f}, {slow.steps} steps,"
              f" {slow.seconds / fast.seconds:.2f}x")  # fmt: skip


def evaluation(policy: TransferredPolicy, episodes: int, alone: int = 3) -> None:
    """Episodes a second, in turns."""
    lockstep, single = Evaluator(TARGET, episodes, 0), Evaluator(TARGET, 1, 0)
    times: dict[str, list[float]] = {"in lockstep": [], "one by one": []}
    for _ in range(alone):
        times["in lockstep"].append(_seconds(lambda: lockstep.returns(policy)) / episodes)
        times["one by one"].append(_seconds(lambda: single.returns(policy)))
    print(f"{episodes} episodes on {TARGET.label()} (ms an episode)")
    slowest = statistics.median(times["one by one"])
    for name, seconds in times.items():
        took = statistics.median(seconds)
        print(f"  {name:<28}{1e3 * took:>8.1f}   {slowest / took:5.2f}x one by one")


def latency(translator: LearnedTranslator, target: EpisodeStore) -> None:
    """Microseconds a call, and an action."""
    print("translated actions (median)")
    for rows in (1, 16, 256, 4096):
        obs, act = target.observations[:rows], target.actions[:rows]
        calls = max(20, 20_000 // rows)
        took = statistics.median(
            _seconds(lambda obs=obs, act=act: translator.translate(obs, act)) for _ in range(calls)
        )
        print(f"  batch of {rows:<19}{1e6 * took:>8.0f} us   {1e6 * took / rows:8.2f} us an action")


def _seconds(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--transitions", type=int, default=50_000)
    parser.add_argument("--episodes", type=int, default=100)
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        source, target = (
            log_of(task, Path(folder), options.transitions) for task in (SOURCE, TARGET)
        )
    forward_model(target)
    translator = fit_pair(source, target, context=ContextConfig(max_steps=20),
                          action=ActionConfig(steps=20), quiet=True)  # fmt: skip
    good = find_policy("good", SOURCE, np.random.default_rng(0))
    evaluation(TransferredPolicy(good, translator), options.episodes)
    latency(translator, target)


if __name__ == "__main__":
    main()
