"""Real runs under kill -9, at moments that hypothesis chooses: each done once, equal to the bit."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from mcat.datasets import load
from mcat.sweeps.folder import open_sweep
from mcat.sweeps.state import look
from mcat.tensor_files import content_digest
from tests.sweeps.small import wait_for

LIMIT = 100_000, 100_000  # bytes
COLLECT = """
name = "kill"
command = "collect"
[common]
env = "hopper"
horizon = 50
policy = "random"
steps = 30_000
[grid]
seed = "0-2"
"""
METATRAIN = """
name = "kill"
[common]
preset = "smoke"
steps = 20_000
[grid]
family = ["halfcheetah-armature"]
seed = "0-1"
"""


def command(folder, **more):
    line = [sys.executable, "-m", "mcat", "sweep", "run", str(folder / "plan.toml"),
            "--out", str(folder / "sweep"), "--jobs", "2", "--plain"]  # fmt: skip
    silent = subprocess.DEVNULL
    return subprocess.Popen(line, stdout=silent, stderr=silent, **more)


def planned(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "plan.toml").write_text(text)
    return folder


def contents(folder):
    """What the runs made, without when and how fast."""
    found = {}
    for path in sorted((folder / "sweep" / "runs").iterdir()):
        if path.suffix == ".h5":
            episodes, _ = load(path)
            found[path.name] = {
                c: episodes.column(c).tobytes() for c in ("observations", "rewards")
            }
        elif path.is_dir():
            rows = (path / "metrics.csv").read_text().splitlines()
            keep = [
                n for n, c in enumerate(rows[0].split(",")) if not c.startswith(("time/", "ch"))
            ]
            table = [[row.split(",")[n] for n in keep] for row in rows]
            found[path.name] = {
                "table": table,
                "policy": content_digest(path / "policy.safetensors"),
            }
    return found


def finish(folder):
    assert command(folder).wait(250) == 0
    states = look(open_sweep(folder / "sweep"))
    assert {state.state for state in states} == {"done"}
    return contents(folder)


def killed_now_and_then(folder, pauses, whom):
    """Drives the sweep, with a `kill -9` of the driver or of a run after each pause."""
    for pause, driver in zip(pauses, whom, strict=True):
        process = command(folder)
        time.sleep(pause)
        lock = folder / "sweep" / "plan.lock.json"
        if driver or not lock.exists():
            process.kill()
            process.wait()
            continue
        for state in look(open_sweep(folder / "sweep"), detailed=False):
            if state.holder is not None and state.holder.pid:
                os.kill(state.holder.pid, signal.SIGKILL)
                break
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    return finish(planned(tmp_path_factory.mktemp("undisturbed"), COLLECT))


@given(
    pauses=st.lists(st.floats(0.05, 3.0), min_size=2, max_size=2),
    whom=st.lists(st.booleans(), min_size=2, max_size=2),
)
@settings(max_examples=3, deadline=None, derandomize=True, phases=[Phase.generate],
          suppress_health_check=list(HealthCheck))  # fmt: skip
def test_collections_are_whole_whoever_is_killed(undisturbed, tmp_path_factory, pauses, whom):
    folder = planned(tmp_path_factory.mktemp("killed"), COLLECT)
    killed_now_and_then(folder, pauses, whom)
    assert finish(folder) == undisturbed


@pytest.mark.slow
@given(
    pauses=st.lists(st.floats(1.0, 12.0), min_size=3, max_size=3),
    whom=st.lists(st.booleans(), min_size=3, max_size=3),
)
@settings(max_examples=3, deadline=None, derandomize=True, phases=[Phase.generate],
          suppress_health_check=list(HealthCheck))  # fmt: skip
def test_meta_training_is_equal_to_the_bit_whoever_is_killed(tmp_path_factory, pauses, whom):
    wanted = finish(planned(tmp_path_factory.mktemp("undisturbed"), METATRAIN))
    folder = planned(tmp_path_factory.mktemp("killed"), METATRAIN)
    killed_now_and_then(folder, pauses, whom)
    assert finish(folder) == wanted


def test_logs_are_made_once_for_all_that_learn_from_them(tmp_path):
    text = """
    name = "kill"
    command = "evaluate"
    [common]
    policy = "@learner"
    env = "hopper"
    horizon = 50
    episodes = 2
    [grid]
    seed = "0-1"
    [[input]]
    name = "learner"
    command = "train"
    env = "hopper"
    horizon = 50
    steps = 300
    start-steps = 100
    """
    folder = planned(tmp_path, "\n".join(line.strip() for line in text.splitlines()))
    assert command(folder).wait(120) == 0
    sweep = open_sweep(folder / "sweep")
    assert [state.ending.attempts for state in look(sweep)] == [1, 1, 1]
    assert len(list((folder / "sweep" / "inputs").iterdir())) == 1
    assert len(list((folder / "sweep" / "runs").glob("*.json"))) == 2


def test_the_driver_costs_next_to_nothing(tmp_path):
    """Printed for the record; twice what is promised is a failure."""
    folder = planned(tmp_path, METATRAIN)
    process = command(folder)
    wait_for(lambda: (folder / "sweep" / "plan.lock.json").exists())
    wait_for(lambda: any(s.state == "running" for s in look(open_sweep(folder / "sweep"))))
    before, began = _cpu(process.pid), time.monotonic()
    time.sleep(4)
    share = (_cpu(process.pid) - before) / (time.monotonic() - began)
    process.terminate()
    assert process.wait(60) == 75
    print(f"driver: {100 * share:.1f} % of a core")
    assert share < 0.1


def _cpu(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_a_full_disk_ends_runs_not_the_sweep(tmp_path, undisturbed):
    """Files may grow to 100 kB only, as on a disk that is nearly full; then there is room again."""
    folder = planned(tmp_path / "full", COLLECT + "[resources]\nretries = 0\n")
    full = command(folder, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, LIMIT))
    assert full.wait(200) == 1
    states = look(open_sweep(folder / "sweep"))
    assert [(state.state, state.ending.code) for state in states] == [("failed", 74)] * 3
    assert "file size limit" in states[0].ending.line
    assert finish(folder) == undisturbed
