"""The file of `mcat evaluate --out`: what was asked for and what came out.

All of it is read without torch or a simulator, so that a finished evaluation is found at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from mcat.agents.policies.names import LEVELS, NAMES, packaged_path, source_policy_name
from mcat.agents.returns import Returns
from mcat.agents.runs.record import policy_file, read_record
from mcat.commands.options import say
from mcat.commands.translate import summary
from mcat.config import require_same
from mcat.envs.tasks import Task
from mcat.errors import CannotCreateError, DataError, RetryError, UsageError, unknown
from mcat.formats import require_format, stamp
from mcat.own_code import names_code
from mcat.provenance import note_other_code, provenance
from mcat.safe_io import ensure_writable_output, is_file, read_json, sha256_of, write_json
from mcat.tensor_files import content_digest
from mcat.transfer.result import RESULT_FILE
from mcat.translator.configs import TRANSLATOR_FILE

KIND, FORMAT = "evaluate", 1
Request = dict[str, Any]  # what was asked for, as JSON; how many processes share it is no part


class Outcome(NamedTuple):
    """What a policy earned on one task."""

    returns: Returns  # of its episodes
    split: str | None = None  # which of a run's tasks it is: "train" or "test"

    def to_json(self) -> dict[str, Any]:
        """What `--json` prints."""
        own = summary(self.returns)
        return own if self.split is None else {"split": self.split, **own}


def means(outcomes: Sequence[Outcome]) -> list[Returns]:
    """All episodes of a split together, for each split of several tasks."""
    found = []
    for split in dict.fromkeys(item.split for item in outcomes if item.split is not None):
        members = [item.returns for item in outcomes if item.split == split]
        if len(members) > 1:
            values = tuple(value for member in members for value in member.values)
            known = [member.successes for member in members if member.successes is not None]
            found.append(
                Returns(
                    label=f"all {len(members)} {split} tasks",
                    values=values,
                    # Those of some tasks only would be no rate of the split.
                    successes=tuple(chain(*known)) if len(known) == len(members) else None,
                )
            )
    return found


def policy_request(
    task: Task,
    policy: str | None,
    translator: Path | None,
    source: str | None,
    *,
    episodes: int,
    seed: int,
) -> Request:
    """What `mcat evaluate --env` is asked for; files by their contents, wherever they are."""
    translated = None
    owner = task
    if translator is not None:
        folder = translator.parent if translator.is_file() else translator
        translated = content_digest(folder / TRANSLATOR_FILE)
        owner = _source_task(folder / RESULT_FILE, source) or task
    name = source_policy_name(policy, owner, task if translator is not None else None)
    return {
        "policy": _content(name, owner),
        "translator": translated,
        "from": source,
        "task": task.to_dict(),
        "episodes": episodes,
        "seed": seed,
    }


def run_request(folder: Path, split: str, *, best: bool, episodes: int, seed: int) -> Request:
    """What `mcat evaluate RUN` is asked for."""
    record = read_record(folder)
    splits = dict.fromkeys(record.train, "train") | dict.fromkeys(record.test, "test")
    return {
        "policy": content_digest(policy_file(folder, best=best)),
        "tasks": {name: own for name, own in splits.items() if split in ("all", own)},
        "horizon": record.horizon,
        "delay": record.delay,
        "episodes": episodes,
        "seed": seed,
    }


class Output:
    """The file that shall hold the outcome; without a path there is none, and nothing to do.

    Raises:
        UsageError: if that makes no sense.
    """

    def __init__(self, path: Path | None, *, resume: bool, overwrite: bool) -> None:
        if path is None and (resume or overwrite):
            raise UsageError("--resume and --overwrite need --out, the file to make")
        if path is not None and path.suffix != ".json":
            raise UsageError(f"--out {path}: evaluate writes JSON, name it {path.stem}.json")
        self._path, self._resume, self._overwrite = path, resume, overwrite
        self._ask: Callable[[], Request] = dict
        self._request: Request = {}

    def find(self, ask: Callable[[], Request]) -> list[Outcome] | None:
        """What is in the file if it is there already; None if it is to be made, and can be.

        Raises:
            UsageError: if it is of another request.
            DataError: if it is damaged or something else.
            CannotCreateError: if it is there and was not to be found, or cannot be made.
        """
        if self._path is None:
            return None
        self._ask, self._request = ask, ask()
        if self._resume and is_file(self._path):
            return self._read(self._path)
        ensure_writable_output(self._path, overwrite=self._overwrite)
        return None

    def require_unchanged(self) -> None:
        """Refuse to go on if a policy was replaced since `find`: whose returns would they be?"""
        if self._ask() != self._request:
            raise RetryError(
                "the policy was replaced while it was read: run the same command again"
            )

    def write(self, outcomes: Sequence[Outcome]) -> None:
        """Make the file, whole or not at all.

        Raises:
            CannotCreateError: if another process made one meanwhile that was not to be found.
        """
        if self._path is None:
            return
        content = {
            **stamp(FORMAT),
            "kind": KIND,
            "config": self._request,
            "returns": [item.to_json() for item in outcomes],
            **provenance(),
        }
        try:
            write_json(self._path, content, overwrite=self._overwrite)
        except CannotCreateError:
            if not (self._resume and is_file(self._path)):
                raise
            # Another process was quicker: it made the same, or it is refused.
            self._read(self._path)

    def _read(self, path: Path) -> list[Outcome]:
        content = read_json(path)
        outcomes = _outcomes(content, path)
        otherwise = "choose another --out, or pass --overwrite in place of --resume"
        require_same(str(path), content["config"], self._request, otherwise=otherwise)
        note_other_code(content, say)
        return outcomes


def _outcomes(content: Any, path: Path) -> list[Outcome]:
    """What a file says came out, if all of it fits together."""
    if not isinstance(content, dict) or content.get("kind") != KIND:
        raise DataError(f"{path}: not a file of mcat evaluate")
    require_format(content, FORMAT, path)
    try:
        outcomes = [
            Outcome(Returns.from_json(item), str(item["split"]) if "split" in item else None)
            for item in content["returns"]
        ]
        # Each number of episodes is the one that was asked for, and each mean that of its values.
        counts = {len(item.returns.values) for item in outcomes}
        fits = counts == {content["config"]["episodes"]} and counts != {0}
        fits = fits and [item.to_json() for item in outcomes] == content["returns"]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(f"{path}: damaged, not as mcat evaluate writes it ({error})") from error
    if not fits:
        raise DataError(f"{path}: damaged, its numbers do not fit together")
    return outcomes


def _content(name: str, task: Task) -> str:
    """What tells a policy from all others: the hash of its contents, else its name."""
    if name in LEVELS:
        return content_digest(packaged_path(name, task))
    if name.partition(":")[0] in NAMES or names_code(name):
        return name
    path = Path(name)
    if path.suffix == ".onnx":
        return sha256_of(path)
    return content_digest(policy_file(path) if path.is_dir() else path)


def _source_task(path: Path, source: str | None) -> Task | None:
    """The task that a translator's policy comes from; None if it is nothing mcat can simulate."""
    content = read_json(path)
    try:
        tasks = {machine["name"]: machine["task"] for machine in content["machines"]}
        first = next(iter(tasks))
    except (KeyError, TypeError, AttributeError, StopIteration) as error:
        raise DataError(f"{path}: not the result of a translation") from error
    if source is not None and source not in tasks:
        raise unknown("source", source, tasks)
    own = tasks[source or first]
    return None if own is None else Task.from_dict(own)
