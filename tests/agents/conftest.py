"""What holds for every test of an agent."""

import pytest
import torch


@pytest.fixture(autouse=True)
def one_thread():
    """The last bits depend on how many there are."""
    torch.set_num_threads(1)
