"""MCAT on tasks that it must solve, and what transfer is worth there."""

from __future__ import annotations

import csv
from pathlib import Path
from statistics import fmean, stdev

import pytest

from mcat.agents.meta.config import MetaTrainConfig
from mcat.agents.runs import folder as runs
from mcat.config import overlay
from mcat.interrupts import Interrupts
from tests.agents.meta.point_mass import (
    LEARNING,
    point_mass_task_set,
    trainer,
)

BEST = {"strong": 28.0, "weak": 24.0}  # of actions that do not look at the state, by search


def learn(folder: Path, steps: int, seed: int, **changes) -> tuple[list[float], float]:
    """Returns on the tasks at the end, and the mean of all evaluations after random actions."""
    task_set, config = point_mass_task_set(), overlay(LEARNING, changes)
    whole = MetaTrainConfig(
        steps=steps, seed=seed, evaluate_every=5, evaluation_episodes=2, mcat=config
    )
    work = trainer(folder, whole, task_set)
    with Interrupts() as stop:
        work.run(stop, quiet=True)
    with (folder / "metrics.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if int(row["step"]) > config.start_steps]
    evaluations = [float(row["eval/train"]) for row in rows if row["eval/train"] != "nan"]
    return [work.earned[f"eval/train/{name}"] for name in task_set.train], fmean(evaluations)


@pytest.fixture
def no_tensorboard(monkeypatch):
    monkeypatch.setattr(runs, "_tensorboard", lambda folder, until: None)  # slow to import


def test_it_solves_all_tasks(tmp_path, no_tensorboard):
    """A mass at rest earns 0, random actions -0.4 and -1.8."""
    (strong, weak), _ = learn(tmp_path, 2400, seed=0)
    assert strong > BEST["strong"] / 2
    assert weak > BEST["weak"] / 2


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_without_transfer_it_does_worse(tmp_path, no_tensorboard):
    """Over five seeds, by what the policy earns on average while it learns.

    It is no certainty for a seed: critics carry over to the weak mass which velocities are good,
    so pushing it the right way is often found without a transfer, only later.
    """
    gains = []
    for seed in range(5):
        with_transfer, without = (
            learn(tmp_path / f"{seed}-{transfer}", 3600, seed, transfer=transfer)[1]
            for transfer in (True, False)
        )
        print(f"seed {seed}: {with_transfer:.2f} with transfer, {without:.2f} without")
        gains.append(with_transfer - without)
    assert fmean(gains) > stdev(gains) / len(gains) ** 0.5  # 2.0 times it when this was written
