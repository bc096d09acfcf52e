"""Rounds of a run as files, one each, written once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mcat.agents.meta.algorithm import Round
from mcat.datasets.arrays import DTYPES
from mcat.datasets.episodes import EpisodeStore
from mcat.errors import DataError
from mcat.safe_io import dump_json
from mcat.tensor_files import Arrays, digest, load_safetensors, save_safetensors


def save_round(folder: Path, iteration: int, new: Round) -> str:
    """Write the round of an iteration, counted from 1; returns the seal it is known by."""
    episodes = new.episodes
    arrays = {name: np.ascontiguousarray(episodes.column(name)) for name in DTYPES}
    arrays |= {"lengths": episodes.lengths, "tasks": episodes.tasks}
    header = {"kind": "round", "step": new.step, "drivers": list(new.drivers)}
    save_safetensors(_path(folder, iteration), arrays, header, overwrite=True)
    return _seal(arrays, header)


def load_rounds(folder: Path, seals: Sequence[str | None]) -> Iterator[Round]:
    """The rounds of the first iterations, in order.

    Args:
        folder: Where they are.
        seals: What `save_round` returned for each; None takes whatever is there.

    Raises:
        DataError: if one is damaged or another run's.
        MissingInputError: if one is not there.
    """
    for iteration, seal in enumerate(seals, start=1):
        path = _path(folder, iteration)
        arrays, header = load_safetensors(path)
        if seal not in (None, _seal(arrays, header)):
            raise DataError(
                f"{path}: not the round that this run collected: restore it from a copy"
            )
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


def _seal(arrays: Arrays, header: dict[str, Any]) -> str:
    return digest(arrays, dump_json(header))


def _path(folder: Path, iteration: int) -> Path:
    return folder / f"round-{iteration:05}.safetensors"
