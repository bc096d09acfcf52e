"""Starting a run in a folder of its own, or going on with the one that is there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcat.agents.runs.folder import (
    Resumable,
    has_checkpoint,
    remove_stale_files,
    require_free_folder,
)
from mcat.agents.runs.record import (
    FAILURE_FILE,
    RECORD_FILE,
    RECORD_FORMAT,
    RESULT_FILE,
    RESULT_FORMAT,
    read_record,
)
from mcat.config import defaults_of, differences, require_same, to_json
from mcat.errors import DataError, DivergedError, McatError, MissingInputError, UnstableError
from mcat.formats import stamp
from mcat.progress import Notify
from mcat.provenance import note_other_code, provenance
from mcat.safe_io import io_errors, is_file, read_json, write_json
from mcat.tensor_files import content_digest
from mcat.workplaces import claimed


@dataclass(frozen=True)
class Claim:
    """A run's folder in which nobody else works."""

    out: Path  # the folder
    record: dict[str, Any]  # what `run.json` shall say
    going_on: bool  # whether there is a run to go on with
    # What `result.json` says, if there is nothing to do: the run is finished, and what it takes to
    # go on is not there, or of a version that did not know all of its settings.
    finished: dict[str, Any] | None = None

    def write_record(self) -> None:
        """Write `run.json`; on going on only after the run was brought back to where it was."""
        with io_errors(self.out, "write"):
            for name in (RESULT_FILE, FAILURE_FILE):  # it is not finished, or not yet again
                (self.out / name).unlink(missing_ok=True)
        write_json(self.out / RECORD_FILE, self.record, overwrite=True)

    def write_result(self, policies: Iterable[Path], **values: Any) -> None:
        """Write `result.json`, the last file of a run: whoever finds it knows that all is there.

        Args:
            policies: What the run made; the hashes of their contents tell them from others.
            **values: What came out of it.
        """
        made = {path.name: content_digest(path) for path in policies}
        result = {**stamp(RESULT_FORMAT), **values, "policies": made}
        write_json(self.out / RESULT_FILE, result, overwrite=True)


def has_run(out: Path, *, resume: bool) -> bool:
    """Whether there is a run to go on with; refuses a folder in which none can be started.

    Raises:
        CannotCreateError: if there is something and it shall not, or cannot, be gone on with.
    """
    if resume and is_file(out / RECORD_FILE):
        return True
    require_free_folder(out)
    return False


@contextmanager
def claimed_run(
    out: Path,
    kind: str,
    config: Resumable,
    *,
    resume: bool,
    notify: Notify,
    **more: Any,
) -> Iterator[Claim]:
    """Make the folder of a run, or take over that of a stopped one, and keep others out.

    Args:
        out: The folder.
        kind: The command whose run it is.
        config: The settings of the run; among them is `steps`.
        resume: Go on with what is there; start if there is nothing.
        notify: Told that other code made the run.
        **more: What else the record of a new run says.

    Raises:
        CannotCreateError: if the folder is not free.
        DataError: if what is there is no run of that kind.
        MissingInputError: if it shall go on, but is a copy without what that takes.
        UsageError: if it is a run with other settings.
    """
    settings = to_json(config)
    finished = None
    going_on = has_run(out, resume=resume)
    if not going_on:
        with io_errors(out, "write"):
            out.mkdir(parents=True, exist_ok=True)
    with claimed(out / ".lock", str(out)):
        remove_stale_files(out)
        if going_on:
            read_record(out, kinds=(kind,))  # refuses what is not one
            old: dict[str, Any] = read_json(out / RECORD_FILE)
            finished = _finished(out, old["config"], config)
            if finished is None:
                require_same(str(out), old["config"], settings, config.may_change)
            note_other_code(old, notify)
            record = old | {"config": settings}
        else:
            made_by = {**stamp(RECORD_FORMAT), "kind": kind, **more}
            record = made_by | {"config": settings, **provenance()}
        try:
            yield Claim(out, record, going_on, finished)
        except (DivergedError, UnstableError) as error:  # whoever saw no exit code finds the mark
            with suppress(McatError):
                said = {**stamp(1), "code": error.exit_code, "line": str(error)}
                write_json(out / FAILURE_FILE, said, overwrite=True)
            raise


def _finished(out: Path, old: dict[str, Any], config: Resumable) -> dict[str, Any] | None:
    """See `Claim.finished`; a run that can go on is asked itself, and mends what it lost."""
    if not is_file(out / RESULT_FILE):
        return None
    new = to_json(config)
    keys = {line.partition(":")[0] for line in differences(old, new)}
    can_go_on = has_checkpoint(out)
    if can_go_on and keys <= config.may_change:
        return None
    require_same(str(out), old, new, config.may_change, defaults=defaults_of(type(config)))
    result: dict[str, Any] = read_json(out / RESULT_FILE)
    try:
        made, wanted = int(result["step"]), int(new["steps"])
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{out / RESULT_FILE}: not the result of a run ({error})") from error
    if made >= wanted:
        return result
    if can_go_on or any((out / "replay").glob("*")):  # whoever goes on says what is odd about it
        return None
    raise MissingInputError(
        f"{out} is a copy of {made:,} steps without the checkpoint to make {wanted:,} of them:"
        " bring the whole run here, or start another"
    )
