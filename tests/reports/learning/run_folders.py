"""Folders such as `mcat metatrain` writes, made up in milliseconds with its own writers."""

import csv

import numpy as np
import torch

from mcat.agents.meta.algorithm import RANDOM, SHARED, TaskSet
from mcat.agents.meta.methods.registry import METHODS
from mcat.agents.networks import MLP
from mcat.agents.policies.context_policy import ContextPolicy
from mcat.config import overlay, to_json
from mcat.safe_io import write_json
from mcat.tensor_files import save_safetensors
from mcat.translator.networks import mlp


def write_run(
    folder, *, family="ant-cripple", preset="fast", seed=0, changes=None, horizon=1000,
    evaluations=((5, 100.0, 50.0), (10, 300.0, 200.0)), transfers=((3, 2, 0), (4, 2, 0)),
    per_task=3, method="mcat", driver=SHARED,
):  # fmt: skip
    """A run of 10 iterations; returns its tasks.

    Args:
        evaluations: Iteration, mean return on train tasks and on test tasks.
        transfers: Iteration, number of the task and of the task whose policy was transferred.
        per_task: Contexts of each task.
        method: By which it learns.
        driver: Who acts after random actions where nothing is transferred.
    """
    plain = {"family": family, "seed": seed}
    if family == "ant-cripple":
        plain["mirror"] = False  # with mirror images it has other tasks in each preset
    usual = overlay(METHODS[method].presets[preset], plain)
    config = overlay(METHODS[method].preset(preset, usual.robot), plain | (changes or {}))
    task_set = TaskSet.of(config.tasks.replace(horizon=horizon))
    folder.mkdir(parents=True)
    names = {"train": list(task_set.train), "test": list(task_set.test)}
    record = {
        "kind": "metatrain",
        "preset": preset,
        **({} if method == "mcat" else {"method": method}),
        "config": to_json(config),
        "arena": {**names, "horizon": task_set.horizon, "delay": task_set.delay},
    }
    write_json(folder / "run.json", record)
    round_steps = len(task_set.train) * task_set.horizon
    write_csv(folder / "metrics.csv", _metrics(task_set, round_steps, evaluations))
    write_csv(folder / "episodes.csv", _episodes(task_set, round_steps, transfers, driver))
    if per_task:
        write_contexts(folder, task_set, np.random.default_rng(seed), per_task)
    return task_set


def write_csv(path, rows):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(rows)


def _metrics(task_set, round_steps, evaluations):
    tasks = [f"eval/{s}/{t}" for s in ("train", "test") for t in getattr(task_set, s)]
    yield "step", "iteration", "collect/return", "eval/train", "eval/test", *tasks
    known = {iteration: (train, test) for iteration, train, test in evaluations}
    for iteration in range(1, 11):
        train, test = known.get(iteration, (float("nan"), float("nan")))
        own = [train + n if "/train/" in name else test + n for n, name in enumerate(tasks)]
        yield iteration * round_steps, iteration, 0.5, train, test, *own


def _episodes(task_set, round_steps, transfers, usual):
    yield "step", "iteration", "task", "driver", "return"
    sources = {(iteration, target): source for iteration, target, source in transfers}
    for iteration in range(1, 11):
        for number, task in enumerate(task_set.train):
            driver = RANDOM if iteration == 1 else usual
            if (iteration, number) in sources:
                driver = task_set.train[sources[iteration, number]]
            yield iteration * round_steps, iteration, task, driver, 0.5


def write_contexts(folder, task_set, rng, per_task):
    """Clouds of points in a row, well apart."""
    numbers = np.repeat(np.arange(len(task_set.names)), per_task)
    points = 30.0 * numbers[:, None] + rng.normal(size=(len(numbers), 8))
    save_safetensors(
        folder / "contexts.safetensors",
        {"contexts": points.astype(np.float32), "tasks": numbers},
        {"names": list(task_set.names), "step": 1},
        overwrite=True,
    )


def write_policy(path, task_set, *, seed=0, history=3, size=4):
    """A policy that never learned anything; what it does depends on its memory."""
    states, actions = task_set.observation_size, task_set.action_size
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        actor = MLP([states + size, 16, actions], 1)
        for layer in actor.layers:
            layer.data.normal_(0, 0.3)
        encoder = mlp(history * (states + actions), [8], size, "relu").requires_grad_(False)
    policy = ContextPolicy(actor, encoder, torch.ones(states), history=history, activation="relu")
    policy.save(path, {}, overwrite=True)
    return policy
