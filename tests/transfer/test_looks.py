"""A translator that is tried while it is trained is tried as in the end."""

from __future__ import annotations

import numpy as np
import pytest

from mcat.agents.evaluation import Evaluator, first_start
from mcat.envs.tasks import Task
from mcat.transfer import looks
from mcat.transfer.config import TransferConfig


@pytest.mark.parametrize("seed", [0, 1])
def test_looks_start_where_the_last_evaluation_does(monkeypatch, seed):
    target = Task("hopper", horizon=20)
    monkeypatch.setattr(looks, "TransferredPolicy", lambda policy, translator: policy)

    def still(observations):
        return np.zeros((len(observations), 3), np.float32)

    config = TransferConfig(sources=("a.h5",), targets=("b.h5",), episodes=2, seed=seed)
    look = looks.Looks(still, target, config, workers=1)
    look(1, None)
    assert look.means == [Evaluator(target, 2, first_start(seed)).returns(still).mean()]
