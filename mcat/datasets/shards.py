"""The folder of sealed shards beside an output while it is being collected.

    ant-cripple3.h5.shards/
      lock             held by the one process that collects
      manifest.json    the configuration, and every shard with its SHA-256
      shard-00000.h5   sealed data sets, in order

A shard counts once the manifest lists it. What a kill leaves is a valid manifest and, at worst, a
shard that it does not list yet.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mcat.datasets.episodes import EpisodeStore
from mcat.datasets.hdf5 import read_dataset, write_dataset
from mcat.errors import CannotCreateError, DataError, MissingInputError, UsageError
from mcat.safe_io import (
    claimed,
    dump_json,
    io_errors,
    read_json,
    remove_stale_parts,
    sha256_of,
    write_json,
)


@dataclass(frozen=True, kw_only=True)
class Shard:
    """What the manifest says about one shard."""

    file: str
    sha256: str
    transitions: int
    episodes: int
    unstable: int
    next_round: int


class ShardFolder:
    """The shards collected so far for one output. Use `claim_shards`, which locks it."""

    def __init__(self, folder: Path, config: Mapping[str, Any]) -> None:
        self.folder = folder
        self.config = dict(config)
        self.shards: list[Shard] = []

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

    def seal(self, episodes: EpisodeStore, *, unstable: int, next_round: int) -> None:
        """Makes `episodes` durable as the next shard."""
        file = f"shard-{len(self.shards):05}.h5"
        path = self.folder / file
        # A shard of this name can only be one that a killed process had not listed.
        write_dataset(path, episodes, {"config": self.config}, overwrite=True)
        self.shards.append(
            Shard(
                file=file,
                sha256=sha256_of(path),
                transitions=len(episodes),
                episodes=episodes.num_episodes,
                unstable=unstable,
                next_round=next_round,
            )
        )
        self._write_manifest()

    def merged(self) -> EpisodeStore:
        """All episodes of all shards, in order."""
        return EpisodeStore.concatenate(
            [read_dataset(self.folder / s.file)[0] for s in self.shards]
        )

    def discard(self) -> None:
        """Forgets the shards: the output holds everything now."""
        (self.folder / "manifest.json").unlink(missing_ok=True)

    def begin(self, *, resume: bool, overwrite: bool) -> None:
        """Loads what an earlier process sealed, or starts anew.

        Raises:
            CannotCreateError: if there is something and neither `resume` nor `overwrite` is set.
            UsageError: if it was collected with another configuration.
        """
        manifest = self.folder / "manifest.json"
        if manifest.exists() and resume:
            self._load(read_json(manifest))
        elif manifest.exists() and not overwrite:
            raise CannotCreateError(
                f"{self.folder} holds an unfinished collection:"
                " pass --resume to go on with it or --overwrite to start anew"
            )
        kept = {"lock", *(shard.file for shard in self.shards)}
        if self.shards:
            self._write_manifest()  # shorter than it was if a shard is damaged
            kept.add(manifest.name)
        for path in self.folder.iterdir():
            if path.name not in kept:
                path.unlink()

    def _load(self, manifest: Any) -> None:
        try:
            shards = [Shard(**entry) for entry in manifest["shards"]]
            old = dict(manifest["config"])
        except (TypeError, KeyError, ValueError) as error:
            raise DataError(
                f"{self.folder / 'manifest.json'}: damaged; pass --overwrite to start anew"
            ) from error
        require_same(old, self.config, self.folder)
        for shard in shards:
            try:
                intact = sha256_of(self.folder / shard.file) == shard.sha256
            except MissingInputError:
                intact = False
            if not intact:
                break  # this and all later rounds are collected again, with the same result
            self.shards.append(shard)

    def _write_manifest(self) -> None:
        shards = [asdict(shard) for shard in self.shards]
        content = {"config": self.config, "shards": shards}
        write_json(self.folder / "manifest.json", content, overwrite=True)


@contextmanager
def claim_shards(out: Path, config: Mapping[str, Any]) -> Iterator[ShardFolder]:
    """The folder of shards for `out`, locked; it is removed if it holds nothing at the end.

    Raises:
        CannotCreateError: if another process collects into `out`.
    """
    folder = out.with_name(f"{out.name}.shards")
    with io_errors(folder, "write"):
        folder.mkdir(exist_ok=True)
    with claimed(folder / "lock", str(out)):
        remove_stale_parts(out)
        try:
            yield ShardFolder(folder, config)
        finally:
            if not (folder / "manifest.json").exists():
                shutil.rmtree(folder, ignore_errors=True)


def require_same(old: Mapping[str, Any], new: Mapping[str, Any], path: Path) -> None:
    """Refuses to go on with a collection that was begun with another configuration.

    Raises:
        UsageError: naming every key that differs, with both values.
    """
    differing = [
        f"{key} ({dump_json(old.get(key))[:60]}, now {dump_json(new.get(key))[:60]})"
        for key in sorted({*old, *new})
        if old.get(key) != new.get(key)
    ]
    if differing:
        raise UsageError(
            f"{path} was collected with other settings: {', '.join(differing)};"
            " use those or --overwrite"
        )
