"""Fixtures of the tests of data sets."""

from __future__ import annotations

import pytest


@pytest.fixture
def minari_root(tmp_path, monkeypatch):
    """An empty folder in which Minari keeps its data sets."""
    root = tmp_path / "minari"
    root.mkdir()
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(root))
    return root
