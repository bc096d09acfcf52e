"""No locks, and a place for leases."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from tests.leases.made import no_locks


@pytest.fixture(autouse=True)
def lockless(monkeypatch):
    no_locks(monkeypatch)


@pytest.fixture
def lock(tmp_path):
    """In memory where that is possible: hundreds of flushes to a disk take long."""
    if not os.access("/dev/shm", os.W_OK):
        yield tmp_path / "lock"
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder) / "lock"
