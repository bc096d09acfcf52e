"""What takes minutes to show: losses that go at random steps, restart loops, memory over time."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from mcat.agents.td3 import TD3
from mcat.errors import DivergedError
from mcat.tensor_files import load_safetensors
from tests.agents.meta import test_loop
from tests.agents.meta.point_mass import tiny_config
from tests.agents.meta.test_loop import play, spawn
from tests.agents.meta.test_metatrain_faults import at_call
from tests.agents.single import test_train
from tests.agents.single.test_train import small_and_fast  # noqa: F401

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


def poison(self, batch, *rest):
    return self, batch._replace(reward=batch.reward * float("nan")), *rest


@pytest.mark.parametrize("command", ["metatrain", "train"])
def test_a_loss_that_goes_at_any_step_leaves_a_finite_checkpoint(tmp_path, command):
    """Twenty random updates: exit code 4, nothing saved that is not finite, and going on heals."""
    meta = command == "metatrain"

    def work(out, **options):
        if meta:
            play(out, tiny_config(), **options)
        else:
            test_train.go(out, **options)

    contents = test_loop.contents if meta else test_train.contents
    work(tmp_path / "clean")
    expected = contents(tmp_path / "clean")
    # The first ten updates of metatrain come before its first checkpoint.
    calls = np.random.default_rng(0).choice(range(10, 60 if meta else 180), 20, replace=False)
    for call in calls:
        out = tmp_path / f"run{call}"
        with pytest.MonkeyPatch.context() as patch:
            at_call(patch, TD3, "update", int(call), poison)
            with pytest.raises(DivergedError) as caught:
                work(out)
        assert caught.value.exit_code == 4
        saved = [*(out / "checkpoints").iterdir(), *out.glob("policy*")]
        assert saved
        for path in saved:
            arrays, _ = load_safetensors(path)
            assert all(np.isfinite(a).all() for a in arrays.values() if a.dtype.kind == "f")
        work(out, resume=True)
        assert contents(out) == expected, call


STARTS = {
    "metatrain": "metatrain --preset smoke --family halfcheetah-pair --steps 8000"
    " --set mcat.start_steps=1000 --quiet",
    "train": "train --env halfcheetah --horizon 200 --steps 1500 --start-steps 300 --quiet",
}


@pytest.mark.parametrize("command", STARTS)
def test_a_loop_that_restarts_until_success_comes_to_the_end_of_a_clean_run(tmp_path, command):
    """As a scheduler would: start or go on, shot at by random signals, until exit code 0."""
    from mcat.cli import run

    clean, out = tmp_path / "clean", tmp_path / "run"
    start = shlex.split(STARTS[command])
    began = time.monotonic()
    assert spawn(lambda: os._exit(run([*start, "--out", str(clean)]))) == 0
    whole = time.monotonic() - began
    rng, codes = np.random.default_rng(1), []
    while 0 not in codes:
        going_on = [command, "--resume", str(out), "--quiet"]
        words = going_on if (out / "run.json").exists() else [*start, "--out", str(out)]
        child = os.fork()
        if child == 0:
            os._exit(run(words))
        patience = time.monotonic() + rng.uniform(0.05, 0.35) * whole
        number = rng.choice([signal.SIGKILL, signal.SIGTERM])
        ended = (0, 0)
        while ended == (0, 0) and time.monotonic() < patience:
            time.sleep(0.01)
            ended = os.waitpid(child, os.WNOHANG)
        if ended == (0, 0):
            os.kill(child, number)
            ended = os.waitpid(child, 0)
        codes.append(os.waitstatus_to_exitcode(ended[1]))
        # A signal within the first moments, when nothing is begun, ends the process as ever.
        assert codes[-1] in (0, 75, -signal.SIGKILL, -signal.SIGTERM), codes
        assert len(codes) < 60, codes
    print(command, codes)
    contents = test_loop.contents if command == "metatrain" else test_train.contents
    assert contents(out) == contents(clean)


def status(pid: int) -> tuple[float, int]:
    """Resident MB and open files of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6, len(list(Path(f"/proc/{pid}/fd").iterdir()))


def test_memory_and_open_files_stay_flat(tmp_path):
    """Four minutes of iterations whose replay is full: the least that is in use does not grow."""
    command = (
        "metatrain --preset smoke --family halfcheetah-pair --steps 1e9 --quiet"
        " --set mcat.start_steps=1000 --set mcat.replay_capacity=4000"
        f" --set mcat.imitation.capacity=1000 --out {tmp_path / 'run'}"
    )
    process = subprocess.Popen([sys.executable, "-m", "mcat", *shlex.split(command)])
    try:
        rounds = tmp_path / "run/replay"
        while not (rounds / "round-00010.safetensors").exists():  # warm
            assert process.poll() is None
            time.sleep(0.5)
        seen = []
        began = time.monotonic()
        while time.monotonic() - began < 240:
            assert process.poll() is None
            seen.append((time.monotonic() - began, *status(process.pid)))
            time.sleep(0.5)
        iterations = len(list(rounds.iterdir()))
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 75
    times, memory, files = map(np.array, zip(*seen, strict=True))
    least = [memory[(times >= t) & (times < t + 60)].min() for t in (0, 60, 120, 180)]
    print(f"{iterations} iterations; least MB by minute {np.round(least, 1)}; files {set(files)}")
    assert least[3] - least[1] < 4  # MB in two minutes, of which the run's own record is a part
    assert np.median(files[:60]) == np.median(files[-60:])
