"""Signals, losses that diverge, damaged files and full disks while meta-training."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mcat.agents.credit.credit import CreditModel
from mcat.agents.limits import MAX_UNSTABLE
from mcat.agents.td3 import TD3
from mcat.config import overlay
from mcat.errors import (
    DataError,
    DivergedError,
    MissingInputError,
    StorageError,
    UnstableError,
)
from mcat.interrupts import StoppedError
from mcat.tensor_files import load_safetensors
from mcat.translator import context
from mcat.translator.action import ActionTraining
from tests.agents.meta.point_mass import PointMasses, tiny_config
from tests.agents.meta.test_loop import clean, contents, play, small_and_fast  # noqa: F401

NAN = float("nan")


def at_call(monkeypatch, owner, name: str, call: int, change) -> None:
    """Have `change(*args)` give the arguments of one call of `owner.name`."""
    real, calls = getattr(owner, name), iter(range(10**9))

    def wrapper(*args, **kwargs):
        if next(calls) == call:
            args = change(*args)
        return real(*args, **kwargs)

    monkeypatch.setattr(owner, name, wrapper)


def newest_checkpoint(out: Path):
    return load_safetensors(sorted((out / "checkpoints").iterdir())[-1])


def assert_resumes(out: Path, expected: dict[str, str]) -> list[str]:
    """Without the fault, it ends as if it had never been."""
    said = play(out, tiny_config(), resume=True)
    assert contents(out) == expected
    return said


# --- signals ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 75), (signal.SIGINT, 130), (signal.SIGUSR1, 75)]
)
@pytest.mark.parametrize(
    ("owner", "name", "call"),
    [(PointMasses, "step", 45), (TD3, "update", 25), (ActionTraining, "step", 6)],
)
def test_a_signal_ends_the_iteration_and_says_how_to_resume(
    tmp_path, clean, number, code, owner, name, call  # noqa: F811
):  # fmt: skip
    def send(*args):
        os.kill(os.getpid(), number)
        return args

    before = signal.getsignal(number)
    with pytest.MonkeyPatch.context() as patch:
        at_call(patch, owner, name, call, send)
        with pytest.raises(StoppedError) as caught:
            play(tmp_path / "run", tiny_config())
    assert caught.value.exit_code == code
    assert f"mcat metatrain --resume {tmp_path / 'run'}" in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
    assert signal.getsignal(number) is before
    assert_resumes(tmp_path / "run", clean[1])


# --- losses that diverge ----------------------------------------------------------------------


def nan_weights(agent: TD3, *rest):
    agent.actor.layers[0].data.fill_(NAN)
    return agent, *rest


POISONS = {  # what makes each loss NaN in the third round, by itself
    "forward": (context, "forward_loss", 36, lambda mean, *rest: (mean * NAN, *rest)),
    "contrastive": (context, "contrastive_loss", 18, lambda one, two: (one * NAN, two)),
    "translation": (ActionTraining, "loss", 10, lambda self, batch: (
        self, batch._replace(target=batch.target * NAN))),
    "critic": (TD3, "update", 22, lambda self, batch, rows: (
        self, batch._replace(reward=batch.reward * NAN), rows)),
    "actor": (TD3, "update", 21, nan_weights),
    "imitation": (TD3, "update", 22, lambda self, batch, rows: (
        self, batch, rows._replace(returns=rows.returns * NAN))),
    "credit": (CreditModel, "step", 22, lambda self, episodes, segments, rng: (
        self, episodes, segments._replace(payments=segments.payments * NAN), rng)),
}  # fmt: skip


@pytest.mark.parametrize("loss", POISONS)
def test_a_loss_that_is_not_finite_is_named_and_the_last_checkpoint_kept(
    tmp_path, clean, loss  # noqa: F811
):  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        at_call(patch, *POISONS[loss])
        with pytest.raises(DivergedError, match=f"the {loss} loss became nan") as caught:
            play(tmp_path / "run", tiny_config())
    assert caught.value.exit_code == 4
    arrays, state = newest_checkpoint(tmp_path / "run")
    assert state["step"] == 120
    assert all(np.isfinite(array).all() for array in arrays.values() if array.dtype.kind == "f")
    assert_resumes(tmp_path / "run", clean[1])


# --- physics that diverges --------------------------------------------------------------------


def test_a_hopeless_task_ends_the_run(tmp_path, monkeypatch):
    real = PointMasses.step

    def diverging(self, actions):
        states, *rest = real(self, actions)
        if self.num_envs == 2:  # not in evaluations
            states[1] = NAN
        return states, *rest

    monkeypatch.setattr(PointMasses, "step", diverging)
    with pytest.raises(UnstableError, match=r"gain-0\.75-180 diverged"):
        play(tmp_path / "run", tiny_config(steps=60 * (MAX_UNSTABLE + 1)))


# --- damaged files ----------------------------------------------------------------------------


def stopped_run(out: Path) -> Path:
    """Three rounds of six, as a kill would leave them."""
    with pytest.MonkeyPatch.context() as patch:
        at_call(patch, TD3, "update", 35, lambda *args: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            play(out, tiny_config())
    assert len(list((out / "checkpoints").iterdir())) == 2
    return out


def test_a_damaged_checkpoint_falls_back_on_the_one_before(tmp_path, clean):  # noqa: F811
    out = stopped_run(tmp_path / "run")
    newest = sorted((out / "checkpoints").iterdir())[-1]
    content = newest.read_bytes()
    newest.write_bytes(content[:-1])
    said = assert_resumes(out, clean[1])
    assert len(said) == 1
    assert newest.name in said[0]
    assert "the checkpoint before it" in said[0]


def test_without_a_sound_checkpoint_nothing_is_overwritten(tmp_path):
    out = stopped_run(tmp_path / "run")
    for path in (out / "checkpoints").iterdir():
        path.write_bytes(b"rubbish")
    before = (out / "metrics.csv").read_text()
    with pytest.raises(DataError, match=r"step-0000000\d{3}"):
        play(out, tiny_config(), resume=True)
    assert (out / "metrics.csv").read_text() == before


def test_a_damaged_or_missing_round_is_named(tmp_path, clean):  # noqa: F811
    out = stopped_run(tmp_path / "run")
    path = out / "replay/round-00002.safetensors"
    content = path.read_bytes()
    path.write_bytes(content[:-3] + b"abc")
    with pytest.raises(DataError, match=r"^\S*round-00002\.safetensors: ") as caught:
        play(out, tiny_config(), resume=True)
    assert len(str(caught.value).splitlines()) == 1
    path.unlink()
    with pytest.raises(MissingInputError, match=r"round-00002\.safetensors"):
        play(out, tiny_config(), resume=True)
    path.write_bytes(content)
    assert_resumes(out, clean[1])


def test_a_checkpoint_of_other_networks_is_refused(tmp_path):

    out = stopped_run(tmp_path / "run")
    for key, value in (
        ("td3.hidden", (9, 9)),
        ("context.context_size", 4),
        ("action.hidden", (9,)),
    ):
        other = tiny_config(mcat=overlay(tiny_config().mcat, {key: value}))
        with pytest.raises(DataError, match=r"checkpoint|state") as caught:
            play(out, other, resume=True)
        assert caught.value.exit_code == 65


# --- full disks -------------------------------------------------------------------------------


def test_a_checkpoint_that_does_not_fit_the_disk_leaves_the_ones_before(tmp_path, clean):  # noqa: F811
    out = stopped_run(tmp_path / "run")
    before = {path.name: path.read_bytes() for path in (out / "checkpoints").iterdir()}
    size = min(map(len, before.values()))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size - 4096, hard))  # all other files are smaller
    try:
        with pytest.raises(StorageError, match=r"step-\d+\.safetensors") as caught:
            play(out, tiny_config(), resume=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert caught.value.exit_code == 74
    after = {path.name: path.read_bytes() for path in (out / "checkpoints").iterdir()}
    assert after == before
    assert not list(out.rglob("*.part-*"))
    assert_resumes(out, clean[1])


@pytest.mark.parametrize("file", ["metrics.csv", "episodes.csv", "round-", "policy.", "contexts."])
def test_any_other_file_that_cannot_be_written_ends_the_run_cleanly(
    tmp_path, clean, file  # noqa: F811
):  # fmt: skip
    real = os.replace

    def full(part, final):
        if (
            file in str(final)
            and (tmp_path / "run/checkpoints/step-0000000180.safetensors").exists()
        ):
            raise OSError(28, "No space left on device")
        real(part, final)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "replace", full)
        with pytest.raises(StorageError, match=r"No space left.*free some space"):
            play(tmp_path / "run", tiny_config())
    assert newest_checkpoint(tmp_path / "run")[1]["step"] == 180
    assert_resumes(tmp_path / "run", clean[1])


# --- memory -----------------------------------------------------------------------------------

MEMORY = """
import resource, sys
import numpy as np, torch
from mcat.agents.meta.algorithm import RANDOM, TaskSet, Round
from mcat.agents.meta.mcat import MCAT
from mcat.agents.meta.config import PRESETS
from mcat.config import overlay
from mcat.datasets.episodes import EpisodeStore

torch.set_num_threads(1)
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # MiB
before = peak()
names = tuple("abcd")
task_set = TaskSet(train=names, test=(), observation_size=27, action_size=8, horizon=1000,
                   delay=500, make=None)
config = overlay(PRESETS["fast"].mcat, {
    "start_steps": 4000, "updates_per_step": 0.002, "learn_while_acting": False,
    "context.max_steps": 4,
    "context.evaluate_every": 2, "action.steps": 2})
agent = MCAT(task_set, config, np.random.SeedSequence(0))
rng = np.random.default_rng(0)
for number in range(250):
    episodes = EpisodeStore(27, 8)
    for task in range(4):
        path = rng.standard_normal((1001, 27), dtype=np.float32)
        episodes.append_episode(observations=path[:-1], next_observations=path[1:],
                                actions=rng.uniform(-1, 1, (1000, 8)).astype(np.float32),
                                rewards=rng.standard_normal(1000), task=task)
    agent.remember(Round(step=4000 * (number + 1), episodes=episodes, drivers=(RANDOM,) * 4))
assert len(agent.replay) == 1_000_000 and len(agent.imitation) == 50_000
filled = peak()
found = agent.learn(lambda phase, done, total: None)
assert all(np.isfinite(value) for value in found.values()), found
print(f"{before:.0f} {filled:.0f} {peak():.0f}")
"""


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_million_steps_of_ant_stay_under_two_gigabytes():
    """Replay, self-imitation, all models and one whole iteration; torch itself included."""
    done = subprocess.run(
        [sys.executable, "-c", MEMORY], check=True, capture_output=True, text=True
    )
    before, filled, after = map(float, done.stdout.split())
    print(f"MiB: {before:.0f} after imports, {filled:.0f} filled, {after:.0f} after learning")
    assert after < 2048
