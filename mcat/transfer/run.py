"""From logs of two or more machines to a translator, and to what it is worth: `mcat translate`."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from mcat.config import flatten, require_same
from mcat.errors import CannotCreateError
from mcat.progress import Notify, Stopwatch, ignore
from mcat.provenance import provenance
from mcat.safe_io import io_errors, is_file, write_json
from mcat.transfer.config import TransferConfig
from mcat.transfer.logs import (
    Logs,
    describe,
    join_tasks,
    load_logs,
    require_apart,
    require_equal_spaces,
    require_own_names,
    require_rewards,
    require_same_rate,
    require_same_units,
)
from mcat.transfer.result import POLICY_FILES, RESULT_FILE, Machine, TransferResult, read_result
from mcat.translator.configs import TRANSLATOR_FILE
from mcat.workplaces import new_folder, tidy_folder

_RESULT_FILES = {TRANSLATOR_FILE, RESULT_FILE, "report.html", *POLICY_FILES.values()}  # + pictures
_RESULT_BYTES = 5_000_000  # of the largest preset, with all pictures


def translate(
    config: TransferConfig,
    out: Path | None = None,
    *,
    resume: bool = False,
    overwrite: bool = False,
    quiet: bool = False,
    notify: Notify = ignore,
    workers: int = 1,
    add_pages: Callable[[TransferResult, Path], object] = lambda result, folder: None,
) -> TransferResult:
    """Load and check the logs, train, run episodes, and write translator and result into a folder.

    Args:
        config: What to do.
        out: The folder to make; None names it after the machines (`default_folder`).
        resume: If the result of the same settings and logs is there, return it; else make it. A
            translation keeps nothing before its end, so there is nothing between the two.
        overwrite: Replace an earlier result, once this one is whole.
        quiet: Show no progress.
        notify: Told what is odd about the logs before training starts.
        workers: Processes that share the physics; no part of the result.
        add_pages: Writes what else the folder shall hold, before it takes its name.

    Raises:
        CannotCreateError: before training, if the folder exists, cannot be made, or is being made
            by another process; nothing is lost then, nor if anything later fails.
        StorageError: before training, if the disk is full.
        DataError: if the logs cannot be learned from.
        UsageError: if there is a result of other settings or logs to go on with.
    """
    if out is not None and not (resume and is_file(out / RESULT_FILE)):
        require_replaceable(out, overwrite=overwrite)
    timings = Stopwatch()
    with timings.time("load"):
        logs = _load(config)
        machines = describe(logs)
    if config.tasks:
        require_own_names(machines)
    for note in (note for item in logs for note in item.notes):
        notify(f"note: {note}")
    out = out or default_folder(machines)
    if resume and (done := _finished(out, config, machines)):
        return done
    require_replaceable(out, overwrite=overwrite)

    import torch  # only now: logs that will not do are told of before the seconds it takes

    from mcat.agents.policies.policy import save_policy
    from mcat.transfer.jobs import translate_many, translate_pair

    torch.set_num_threads(config.threads)
    job = translate_many if config.tasks else translate_pair
    with new_folder(out, overwrite=overwrite, needed_bytes=_RESULT_BYTES) as folder:
        found = job(config, logs, timings, workers=workers, quiet=quiet)
        made_by = provenance()
        result = TransferResult(
            method=config.method,
            preset=config.preset,
            seed=config.seed,
            command=made_by.pop("command"),
            provenance=made_by,
            config=config.to_json(),
            machines=machines,
            policy=found.policy,
            fit=found.translator.report,
            trust=found.trust,
            scatter=found.scatter,
            returns=found.returns,
            logged=found.logged,
            looks=found.looks,
            skipped=found.skipped,
            paths=found.paths,
            matrix=found.matrix,
            contexts=found.contexts,
            seconds=timings.seconds,
        )
        found.translator.save(folder / TRANSLATOR_FILE)
        for label, policy in found.policies.items():
            save_policy(folder / POLICY_FILES[label], policy.actor, policy.task, policy.metadata)
        write_json(folder / RESULT_FILE, result.to_json())
        add_pages(result, folder)
    return result


def _finished(
    out: Path, config: TransferConfig, machines: Sequence[Machine]
) -> TransferResult | None:
    """The result in `out`, None if there is none.

    Raises:
        UsageError: if it is of other settings or other logs.
    """
    if not is_file(out / RESULT_FILE):
        return None
    found = read_result(out)
    otherwise = "pass --overwrite or choose another --out"
    # Earlier results also say where they were written and how loudly. Settings that they do not
    # know were then as they are in preset cpu, which changes none of them; and one without
    # alternatives is done all the same.
    no_settings = ("out", "overwrite", "quiet")
    usual = flatten(
        replace(config, preset="cpu", transfer_loss=None, best_of=0, recipe_changes=()).to_json()
    )
    require_same(
        str(out), found.config, config.to_json(), no_settings, defaults=usual, otherwise=otherwise
    )
    logs = [{item.name: list(item.hashes) for item in made} for made in (found.machines, machines)]
    require_same(str(out), *logs, otherwise=otherwise)
    return found


def default_folder(machines: Sequence[Machine]) -> Path:
    """Where a result goes if no folder is named."""
    first, *others = (machine.name for machine in machines)
    return Path(f"{first}-to-{others[0] if len(others) == 1 else f'{len(others)}-others'}")


def require_replaceable(path: Path, *, overwrite: bool) -> None:
    """Refuse to replace anything but an earlier result, and that only if asked to."""
    tidy_folder(path)
    with io_errors(path, "write"):
        if not os.path.lexists(path):
            return
        if not overwrite:
            raise CannotCreateError(
                f"{path} exists already: pass --overwrite or choose another --out"
            )
        if path.is_symlink() or not (path / RESULT_FILE).is_file():
            raise CannotCreateError(
                f"{path} is not the result of a translation and will not be replaced: choose"
                " another --out"
            )
        for entry in path.iterdir():
            if entry.name not in _RESULT_FILES and entry.suffix != ".png":
                raise CannotCreateError(
                    f"{path} holds {entry.name}, which is not of a translation, and will not be"
                    " replaced: move that away or choose another --out"
                )


def _load(config: TransferConfig) -> list[Logs]:
    history = config.recipe.context.history
    one_each = [(file,) for file in config.tasks]
    logs = [
        load_logs(files, history=history) for files in one_each or (config.sources, config.targets)
    ]
    require_apart(logs)
    require_same_rate(logs)
    if config.map is None:
        require_equal_spaces(logs)
        require_same_units(logs)
    if config.reward_aware:
        require_rewards(logs)
    return join_tasks(logs) if config.tasks else logs
