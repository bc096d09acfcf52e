"""Folders such as `mcat metatrain` writes, made up in milliseconds with its own writers."""

import csv
from dataclasses import replace

import numpy as np

from mcat.agents.algorithm import RANDOM, SHARED, Arena
from mcat.agents.mcat_config import PRESETS
from mcat.agents.runs import Metrics, provenance
from mcat.config import overlay, to_json
from mcat.safe_io import save_safetensors, write_json


def write_run(
    folder, *, family="halfcheetah-armature", preset="fast", seed=0, changes=None, level=2000.0,
    iterations=40, evaluate_every=5,
):  # fmt: skip
    """A run that learns to earn `level`, more slowly on tasks far from the middle one."""
    config = overlay(PRESETS[preset], {"family": family, "seed": seed, **(changes or {})})
    arena = Arena.of(config.tasks)
    folder.mkdir(parents=True)
    write_json(
        folder / "run.json",
        {
            "kind": "metatrain",
            "preset": preset,
            "config": to_json(config),
            "arena": {
                "train": arena.train,
                "test": arena.test,
                "horizon": arena.horizon,
                "delay": arena.delay,
            },
            **provenance(),
        },
    )
    rng = np.random.default_rng(seed)
    per_round = len(arena.train) * arena.horizon
    _write_metrics(folder, arena, level, rng, per_round, iterations, evaluate_every)
    _write_episodes(folder, arena, rng, per_round, iterations, config.mcat.transfer)
    if iterations >= evaluate_every:
        write_contexts(folder, arena, rng)
    return replace(arena)


def _write_metrics(folder, arena, level, rng, per_round, iterations, evaluate_every):
    tasks = [f"eval/train/{task}" for task in arena.train]
    tasks += [f"eval/test/{task}" for task in arena.test]
    columns = ("step", "iteration", "collect/return", "eval/train", "eval/test", *tasks)
    with Metrics(folder, columns, until=0) as metrics:
        for iteration in range(1, iterations + 1):
            row = dict.fromkeys(columns, float("nan"))
            row |= {"step": iteration * per_round, "iteration": iteration, "collect/return": 0.0}
            if iteration % evaluate_every == 0:
                rise = 1 - np.exp(-iteration / 15 * rng.uniform(0.9, 1.1))
                for number, name in enumerate(tasks):
                    far = 0.6 + 0.4 / (1 + abs(number - 2))
                    row[name] = float(-300 + (level + 300) * rise * far + rng.normal(0, 60))
                for split in ("train", "test"):
                    values = [row[name] for name in tasks if name.startswith(f"eval/{split}/")]
                    row[f"eval/{split}"] = float(np.mean(values)) if values else float("nan")
            metrics.add(row)


def _write_episodes(folder, arena, rng, per_round, iterations, transfer):
    rows = [("step", "iteration", "task", "driver", "return")]
    for iteration in range(1, iterations + 1):
        for number, task in enumerate(arena.train):
            driver = RANDOM if iteration <= 5 else SHARED
            if transfer and iteration > 5 and rng.random() < 0.6 * number / 5 * (iteration < 30):
                driver = arena.train[rng.integers(number)]
            rows.append((iteration * per_round, iteration, task, driver, 100.0))
    with (folder / "episodes.csv").open("w", newline="") as file:
        csv.writer(file).writerows(rows)


def write_contexts(folder, arena, rng, per_task=80):
    """Clouds of points in a row."""
    numbers = np.repeat(np.arange(len(arena.names)), per_task)
    direction = rng.normal(size=8)
    points = numbers[:, None] * direction + rng.normal(size=(len(numbers), 8))
    save_safetensors(
        folder / "contexts.safetensors",
        {"contexts": points.astype(np.float32), "tasks": numbers},
        {"names": list(arena.names), "step": 1},
        overwrite=True,
    )
