"""Runs as tasks of Ray: two nodes on this machine, one of them killed in the middle."""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
import types

import pytest

from mcat.commands.planned import Commands
from mcat.errors import MissingInputError, StorageError
from mcat.interrupts import Interrupts, StoppedError
from mcat.sweeps.driver import Driver
from mcat.sweeps.folder import create_sweep
from mcat.sweeps.plan_files import load_plan
from mcat.sweeps.runs import resolve
from mcat.sweeps.state import look
from tests.sweeps.small import planned, small_sweep, wait_for

needs_ray = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None,
    reason="Ray is not installed: pip install 'mcat-rl[ray]'",
)


@pytest.mark.skipif(importlib.util.find_spec("ray") is not None, reason="Ray is installed")
def test_without_ray_it_says_what_to_install(tmp_path):
    from mcat.sweeps.on_ray import RayEngine

    with pytest.raises(MissingInputError, match=r"pip install 'mcat-rl\[ray\]'"):
        RayEngine(small_sweep(tmp_path, planned("a")))


class FakeRay(types.ModuleType):
    """As much of Ray as is asked for a reservation."""

    def __init__(self):
        super().__init__("ray")
        self.reserved = {}

    def is_initialized(self):
        return True

    def remote(self, **reserved):
        self.reserved = reserved
        return lambda task: task

    def cluster_resources(self):
        return {"CPU": 7.0}


def test_one_number_of_cpus_is_what_ray_reserves(tmp_path, monkeypatch):
    from mcat.sweeps.on_ray import RayEngine

    ray = FakeRay()
    monkeypatch.setitem(sys.modules, "ray", ray)
    engine = RayEngine(small_sweep(tmp_path, planned("a"), cpus=2, memory="1GB", retries=5))
    assert ray.reserved == {"num_cpus": 2, "memory": 10**9, "max_retries": 5}
    assert engine.room([]) == 3  # of seven cores


@pytest.mark.slow
@needs_ray
def test_no_cluster_at_that_address_is_told_in_one_line(tmp_path):
    from mcat.sweeps.on_ray import RayEngine

    with pytest.raises(StorageError, match=r"no Ray cluster at 127\.0\.0\.1:9") as found:
        RayEngine(small_sweep(tmp_path, planned("a")), None, "127.0.0.1:9")
    assert "\n" not in str(found.value)


@pytest.fixture
def two_nodes(monkeypatch):
    """A head without cores, so that the driver's own node is not the one that dies, and two."""
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    import ray
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    nodes = [cluster.add_node(num_cpus=1, memory=4 * 10**9) for _ in range(2)]
    cluster.wait_for_nodes()
    yield cluster, nodes
    ray.shutdown()
    cluster.shutdown()


@pytest.mark.slow
@needs_ray
@pytest.mark.timeout(1800)
def test_a_run_whose_node_dies_goes_on_elsewhere_equal_to_the_bit(two_nodes, tmp_path):
    from mcat.sweeps.on_ray import RayEngine
    from tests.sweeps.test_real_runs import METATRAIN, contents, finish

    for place in ("plain", "ray"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "plan.toml").write_text(METATRAIN.replace("20_000", "40_000"))
    wanted = finish(tmp_path / "plain")

    plan, text = load_plan(str(tmp_path / "ray" / "plan.toml"))
    folder = tmp_path / "ray" / "sweep"
    sweep = create_sweep(plan, text, resolve(plan, Commands()), folder)
    cluster, nodes = two_nodes
    killed = []

    def kill_a_node(states):
        begun = [s for s in states if s.step >= 10_000 and s.state == "running"]
        if begun and not killed:
            killed.append(begun[0].run.name)
            cluster.remove_node(nodes[0], allow_graceful=False)

    engine = RayEngine(sweep, None, cluster.address)
    with Interrupts() as stop:
        states = Driver(sweep, engine, kill_a_node).drive(stop)
    assert killed
    assert {state.state for state in states} == {"done"}
    lines = (folder / "events.jsonl").read_text().splitlines()
    started = [line for line in lines if '"event": "started"' in line]
    assert len(started) == len(sweep.runs) + 1  # the one whose node died, once more
    assert contents(tmp_path / "ray") == wanted


@pytest.mark.slow
@needs_ray
def test_runs_of_ray_are_stopped_by_their_marks(two_nodes, tmp_path):
    from mcat.sweeps.on_ray import RayEngine

    cluster, _ = two_nodes
    text = {"steps": 10_000_000, "preset": "smoke", "family": "halfcheetah-armature", "seed": 0}
    run = planned("r")
    line = [part for key, value in text.items() for part in (f"--{key}", str(value))]
    long = type(run)(**{**vars(run), "command": "metatrain", "arguments": tuple(line)})
    sweep = small_sweep(tmp_path, long)

    def ask_once_it_runs(states):
        if states[0].step:
            os.kill(os.getpid(), signal.SIGTERM)

    engine = RayEngine(sweep, None, cluster.address)  # Ray takes SIGTERM for itself: ours is later
    with Interrupts() as stop, pytest.raises(StoppedError, match="goes on"):
        Driver(sweep, engine, ask_once_it_runs).drive(stop)
    (state,) = look(sweep)
    assert state.ending.kind == "stopped"
    wait_for(lambda: look(sweep)[0].holder is None)
