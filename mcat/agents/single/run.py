"""Training a policy for a single task, in a folder of its own, and going on with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcat.agents.runs.folder import create_run_folder, remove_stale_files, require_free_folder
from mcat.agents.runs.record import RECORD_FILE, RECORD_FORMAT, read_record
from mcat.agents.single.config import RESUME_MAY_CHANGE, TrainConfig
from mcat.config import differences
from mcat.errors import DataError, MissingInputError, UsageError
from mcat.formats import stamp
from mcat.interrupts import Interrupts
from mcat.provenance import note_other_code, provenance
from mcat.safe_io import read_json, write_json
from mcat.workplaces import claimed

if TYPE_CHECKING:
    from mcat.agents.single.trainer import TrainResult


def train(config: TrainConfig, announce: Callable[[str], None] = lambda text: None) -> TrainResult:
    """Train a policy; Ctrl-C and SIGTERM save at once and raise, `resume=True` goes on.

    Args:
        config: The configuration of the run.
        announce: Told what is odd on resuming: other code, a damaged checkpoint.

    Raises:
        DataError: if the record, the checkpoints and the replay of a run do not belong together.
        DivergedError: if a loss is not finite; the last good checkpoint is kept.
        StoppedError: if a signal came and everything is saved.
    """
    if not config.resume:
        require_free_folder(config.out)
    import torch  # a run that cannot go on is told of before the seconds it takes

    from mcat.agents.single.trainer import Trainer

    with Interrupts() as stop:
        torch.set_num_threads(config.threads)
        trainer = Trainer(config)  # refuses what cannot work before anything is made
        if not config.resume:
            create_run_folder(config.out)
        elif not (config.out / RECORD_FILE).is_file():
            raise MissingInputError(f"no run to resume in {config.out}: start it without --resume")
        with claimed(config.out / ".lock", str(config.out)):
            remove_stale_files(config.out)
            record = _record(config, announce)
            if config.resume:
                trainer.resume(announce)
            write_json(config.out / RECORD_FILE, record, overwrite=True)
            trainer.run(stop)
    return trainer.result()


def read_config(folder: Path) -> TrainConfig:
    """The config of a run of `mcat train`, for going on with it.

    Raises:
        MissingInputError: if the folder holds none.
        DataError: if it is another command's or damaged.
    """
    record = read_record(folder, kinds=("train",))
    try:
        return replace(TrainConfig.from_dict(record.config, folder), resume=True)
    except DataError as error:
        raise DataError(f"{folder / RECORD_FILE}: {error}") from error


def _record(config: TrainConfig, announce: Callable[[str], None]) -> dict[str, Any]:
    """What `run.json` shall say; on resuming, only if this is still the same run."""
    new = config.to_dict()
    if not config.resume:
        return {**stamp(RECORD_FORMAT), "kind": "train", "config": new, **provenance()}
    read_record(config.out, kinds=("train",))  # refuses what is not one
    record: dict[str, Any] = read_json(config.out / RECORD_FILE)
    own = {key: value for key, value in record["config"].items() if key not in RESUME_MAY_CHANGE}
    if fixed := differences(own, config.settings):
        raise UsageError(
            f"{config.out} was started otherwise ({'; '.join(fixed)}): start another run"
        )
    note_other_code(record, announce)
    return record | {"config": new}
