"""Helpers of a `TaskVectorEnv`: processes that never outlive, confuse or block their owner."""

import fcntl
import gc
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from mcat.envs import Task, TaskVectorEnv, workers
from mcat.envs.env import simulate
from mcat.envs.simulation import Simulation
from mcat.errors import McatError, UsageError

TASKS = [Task("halfcheetah", armature=a, horizon=200) for a in (0.1, 0.5, 0.7)]
STILL = np.zeros((3, 6))


def helper_pid(vector: TaskVectorEnv) -> int:
    pid = vector._workers[0]._process.pid
    assert pid is not None
    return pid


def ends(pid: int, seconds: float = 5.0) -> bool:
    """Whether the process is gone within some time, a zombie counting as gone."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except FileNotFoundError:
            return True
        if state == "Z":
            return True
        time.sleep(0.02)
    return False


def test_a_helper_reports_what_diverged(monkeypatch):
    def shaky(task):
        simulation = simulate(task)
        if task == TASKS[1]:
            simulation.model.actuator_gear[:] *= 1000
        return simulation

    monkeypatch.setattr(workers, "simulate", shaky)  # inherited by the forked worker
    vector, alone = TaskVectorEnv(TASKS, workers=2), TaskVectorEnv(TASKS)
    assert len(vector.simulations) == 2  # the second is the worker's
    rng = np.random.default_rng(0)
    results = []
    for env in (vector, alone):
        env.reset(seed=0, options={"park": True})
    for _ in range(100):
        actions = rng.uniform(-1, 1, (3, 6))
        results = [env.step(actions) for env in (vector, alone)]
        assert np.array_equal(results[0][0][[0, 2]], results[1][0][[0, 2]])
        assert np.array_equal(results[0][3], results[1][3])
    for *_, info in results:
        assert info["unstable"].tolist() == [False, True, False]
        assert info["fault"][1].startswith("BADQ")
        assert info["fault"][0] is None
    vector.reset(seed=0)
    assert "fault" not in vector.step(STILL)[-1]
    vector.close()


def test_masks_and_unseeded_resets_reach_the_helper():
    vector, alone = TaskVectorEnv(TASKS, workers=3), TaskVectorEnv(TASKS)
    for options in ({}, {"reset_mask": np.array([False, True, False])}):
        for seed in ([3, 2**64 - 1, 5], None):
            starts = [env.reset(seed=seed, options=dict(options))[0] for env in (vector, alone)]
            assert np.array_equal(*starts)
            steps = [env.step(STILL + 0.3)[0] for env in (vector, alone)]
            assert np.array_equal(*steps)
    with pytest.raises(UsageError, match="seeds must be 0 to"):
        vector.reset(seed=2**64 - 2)  # the third sub-environment's is too large
    vector.close()


def test_signals_to_the_whole_group_are_the_owners_business():
    vector = TaskVectorEnv(TASKS, workers=2)
    vector.reset(seed=0)
    vector.step(STILL)  # the worker has set itself up
    for number in (signal.SIGINT, signal.SIGTERM):
        os.kill(helper_pid(vector), number)
    assert np.isfinite(vector.step(STILL)[1]).all()
    vector.close()
    assert ends(helper_pid(vector))
    with pytest.raises(McatError, match="environment was closed"):
        vector.step(STILL)


def test_a_killed_helper_is_one_clear_line():
    vector = TaskVectorEnv(TASKS, workers=2)
    vector.reset(seed=0)
    os.kill(helper_pid(vector), signal.SIGKILL)
    assert ends(helper_pid(vector))
    with pytest.raises(McatError, match=r"ended with code -9.*workers=1"):
        vector.step(STILL)
    vector.close()


def test_a_task_that_a_helper_cannot_build_is_one_clear_line(capfd):
    good, bad = Task("reach"), Task("reach", goal=(0.0, 0.65, 0.2))
    vector = TaskVectorEnv([good, bad], workers=2)
    with pytest.raises(UsageError, match=r"goal .* is closer than 0.15"):
        vector.reset(seed=0)
    vector.close()
    assert capfd.readouterr().err == ""


def test_a_stopped_helper_is_named_and_can_go_on(monkeypatch):
    monkeypatch.setenv("MCAT_WORKER_TIMEOUT", "0.5")
    monkeypatch.setattr(workers, "GRACE", 0.2)
    vector, alone = TaskVectorEnv(TASKS, workers=2), TaskVectorEnv(TASKS)
    vector.reset(seed=0)
    pid = helper_pid(vector)
    os.kill(pid, signal.SIGSTOP)
    with pytest.raises(McatError, match=rf"process {pid}, .* has done nothing for .* workers=1"):
        vector.step(STILL)
    os.kill(pid, signal.SIGCONT)
    assert np.array_equal(vector.reset(seed=1)[0], alone.reset(seed=1)[0])
    assert np.array_equal(vector.step(STILL + 0.5)[0], alone.step(STILL + 0.5)[0])
    os.kill(pid, signal.SIGSTOP)
    vector.close()
    assert ends(pid)


def test_a_slow_helper_is_not_taken_for_a_stopped_one(monkeypatch):
    """Its whole share takes longer than the time-out, no single sub-environment does."""

    def slow(task):
        simulation, step = simulate(task), Simulation.step

        def late(*arguments):
            time.sleep(0.05)
            return step(simulation, *arguments)

        monkeypatch.setattr(simulation, "step", late)
        return simulation

    monkeypatch.setattr(workers, "simulate", slow)
    vector = TaskVectorEnv([Task("hopper")] * 24, workers=2, timeout=0.5)
    vector.reset(seed=0)
    monkeypatch.setattr(vector._env_slice, "move", lambda: True)  # ours would be as slow
    assert vector.step(np.zeros((24, 3)))[1][1::2].all()
    vector.close()


@pytest.mark.parametrize("seconds", ["soon", "0", "-3", "nan", ""])
def test_a_bad_timeout_is_one_clear_line(seconds, monkeypatch):
    with pytest.raises(UsageError, match="timeout must be a number of seconds above 0, got"):
        TaskVectorEnv(TASKS, timeout=seconds)
    monkeypatch.setenv("MCAT_WORKER_TIMEOUT", seconds)
    with pytest.raises(UsageError, match="MCAT_WORKER_TIMEOUT must be a number of seconds above 0"):
        TaskVectorEnv(TASKS)


def test_a_step_cut_short_does_not_confuse_the_next(monkeypatch):
    vector, alone = TaskVectorEnv(TASKS, workers=2), TaskVectorEnv(TASKS)
    vector.reset(seed=0)
    with monkeypatch.context() as patch:
        patch.setattr(vector._env_slice, "move", lambda: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            vector.step(STILL)
    assert np.array_equal(vector.reset(seed=1)[0], alone.reset(seed=1)[0])
    for _ in range(20):
        assert np.array_equal(vector.step(STILL + 0.5)[0], alone.step(STILL + 0.5)[0])
    vector.close()


def test_a_forgotten_environment_ends_its_helpers():
    vector = TaskVectorEnv(TASKS, workers=2)
    pid = helper_pid(vector)
    del vector
    gc.collect()
    assert ends(pid)


SCRIPT = """
import multiprocessing, sys, time
from mcat.envs import Task, TaskVectorEnv
if __name__ == "__main__":
    multiprocessing.set_start_method(sys.argv[1])
    lock = open(sys.argv[2], "w")
    import fcntl
    fcntl.flock(lock, fcntl.LOCK_EX)
    env = TaskVectorEnv([Task("hopper")] * 2, workers=2)
    start, _ = env.reset(seed=0)
    print(env._workers[0]._process.pid, start.sum(), flush=True)
    time.sleep(float(sys.argv[3]))
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_exit_without_close_ends_the_helpers(method, tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, tmp_path / "script.py", method, tmp_path / "lock", "0"]
    output = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert output.stderr == ""
    pid, start = output.stdout.split()
    assert float(start) == TaskVectorEnv([Task("hopper")] * 2).reset(seed=0)[0].sum()
    assert ends(int(pid), 0.1)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_killed_owner_takes_helpers_and_locks_along(method, tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, tmp_path / "script.py", method, tmp_path / "lock", "60"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as owner:
        pid = int(owner.stdout.readline().split()[0])
        owner.kill()
        owner.wait()
        with (tmp_path / "lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # at once: the worker does not hold it
        assert ends(pid)


def test_no_shared_memory_is_one_clear_line():
    code = """
import resource, signal
from mcat.envs import Task, TaskVectorEnv
from mcat.errors import McatError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
TaskVectorEnv([Task("hopper")] * 2).reset(seed=0)
try:
    TaskVectorEnv([Task("hopper")] * 2, workers=2)
except McatError as error:
    print(error)
"""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.startswith("cannot share the physics among processes")
    assert "workers=1" in done.stdout
