"""A slim copy of a sweep: the small files of what is finished, to be kept, sent or gone on from."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

from mcat.agents.runs.record import RESULT_FILE
from mcat.errors import UsageError
from mcat.safe_io import io_errors, new_file
from mcat.sweeps.folder import (
    CONFIGS_FILE,
    DRIVER_LOCK,
    LOCK_FILE,
    PLAN_FILE,
    Sweep,
    open_sweep,
)
from mcat.sweeps.runs import FILES, PlannedRun
from mcat.sweeps.state import look
from mcat.workplaces import claimed

# What people and reports read. What only a run itself needs to go on, policies and data sets are
# many times as large.
_SMALL = (".csv", ".json")
_CONTEXTS = "contexts.safetensors"  # for the pictures of mcat plot


def copy_finished(sweep: Sweep, folder: Path) -> list[str]:
    """Copy what is finished, and the plan; again, only what is new.

    `mcat sweep run` goes on from a copy: it makes the runs that are not in it. So does one from the
    sweep itself, and a copy of a copy is one as well. A run's last file is copied last, so that
    what is there counts as finished only once it is whole.

    Returns:
        The names of the runs that were copied now.

    Raises:
        BusyError: if a sweep is being driven there.
        UsageError: if another sweep is there.
    """
    folder = folder.absolute()
    if folder == sweep.folder:
        raise UsageError(f"{folder} is the sweep itself: copy it to another folder")
    if (folder / LOCK_FILE).is_file() and (there := open_sweep(folder).name) != sweep.name:
        raise UsageError(f"{folder} is of the sweep {there}, not {sweep.name}: choose another")
    driver = folder / DRIVER_LOCK
    with claimed(driver, str(folder)) if driver.is_file() else nullcontext():
        for name in (PLAN_FILE, CONFIGS_FILE, LOCK_FILE):
            if (sweep.folder / name).is_file():  # configs were not always apart
                _copy(sweep.folder / name, folder / name)
        finished = [s.run for s in look(sweep, detailed=False) if s.state in ("done", "diverged")]
        return [run.name for run in finished if run.variant and _copy_run(sweep, run, folder)]


def _copy_run(sweep: Sweep, run: PlannedRun, folder: Path) -> bool:
    """Copy what is small of a run, its last file last; False if all of it is there."""
    ending = [path for path in (sweep.ending(run),) if path.is_file()]
    files = [*ending, *_small_files(sweep.out(run))]
    new = [path for path in files if not _equal(path, folder / path.relative_to(sweep.folder))]
    if not new:
        return False
    last = folder / run.out / RESULT_FILE
    with io_errors(last, "write"):
        if run.command not in FILES and sweep.out(run) / RESULT_FILE in new:
            last.unlink(missing_ok=True)  # of fewer steps: it is not finished until all is here
    for path in new:
        _copy(path, folder / path.relative_to(sweep.folder))
    return True


def _small_files(out: Path) -> Iterator[Path]:
    if out.is_file():
        if out.suffix in _SMALL:
            yield out
        return
    for path in sorted(out.iterdir(), key=lambda path: (path.name == RESULT_FILE, path.name)):
        small = path.suffix in _SMALL or path.name == _CONTEXTS
        if small and not path.name.startswith(".") and path.is_file():
            yield path


def _equal(source: Path, target: Path) -> bool:
    return target.is_file() and source.read_bytes() == target.read_bytes()


def _copy(source: Path, target: Path) -> None:
    with io_errors(target, "write"):
        target.parent.mkdir(parents=True, exist_ok=True)
    with new_file(target, overwrite=True) as part:
        shutil.copyfile(source, part)
