"""Runs of a few lines of Python, which are started again at once."""

from __future__ import annotations

import pytest

from mcat.sweeps import endings
from mcat.sweeps.runs import PlannedRun
from tests.sweeps.small import as_script


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(PlannedRun, "command_line", as_script)
    monkeypatch.setattr(endings, "WAITS", (0.05, 0.1, 0.15))
    monkeypatch.setattr("mcat.sweeps.driver.POLL", 0.02)
    monkeypatch.setattr("mcat.sweeps.driver.LOOK", 0.05)
