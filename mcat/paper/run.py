"""The paper's transfer experiments, row by row: `mcat reproduce`.

A row is what a user would do by hand: collect the logs, translate by every method and from every
seed. All of it lies in one work folder and a finished step is never done again, so a run can be
stopped and repeated, and several processes may work in one folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from mcat.agents.policies.names import find_source_policy, packaged_path
from mcat.datasets.shards import discard_shards
from mcat.errors import CannotCreateError
from mcat.paper.config import ReproduceConfig
from mcat.paper.summary import Cell, RowSummary, Summary, best_of
from mcat.paper.tables import ALTERNATIVES, TABLES, Log, TableRow
from mcat.progress import Notify, ignore
from mcat.provenance import provenance
from mcat.safe_io import io_errors, is_file, read_json
from mcat.transfer.config import TransferConfig
from mcat.transfer.result import (
    GUESSED,
    ON_SOURCE,
    RESULT_FILE,
    TRANSFERRED,
    UNTRANSLATED,
    AlternativeResult,
    TransferResult,
)
from mcat.transfer.run import translate
from mcat.translator.state.correspondence import CORRESPONDENCES
from mcat.workplaces import BusyError, tidy_folder

_Result = TransferResult | AlternativeResult


@dataclass(frozen=True, kw_only=True)
class _Work:
    """What the parts of a reproduction share: what to do, where, and how."""

    config: ReproduceConfig
    folder: Path
    quiet: bool
    workers: int
    notify: Notify


def reproduce(
    config: ReproduceConfig,
    out: Path,
    *,
    quiet: bool = False,
    notify: Notify = ignore,
    workers: int = 1,
) -> Summary:
    """Do what is missing of the chosen rows and return all that is done.

    What other processes are making at the time is left to them, and waited for in the end.

    Args:
        config: Which part of the paper, and how.
        out: Where logs and translators go; what is there is not made again.
        quiet: Show no progress.
        notify: Told what is being done.
        workers: Processes that share the physics; no part of the result.
    """
    work = _Work(config=config, folder=out, quiet=quiet, workers=workers, notify=notify)
    cells = [
        (row, method, seed)
        for row in config.chosen
        for method in row.methods
        for seed in config.seeds
        if not config.methods or method in config.methods
    ]
    for wait in (False, True):
        for cell in cells:
            _make(work, *cell, wait=wait)
    return summarise(config, out)


def summarise(config: ReproduceConfig, out: Path) -> Summary:
    """The rows of a table that are done in `out`, beside the paper's numbers."""
    rows = []
    last = replace(config, best_of=0)  # made before, or elsewhere, without the looks
    for row in TABLES[config.table].rows:
        found = {
            method: results
            for method in row.methods
            if (results := {
                seed: result for seed in config.seeds
                if (result := _finished(_folder(config, out, row, method, seed), method)
                    or _finished(_folder(last, out, row, method, seed), method))
            })
        }  # fmt: skip
        if found:
            rows.append(_summary(row, found))
    return Summary(
        table=config.table,
        title=TABLES[config.table].title,
        preset=config.recipe_name,
        seeds=config.seeds,
        episodes=config.episodes,
        rows=tuple(rows),
        provenance=provenance(),
    )


def _summary(row: TableRow, found: dict[str, dict[int, _Result]]) -> RowSummary:
    """One row: what each policy earned, before and after."""
    translated = {
        method: {seed: r for seed, r in results.items() if isinstance(r, TransferResult)}
        for method, results in found.items()
    }
    first = next(iter(translated.values()))
    every = [result for results in found.values() for result in results.values()]
    ours = translated.get("ours", {})
    return RowSummary(
        name=row.name,
        printed=row.printed,
        cells=_cells(row, found) if row.pair else {},
        matrices=tuple(result.matrix for result in first.values() if result.matrix is not None),
        paths=next((result.paths for result in ours.values()), {}),
        seconds={
            method: float(np.mean([_training_seconds(result) for result in results.values()]))
            for method, results in found.items()
        },
        commits=tuple(sorted({str(result.provenance.get("commit")) for result in every})),
    )


def _training_seconds(result: _Result) -> float:
    """What a user would wait for: to choose on the target is the paper's rule, not training."""
    return sum(seconds for what, seconds in result.seconds.items() if what != "looks")


def _cells(row: TableRow, found: Mapping[str, Mapping[int, _Result]]) -> dict[str, Cell]:
    """The columns of a row about one source and one target."""
    cells: dict[str, Cell] = {}
    for method, results in found.items():
        if method in ALTERNATIVES:
            cells[method] = _cell(results, ALTERNATIVES[method])
            continue
        for label in (ON_SOURCE, UNTRANSLATED, GUESSED):
            cells.setdefault(row.column(label), _cell(results, label))
        cells[method] = _cell(results, TRANSFERRED)
        looks = {seed: getattr(result, "looks", ()) for seed, result in results.items()}
        best = {seed: max(returns) for seed, returns in looks.items() if returns}
        cells[best_of(method)] = Cell(tuple(best.values()), tuple(best))
    return {name: cell for name, cell in cells.items() if cell.means}


def _cell(results: Mapping[int, _Result], label: str) -> Cell:
    """What the policies of that name earned, by seed; offline RL is not had from every log."""
    means = {
        seed: returns.mean
        for seed, result in results.items()
        for returns in result.returns
        if returns.label == label
    }
    return Cell(tuple(means.values()), tuple(means))


def _make(work: _Work, row: TableRow, method: str, seed: int, *, wait: bool) -> None:
    """One result, unless it is there or, if we do not `wait`, another process is at it."""
    folder = _folder(work.config, work.folder, row, method, seed)
    while not is_file(folder / RESULT_FILE):
        try:
            (_try if method in ALTERNATIVES else _translate)(work, row, method, seed, folder)
        except BusyError as busy:
            what = "waiting" if wait else "left to it"
            work.notify(f"{busy.what} is being made by {busy.owner}: {what}")
            if not wait:
                return
            busy.wait()
        except CannotCreateError:
            if not is_file(folder / RESULT_FILE):  # else another process has just made it
                raise
    tidy_folder(folder)


def _try(work: _Work, row: TableRow, method: str, seed: int, folder: Path) -> None:
    """What the target's logs give by themselves."""
    from mcat.transfer.alternatives import try_alternative

    targets = [str(_log(work, log)) for log in row.targets(work.config.preset)]
    work.notify(f"{work.config.table}: {row.name}, {method}, seed {seed}")
    try_alternative(
        ALTERNATIVES[method],
        targets,
        folder,
        preset=work.config.preset,
        episodes=work.config.episodes,
        seed=seed,
        workers=work.workers,
        quiet=work.quiet,
    )


def _translate(work: _Work, row: TableRow, method: str, seed: int, folder: Path) -> None:
    config = work.config
    sources, targets, tasks = (
        tuple(str(_log(work, log)) for log in logs(config.preset))
        for logs in (row.sources, row.targets, row.tasks)
    )
    settings = TransferConfig(
        sources=sources,
        targets=targets,
        tasks=tasks,
        method="cycle" if method == "cycle" else "ours",
        preset=config.preset,
        transfer_loss=None if method == "cycle" else config.other_loss,
        map=row.map,
        policy=_policy(row),
        episodes=config.episodes,
        alternatives=False,  # they have columns of their own
        best_of=config.epochs,
        reward_aware=method == "reward-aware",
        seed=seed,
        threads=config.threads,
    )
    work.notify(f"{config.table}: {row.name}, {method}, seed {seed}")
    translate(settings, folder, quiet=work.quiet, workers=work.workers)


def _policy(row: TableRow) -> str | None:
    """The policy to transfer, as `find_policy` takes it."""
    if row.policy is None or row.policy.name != "good":
        return row.policy and row.policy.name
    return str(packaged_path(*row.policy))


def _log(work: _Work, log: Log) -> Path:
    """A log, collected unless it is there already."""
    path = work.folder / "logs" / f"{log.name}.h5"
    if is_file(path):
        discard_shards(path)
        return path
    from mcat.datasets.collect import CollectConfig, collect

    work.notify(f"collecting {path.name}")
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
    collect(settings, function, path, resume=True, workers=work.workers, quiet=work.quiet)
    return path


def _folder(config: ReproduceConfig, out: Path, row: TableRow, method: str, seed: int) -> Path:
    loss = None if method in ("cycle", *ALTERNATIVES) else config.other_loss  # which is of H
    name = method if loss is None else f"{method}-{loss}"
    if config.epochs and method not in ALTERNATIVES:
        name += f"-best{config.epochs}"
    return out / config.table / config.preset / f"{row.name}-{name}-seed{seed}"


def _finished(folder: Path, method: str) -> _Result | None:
    path = folder / RESULT_FILE
    if not is_file(path):
        return None
    kind = AlternativeResult if method in ALTERNATIVES else TransferResult
    return kind.from_json(read_json(path))
