"""What the folder of a run says about it; read without torch or mujoco."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from mcat.config import T, defaults_of, from_json
from mcat.errors import DataError, McatError, MissingInputError, printable
from mcat.formats import require_format
from mcat.safe_io import is_file, read_json

if TYPE_CHECKING:
    from mcat.envs.tasks import Family

RECORD_FILE, RECORD_FORMAT = "run.json", 1
RESULT_FILE, RESULT_FORMAT = "result.json", 1  # written last: a run that has one is finished
FAILURE_FILE = "failure.json"  # there after a loss or the physics diverged, until the run goes on
POLICY_FILE, BEST_POLICY_FILE = "policy.safetensors", "policy-best.safetensors"
KINDS = ("metatrain", "train", "adapt")  # the commands that make runs


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """How a run was started."""

    folder: Path  # where it is
    kind: str  # the command that made it
    family: str  # name of its task family; of a run of `mcat train` that of its task
    preset: str  # what its configuration was made from
    seed: int  # the root of all its random numbers
    config: dict[str, Any]  # the resolved configuration, family and seed included
    train: tuple[str, ...]  # names of the tasks it learns
    test: tuple[str, ...]  # names of those that are only looked at
    horizon: int  # steps of an episode
    delay: int  # steps between two payments of reward
    own_family: Family | None = None  # its tasks in full, if they are of none of mcat's families
    # The method that learns a family; runs of before there were several are of MCAT, and for `mcat
    # train` it means nothing.
    method: str = "mcat"

    @property
    def name(self) -> str:
        """The name of the run's folder."""
        return self.folder.resolve().name

    @property
    def tasks(self) -> tuple[str, ...]:
        """The names of all tasks, in the order of their numbers."""
        return self.train + self.test


def read_record(folder: Path, kinds: tuple[str, ...] = KINDS) -> RunRecord:
    """The record of a run of one of these commands.

    Raises:
        MissingInputError: if the folder holds none.
        DataError: if it is another command's, or not as that writes it.
    """
    path = folder / RECORD_FILE
    wanted = " or ".join(f"mcat {kind}" for kind in kinds)
    if not path.is_file():
        raise MissingInputError(f"{folder} is no run of {wanted}: it has no {RECORD_FILE}")
    content = read_json(path)
    config = content.get("config") if isinstance(content, dict) else None
    if not isinstance(config, dict):
        raise DataError(f"{path}: not the record of a run of {wanted}")
    # The first runs of mcat train did not say so, and none said of what format they were.
    kind = content.get("kind", "train" if "task" in config else None)
    if kind not in kinds:
        raise DataError(f"{path}: not the record of a run of {wanted}")
    require_format({"format": RECORD_FORMAT} | content, RECORD_FORMAT, path)
    try:
        own = _of_family(content) if kind == "metatrain" else _of_task(config, kind)
        return RunRecord(
            folder=folder, kind=kind, seed=_count(config["seed"]), config=config, **own
        )
    except KeyError as error:
        raise DataError(f"{path}: it lacks {error}") from error
    except (TypeError, ValueError, OverflowError) as error:
        raise DataError(f"{path}: not as mcat {kind} writes it ({error})") from error


class Failure(NamedTuple):
    """How a run diverged."""

    code: int  # what it ended with: 3 for the physics, 4 for a loss
    line: str  # what it said


def read_failure(folder: Path) -> Failure | None:
    """How the run in a folder diverged; None if it did not, or goes on."""
    path = folder / FAILURE_FILE
    try:
        found = read_json(path) if is_file(path) else {}
        return Failure(int(found["code"]), printable(found["line"]))
    except (McatError, KeyError, TypeError, ValueError):  # nobody is lost for a mark of ours
        return None


def saved_config(folder: Path, kind: str, config: type[T]) -> T:
    """The settings of a run of that command; those that it did not know yet are the defaults.

    Raises:
        MissingInputError: if the folder holds none.
        DataError: if it is another command's or damaged.
    """
    record = read_record(folder, kinds=(kind,))
    try:
        return from_json(config, {**defaults_of(config), **record.config})
    except DataError as error:
        raise DataError(f"{folder / RECORD_FILE}: {error}") from error


def policy_file(folder: Path, *, best: bool = False) -> Path:
    """Where the policy of a run is: the latest, or the one that earned most on what it learns.

    Raises:
        MissingInputError: if the folder is none of a run, or there is no policy yet.
    """
    record = read_record(folder)
    if record.kind != "train":
        path = folder / (BEST_POLICY_FILE if best else POLICY_FILE)
        if not path.is_file():
            raise MissingInputError(f"{folder} has no {path.name} yet: let the run go on")
        return path
    snapshots = {
        int(path.stem.rpartition("-")[2]): path
        for path in folder.glob("policy-*.safetensors")
        if path.stem.removeprefix("policy-").isdecimal()
    }
    if not snapshots:
        raise MissingInputError(f"{folder} has no policy yet: let the run go on")
    if best:
        return max(snapshots.values(), key=_mean_return)
    return snapshots[max(snapshots)]


def _mean_return(path: Path) -> float:
    from mcat.tensor_files import load_safetensors  # numpy: `mcat sweep status` needs none

    value = load_safetensors(path)[1].get("mean_return")
    if not isinstance(value, int | float):
        raise DataError(f"{path}: it does not say what it earned")
    return value


def _of_family(content: dict[str, Any]) -> dict[str, Any]:
    from mcat.envs.tasks import Family

    task_set = content["arena"]
    own = Family.from_dict(task_set["family"]) if "family" in task_set else None
    return {
        "family": _text(content["config"]["family"]) if own is None else own.name,
        "own_family": own,
        "preset": _text(content["preset"]),
        "train": tuple(map(_text, task_set["train"])),
        "test": tuple(map(_text, task_set["test"])),
        "horizon": _count(task_set["horizon"]),
        "delay": _count(task_set["delay"]),
        "method": _text(content.get("method", "mcat")),
    }


def _of_task(config: dict[str, Any], kind: str) -> dict[str, Any]:
    from mcat.envs.tasks import Task

    if config["task"] is None:  # an adaptation to a machine that mcat cannot simulate
        name, delay = _text(config["live"] or "machine"), _count(config["delay"])
        alone = {"family": name, "train": (name,), "test": ()}
        return {**alone, "preset": kind, "horizon": 0, "delay": delay}
    task = Task.from_dict(config["task"])
    name = task.replace(delay=1).label()
    return {
        "family": name,
        # Runs of before there was a choice do not name their learner.
        "preset": _text(config.get("learner", "td3")) if kind == "train" else kind,
        "train": (name,),
        "test": (),
        "horizon": task.horizon,
        "delay": task.delay,
    }


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no name")
    return value


def _count(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise TypeError(f"{value!r:.40} is no count")
    return value
