"""Files that `mcat` did not write, for tests that read them."""

from __future__ import annotations

import hashlib

import h5py
import numpy as np
import pytest

from mcat.datasets import EpisodeStore
from mcat.datasets.hdf5 import read_dataset
from mcat.errors import DataError

ROWS = 24
SECRET = b"the secret bytes"


def make_store():
    rng = np.random.default_rng(0)
    return EpisodeStore.from_arrays(
        observations=rng.normal(size=(ROWS, 3)),
        actions=rng.uniform(-1, 1, size=(ROWS, 2)),
        next_observations=rng.normal(size=(ROWS, 3)),
        rewards=rng.normal(size=ROWS),
        episode_ends=[10, ROWS],
    )


def arrays_of(store):
    names = ("observations", "actions", "rewards", "next_observations", "terminals", "timeouts")
    return {name: getattr(store, name) for name in (*names, "episode_ends")}


def write_foreign(path, *, userblock=0, skip=(), **options):
    """A file with the right arrays, made by plain h5py; returned open."""
    file = h5py.File(path, "w", userblock_size=userblock, **options)
    for name, array in arrays_of(make_store()).items():
        if name not in skip:
            file[name] = array
    return file


def reseal(path):
    content = path.read_bytes()
    sha = hashlib.sha256(content[512:]).hexdigest()
    seal = f"mcat data set, sealed\nbytes {len(content)}\nsha256 {sha}\n".encode()
    path.write_bytes(seal.ljust(512, b"\0") + content[512:])


def refusal(path, **options):
    """The error of reading `path`, which must be one line that names it."""
    with pytest.raises(DataError) as caught:
        read_dataset(path, **options)
    text = str(caught.value)
    assert str(path) in text
    assert len(text.splitlines()) == 1
    assert text.isprintable()
    return text
