"""What `mcat translate` found: everything its report shows and its `result.json` keeps."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Self

from mcat.agents.returns import Returns
from mcat.config import as_type, to_json
from mcat.errors import DataError, MissingInputError
from mcat.safe_io import is_file, read_json
from mcat.translator.grade import Trust
from mcat.translator.report import FitReport

RESULT_FILE = "result.json"
ON_SOURCE = "source policy on source"
UNTRANSLATED = "source policy on target"
TRANSFERRED = "transferred policy on target"
CLONED = "clone of the target's logs"
OFFLINE = "offline RL on the target's logs"
POLICY_FILES = {CLONED: "clone.safetensors", OFFLINE: "offline-rl.safetensors"}
"""What else the target's logs give, and the file in which that policy lies."""
LOGGED = "episodes in the target's logs"
LOGGED_SOURCE = "episodes in the source's logs"
GUESSED = "first guess on target"  # the maps given by hand, before anything is learned


@dataclass(frozen=True, kw_only=True)
class Machine:
    """One machine and its logs.

    Attributes:
        name: The task's label, or the stem of the first file.
        files: Where the logs came from.
        hashes: A SHA-256 of each file's transitions.
        transitions: How many there are in all.
        episodes: The same for episodes.
        task: `Task.to_dict()`; None for a machine that mcat cannot simulate.
        observation_names: Of the numbers in a state; empty if the logs do not name them.
        action_names: The same for an action.
        action_bounds: What -1 and 1 are for each of them, in words; empty if they are -1 and 1.
    """

    name: str
    files: tuple[str, ...]
    hashes: tuple[str, ...]
    transitions: int
    episodes: int
    task: dict[str, Any] | None = None
    observation_names: tuple[str, ...] = ()
    action_names: tuple[str, ...] = ()
    action_bounds: tuple[str, ...] = ()


Cells = tuple[tuple[float | None, ...], ...]
"""One number for each source (row) and target (column); a source without policy has None."""


@dataclass(frozen=True, kw_only=True)
class ReturnMatrix:
    """Mean returns of every task's policy on every task.

    Attributes:
        names: The tasks, in the order of rows and columns.
        untranslated: The policy of the row on the task of the column, as it is.
        transferred: The same with translated actions.
        untranslated_error: The standard error of each mean.
        transferred_error: The same.
        untranslated_success: The part of the episodes that succeeded; None for robots without a
            goal, and in earlier results.
        transferred_success: The same.
    """

    names: tuple[str, ...]
    untranslated: Cells
    transferred: Cells
    untranslated_error: Cells
    transferred_error: Cells
    untranslated_success: Cells | None = None
    transferred_success: Cells | None = None


@dataclass(frozen=True, kw_only=True)
class ContextPoints:
    """Contexts of single histories, not averaged.

    Attributes:
        points: The contexts.
        tasks: The number of each one's task.
    """

    points: list[list[float]]
    tasks: list[int]


@dataclass(frozen=True, kw_only=True)
class TransferResult:
    """A translator's history: what it was made from, how, and what it is worth.

    Attributes:
        method: "ours" or "cycle".
        preset: Name of the recipe.
        seed: Of training and of the episodes' starts.
        command: How it was called.
        provenance: Commit, versions, machine.
        config: The recipe in full.
        machines: Source and target, or all tasks.
        policy: Name of the source policy.
        fit: How it was trained.
        trust: How far the transfer can be trusted; pairs of method "ours" only.
        scatter: "source" actions and their "translated" ones, row by row; pairs only.
        returns: Of the episodes run: of the source policy, and of what else the target's logs
            give; pairs only.
        logged: Of the episodes in the logs, where they have rewards; pairs only.
        looks: With `best_of`, the mean return on the target after each part of the training; the
            last is that of the translator as it is.
        skipped: Why episodes were not run (for some of the tasks), None if all were.
        paths: Label → episodes → positions (x, y, z) of the hand; Meta-World only.
        matrix: What every task's policy earns on every task; many tasks only.
        contexts: Some contexts of every task; many tasks only.
        seconds: How long each phase took.
    """

    method: str
    preset: str
    seed: int
    command: str
    provenance: dict[str, Any]
    config: dict[str, Any]
    machines: tuple[Machine, ...]
    policy: str
    fit: FitReport
    trust: Trust | None = None
    scatter: dict[str, list[list[float]]] = field(default_factory=dict)
    returns: tuple[Returns, ...] = ()
    logged: tuple[Returns, ...] = ()
    looks: tuple[float, ...] = ()
    skipped: str | None = None
    paths: dict[str, list[list[list[float]]]] = field(default_factory=dict)
    matrix: ReturnMatrix | None = None
    contexts: ContextPoints | None = None
    seconds: dict[str, float] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """As JSON types; `from_json` is the inverse."""
        return to_json(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """The result that `to_json` described.

        Raises:
            DataError: if `data` is something else.
        """
        try:
            trust = data["trust"]
            if trust is not None and trust.keys() != {field.name for field in fields(Trust)}:
                trust = None  # an older mcat measured something else
            empty = {name: data[name] or None for name in ("matrix", "contexts")}  # {} once
            return as_type(cls, data | empty | {"trust": trust})
        except (TypeError, KeyError, ValueError, AttributeError) as error:
            raise DataError(f"not the result of a translation ({error})") from error


def read_result(folder: Path) -> TransferResult:
    """The result in a folder that `mcat translate` wrote.

    Raises:
        MissingInputError: if there is none.
        DataError: if it is damaged.
    """
    path = folder / RESULT_FILE
    if not is_file(path):
        raise MissingInputError(f"{folder} is no folder that mcat translate wrote")
    content = read_json(path)
    try:
        return TransferResult.from_json(content)
    except DataError as error:
        raise DataError(f"{path}: {error}") from error


@dataclass(frozen=True, kw_only=True)
class AlternativeResult:
    """What one of the alternatives earns, for tables in which it stands beside translators."""

    returns: tuple[Returns, ...]
    seconds: dict[str, float]
    provenance: dict[str, Any]

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """The result that a file has."""
        return as_type(cls, data)
