"""The folder of sealed shards beside an output while it is being collected.

    ant-cripple3.h5.shards/
      lock             held by the one process that collects
      shard-00000.h5   sealed data sets, in order, each with the collection's settings

A shard counts once it has its name. What a kill leaves is a row of whole shards: what resuming
finds is checked against the shards' own contents and nothing else. A folder that holds anything
else is somebody's own and is never touched.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcat.config import require_same
from mcat.datasets.episodes import EpisodeStore
from mcat.datasets.hdf5 import is_sealed, read_dataset, write_dataset
from mcat.errors import CannotCreateError, DataError
from mcat.safe_io import PART, io_errors, remove_stale_parts
from mcat.workplaces import workplace

_SHARD = re.compile(r"shard-\d{5,}\.h5")


@dataclass(frozen=True, kw_only=True)
class Shard:
    """What there is to know about a shard without reading it again."""

    transitions: int  # how many it holds
    episodes: int  # how many it holds
    steps: int  # how many transitions the collection was to have in the end
    unstable: int  # episodes that were dropped because their simulation diverged
    first_round: int  # its first round
    next_round: int  # the first round after it
    last_round_at: int  # how many transitions the collection had when its last round began


class ShardFolder:
    """The shards collected so far for one output. Use `claim_shards`, which locks it.

    Args:
        folder: Where they are.
        config: All that the shards' contents depend on. It may name another number of `steps` than
            that of the shards, which then count as far as `alike` says.
        alike: Whether a collection of `config["steps"]` has the same shard.
    """

    def __init__(
        self, folder: Path, config: Mapping[str, Any], alike: Callable[[Shard], bool]
    ) -> None:
        self.folder = folder
        self.config = dict(config)
        self.shards: list[Shard] = []
        self._alike = alike

    @property
    def transitions(self) -> int:
        """Transitions in sealed shards."""
        return sum(shard.transitions for shard in self.shards)

    @property
    def episodes(self) -> int:
        """Episodes in sealed shards."""
        return sum(shard.episodes for shard in self.shards)

    @property
    def unstable(self) -> int:
        """Episodes that were dropped because their simulation diverged."""
        return sum(shard.unstable for shard in self.shards)

    @property
    def next_round(self) -> int:
        """The first round whose episodes are in no shard."""
        return self.shards[-1].next_round if self.shards else 0

    def seal(
        self, episodes: EpisodeStore, *, unstable: int, next_round: int, last_round_at: int
    ) -> None:
        """Makes `episodes` durable as the next shard."""
        rounds = {
            "unstable": unstable,
            "first_round": self.next_round,
            "next_round": next_round,
            "last_round_at": last_round_at,
        }
        metadata = {"config": self.config, "shard": rounds}
        write_dataset(self._path(len(self.shards)), episodes, metadata)
        self.shards.append(_shard(episodes, metadata))

    def merged(self) -> EpisodeStore:
        """All episodes of all shards, in order."""
        numbers = range(len(self.shards))
        return EpisodeStore.concatenate([read_dataset(self._path(i))[0] for i in numbers])

    def begin(self, *, resume: bool, overwrite: bool) -> None:
        """Takes over what an earlier process sealed, or starts anew.

        Raises:
            CannotCreateError: if there is something and neither `resume` nor `overwrite` is set, or
                something that is no shard.
            UsageError: if it was collected with another configuration.
        """
        if not (resume or overwrite) and self._files():
            raise CannotCreateError(
                f"{self.folder} holds an unfinished collection:"
                " pass --resume to go on with it or --overwrite to start anew"
            )
        if resume:
            self._take_over()
        for path in self._files()[len(self.shards) :]:
            self._require_ours(path)
        self.discard(kept=len(self.shards))
        remove_stale_parts(self.folder)

    def discard(self, kept: int = 0) -> None:
        """Forgets all shards but the first ones, from the last on: a kill leaves a row of them."""
        keep = {self._path(number) for number in range(kept)}
        with io_errors(self.folder, "write"):
            for path in reversed(self._files()):
                if path not in keep:
                    path.unlink()

    def _take_over(self) -> None:
        """Counts the shards in a row from the first that are sound and alike.

        All others are collected again, with the same result.
        """
        found = {path: self._read(path) for path in self._files()}
        while shard := found.get(self._path(len(self.shards))):
            if shard.first_round != self.next_round or not self._alike(shard):
                break
            self.shards.append(shard)

    def _require_ours(self, path: Path) -> None:
        """Refuses to remove what only has the name of a shard."""
        try:
            _, metadata = read_dataset(path)
            ours = "shard" in metadata
        except DataError:
            # Damaged, but it was one of our files; an empty one is a name claimed by a killed one.
            ours = path.stat().st_size == 0 or is_sealed(path)
        if not ours:
            raise _no_part_of_a_collection(path)

    def _read(self, path: Path) -> Shard | None:
        """What the shard says, None if it is damaged."""
        try:
            episodes, metadata = read_dataset(path)
        except DataError:
            return None
        try:
            shard, config = _shard(episodes, metadata), dict(metadata["config"])
        except (TypeError, KeyError, ValueError, AttributeError):
            raise _no_part_of_a_collection(path) from None
        other = "use those settings or --overwrite"
        require_same(str(self.folder), config, self.config, ("steps",), otherwise=other)
        return shard

    def _files(self) -> list[Path]:
        with io_errors(self.folder, "write"):
            return sorted(p for p in self.folder.iterdir() if _SHARD.fullmatch(p.name))

    def _path(self, number: int) -> Path:
        return self.folder / f"shard-{number:05}.h5"


@contextmanager
def claim_shards(
    out: Path, config: Mapping[str, Any], alike: Callable[[Shard], bool]
) -> Iterator[ShardFolder]:
    """The folder of shards for `out`, locked; it is removed if it holds nothing at the end.

    Raises:
        CannotCreateError: if there is a folder of that name that is not ours.
        BusyError: if another process collects into `out`.
    """
    folder = shard_folder(out)
    with workplace(folder, _is_ours, str(out)) as locked:
        if locked:  # else they may be another process's
            remove_stale_parts(out.parent, out.name)
        yield ShardFolder(folder, config, alike)


def shard_folder(out: Path) -> Path:
    """Where the shards for `out` are while it is being collected."""
    return out.with_name(f"{out.name}.shards")


def discard_shards(out: Path) -> None:
    """Removes what a process killed at its very end left; `out` holds everything."""
    with suppress(CannotCreateError):  # somebody's own, or another process collects anew
        if os.path.lexists(shard_folder(out)):
            with claim_shards(out, {}, lambda shard: True) as shards:
                shards.begin(resume=False, overwrite=True)


def _no_part_of_a_collection(path: Path) -> CannotCreateError:
    return CannotCreateError(
        f"{path} is no part of a collection: move it away or choose another output"
    )


def _shard(episodes: EpisodeStore, metadata: Mapping[str, Any]) -> Shard:
    rounds, steps = metadata["shard"], metadata["config"]["steps"]
    if not all(type(number) is int and number >= 0 for number in (steps, *rounds.values())):
        raise ValueError("not whole numbers")
    return Shard(transitions=len(episodes), episodes=episodes.num_episodes, steps=steps, **rounds)


def _is_ours(entry: os.DirEntry[str]) -> bool:
    part = PART.fullmatch(entry.name)
    name = part[1] if part else entry.name
    return _SHARD.fullmatch(name) is not None and entry.is_file(follow_symlinks=False)
