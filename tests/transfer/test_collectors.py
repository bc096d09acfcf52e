"""Which policy collects: named, packaged, scripted, or trained on the spot."""

import numpy as np
import pytest

from mcat.agents.policies.names import packaged_policies
from mcat.agents.policies.policy import Policy
from mcat.envs import Task
from mcat.errors import UsageError
from mcat.transfer import collectors as library
from mcat.transfer.collectors import collector_policy
from mcat.types import NamedPolicy


def test_random_has_no_function_and_meta_world_is_scripted_by_default():
    assert collector_policy("random", Task("ant")) == NamedPolicy("random", None)
    name, function, sha256, _ = collector_policy(None, Task("push", gripper=0.1))
    assert name == "scripted"
    assert sha256 is None
    assert function(np.zeros((3, 14))).shape == (3, 4)


def test_another_robots_script_can_be_run():
    observations = np.random.default_rng(0).uniform(0, 1, (5, 14))
    own = collector_policy("scripted", Task("sweep-into")).act(observations)
    pushed = collector_policy("scripted:push", Task("sweep-into")).act(observations)
    expected = collector_policy("scripted", Task("push")).act(observations)
    assert np.array_equal(pushed, expected)
    assert not np.array_equal(pushed, own)


def test_the_packaged_mediocre_policy_is_the_default_whatever_the_delay():
    packaged = next(p for p in packaged_policies() if p.level == "mediocre")
    told = []
    found = collector_policy(None, packaged.task.replace(delay=500), notify=told.append)
    assert isinstance(found.act, Policy)
    assert found.act.task == packaged.task
    assert len(found.sha256) == 64
    assert not told


def test_without_one_it_is_trained_announced_and_used_again(tmp_path, monkeypatch):
    monkeypatch.setattr(library, "DEFAULT_MEDIOCRE", ("paper", 40))
    task, told = Task("hopper", size=0.033), []
    first = collector_policy("mediocre", task, runs=tmp_path, notify=told.append)
    assert len(told) == 1
    assert "hopper-size0.033" in told[0]
    assert "40 steps, about 0 min" in told[0]
    run = tmp_path / "hopper-size0.033-mediocre"
    assert (run / "policy-40.safetensors").is_file()
    again = collector_policy("mediocre", task, runs=tmp_path, notify=told.append)
    assert len(told) == 1
    assert first.sha256 == again.sha256


def test_a_good_policy_is_never_made_up():
    with pytest.raises(UsageError, match="no packaged good policy for hopper"):
        collector_policy("good", Task("hopper"))
