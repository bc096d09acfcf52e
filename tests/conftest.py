"""What holds for every test.

One thread of torch: the last bits depend on how many there are, and two processes of pytest share
the two cores of CI. And no test leaves families of its own to the next.
"""

import os

os.environ["OMP_NUM_THREADS"] = "1"  # before anything imports torch

import pytest

from mcat.envs import FAMILIES


@pytest.fixture(autouse=True)
def _families_as_they_were():
    before = dict(FAMILIES)
    yield
    FAMILIES.clear()
    FAMILIES.update(before)
