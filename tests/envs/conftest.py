"""Fixtures that several tests of environments share."""

from __future__ import annotations

import pytest

from mcat.envs.manipulation import Manipulation
from tests.envs.table_episodes import STOCK


@pytest.fixture(scope="module")
def sims() -> dict[str, Manipulation]:
    """One sparse stock simulation of each task: building one takes 0.2 s."""
    return {name: Manipulation(name) for name in STOCK}
