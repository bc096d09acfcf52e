"""What a folder that `mcat metatrain` wrote says about its run; read without torch or mujoco."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcat.errors import DataError, MissingInputError
from mcat.safe_io import read_json

RECORD_FILE = "run.json"
POLICY_FILE, BEST_POLICY_FILE = "policy.safetensors", "policy-best.safetensors"


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """How a run was started.

    Attributes:
        folder: Where it is.
        family: Name of its task family.
        preset: What its configuration was made from.
        seed: The root of all its random numbers.
        config: The resolved configuration, family and seed included.
        train: Names of the tasks it learns.
        test: Names of those that are only looked at.
        horizon: Steps of an episode.
        delay: Steps between two payments of reward.
    """

    folder: Path
    family: str
    preset: str
    seed: int
    config: dict[str, Any]
    train: tuple[str, ...]
    test: tuple[str, ...]
    horizon: int
    delay: int

    @property
    def name(self) -> str:
        """Of the folder."""
        return self.folder.resolve().name

    @property
    def tasks(self) -> tuple[str, ...]:
        """The names of all tasks, in the order of their numbers."""
        return self.train + self.test


def read_record(folder: Path) -> RunRecord:
    """The record of a run.

    Raises:
        MissingInputError: if the folder holds none.
        DataError: if it is another command's, or not as `mcat metatrain` writes it.
    """
    path = folder / RECORD_FILE
    if not path.is_file():
        raise MissingInputError(f"{folder} is no run of mcat metatrain: it has no {RECORD_FILE}")
    content = read_json(path)
    if not isinstance(content, dict) or content.get("kind") != "metatrain":
        raise DataError(f"{path}: not the record of a run of mcat metatrain")
    try:
        config, arena = content["config"], content["arena"]
        return RunRecord(
            folder=folder,
            family=_text(config["family"]),
            preset=_text(content["preset"]),
            seed=int(config["seed"]),
            config=config,
            train=tuple(map(_text, arena["train"])),
            test=tuple(map(_text, arena["test"])),
            horizon=int(arena["horizon"]),
            delay=int(arena["delay"]),
        )
    except KeyError as error:
        raise DataError(f"{path}: it lacks {error}") from error
    except (TypeError, ValueError) as error:
        raise DataError(f"{path}: not as mcat metatrain writes it ({error})") from error


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no name")
    return value
