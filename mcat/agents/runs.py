"""A run's folder: what it was started with, its metrics, its checkpoints."""

from __future__ import annotations

import csv
import importlib.metadata
import platform
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mcat
from mcat.errors import CannotCreateError, DataError
from mcat.safe_io import Arrays, io_errors, load_safetensors, new_file, save_safetensors

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

Row = dict[str, float]

_PACKAGES = ("torch", "numpy", "mujoco", "gymnasium", "metaworld")
_KEPT_CHECKPOINTS = 2  # the newest, and the one to fall back on if it is damaged


def provenance() -> dict[str, Any]:
    """Who made a file and with what: command, commit, versions, machine."""
    versions = {"python": platform.python_version(), "mcat": mcat.__version__}
    for name in _PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "command": shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        "commit": _git("rev-parse", "HEAD"),
        "dirty": bool(_git("status", "--porcelain", "--untracked-files=no")),
        "versions": versions,
        "host": {"system": platform.platform(), "machine": platform.machine()},
    }


def _git(*arguments: str) -> str | None:
    """What git says about the checkout this package lies in, None if it is not in one."""
    try:
        done = subprocess.run(
            ["git", *arguments],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def create_run_folder(path: Path) -> None:
    """Make the folder of a new run.

    Raises:
        CannotCreateError: if there is something already, or it cannot be made.
    """
    with io_errors(path, "write"):
        # What a process killed before it wrote run.json leaves is hidden, and no run yet.
        if path.is_dir() and all(entry.name.startswith(".") for entry in path.iterdir()):
            return
        if path.exists() or path.is_symlink():
            raise CannotCreateError(
                f"{path} exists already: go on with it by --resume or choose another folder"
            )
        path.mkdir(parents=True)


def remove_stale_files(path: Path) -> None:
    """Remove the unfinished files a killed process left; call it while the run is claimed."""
    for part in path.rglob(".*.part-*"):
        part.unlink(missing_ok=True)


class Log:
    """A CSV file of a run that grows by rows.

    Args:
        path: The file.
        columns: The names of all values, fixed for the life of the file; "step" comes first.
        until: On resuming, rows after this step are forgotten: they will come again.
    """

    def __init__(self, path: Path, columns: tuple[str, ...], until: int) -> None:
        self._path, self._columns = path, columns
        self._lines: list[list[str]] = []
        if until and self._path.exists():
            with io_errors(self._path, "read"), self._path.open(newline="") as file:
                header, *lines = list(csv.reader(file)) or [[]]
            if tuple(header) != columns:
                raise DataError(f"{self._path}: its columns are not those of this run")
            self._lines = [line for line in lines if int(line[0]) <= until]

    def add(self, *rows: Mapping[str, float | str]) -> None:
        """Write some rows, all of them or none."""
        for row in rows:
            values = [row[name] for name in self._columns]
            self._lines.append([v if isinstance(v, str) else repr(v) for v in values])
        with new_file(self._path, overwrite=True) as part, part.open("w", newline="") as file:
            csv.writer(file).writerows([self._columns, *self._lines])


class Metrics:
    """`metrics.csv` and, where tensorboard is installed, its event file beside it."""

    def __init__(self, folder: Path, columns: tuple[str, ...], until: int) -> None:
        self._log = Log(folder / "metrics.csv", columns, until)
        self._columns = columns
        self._board = _tensorboard(folder, until)

    def __enter__(self) -> Metrics:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._board is not None:
            self._board.close()

    def add(self, row: Mapping[str, float]) -> None:
        """Write one row, whole or not at all."""
        self._log.add(row)
        if self._board is not None:
            for name in self._columns[1:]:
                self._board.add_scalar(name, row[name], int(row["step"]))
            self._board.flush()


def _tensorboard(folder: Path, until: int) -> SummaryWriter | None:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(str(folder), purge_step=until + 1 if until else None)


def save_checkpoint(folder: Path, step: int, tensors: Arrays, state: dict[str, Any]) -> None:
    """Write a checkpoint as one file, whole or not at all, then remove all but the last ones."""
    save_safetensors(folder / f"step-{step:010}.safetensors", tensors, state, overwrite=True)
    for path in _checkpoints(folder)[:-_KEPT_CHECKPOINTS]:
        path.unlink(missing_ok=True)


def load_checkpoint(
    folder: Path, announce: Callable[[str], None] = lambda text: None
) -> tuple[Arrays, dict[str, Any]] | None:
    """The newest checkpoint that is sound, None if none was written yet.

    Args:
        folder: Where they are.
        announce: Told of one that is passed over.

    Raises:
        DataError: if there are some and all are damaged.
    """
    damaged: DataError | None = None
    for path in reversed(_checkpoints(folder)):
        try:
            return load_safetensors(path)
        except DataError as error:
            damaged = damaged or error
            announce(f"{error}; going back to the checkpoint before it")
    if damaged:
        raise damaged
    return None


def _checkpoints(folder: Path) -> list[Path]:
    return sorted(folder.glob("step-*.safetensors"))
