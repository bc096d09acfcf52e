"""Training runs: exact resumption, signals, faults, and what a run leaves behind."""

from __future__ import annotations

import csv
import json
import multiprocessing
import os
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from mcat.agents import replay
from mcat.agents.configs import TD3Config
from mcat.agents.policies.policy import load_policy
from mcat.agents.runs import folder as runs
from mcat.agents.runs.folder import CsvLog, Metrics, load_checkpoint, save_checkpoint
from mcat.agents.single.config import PRESETS, TrainConfig
from mcat.agents.single.run import train
from mcat.agents.single.trainer import COLUMNS, Trainer
from mcat.envs.tasks import Task
from mcat.envs.vector import TaskVectorEnv
from mcat.errors import (
    CannotCreateError,
    DivergedError,
    McatError,
    StorageError,
    UnstableError,
    UsageError,
)
from mcat.tensor_files import digest, load_safetensors

TASK = Task("halfcheetah", horizon=70)
TENSORBOARD = runs._tensorboard


@pytest.fixture(autouse=True, scope="module")
def small_and_fast():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replay, "SEGMENT", 50)
        patch.setattr(runs, "_tensorboard", lambda folder, until: None)  # slow to import
        yield


def config(**changes) -> TrainConfig:
    small = {
        "steps": 240,
        "start_steps": 60,
        "batch_size": 16,
        "replay_capacity": 100,  # wraps around twice
        "evaluate_every": 40,
        "evaluation_episodes": 2,
        "checkpoint_every": 50,
        "td3": TD3Config(hidden=(16, 16)),
    }
    return TrainConfig(**({"task": TASK} | PRESETS["paper"] | small | changes))


def go(out: Path, *, resume: bool = False, **changes):
    """A run to its end."""
    return train(config(**changes), out, resume=resume, quiet=True)


def at_rest(out: Path, **changes) -> Trainer:
    """A run before its first step."""
    return Trainer(config(**changes), out)


def newest_checkpoint(run: Path):
    return load_safetensors(sorted((run / "checkpoints").iterdir())[-1])


def contents(run: Path) -> dict[str, str]:
    """Digests of everything that learning determines; times are left out."""
    found = {}
    for path in [*run.glob("policy-*"), sorted((run / "checkpoints").iterdir())[-1]]:
        arrays, _ = load_safetensors(path)
        found[path.name] = digest(arrays)
    with (run / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    timed = ("charts/SPS", "time/seconds", "time/cpu")
    found["metrics"] = json.dumps([{k: v for k, v in r.items() if k not in timed} for r in rows])
    return found


@pytest.fixture(scope="module")
def clean(tmp_path_factory):
    """What an uninterrupted run gives."""
    out = tmp_path_factory.mktemp("clean") / "run"
    result = go(out, snapshots=(130,))
    return result, contents(out)


def test_a_run_leaves_what_the_docs_say(clean):
    result, _ = clean
    assert [path.name for path in result.policies] == [
        "policy-130.safetensors",
        "policy-240.safetensors",
    ]
    with (result.out / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == COLUMNS
    assert [int(row["step"]) for row in rows] == [40, 80, 120, 130, 160, 200, 240]
    assert float(rows[-1]["eval/return"]) == result.mean_return
    assert float(rows[0]["losses/critic"]) == 0  # still random
    assert float(rows[-1]["losses/critic"]) > 0
    assert float(rows[-1]["charts/episodic_length"]) == 70

    record = json.loads((result.out / "run.json").read_text())
    assert Task.from_dict(record["config"]["task"]) == TASK
    assert record["config"]["seed"] == 0
    assert {"command", "commit", "dirty", "versions", "host"} <= record.keys()
    assert {"torch", "numpy", "mujoco", "python"} <= record["versions"].keys()

    policy = load_policy(result.policies[1])
    assert policy.metadata["mean_return"] == result.mean_return
    assert policy.metadata["step"] == 240
    assert len(policy.metadata["returns"]) == 2


def test_the_saved_policy_earns_the_return_it_claims(clean):
    result, _ = clean
    policy = load_policy(result.policies[1])
    trainer = at_rest(result.out)
    assert trainer.evaluator.returns(policy).mean() == result.mean_return


def test_time_limits_are_not_stored_as_termination(tmp_path):
    trainer = at_rest(tmp_path, start_steps=10**6)
    trainer.segments.mkdir()
    for _ in range(75):
        trainer._one_step()
    assert trainer.episodes == 1
    batch = trainer.replay.sample(np.random.default_rng(0), 500)
    assert batch.terminal.max() == 0
    # The next observation of the last step is where it led, not the start of the next episode.
    last = trainer.replay._rows[69]
    assert not np.allclose(last[-18:-1], trainer.replay._rows[70][:17], atol=0.01)


@pytest.mark.parametrize("half", [80, 120])  # the episodes end at 70, 140, 210
def test_stopping_in_an_episode_and_going_on_is_exact(tmp_path, clean, half):
    go(tmp_path / "run", steps=half)
    stale = tmp_path / f"run/checkpoints/.step-7.safetensors.part-{'0' * 32}"
    stale.write_bytes(b"what a killed process left")
    go(tmp_path / "run", snapshots=(130,), resume=True)
    assert not stale.exists()
    _, expected = clean
    found = contents(tmp_path / "run")
    found.pop(f"policy-{half}.safetensors")
    assert found == expected


def test_a_damaged_newest_checkpoint_falls_back_on_the_one_before(tmp_path):
    go(tmp_path / "clean")
    go(tmp_path / "run", steps=200)
    newest = sorted((tmp_path / "run/checkpoints").iterdir())[-1]
    newest.write_bytes(newest.read_bytes()[:-1])
    go(tmp_path / "run", resume=True)  # from step 150, between two metrics rows
    found = contents(tmp_path / "run")
    found.pop("policy-200.safetensors")
    assert found == contents(tmp_path / "clean")


def test_a_run_killed_before_its_first_checkpoint_starts_again(tmp_path, clean):
    go(tmp_path / "run", steps=40, checkpoint_every=40)
    for made_later in ("checkpoints/step-0000000040.safetensors", "result.json"):
        (tmp_path / "run" / made_later).unlink()
    go(tmp_path / "run", snapshots=(130,), resume=True)
    found = contents(tmp_path / "run")
    found.pop("policy-40.safetensors")
    assert found == clean[1]


def test_a_finished_run_is_not_trained_again(clean):
    result, expected = clean
    again = go(result.out, snapshots=(130,), resume=True)
    assert again == result
    assert contents(result.out) == expected
    with pytest.raises(UsageError, match="240 steps already"):
        go(result.out, steps=200, resume=True)
    record = json.loads((result.out / "run.json").read_text())
    assert record["config"]["steps"] == 240


def test_a_run_is_not_cut_short_where_it_was_not_evaluated(tmp_path):
    go(tmp_path / "run", steps=80)
    (tmp_path / "run/policy-80.safetensors").unlink()  # as if a signal had stopped it there
    with pytest.raises(UsageError, match="80 steps already"):
        go(tmp_path / "run", steps=80, resume=True)


def test_seeds_differ_and_a_fresh_process_gives_the_same_weights(tmp_path, clean):
    go(tmp_path / "other", seed=1, snapshots=(130,))
    other = contents(tmp_path / "other")
    assert all(other[name] != value for name, value in clean[1].items())

    program = (
        "import sys; from pathlib import Path\n"
        "from tests.agents.single import test_train as t\n"
        "t.replay.SEGMENT = 50\n"
        "t.go(Path(sys.argv[1]), snapshots=(130,))\n"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "fresh")], check=True)
    assert contents(tmp_path / "fresh") == clean[1]


# --- signals and kills ------------------------------------------------------------------------

LONG = 1_200  # steps of the runs that are shot at


def _child(out: Path, resume: bool, started=None) -> None:
    try:
        if started:
            started.set()
        go(out, steps=LONG, resume=resume, checkpoint_every=150, evaluate_every=400)
    except McatError as error:
        (out / "message").write_text(str(error))
        os._exit(error.exit_code)
    os._exit(0)


def shoot(out: Path, number: signal.Signals, delay: float, resume: bool) -> int:
    """Runs training in a forked process and signals it some time after it started."""
    fork = multiprocessing.get_context("fork")
    started = fork.Event()
    process = fork.Process(target=_child, args=(out, resume, started))
    process.start()
    assert started.wait(60)
    time.sleep(delay)
    os.kill(process.pid, number)
    process.join(60)
    return process.exitcode


@pytest.fixture(scope="module")
def clean_long(tmp_path_factory):
    out = tmp_path_factory.mktemp("long") / "run"
    process = multiprocessing.get_context("fork").Process(target=_child, args=(out, False))
    process.start()
    process.join(120)
    assert process.exitcode == 0
    return contents(out)


def check_signals(out: Path, expected: dict[str, str], shots) -> None:
    codes = {signal.SIGTERM: 75, signal.SIGUSR1: 75, signal.SIGINT: 130, signal.SIGKILL: -9}
    resume = False
    for number, delay in shots:
        code = shoot(out, number, delay, resume)
        assert code in (0, codes[number])  # 0: it was faster than the signal
        resume = (out / "run.json").exists()  # a kill may have come before there was a run
        if code == 0:
            break
        if number != signal.SIGKILL:  # saved at the very step it stopped at
            _, state = newest_checkpoint(out)
            assert f"stopped after {state['step']} steps" in (out / "message").read_text()
    process = multiprocessing.get_context("fork").Process(target=_child, args=(out, resume))
    process.start()
    process.join(120)
    assert process.exitcode == 0
    assert contents(out) == expected
    assert not [path for path in out.rglob("*") if ".part-" in path.name]


def test_signals_and_kills_leave_a_run_that_resumes_exactly(tmp_path, clean_long):
    shots = [(signal.SIGTERM, 0.1), (signal.SIGINT, 0.5), (signal.SIGKILL, 0.7)]
    check_signals(tmp_path / "run", clean_long, shots)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_many_signals_and_kills(tmp_path, clean_long):
    rng = np.random.default_rng(0)
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGKILL)
    for trial in range(15):
        shots = [(rng.choice(numbers), rng.uniform(0.05, 1.5)) for _ in range(4)]
        check_signals(tmp_path / f"run{trial}", clean_long, shots)


# --- faults -----------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [1e8, 1e15, 1e38])
def test_a_loss_that_diverges_stops_the_run_and_keeps_a_finite_checkpoint(tmp_path, rate):
    wild = TD3Config(hidden=(16, 16), learning_rate=rate)
    with pytest.raises(DivergedError, match=r"became NaN.*lower learning rate") as caught:
        go(tmp_path / "run", td3=wild)
    assert caught.value.exit_code == 4
    arrays, state = newest_checkpoint(tmp_path / "run")
    assert state["step"] == 50
    assert all(np.isfinite(array).all() for array in arrays.values())
    assert not list((tmp_path / "run").glob("policy-*"))


def test_diverged_physics_is_not_learned_from_and_ends_a_hopeless_run(tmp_path, monkeypatch):
    real = TaskVectorEnv.step

    def diverging(self, actions):
        obs, rewards, terminated, truncated, info = real(self, actions)
        if self.num_envs == 1 and self._elapsed[0] == 5:
            info |= {"unstable": np.array([True]), "fault": np.array(["qacc@dof 2"], dtype=object)}
            truncated[:] = True
        return obs, rewards, terminated, truncated, info

    monkeypatch.setattr(TaskVectorEnv, "step", diverging)
    trainer = at_rest(tmp_path)
    trainer.segments.mkdir()
    for _ in range(49):
        trainer._one_step()
    with pytest.raises(UnstableError, match=r"diverged.*qacc@dof 2"):
        trainer._one_step()
    assert trainer.replay.added == 40


def test_a_checkpoint_that_does_not_fit_the_disk_leaves_the_one_before(tmp_path):
    arrays = {"rows": np.zeros(5_000)}
    save_checkpoint(tmp_path, 1, arrays, {"step": 1}, {"seed": 0})
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        with pytest.raises(StorageError):
            save_checkpoint(tmp_path, 2, arrays, {"step": 2}, {"seed": 0})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert load_checkpoint(tmp_path, {"seed": 0})[1]["step"] == 1
    assert len(list(tmp_path.iterdir())) == 1


def test_the_two_newest_checkpoints_are_kept(tmp_path):
    for step in (5, 10, 100, 1_000_000):
        save_checkpoint(tmp_path, step, {"x": np.zeros(1)}, {"step": step}, {})
    assert [int(path.stem[5:]) for path in sorted(tmp_path.iterdir())] == [100, 1_000_000]


def test_a_run_is_neither_overwritten_nor_invented(tmp_path, clean):
    result, expected = clean
    with pytest.raises(CannotCreateError, match="exists already"):
        go(result.out)
    assert contents(result.out) == expected
    (tmp_path / "killed").mkdir()
    (tmp_path / "killed/.lock").touch()
    go(tmp_path / "killed", steps=10)
    go(tmp_path / "nothing", steps=10, resume=True)  # there is none to go on with: it starts
    told = json.loads((tmp_path / "nothing/result.json").read_text())
    assert told["policies"].keys() == {"policy-10.safetensors"}
    assert told["step"] == 10
    (tmp_path / "file").write_text("")
    with pytest.raises(CannotCreateError):
        go(tmp_path / "file/run")


def test_only_one_process_works_on_a_run(tmp_path):
    out = tmp_path / "run"
    process = multiprocessing.get_context("fork").Process(target=_child, args=(out, False))
    process.start()
    while not (out / "checkpoints").is_dir():
        time.sleep(0.01)
    with pytest.raises(CannotCreateError, match="another process"):
        go(out, resume=True)
    os.kill(process.pid, signal.SIGTERM)
    process.join(60)
    assert process.exitcode == 75


CHANGES = {
    "task": Task("halfcheetah", horizon=70, armature=0.3),
    "seed": 1,
    "start_steps": 61,
    "exploration": 0.2,
    "batch_size": 17,
    "replay_capacity": 150,
    "evaluate_every": 41,
    "evaluation_episodes": 3,
    "threads": 2,
    "td3": TD3Config(hidden=(16, 16), discount=0.98),
}
NAMED = {
    "task": "task.armature: unknown there, 0.3 here",
    "td3": "td3.discount: 0.99 there, 0.98 here",
}


def test_resuming_with_other_values_names_them(clean):
    result, expected = clean
    for name, value in CHANGES.items():
        before = getattr(config(), name)
        expected_words = NAMED.get(name, f"{name}: {before} there, {value} here")
        with pytest.raises(UsageError, match=re.escape(f"otherwise ({expected_words}):")):
            go(result.out, resume=True, **{name: value})
    torch.set_num_threads(1)
    assert contents(result.out) == expected


@pytest.mark.parametrize(
    "bad",
    [
        {"steps": 0},
        {"seed": -1},
        {"start_steps": -1},
        {"replay_capacity": 60},  # less than an episode
        {"replay_capacity": 110},  # not whole segments
        {"snapshots": (241,)},
        {"snapshots": (0,)},
        {"evaluation_episodes": 0},
    ],
)
def test_senseless_settings_are_refused_before_anything_is_made(tmp_path, bad):
    with pytest.raises(UsageError):
        go(tmp_path / "run", **bad)
    assert not (tmp_path / "run").exists()


def test_tensorboard_gets_the_same_numbers(tmp_path, monkeypatch):
    event_accumulator = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator"
    )
    monkeypatch.setattr(runs, "_tensorboard", TENSORBOARD)
    log = CsvLog(tmp_path / "metrics.csv", ("step", "eval/return"))
    with Metrics(log, until=0):
        pass
    assert not list(tmp_path.iterdir())  # a run that is finished adds nothing
    with Metrics(log, until=0) as metrics:
        metrics.add({"step": 40, "eval/return": 1.5})
        metrics.add({"step": 80, "eval/return": 2.5})
    events = event_accumulator.EventAccumulator(str(tmp_path))
    events.Reload()
    assert [(e.step, e.value) for e in events.Scalars("eval/return")] == [(40, 1.5), (80, 2.5)]
    assert (tmp_path / "metrics.csv").read_text().split() == [
        "step,eval/return",
        "40,1.5",
        "80,2.5",
    ]
