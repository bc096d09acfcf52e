"""Small episodes and stores of them."""

from __future__ import annotations

import numpy as np

from mcat.datasets import EpisodeStore
from mcat.datasets.hdf5 import read_dataset
from mcat.safe_io import dump_json
from mcat.tensor_files import digest

OBS, ACT = 2, 1
COLUMNS = ("observations", "actions", "rewards", "next_observations", "terminals", "timeouts")


def make_episode(rng, length, *, terminal=False, task=0):
    """Whole numbers, so that float32 differences are exact, and all rows distinct."""
    states = rng.integers(-1000, 1000, size=(length + 1, OBS)).astype(np.float32)
    flags = np.arange(length) == length - 1
    return {
        "observations": states[:-1],
        "next_observations": states[1:],
        "actions": rng.integers(-1000, 1000, size=(length, ACT)).astype(np.float32),
        "rewards": rng.integers(-10, 10, size=length).astype(np.float32),
        "terminals": flags & terminal,
        "timeouts": flags & (not terminal),
        "task": task,
    }


def append(store, episode):
    store.append_episode(
        **{n: episode[n] for n in ("observations", "actions", "next_observations", "rewards")},
        terminal=bool(episode["terminals"][-1]),
        task=episode["task"],
    )


def store_of(episodes, **kwargs):
    store = EpisodeStore(OBS, ACT, **kwargs)
    for episode in episodes:
        append(store, episode)
    return store


def rows(n, **changes):
    """A log of one unbroken episode in which everything is a whole number."""
    states = np.arange((n + 1) * OBS, dtype=np.float64).reshape(n + 1, OBS)
    arrays = {
        "observations": states[:-1].copy(),
        "next_observations": states[1:].copy(),
        "actions": np.ones((n, ACT)),
    }
    return arrays | changes


def content_hash(path):
    """A SHA-256 of a data set, without the versions of the software that wrote it."""
    store, metadata = read_dataset(path)
    metadata.pop("versions", None)
    arrays = {name: store.column(name) for name in COLUMNS} | {"episode_ends": store.episode_ends}
    return digest(arrays, dump_json(metadata))
