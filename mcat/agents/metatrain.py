"""From a configuration to a meta-training run in a folder, and back into one that was stopped."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mcat.agents.algorithm import Arena
from mcat.agents.loop import MetaTrainer, MetaTrainResult
from mcat.agents.mcat import MCAT
from mcat.agents.mcat_config import GOOD_ENOUGH, RESUME_MAY_CHANGE, MetaTrainConfig
from mcat.agents.run_record import RECORD_FILE, read_record
from mcat.agents.runs import create_run_folder, provenance, remove_stale_files
from mcat.config import differences, from_json, overlay, to_json
from mcat.errors import UsageError
from mcat.safe_io import claimed, read_json, write_json


def metatrain(
    config: MetaTrainConfig,
    out: Path,
    *,
    preset: str = "custom",
    quiet: bool = False,
) -> MetaTrainResult:
    """Train one policy for all tasks of a family, in a new folder.

    Raises:
        DivergedError: if a loss is not finite; the last good checkpoint is kept.
        StoppedError: if a signal came; the run can be resumed.
    """
    trainer = _trainer(config, out)
    create_run_folder(out)
    with claimed(out / ".lock", str(out)):
        arena = trainer.arena
        record = {
            "kind": "metatrain",
            "preset": preset,
            "config": to_json(config),
            "arena": {
                "train": list(arena.train),
                "test": list(arena.test),
                "horizon": arena.horizon,
                "delay": arena.delay,
            },
            **provenance(),
        }
        write_json(out / RECORD_FILE, record, overwrite=True)
        return trainer.run(quiet=quiet)


def resume_run(
    out: Path,
    changes: Mapping[str, Any] | None = None,
    *,
    quiet: bool = False,
    announce: Callable[[str], None] = lambda text: None,
) -> MetaTrainResult:
    """Go on with the run in `out`, exact to the bit.

    Args:
        out: Its folder.
        changes: To its config; only `steps` may change.
        quiet: Show no progress.
        announce: Told what is odd: other code, a damaged checkpoint.
    """
    read_record(out)  # refuses what is not a run
    record: dict[str, Any] = read_json(out / RECORD_FILE)
    old = from_json(MetaTrainConfig, record["config"])
    config = overlay(old, changes or {})
    fixed = [
        line
        for line in differences(to_json(old), to_json(config))
        if line.partition(":")[0] not in RESUME_MAY_CHANGE
    ]
    if fixed:
        raise UsageError(f"{out} was started otherwise ({'; '.join(fixed)}): start another run")
    now = provenance()
    made_by = {key: record.get(key) for key in ("commit", "versions")}
    for line in differences(made_by, {key: now[key] for key in made_by}):
        announce(f"note: the run was made by other code, so its last bits may differ ({line})")
    trainer = _trainer(config, out)
    with claimed(out / ".lock", str(out)):
        remove_stale_files(out)
        trainer.restore(announce)
        write_json(out / RECORD_FILE, record | {"config": to_json(config)}, overwrite=True)
        return trainer.run(quiet=quiet)


def _trainer(config: MetaTrainConfig, out: Path) -> MetaTrainer:
    torch.set_num_threads(config.threads)
    family = config.tasks
    arena = Arena.of(family)
    settings = config.mcat
    if settings.good_enough is None:
        robot = family.train[0].robot
        settings = replace(settings, good_enough=GOOD_ENOUGH.get(robot, 0.0))
    seed = np.random.SeedSequence(config.seed, spawn_key=(0,))
    return MetaTrainer(config, arena, MCAT(arena, settings, seed), out)
