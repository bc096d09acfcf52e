"""Rounds of a run as files, one each, written once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from mcat.agents.algorithm import Round
from mcat.datasets.arrays import DTYPES
from mcat.datasets.episodes import EpisodeStore
from mcat.errors import DataError
from mcat.safe_io import load_safetensors, save_safetensors


def save_round(folder: Path, iteration: int, new: Round) -> None:
    """Write the round of an iteration, counted from 1."""
    episodes = new.episodes
    arrays = {name: np.ascontiguousarray(episodes.column(name)) for name in DTYPES}
    arrays |= {"lengths": episodes.lengths, "tasks": episodes.tasks}
    header = {"kind": "round", "step": new.step, "drivers": list(new.drivers)}
    save_safetensors(_path(folder, iteration), arrays, header, overwrite=True)


def load_rounds(folder: Path, iterations: int) -> Iterator[Round]:
    """The rounds of the first iterations, in order.

    Raises:
        DataError: if one is damaged.
        MissingInputError: if one is not there.
    """
    for iteration in range(1, iterations + 1):
        path = _path(folder, iteration)
        arrays, header = load_safetensors(path)
        try:
            lengths, tasks = arrays.pop("lengths"), arrays.pop("tasks")
            episodes = EpisodeStore.from_arrays(
                **arrays, episode_ends=np.cumsum(lengths), tasks=tasks
            )
            drivers = tuple(header["drivers"])
            if len(drivers) != len(lengths):
                raise ValueError(f"{len(drivers)} drivers of {len(lengths)} episodes")
            yield Round(step=header["step"], episodes=episodes, drivers=drivers)
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"{path}: not a round of a run ({error})") from error


def _path(folder: Path, iteration: int) -> Path:
    return folder / f"round-{iteration:05}.safetensors"
