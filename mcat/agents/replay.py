"""Replay memory that sees a transition at once and reaches the disk in sealed segments."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from mcat.agents.learner import Batch
from mcat.datasets.episodes import EpisodeStore
from mcat.errors import DataError, UsageError
from mcat.tensor_files import digest, load_safetensors, save_safetensors

SEGMENT = 10_000  # transitions per file; a checkpoint itself holds fewer than this

Floats = NDArray[np.float32]


class Replay:
    """A ring of transitions, one per row: observation, action, reward, next observation, terminal.

    Rows are numbered from 0 in the order they came; row i is kept in place `i % capacity`.
    """

    def __init__(self, obs_size: int, act_size: int, capacity: int) -> None:
        if capacity < SEGMENT or capacity % SEGMENT:
            raise UsageError(f"replay capacity must be a multiple of {SEGMENT}, not {capacity}")
        self.capacity = capacity
        self.added = 0
        self.seals: list[str] = []  # of all segments, by which they are known again
        self._widths = [obs_size, act_size, 1, obs_size, 1]
        self._rows = np.zeros((capacity, sum(self._widths)), dtype=np.float32)

    def add(
        self,
        obs: NDArray[np.floating],
        action: NDArray[np.floating],
        reward: float,
        next_obs: NDArray[np.floating],
        terminal: bool,
    ) -> None:
        """Remember one transition, forgetting the oldest if there is no room."""
        row = self._rows[self.added % self.capacity]
        np.concatenate(
            (obs, action, (reward,), next_obs, (terminal,)), out=row, casting="same_kind"
        )
        self.added += 1

    def sample(self, rng: np.random.Generator, size: int) -> Batch:
        """Draw `size` transitions uniformly, with replacement."""
        rows = self._rows[rng.integers(min(self.added, self.capacity), size=size)]
        return Batch(*torch.split(torch.from_numpy(rows), self._widths, dim=1))

    def latest(self, count: int) -> Batch:
        """The last `count` transitions, oldest first."""
        places = np.arange(self.added - count, self.added) % self.capacity
        return Batch(*torch.split(torch.from_numpy(self._rows[places]), self._widths, dim=1))

    @property
    def ends(self) -> bool:
        """Whether an episode in it ended by itself, not by the time limit."""
        return bool(self._rows[: min(self.added, self.capacity), -1].any())

    def save_segment(self, folder: Path) -> None:
        """Write the newest segment if it is complete; call it after every `add`."""
        if self.added % SEGMENT == 0:
            rows = self._span(self.added - SEGMENT, self.added)
            path = _segment_path(folder, self.added // SEGMENT - 1)
            save_safetensors(path, {"rows": rows}, {"end": self.added}, overwrite=True)
            self.seals.append(digest({"rows": rows}))

    def tail(self) -> Floats:
        """The rows after the last complete segment."""
        return self._span(self.added - self.added % SEGMENT, self.added)

    def load(self, folder: Path, added: int, tail: Floats, seals: Sequence[str]) -> None:
        """Restore the state in which `added` rows had come and `tail` was not in a segment.

        Raises:
            DataError: if a segment is damaged or another run's.
            MissingInputError: if one is not there.
        """
        sealed = added // SEGMENT
        if len(seals) != sealed:
            raise DataError(f"{folder}: {len(seals)} seals of {sealed} segments")
        for index in range(max(0, (added - self.capacity) // SEGMENT), sealed):
            path = _segment_path(folder, index)
            rows = load_safetensors(path)[0].get("rows")
            if rows is None or digest({"rows": rows}) != seals[index]:
                raise DataError(f"{path}: not what this run saw: restore it from a copy")
            self._put(path, index * SEGMENT, SEGMENT, rows)
        self._put(folder, sealed * SEGMENT, added % SEGMENT, tail)
        self.added, self.seals = added, list(seals)

    def _span(self, start: int, end: int) -> Floats:
        place = start % self.capacity
        return self._rows[place : place + end - start]

    def _put(self, path: Path, start: int, count: int, rows: Floats | None) -> None:
        if rows is None or rows.shape != (count, sum(self._widths)) or rows.dtype != np.float32:
            raise DataError(f"{path}: does not hold the replay rows from {start} on")
        self._span(start, start + count)[:] = rows


def saved_rows(folder: Path) -> int:
    """How many rows the segments of a run hold."""
    return SEGMENT * len(list(folder.glob("segment-*.safetensors")))


def _segment_path(folder: Path, index: int) -> Path:
    return folder / f"segment-{index:05}.safetensors"


def as_episode(rows: Batch) -> EpisodeStore:
    """A store of one episode, whose transitions these are in order."""
    return EpisodeStore.from_arrays(
        observations=rows.obs.numpy(),
        actions=rows.action.numpy(),
        rewards=rows.reward.numpy()[:, 0],
        next_observations=rows.next_obs.numpy(),
        terminals=rows.terminal.numpy()[:, 0] > 0,
        episode_ends=[len(rows.obs)],
    )
