"""The paper's transfer experiments, row by row: `mcat reproduce`.

A row is what a user would do by hand: collect the logs, translate by every method and from every
seed. All of it lies in one work folder and a finished step is never done again, so a run can be
stopped and repeated, and several processes may work in one folder.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from mcat.agents.policies.names import find_source_policy, packaged_path
from mcat.datasets.shards import discard_shards
from mcat.errors import CannotCreateError, UsageError, unknown
from mcat.paper.tables import TABLES, Log, Row
from mcat.provenance import provenance
from mcat.safe_io import io_errors, is_file, read_json
from mcat.transfer.config import TransferConfig
from mcat.transfer.result import (
    ON_SOURCE,
    RESULT_FILE,
    TRANSFERRED,
    UNTRANSLATED,
    TransferResult,
)
from mcat.transfer.run import translate
from mcat.translator.recipes import RECIPES
from mcat.translator.state.correspondence import CORRESPONDENCES
from mcat.workplaces import BusyError, tidy_folder

Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class ReproduceConfig:
    """Which part of the paper to repeat, and how.

    Attributes:
        table: Name of one of `TABLES`.
        rows: Names of some of its rows; all, if empty.
        preset: How translators are trained; "paper" also collects the logs as printed.
        seeds: One training of each method per seed.
        episodes: Episodes to run of each policy.
        work: Where logs and translators go.
        threads: Threads of torch, and processes that share the physics.
        quiet: Show no progress.
    """

    table: str
    rows: tuple[str, ...] = ()
    preset: str = "cpu"
    seeds: tuple[int, ...] = (0, 1, 2)
    episodes: int = 100
    work: Path = Path("runs/reproduce")
    threads: int = 1
    quiet: bool = False

    def __post_init__(self) -> None:
        if self.table not in TABLES:
            raise unknown("table", self.table, TABLES)
        for name in self.rows:
            if name not in (names := [row.name for row in TABLES[self.table].rows]):
                raise unknown("row", name, names)
        if self.preset not in RECIPES:
            raise unknown("preset", self.preset, RECIPES)
        if not self.seeds or min(self.seeds) < 0 or self.episodes < 1:
            raise UsageError("give at least one seed, none negative, and at least one episode")

    @property
    def chosen(self) -> list[Row]:
        """The rows to work on."""
        return [row for row in TABLES[self.table].rows if not self.rows or row.name in self.rows]


@dataclass
class Cell:
    """What one method earned: the mean return of every seed's translator."""

    means: list[float] = field(default_factory=list)

    @property
    def mean(self) -> float:
        """Over seeds."""
        return float(np.mean(self.means))

    @property
    def error(self) -> float | None:
        """Standard error over seeds; None for one."""
        n = len(self.means)
        return float(np.std(self.means, ddof=1) / np.sqrt(n)) if n > 1 else None


def reproduce(config: ReproduceConfig, say: Say = lambda text: None) -> dict[str, Any]:
    """Do what is missing of the chosen rows and return all that is done, as JSON types.

    What other processes are making at the time is left to them, and waited for in the end.
    """
    cells = [(row, m, seed) for row in config.chosen for m in row.methods for seed in config.seeds]
    for wait in (False, True):
        for cell in cells:
            _translation(config, *cell, say, wait=wait)
    return summarise(config)


def summarise(config: ReproduceConfig) -> dict[str, Any]:
    """The rows of a table that are done, beside the paper's numbers."""
    rows = []
    for row in TABLES[config.table].rows:
        found = {
            method: results
            for method in row.methods
            if (results := [r for s in config.seeds if (r := _finished(config, row, method, s))])
        }
        if found:
            rows.append(_summary(row, found))
    return {
        "table": config.table,
        "title": TABLES[config.table].title,
        "preset": config.preset,
        "seeds": list(config.seeds),
        "episodes": config.episodes,
        "rows": rows,
        "provenance": provenance(),
    }


def _summary(row: Row, found: dict[str, list[TransferResult]]) -> dict[str, Any]:
    """One row: what each policy earned, before and after."""
    first = next(iter(found.values()))
    cells: dict[str, Cell] = {}
    if row.pair:
        cells[ON_SOURCE] = Cell([_mean(r, ON_SOURCE) for r in first])
        cells[UNTRANSLATED] = Cell([_mean(r, UNTRANSLATED) for r in first])
        for method, results in found.items():
            cells[method] = Cell([_mean(r, TRANSFERRED) for r in results])
    return {
        "name": row.name,
        "printed": {name: list(number) for name, number in row.printed.items()},
        "cells": {
            name: {"means": cell.means, "mean": cell.mean, "error": cell.error}
            for name, cell in cells.items()
        },
        "matrices": [result.matrix for result in first if result.matrix],
        "seconds": {m: float(np.mean([sum(r.seconds.values()) for r in rs]))
                    for m, rs in found.items()},
        "commits": sorted({str(r.provenance.get("commit")) for rs in found.values() for r in rs}),
    }  # fmt: skip


def _mean(result: TransferResult, label: str) -> float:
    return next(returns.mean for returns in result.returns if returns.label == label)


def _translation(
    config: ReproduceConfig, row: Row, method: str, seed: int, say: Say, *, wait: bool
) -> None:
    """One translator, unless it is there or, if we do not `wait`, another process is at it."""
    folder = _folder(config, row, method, seed)
    while not is_file(folder / RESULT_FILE):
        try:
            _translate(config, row, method, seed, say)
        except BusyError as busy:
            say(f"{busy.what} is being made by {busy.owner}: {'waiting' if wait else 'left to it'}")
            if not wait:
                return
            busy.wait()
        except CannotCreateError:
            if not is_file(folder / RESULT_FILE):  # else another process has just made it
                raise
    tidy_folder(folder)


def _translate(config: ReproduceConfig, row: Row, method: str, seed: int, say: Say) -> None:
    sources, targets, tasks = (
        tuple(str(_log(config, log, say)) for log in logs)
        for logs in (
            row.sources(config.preset),
            row.targets(config.preset),
            row.tasks(config.preset),
        )
    )
    say(f"{config.table}: {row.name}, {method}, seed {seed}")
    translate(
        TransferConfig(
            sources=sources,
            targets=targets,
            tasks=tasks,
            method="cycle" if method == "cycle" else "ours",
            preset=config.preset,
            map=row.map,
            policy=_policy(row),
            episodes=config.episodes,
            reward_aware=method == "reward-aware",
            seed=seed,
            threads=config.threads,
            out=_folder(config, row, method, seed),
            quiet=config.quiet,
        )
    )


def _policy(row: Row) -> str | None:
    """The policy to transfer, as `find_policy` takes it."""
    if row.policy is None or row.policy[0] != "good":
        return row.policy and row.policy[0]
    return str(packaged_path(*row.policy))


def _log(config: ReproduceConfig, log: Log, say: Say) -> Path:
    """A log, collected unless it is there already."""
    path = config.work / "logs" / f"{log.name}.h5"
    if is_file(path):
        discard_shards(path)
        return path
    from mcat.datasets.collect import CollectConfig, collect

    say(f"collecting {path.name}")
    with io_errors(path.parent, "write"):
        path.parent.mkdir(parents=True, exist_ok=True)
    name, owner = log.policy
    function = (
        None if name == "random" else find_source_policy(name, owner, np.random.default_rng(0))
    )
    if function and log.guess:
        function = CORRESPONDENCES[log.guess].guess(function)
    settings = CollectConfig(
        task=log.task,
        steps=log.steps,
        noise=log.noise,
        policy_name=f"{name} of {owner.label()}",
    )
    collect(settings, function, path, resume=True, workers=config.threads, quiet=config.quiet)
    return path


def _folder(config: ReproduceConfig, row: Row, method: str, seed: int) -> Path:
    return config.work / config.table / config.preset / f"{row.name}-{method}-seed{seed}"


def _finished(config: ReproduceConfig, row: Row, method: str, seed: int) -> TransferResult | None:
    path = _folder(config, row, method, seed) / RESULT_FILE
    return TransferResult.from_json(read_json(path)) if is_file(path) else None
