"""Meta-training runs: what they leave behind, and that equal ones are equal to the bit."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mcat import safe_io
from mcat.agents.meta.config import MetaTrainConfig
from mcat.agents.meta.evaluation import Evaluation
from mcat.agents.meta.rounds import load_rounds, save_round
from mcat.agents.policies.context_policy import ContextPolicy
from mcat.agents.runs import folder as runs
from mcat.agents.td3 import TD3
from mcat.config import overlay
from mcat.datasets.arrays import DTYPES
from mcat.errors import DataError, MissingInputError
from mcat.interrupts import Interrupts
from mcat.tensor_files import digest, load_safetensors, save_safetensors
from mcat.translator.action import ActionTraining
from tests.agents.meta.point_mass import (
    TINY,
    PointMasses,
    random_round,
    tiny_config,
    tiny_task_set,
    trainer,
)


@pytest.fixture(autouse=True, scope="module")
def small_and_fast():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "_tensorboard", lambda folder, until: None)  # slow to import
        patch.setattr(safe_io, "flush_to_disk", lambda path: None)  # no power fails here
        yield


def play(out: Path, config: MetaTrainConfig, *, resume: bool = False) -> list[str]:
    """A run to its end, or on to it; returns what was announced."""
    said: list[str] = []
    work = trainer(out, config, tiny_task_set())
    if resume:
        work.restore(said.append)
    with Interrupts() as stop:
        work.run(stop, quiet=True)
    return said


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def contents(run: Path) -> dict[str, str]:
    """Everything that learning determines, times left out."""
    metrics = [
        {k: v for k, v in row.items() if not k.startswith("time/") and k != "charts/SPS"}
        for row in rows(run / "metrics.csv")
    ]
    found = {"metrics": json.dumps(metrics), "episodes": (run / "episodes.csv").read_text()}
    for path in sorted(run.glob("*.safetensors")):
        arrays, header = load_safetensors(path)
        found[path.stem] = digest(arrays, json.dumps(header))
    newest = sorted((run / "checkpoints").glob("step-*"))[-1]
    for path in [newest, *sorted((run / "replay").glob("round-*"))]:
        found[path.name] = digest(load_safetensors(path)[0])
    return found


@pytest.fixture(scope="module")
def clean(tmp_path_factory):
    """An uninterrupted run and what it left."""
    out = tmp_path_factory.mktemp("clean") / "run"
    play(out, tiny_config())
    return out, contents(out)


# --- what a run leaves behind -----------------------------------------------------------------


def test_metrics_and_episodes_say_what_happened(clean):
    out, _ = clean
    metrics, episodes = rows(out / "metrics.csv"), rows(out / "episodes.csv")
    assert [int(row["step"]) for row in metrics] == [60, 120, 180, 240, 300, 360]
    assert [int(row["iteration"]) for row in metrics] == [1, 2, 3, 4, 5, 6]
    task_set = tiny_task_set()
    for row in metrics:
        own = [e for e in episodes if e["iteration"] == row["iteration"]]
        assert [e["task"] for e in own] == list(task_set.train)
        assert np.mean([float(e["return"]) for e in own]) == pytest.approx(
            float(row["collect/return"])
        )
        transferred = np.mean([e["driver"] in task_set.train for e in own])
        assert transferred == float(row["collect/transferred"])
        assert (row["eval/train"] == "nan") == (int(row["iteration"]) % 2 == 1)
        by_task = [float(row[f"eval/train/{name}"]) for name in task_set.train]
        np.testing.assert_allclose(np.mean(by_task), float(row["eval/train"]))
    assert {e["driver"] for e in episodes[:2]} == {"random"}
    drivers = {e["driver"] for e in episodes[2:]}
    assert "shared" in drivers  # both kinds happened
    assert drivers & set(task_set.train)
    assert float(metrics[-1]["time/seconds"]) > 0
    learned = [name for name in metrics[0] if name.startswith(("losses/", "model/"))]
    assert len(learned) == 10
    assert all(np.isfinite(float(metrics[3][name])) for name in learned)


def test_the_saved_policy_earns_what_the_last_row_says(clean):
    out, _ = clean
    policy = ContextPolicy.load(out / "policy.safetensors")
    assert policy.metadata["step"] == 360

    class Saved:
        acting_policy = staticmethod(lambda tasks, trials: policy.start_episode())

    found = Evaluation(tiny_task_set(), 2, seed=0).run(Saved())
    last = rows(out / "metrics.csv")[-1]
    assert {name: repr(value) for name, value in found.items()} == {k: last[k] for k in found}
    assert policy.metadata["returns"] == found


def test_the_best_policy_is_that_of_the_best_evaluation(clean):
    out, _ = clean
    values = {int(r["step"]): float(r["eval/train"]) for r in rows(out / "metrics.csv")}
    best = max((step for step in values if values[step] == values[step]), key=values.__getitem__)
    assert ContextPolicy.load(out / "policy-best.safetensors").metadata["step"] == best


def test_contexts_come_with_the_numbers_of_their_tasks(clean):
    arrays, header = load_safetensors(clean[0] / "contexts.safetensors")
    assert header["names"] == list(tiny_task_set().names)
    assert header["step"] == 360
    assert arrays["contexts"].shape == (len(arrays["tasks"]), 3)
    assert set(arrays["tasks"].tolist()) == {0, 1, 2}


def test_rounds_come_back_as_they_were_written(tmp_path):
    task_set = tiny_task_set()
    written = [random_round(task_set, number) for number in range(3)]
    seals = [save_round(tmp_path, number, one) for number, one in enumerate(written, start=1)]
    for before, after in zip(written, load_rounds(tmp_path, seals), strict=True):
        assert (after.step, after.drivers) == (before.step, before.drivers)
        assert np.array_equal(after.episodes.tasks, before.episodes.tasks)
        assert np.array_equal(after.episodes.lengths, before.episodes.lengths)
        for name in DTYPES:
            assert np.array_equal(after.episodes.column(name), before.episodes.column(name)), name
        assert np.array_equal(after.returns, before.returns)


def test_a_round_that_lacks_something_is_refused(tmp_path):
    save_round(tmp_path, 1, random_round(tiny_task_set(), 0))
    path = tmp_path / "round-00001.safetensors"
    arrays, header = load_safetensors(path)
    for bad_arrays, bad_header in (
        ({k: v for k, v in arrays.items() if k != "lengths"}, header),
        (arrays, {"step": 60}),
        (arrays, header | {"drivers": ["random"]}),
        (arrays | {"actions": arrays["actions"][:-1]}, header),
    ):
        save_safetensors(path, bad_arrays, bad_header, overwrite=True)
        with pytest.raises(DataError, match="round-00001"):
            list(load_rounds(tmp_path, [None]))
    save_safetensors(path, arrays, header, overwrite=True)
    with pytest.raises(MissingInputError, match="round-00002"):
        list(load_rounds(tmp_path, [None, None]))


# --- equal runs -------------------------------------------------------------------------------


def test_equal_seeds_give_equal_runs_and_others_do_not(tmp_path, clean):
    play(tmp_path / "again", tiny_config())
    assert contents(tmp_path / "again") == clean[1]
    play(tmp_path / "other", tiny_config(seed=1))
    other = contents(tmp_path / "other")
    assert all(other[name] != clean[1][name] for name in clean[1])


def test_another_process_gives_the_same_run(tmp_path, clean):
    program = (
        "import sys; from pathlib import Path; import torch\n"
        "from tests.agents.meta import test_loop as t\n"
        "torch.set_num_threads(1)\n"
        "torch.manual_seed(99); t.np.random.seed(99)  # global streams must not matter\n"
        "t.runs._tensorboard = lambda folder, until: None\n"
        "t.play(Path(sys.argv[1]), t.tiny_config())\n"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "run")], check=True)
    assert contents(tmp_path / "run") == clean[1]


# --- kills ------------------------------------------------------------------------------------


def die_at_call(owner, name: str, call: int) -> None:
    """Make this process die in the middle of a call of `owner.name`."""
    real, calls = getattr(owner, name), iter(range(10**9))

    def wrapper(*args, **kwargs):
        if next(calls) == call:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*args, **kwargs)

    setattr(owner, name, wrapper)


def die_replacing(text: str, count: int) -> None:
    """Make this process die when a file of that name is written but does not have it yet."""
    real, left = os.replace, [count]

    def wrapper(part, final):
        if text in str(final):
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
        real(part, final)

    os.replace = wrapper


def spawn(work) -> int:
    """Runs `work` in a fork; returns how that ended."""
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(99)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


DEATHS = {
    "in the first round": lambda: die_at_call(PointMasses, "step", 3),
    "collecting": lambda: die_at_call(PointMasses, "step", 105),
    "learning dynamics": lambda: die_at_call(ActionTraining, "sample", 15),
    "learning to act": lambda: die_at_call(TD3, "update", 27),
    "writing metrics": lambda: die_replacing("metrics.csv", 3),
    "writing the policy": lambda: die_replacing("policy.safetensors", 2),
    "writing the round": lambda: die_replacing("round-", 4),
    "writing the first checkpoint": lambda: die_replacing("step-", 1),
    "writing a checkpoint": lambda: die_replacing("step-", 4),
}


@pytest.mark.parametrize("death", DEATHS)
def test_a_killed_run_goes_on_as_if_nothing_had_happened(tmp_path, clean, death):
    def work():
        DEATHS[death]()
        play(tmp_path / "run", tiny_config())

    assert spawn(work) == -signal.SIGKILL
    play(tmp_path / "run", tiny_config(), resume=True)
    assert contents(tmp_path / "run") == clean[1]


@pytest.mark.parametrize(
    "changes",
    [
        {"translator": "cycle"},
        {"transfer": False, "imitate": False, "credit.kind": "none"},
        {"target_context": "online", "credit.kind": "uniform", "start_steps": 180},
    ],
    ids=str,
)
def test_every_kind_of_run_goes_on_exactly_from_its_middle(tmp_path, changes):
    config = tiny_config(mcat=overlay(TINY, changes))
    play(tmp_path / "whole", config)
    for steps in (60, 180):
        play(tmp_path / f"{steps}", replace(config, steps=steps))
        # A shorter run ends with an evaluation, which is no state.
        play(tmp_path / f"{steps}", config, resume=True)
        parts, whole = contents(tmp_path / f"{steps}"), contents(tmp_path / "whole")
        for name in ("episodes", "policy", "step-0000000360.safetensors"):
            assert parts[name] == whole[name], name
