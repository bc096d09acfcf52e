"""A run's folder: what it was started with, its metrics, its checkpoints."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import Field
from pathlib import Path
from types import NoneType
from typing import Any, ClassVar, Protocol

from mcat.agents.runs.event_file import EventFile
from mcat.config import differences, flatten, to_json
from mcat.errors import CannotCreateError, DataError, McatError
from mcat.formats import require_format, stamp
from mcat.progress import Notify, ignore
from mcat.safe_io import io_errors, new_file, remove_stale_parts
from mcat.tensor_files import Arrays, load_safetensors, save_safetensors

# What taking over a checkpoint raises if it holds something else than it should.
_MISFITS = (
    KeyError,
    IndexError,
    TypeError,
    AttributeError,
    ValueError,
    OverflowError,
    RuntimeError,
)
_FORMAT = 2  # of checkpoints; those of format 1 did not say which run they belong to


class Resumable(Protocol):
    """The settings of a run, a dataclass, and which of them may differ when it goes on."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    @property
    def seed(self) -> int:
        """The root of all random numbers."""
        ...

    @property
    def may_change(self) -> frozenset[str]:
        """Keys whose change does not make it another run."""
        ...


def settings_of(config: Resumable) -> dict[str, Any]:
    """What makes it this run and no other, by dotted keys."""
    values = flatten(to_json(config))
    return {key: value for key, value in values.items() if key not in config.may_change}


def require_free_folder(path: Path) -> None:
    """Find out whether a new run can have its folder, before anything is made.

    Raises:
        CannotCreateError: if there is something already, or it cannot be made.
    """
    with io_errors(path, "write"):
        if (path.exists() or path.is_symlink()) and not _is_unborn(path):
            way_out = "go on with it by --resume or choose" if path.is_dir() else "choose"
            raise CannotCreateError(f"{path} exists already: {way_out} another folder")
        place = next(folder for folder in (path, *path.absolute().parents) if folder.is_dir())
        if not os.access(place, os.W_OK | os.X_OK):
            raise CannotCreateError(f"cannot write {path}: {place} is read-only; choose another")


def _is_unborn(path: Path) -> bool:
    """Whether it is what a process killed before it wrote run.json leaves: hidden files, if any."""
    return path.is_dir() and all(entry.name.startswith(".") for entry in path.iterdir())


def remove_stale_files(path: Path) -> None:
    """Remove the unfinished files a killed process left; call it while the run is claimed.

    Only where a run writes: what else lies in its folder is the user's.
    """
    for folder in (path, path / "checkpoints", path / "replay"):
        remove_stale_parts(folder)


class CsvLog:
    """A CSV file of a run that grows by rows.

    A checkpoint keeps its `text`, from which a resumed run goes on: whatever became of the file
    meanwhile, no row is lost and none comes twice.

    Args:
        path: The file; it is made by the first `add`.
        columns: The names of all values, fixed for the life of the file; "step" comes first.
    """

    def __init__(self, path: Path, columns: tuple[str, ...]) -> None:
        self.path, self.columns = path, columns
        self.text = _csv([columns])

    def add(self, *rows: Mapping[str, float | str]) -> None:
        """Write some rows, all of them or none."""
        values = [[row[name] for name in self.columns] for row in rows]
        self.text += _csv([[v if isinstance(v, str) else repr(v) for v in row] for row in values])
        self._write()

    def restore(self, text: str, notify: Notify) -> None:
        """Return to the table of a checkpoint; what else the file held is put aside."""
        heading = self.text
        if not text.startswith(heading):
            raise DataError(f"{self.path}: its columns are not those of this run")
        self.text = text
        wanted = text.encode()
        with io_errors(self.path, "read"):
            found = self.path.read_bytes() if self.path.exists() else b""
        if not found and text == heading:
            return  # no row had come yet
        if not found.startswith(wanted):  # more rows are those of an iteration that was not saved
            aside = self.path.with_name(f"{self.path.name}.damaged")
            kept = f", what it held is in {aside.name}" if found else ""
            notify(f"note: {self.path} is damaged: restored from the checkpoint{kept}")
            if found:
                with io_errors(aside, "write"):
                    os.replace(self.path, aside)
        if found != wanted:
            self._write()

    def _write(self) -> None:
        with new_file(self.path, overwrite=True) as part:
            part.write_text(self.text, newline="")


def _csv(rows: Iterable[Iterable[str]]) -> str:
    file = io.StringIO(newline="")
    csv.writer(file).writerows(rows)
    return file.getvalue()


class Metrics:
    """A log and, where tensorboard is installed, its event file beside it.

    Args:
        log: The log, whose values are all numbers.
        until: On resuming, the step after which rows will come again.
    """

    def __init__(self, log: CsvLog, until: int) -> None:
        self._log, self._until = log, until
        self._begun = False
        self._board: EventFile | None = None

    def __enter__(self) -> Metrics:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._board is not None:
            self._board.close()

    def add(self, row: Mapping[str, float]) -> None:
        """Write one row, whole or not at all."""
        self._log.add(row)
        if not self._begun:  # a run that is finished leaves no empty file
            self._begun, self._board = True, _tensorboard(self._log.path.parent, self._until)
        if self._board is not None:
            for name in self._log.columns[1:]:
                self._board.add_scalar(name, row[name], int(row["step"]))
            self._board.flush()


def _tensorboard(folder: Path, until: int) -> EventFile | None:
    try:
        return EventFile(folder, until)
    except ImportError:
        return None


def save_checkpoint(
    folder: Path, step: int, tensors: Arrays, state: dict[str, Any], settings: Mapping[str, Any]
) -> None:
    """Write a checkpoint, whole or not at all, then remove all but the one before it."""
    path = folder / f"step-{step:010}.safetensors"
    header = {**state, **stamp(_FORMAT), "settings": settings}
    save_safetensors(path, tensors, header, overwrite=True)
    older = [other for other in _checkpoints(folder) if other.name < path.name]
    with io_errors(folder, "write"):
        for other in older[:-1]:  # the last is there to fall back on
            other.unlink(missing_ok=True)


def load_checkpoint(
    folder: Path,
    settings: Mapping[str, Any],
    notify: Notify = ignore,
) -> tuple[Arrays, dict[str, Any]] | None:
    """The newest checkpoint that is sound and of this run, None if none was written yet.

    Raises:
        DataError: if there are some and none will do.
    """
    passed: list[DataError] = []
    for path in reversed(_checkpoints(folder)):
        try:
            tensors, header = load_safetensors(path)
            _require_own(path, header, settings)
        except DataError as error:
            passed.append(error)
            continue
        for reason in passed:
            notify(f"{reason}; going back to the checkpoint before it")
        return tensors, header
    if passed:
        raise passed[0]
    return None


@contextmanager
def misfits(folder: Path) -> Iterator[None]:
    """Turns what a checkpoint of other contents leads to into one line."""
    try:
        yield
    except McatError:  # some are ValueErrors too, but they say which file is damaged
        raise
    except _MISFITS as error:
        reason = " ".join(str(error).split())[:200]
        raise DataError(f"{folder}: not a checkpoint of this run's networks ({reason})") from error


def take_over(owner: object, names: Iterable[str], state: Mapping[str, Any]) -> None:
    """Set plain values of a run to those of a checkpoint, each of the kind it starts as.

    Raises:
        TypeError: if one is of another kind.
    """
    kinds = {float: (int, float), NoneType: (NoneType, int, float)}
    for name in names:
        value, kind = state[name], type(getattr(owner, name))
        if not isinstance(value, kinds.get(kind, kind)):
            raise TypeError(f"{name} is {value!r:.40}")
        setattr(owner, name, value)


def _require_own(path: Path, header: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    if header.get("format") in (None, 1):
        raise DataError(
            f"{path}: made by an mcat that did not write down which run a checkpoint belongs to:"
            " only that one can go on with it"
        )
    require_format(header, _FORMAT, path)
    there = header.get("settings")
    if not isinstance(there, dict):
        raise DataError(f"{path}: not a checkpoint of a run")
    if other := differences(there, settings):
        raise DataError(
            f"{path}: a checkpoint of a run with other settings than run.json has"
            f" ({'; '.join(other)})"
        )


def has_checkpoint(out: Path) -> bool:
    """Whether the run in that folder has something to go on from."""
    return bool(_checkpoints(out / "checkpoints"))


def _checkpoints(folder: Path) -> list[Path]:
    return sorted(folder.glob("step-*.safetensors"))
