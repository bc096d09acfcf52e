"""Real runs under kill -9, at moments that hypothesis chooses: each done once, equal to the bit."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections import Counter
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
    assert command(folder).wait(600) == 0
    states = look(open_sweep(folder / "sweep"))
    assert {state.state for state in states} == {"done"}
    return contents(folder)


def hit(folder, victims, pauses):
    """Drives the sweep to its end, with a `kill -9` of the driver or of a run now and then.

    A victim is hit once a run has saved something, and a pause later. A dead driver has a
    successor, which adopts its runs; a dead run is started again by the driver that lives.
    """
    kills = Counter()
    process = command(folder)
    wait_for((folder / "sweep" / "plan.lock.json").exists, 120)
    sweep = open_sweep(folder / "sweep")
    for victim, pause in zip(victims, pauses, strict=True):
        wait_for(lambda: saved(sweep), 300)
        time.sleep(pause)
        if victim == "driver":
            process.kill()
            process.wait()
            kills[victim] += 1
            process = command(folder)
        elif alive := saved(sweep):
            os.kill(alive[0].holder.pid, signal.SIGKILL)
            kills[alive[0].run.name] += 1
    assert process.wait(600) == 0
    assert {state.state for state in look(sweep)} == {"done"}
    assert kills["driver"]
    assert sum(kills.values()) > kills["driver"], "no run was hit"
    lines = (sweep.folder / "events.jsonl").read_text().splitlines()
    started = Counter(json.loads(line)["run"] for line in lines if '"event": "started"' in line)
    for run in sweep.runs:
        assert 1 <= started[run.name] <= 1 + kills[run.name]
    return contents(folder)


def saved(sweep):
    """The states of runs that are alive and would not begin anew."""
    found = []
    for state in look(sweep, detailed=False):
        out = sweep.out(state.run)
        there = out / "checkpoints", out.with_name(f"{out.name}.shards")
        if state.holder is not None and state.holder.pid and any(map(has_files, there)):
            found.append(state)
    return found


def has_files(folder):
    return any(path.suffix in (".h5", ".safetensors") for path in folder.glob("s*"))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    return finish(planned(tmp_path_factory.mktemp("undisturbed"), COLLECT))


@pytest.mark.timeout(900)
@given(
    victims=st.permutations(["driver", "run"]),
    pauses=st.lists(st.floats(0.0, 0.5), min_size=2, max_size=2),
)
@settings(max_examples=3, deadline=None, derandomize=True, phases=[Phase.generate],
          suppress_health_check=list(HealthCheck))  # fmt: skip
def test_collections_are_whole_whoever_is_killed(undisturbed, tmp_path_factory, victims, pauses):
    folder = planned(tmp_path_factory.mktemp("killed"), COLLECT)
    assert hit(folder, victims, pauses) == undisturbed


@pytest.mark.slow
@pytest.mark.timeout(1800)
@given(
    victims=st.permutations(["driver", "run", "run"]),
    pauses=st.lists(st.floats(0.0, 4.0), min_size=3, max_size=3),
)
@settings(max_examples=3, deadline=None, derandomize=True, phases=[Phase.generate],
          suppress_health_check=list(HealthCheck))  # fmt: skip
def test_meta_training_is_equal_to_the_bit_whoever_is_killed(tmp_path_factory, victims, pauses):
    wanted = finish(planned(tmp_path_factory.mktemp("undisturbed"), METATRAIN))
    folder = planned(tmp_path_factory.mktemp("killed"), METATRAIN)
    assert hit(folder, victims, pauses) == wanted


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
    """Printed for the record: at most a twentieth of a core."""
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
    assert share <= 0.05


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
