"""From logs of two or more machines to a translator, and to what it is worth: `mcat translate`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from mcat.agents.runs import provenance
from mcat.agents.transfer_config import TransferConfig
from mcat.agents.transfer_data import (
    Logs,
    describe,
    join_tasks,
    load_logs,
    require_apart,
    require_equal_spaces,
    require_own_names,
    require_rewards,
)
from mcat.agents.transfer_jobs import Stopwatch, translate_many, translate_pair
from mcat.agents.transfer_result import Machine, TransferResult
from mcat.agents.transferred import RESULT_FILE
from mcat.errors import CannotCreateError
from mcat.safe_io import new_folder, write_json
from mcat.translator.policy import TRANSLATOR_FILE


def translate(
    config: TransferConfig, announce: Callable[[str], None] = lambda text: None
) -> TransferResult:
    """Load and check the logs, train, run episodes, and write translator and result into a folder.

    Args:
        config: What to do.
        announce: Told what is odd about the logs before training starts.

    Raises:
        CannotCreateError: if the folder exists; nothing is lost then, nor if anything later fails.
        DataError: if the logs cannot be learned from.
    """
    if config.out is not None:
        require_replaceable(config.out, overwrite=config.overwrite)
    torch.set_num_threads(config.threads)
    watch = Stopwatch()
    with watch.time("load"):
        logs = _load(config)
        machines = describe(logs)
    if config.tasks:
        require_own_names(machines)
    for note in (note for item in logs for note in item.notes):
        announce(f"note: {note}")
    out = config.out or default_folder(machines)
    require_replaceable(out, overwrite=config.overwrite)
    job = translate_many if config.tasks else translate_pair
    with new_folder(out, overwrite=config.overwrite) as folder:
        translator, found = job(config, logs, watch)
        made_by = provenance()
        result = TransferResult(
            method=config.method,
            preset=config.preset,
            seed=config.seed,
            command=made_by.pop("command"),
            provenance=made_by,
            config=config.to_json(),
            machines=machines,
            fit=translator.report,
            seconds=watch.seconds,
            **found,
        )
        translator.save(folder / TRANSLATOR_FILE)
        write_json(folder / RESULT_FILE, result.to_json())
    return result


def default_folder(machines: Sequence[Machine]) -> Path:
    """Where a result goes if no folder is named."""
    first, *others = (machine.name for machine in machines)
    return Path(f"{first}-to-{others[0] if len(others) == 1 else f'{len(others)}-others'}")


def require_replaceable(path: Path, *, overwrite: bool) -> None:
    """Refuse to replace anything but an earlier result, and that only if asked to.

    Raises:
        CannotCreateError: if there is something at `path`.
    """
    if not (path.exists() or path.is_symlink()):
        return
    if not overwrite:
        raise CannotCreateError(f"{path} exists already: pass --overwrite or choose another --out")
    if path.is_symlink() or not (path / RESULT_FILE).is_file():
        raise CannotCreateError(
            f"{path} is not the result of a translation and will not be replaced: choose another"
            " --out"
        )


def _load(config: TransferConfig) -> list[Logs]:
    history = config.recipe.context.history
    one_each = [(file,) for file in config.tasks]
    logs = [
        load_logs(files, history=history) for files in one_each or (config.sources, config.targets)
    ]
    require_apart(logs)
    if config.map is None:
        require_equal_spaces(logs)
    if config.reward_aware:
        require_rewards(logs)
    return join_tasks(logs) if config.tasks else logs
