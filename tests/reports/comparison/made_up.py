"""Runs for comparisons, made up in memory."""

from pathlib import Path

import numpy as np

from mcat.agents.runs.record import RunRecord
from mcat.envs.families import FAMILIES
from mcat.reports.comparison.results import ComparedRun
from mcat.reports.runs import LearningRun

NAN = float("nan")


def made_up(
    variant, seed, test, *, train=None, family="ant-cripple", steps=(100, 200), cpu=None,
    seconds=None, state="done", failure="", attempts=1, tasks=(("a",), ("b",)), delay=None,
    folder=None,
):  # fmt: skip
    """A run evaluated at `steps`, with these returns on its only test task, or on each of them."""
    if delay is None:
        delay = FAMILIES[family].train[0].delay if family in FAMILIES else 500
    columns = {"step": steps}
    for split, names, returns in zip(("train", "test"), tasks, (train or test, test), strict=True):
        by_task = np.array(returns, dtype=float).reshape(-1, len(steps)) if len(steps) else []
        columns |= {f"eval/{split}/{t}": v for t, v in zip(names, by_task, strict=False)}
        if names:
            columns[f"eval/{split}"] = np.mean(by_task, axis=0) if len(steps) else ()
    columns |= {"time/cpu": cpu} if cpu is not None else {}
    columns |= {"time/seconds": seconds} if seconds is not None else {}
    record = RunRecord(
        folder=Path(folder or f"/nowhere/{family}-{variant}-{seed}"), kind="metatrain",
        family=family, preset="fast", seed=seed, config={"evaluation_episodes": 5},
        train=tasks[0], test=tasks[1], horizon=1000, delay=delay,
    )  # fmt: skip
    metrics = {name: np.array(values, dtype=float) for name, values in columns.items()}
    return ComparedRun(
        run=LearningRun(record=record, metrics=metrics),
        variant=variant,
        state=state,
        failure=failure,
        attempts=attempts,
    )
