"""From a configuration to a meta-training run in a folder, and back into one that was stopped."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mcat.agents.limits import require_bearable, require_room
from mcat.agents.meta.algorithm import Arena
from mcat.agents.meta.config import GOOD_ENOUGH, RESUME_MAY_CHANGE, MetaTrainConfig
from mcat.agents.meta.loop import MetaTrainer, MetaTrainResult
from mcat.agents.meta.mcat import MCAT
from mcat.agents.runs.folder import create_run_folder, remove_stale_files, require_free_folder
from mcat.agents.runs.record import RECORD_FILE, RECORD_FORMAT, read_record
from mcat.config import differences, from_json, overlay, to_json
from mcat.errors import DataError, UsageError
from mcat.formats import stamp
from mcat.interrupts import Interrupts
from mcat.provenance import note_other_code, provenance
from mcat.safe_io import read_json, write_json
from mcat.workplaces import claimed


def metatrain(
    config: MetaTrainConfig,
    out: Path,
    *,
    preset: str = "custom",
    quiet: bool = False,
) -> MetaTrainResult:
    """Train one policy for all tasks of a family, in a new folder.

    Args:
        config: What the numbers of the run depend on, such as one of `PRESETS`.
        out: The folder, which must not exist yet.
        preset: How `run.json` names the config.
        quiet: Show no progress.

    Raises:
        DivergedError: if a loss is not finite; the last good checkpoint is kept.
        StoppedError: if a signal came; the run can be resumed.
    """
    require_free_folder(out)
    with Interrupts() as stop:
        trainer = _trainer(config, out)
        create_run_folder(out)
        with claimed(out / ".lock", str(out)):
            remove_stale_files(out)
            record = {
                **stamp(RECORD_FORMAT),
                "kind": "metatrain",
                "preset": preset,
                "config": to_json(config),
                "arena": _described(trainer.arena),
                **provenance(),
            }
            write_json(out / RECORD_FILE, record, overwrite=True)
            return trainer.run(stop, quiet=quiet)


def resume_run(
    out: Path,
    changes: Mapping[str, Any] | None = None,
    *,
    quiet: bool = False,
    announce: Callable[[str], None] = lambda text: None,
) -> MetaTrainResult:
    """Go on with the run in `out`, exact to the bit; one that is finished says what it earned.

    Args:
        out: Its folder.
        changes: To its config; only `steps` may change.
        quiet: Show no progress.
        announce: Told what is odd: other code, a damaged checkpoint.

    Raises:
        DataError: if its record, its checkpoints and what they build on do not belong together.
        UsageError: if anything else shall change, or there shall be fewer steps than were made.
    """
    read_record(out, kinds=("metatrain",))  # refuses what is not one
    record: dict[str, Any] = read_json(out / RECORD_FILE)
    try:
        old = from_json(MetaTrainConfig, record["config"])
    except DataError as error:
        raise DataError(f"{out / RECORD_FILE}: {error}") from error
    config = overlay(old, changes or {})
    fixed = [
        line
        for line in differences(to_json(old), to_json(config))
        if line.partition(":")[0] not in RESUME_MAY_CHANGE
    ]
    if fixed:
        raise UsageError(f"{out} was started otherwise ({'; '.join(fixed)}): start another run")
    note_other_code(record, announce)
    with Interrupts() as stop:
        trainer = _trainer(config, out)
        if odd := differences(record["arena"], _described(trainer.arena)):
            raise DataError(
                f"{out / RECORD_FILE}: its tasks are not those of its family ({'; '.join(odd)})"
            )
        with claimed(out / ".lock", str(out)):
            remove_stale_files(out)
            trainer.restore(announce)
            if trainer.step >= config.steps and (config.steps < old.steps or not trainer.earned):
                raise UsageError(
                    f"{out} has made {trainer.step:,} steps already: ask for more with --steps"
                )
            write_json(out / RECORD_FILE, record | {"config": to_json(config)}, overwrite=True)
            return trainer.run(stop, quiet=quiet)


def _described(arena: Arena) -> dict[str, Any]:
    """What `run.json` says of the tasks."""
    return {
        "train": list(arena.train),
        "test": list(arena.test),
        "horizon": arena.horizon,
        "delay": arena.delay,
    }


def _trainer(config: MetaTrainConfig, out: Path) -> MetaTrainer:
    family = config.tasks
    require_bearable(to_json(config))
    require_room(
        family.tasks[0],
        config.evaluation_episodes,
        tasks=len(family.tasks),
        key="evaluation_episodes",
    )
    torch.set_num_threads(config.threads)
    arena = Arena.of(family)
    settings = config.mcat
    if settings.good_enough is None:
        robot = family.train[0].robot
        settings = replace(settings, good_enough=GOOD_ENOUGH.get(robot, 0.0))
    seed = np.random.SeedSequence(config.seed, spawn_key=(0,))
    return MetaTrainer(config, arena, MCAT(arena, settings, seed), out)
