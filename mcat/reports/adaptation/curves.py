"""The returns of an adaptation and of its baselines, read from their folders."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mcat.errors import DataError
from mcat.reports.runs import read_run
from mcat.reports.sections import Array
from mcat.safe_io import is_file, read_json
from mcat.transfer.baselines import FOLDER, LABELS, LINES_FILE

ADAPTED = "adapted"


@dataclass(frozen=True, kw_only=True)
class ReturnCurve:
    """Mean returns after so many real steps, and their standard errors over episodes if known."""

    label: str
    steps: Array
    returns: Array
    errors: Array

    @property
    def flat(self) -> bool:
        """Whether no real step was made for it."""
        return len(self.steps) == 1 and self.steps[0] == 0

    @property
    def last(self) -> float:
        """What it came to."""
        return float(self.returns[-1])


def read_curves(folder: Path) -> list[ReturnCurve]:
    """What is known of an adaptation, its own curve first; without it there is none at all.

    Raises:
        DataError: if a file is damaged.
    """
    own = _curve(folder, ADAPTED)
    if own is None:
        return []
    found = [own]
    for name, label in LABELS.items():
        place = folder / FOLDER / name
        if is_file(place / "metrics.csv") and (curve := _curve(place, label)) is not None:
            found.append(curve)
    if is_file(folder / FOLDER / LINES_FILE):
        found += _lines(folder / FOLDER / LINES_FILE)
    return found


def _curve(folder: Path, label: str) -> ReturnCurve | None:
    """Evaluations in the simulator, or else what the real episodes earned."""
    run = read_run(folder)
    steps = run.metrics.get("step", np.empty(0))
    returns = run.metrics.get("eval/return", np.full(len(steps), np.nan))
    errors = np.full(len(steps), np.nan)
    if np.isfinite(returns).any():
        episodes = run.record.config.get("evaluation_episodes") or 10
        errors = run.metrics["eval/return_std"] / math.sqrt(max(episodes - 1, 1))
    else:
        returns = run.metrics.get("charts/episodic_return", returns)
    there = np.isfinite(returns)
    if not there.any():
        return None
    return ReturnCurve(
        label=label, steps=steps[there], returns=returns[there], errors=errors[there]
    )


def _lines(path: Path) -> list[ReturnCurve]:
    found = []
    try:
        for label, values in read_json(path).items():
            numbers = np.array(values, np.float64)
            error = numbers.std(ddof=1) / math.sqrt(len(numbers)) if len(numbers) > 1 else math.nan
            mean, start = np.array([numbers.mean()]), np.zeros(1)
            found.append(
                ReturnCurve(label=str(label), steps=start, returns=mean, errors=np.array([error]))
            )
    except (AttributeError, TypeError, ValueError) as error:
        raise DataError(f"{path}: not what mcat adapt --baselines writes") from error
    return found
