"""Transitions per second: `mcat collect` against a gymnasium loop with Minari's DataCollector.

Same policy (an MLP of TD3's size), same run, alternating, files included. Minari's collector
needs jax (`pip install "minari[create]"`).

    python benchmarks/collect.py [--steps 20000] [--repeats 3]
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mcat.datasets import collect as collecting
from mcat.datasets.collect import CollectConfig, collect
from mcat.datasets.shards import ShardFolder
from mcat.envs.tasks import Task
from mcat.envs.vector import TaskVectorEnv

TARGET = 3.0
# gymnasium's own robots with observations of the size ours have
ROBOTS: dict[str, tuple[str, dict[str, Any]]] = {
    "halfcheetah": ("HalfCheetah-v5", {}),
    "ant": (
        "Ant-v5",
        {"include_cfrc_ext_in_observation": False, "terminate_when_unhealthy": False},
    ),
}


def make_policy(task: Task) -> Callable[[np.ndarray], np.ndarray]:
    torch.manual_seed(0)
    network = torch.nn.Sequential(
        torch.nn.Linear(task.spec.observation_size, 256),
        torch.nn.ReLU(),
        torch.nn.Linear(256, 256),
        torch.nn.ReLU(),
        torch.nn.Linear(256, task.spec.action_size),
        torch.nn.Tanh(),
    )

    def policy(observations: np.ndarray) -> np.ndarray:
        with torch.inference_mode():
            return network(torch.as_tensor(observations, dtype=torch.float32)).numpy()

    return policy


class Stopwatch:
    """Adds up the time spent in some functions."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function`, with its time added under `name`."""

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            began = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                spent = time.perf_counter() - began
                self.seconds[name] = self.seconds.get(name, 0.0) + spent

        return wrapper


def run_mcat(task: Task, steps: int, workers: int, folder: Path) -> float:
    config = CollectConfig(task=task, steps=steps)
    began = time.perf_counter()
    collect(config, make_policy(task), folder / "a.h5", workers=workers, overwrite=True, quiet=True)
    return steps / (time.perf_counter() - began)


def run_minari(task: Task, steps: int, folder: Path) -> float:
    import gymnasium
    import minari

    os.environ["MINARI_DATASETS_PATH"] = str(folder)
    env_id, kwargs = ROBOTS[task.robot]
    policy = make_policy(task)
    began = time.perf_counter()
    env = minari.DataCollector(gymnasium.make(env_id, **kwargs))
    done = 0
    while done < steps:
        observation, _ = env.reset(seed=done)
        ended = False
        while not ended:
            action = policy(observation[None])[0]
            observation, _, terminated, truncated, _ = env.step(action)
            ended = terminated or truncated
            done += 1
    dataset_id = f"bench/{task.robot}-{time.monotonic_ns()}-v0"
    env.create_dataset(dataset_id=dataset_id, algorithm_name="mlp", author="bench")
    rate = done / (time.perf_counter() - began)
    env.close()
    minari.delete_dataset(dataset_id)
    return rate


def shares(task: Task, steps: int, workers: int, folder: Path) -> dict[str, float]:
    """Where the time of one collection goes."""
    watch = Stopwatch()
    step, seal, merged, write = (
        TaskVectorEnv.step,
        ShardFolder.seal,
        ShardFolder.merged,
        collecting.write_dataset,
    )
    TaskVectorEnv.step = watch.timed("physics", step)  # type: ignore[method-assign]
    ShardFolder.seal = watch.timed("file", seal)  # type: ignore[method-assign]
    ShardFolder.merged = watch.timed("file", merged)  # type: ignore[method-assign]
    collecting.write_dataset = watch.timed("file", write)
    try:
        policy = watch.timed("policy", make_policy(task))
        config = CollectConfig(task=task, steps=steps)
        began = time.perf_counter()
        collect(config, policy, folder / "b.h5", workers=workers, quiet=True)
        total = time.perf_counter() - began
    finally:
        TaskVectorEnv.step = step  # type: ignore[method-assign]
        ShardFolder.seal = seal  # type: ignore[method-assign]
        ShardFolder.merged = merged  # type: ignore[method-assign]
        collecting.write_dataset = write
    parts = {name: seconds / total for name, seconds in watch.seconds.items()}
    return parts | {"other": 1 - sum(parts.values())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    if importlib.util.find_spec("jax") is None:
        sys.exit("skipped: Minari's DataCollector needs jax, pip install 'minari[create]'")
    torch.set_num_threads(1)
    for robot in ROBOTS:
        task = Task(robot)
        ours, theirs = [], []
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            for _ in range(options.repeats):
                theirs.append(run_minari(task, options.steps, folder))
                ours.append(run_mcat(task, options.steps, options.workers, folder))
            parts = shares(task, options.steps, options.workers, folder)
        ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
        ratio = statistics.median(ratios)
        verdict = "ok" if ratio >= TARGET else f"below the target {TARGET:g}"
        print(
            f"{robot}: mcat {statistics.median(ours):,.0f}/s, gymnasium + Minari"
            f" {statistics.median(theirs):,.0f}/s, ratio {ratio:.2f}"
            f" ({min(ratios):.2f} to {max(ratios):.2f}), {verdict}; time in "
            + ", ".join(f"{part} {share:.0%}" for part, share in sorted(parts.items())),
            flush=True,
        )


if __name__ == "__main__":
    main()
