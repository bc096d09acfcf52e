"""Folders such as `mcat metatrain` writes, made up in milliseconds with its own writers."""

import csv

import numpy as np
import torch

from mcat.agents.meta.algorithm import RANDOM, SHARED, Arena
from mcat.agents.meta.config import PRESETS
from mcat.agents.networks import MLP
from mcat.agents.policies.context_policy import ContextPolicy
from mcat.config import overlay, to_json
from mcat.safe_io import save_safetensors, write_json
from mcat.translator.networks import mlp


def write_run(
    folder, *, family="ant-cripple", preset="fast", seed=0, changes=None, horizon=1000,
    evaluations=((5, 100.0, 50.0), (10, 300.0, 200.0)), transfers=((3, 2, 0), (4, 2, 0)),
    per_task=3,
):  # fmt: skip
    """A run of 10 iterations; returns its arena.

    Args:
        evaluations: Iteration, mean return on train tasks and on test tasks.
        transfers: Iteration, number of the task and of the task whose policy was transferred.
        per_task: Contexts of each task.
    """
    config = overlay(PRESETS[preset], {"family": family, "seed": seed, **(changes or {})})
    arena = Arena.of(config.tasks.replace(horizon=horizon))
    folder.mkdir(parents=True)
    names = {"train": list(arena.train), "test": list(arena.test)}
    record = {
        "kind": "metatrain",
        "preset": preset,
        "config": to_json(config),
        "arena": {**names, "horizon": arena.horizon, "delay": arena.delay},
    }
    write_json(folder / "run.json", record)
    round_steps = len(arena.train) * arena.horizon
    write_csv(folder / "metrics.csv", _metrics(arena, round_steps, evaluations))
    write_csv(folder / "episodes.csv", _episodes(arena, round_steps, transfers))
    if per_task:
        write_contexts(folder, arena, np.random.default_rng(seed), per_task)
    return arena


def write_csv(path, rows):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(rows)


def _metrics(arena, round_steps, evaluations):
    tasks = [f"eval/{s}/{t}" for s in ("train", "test") for t in getattr(arena, s)]
    yield "step", "iteration", "collect/return", "eval/train", "eval/test", *tasks
    known = {iteration: (train, test) for iteration, train, test in evaluations}
    for iteration in range(1, 11):
        train, test = known.get(iteration, (float("nan"), float("nan")))
        own = [train + n if "/train/" in name else test + n for n, name in enumerate(tasks)]
        yield iteration * round_steps, iteration, 0.5, train, test, *own


def _episodes(arena, round_steps, transfers):
    yield "step", "iteration", "task", "driver", "return"
    sources = {(iteration, target): source for iteration, target, source in transfers}
    for iteration in range(1, 11):
        for number, task in enumerate(arena.train):
            driver = RANDOM if iteration == 1 else SHARED
            if (iteration, number) in sources:
                driver = arena.train[sources[iteration, number]]
            yield iteration * round_steps, iteration, task, driver, 0.5


def write_contexts(folder, arena, rng, per_task):
    """Clouds of points in a row, well apart."""
    numbers = np.repeat(np.arange(len(arena.names)), per_task)
    points = 30.0 * numbers[:, None] + rng.normal(size=(len(numbers), 8))
    save_safetensors(
        folder / "contexts.safetensors",
        {"contexts": points.astype(np.float32), "tasks": numbers},
        {"names": list(arena.names), "step": 1},
        overwrite=True,
    )


def write_policy(path, arena, *, seed=0, history=3, size=4):
    """A policy that never learned anything; what it does depends on its memory."""
    states, actions = arena.observation_size, arena.action_size
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        actor = MLP([states + size, 16, actions], 1)
        for layer in actor.layers:
            layer.data.normal_(0, 0.3)
        encoder = mlp(history * (states + actions), [8], size, "relu").requires_grad_(False)
    policy = ContextPolicy(actor, encoder, torch.ones(states), history=history, activation="relu")
    policy.save(path, {}, overwrite=True)
    return policy
