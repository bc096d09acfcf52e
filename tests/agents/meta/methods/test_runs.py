"""Runs of every method: equal ones are equal to the bit, and evaluating changes nothing."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import numpy as np
import pytest
import torch

from mcat.agents.crossq import CrossQ
from mcat.agents.meta.evaluation import Evaluation
from mcat.agents.meta.methods.recurrent_td3 import RecurrentTD3
from mcat.agents.meta.methods.registry import METHODS
from mcat.agents.policies.coded_policy import CodedPolicy
from mcat.agents.policies.policy import load_policy
from mcat.agents.policies.recurrent_policy import RecurrentPolicy
from mcat.agents.sac import SAC
from mcat.errors import DivergedError
from mcat.interrupts import Interrupts
from tests.agents.meta.methods.made import NAMES, play, tiny_run, trainer
from tests.agents.meta.point_mass import PointMasses, no_progress, random_round, tiny_task_set
from tests.agents.meta.test_loop import (
    contents,
    die_at_call,
    die_replacing,
    rows,
    small_and_fast,  # noqa: F401
    spawn,
)

BOTH = pytest.mark.parametrize("fast", [False, True], ids=["cpu", "fast"])
EACH = pytest.mark.parametrize("method", NAMES)


@pytest.fixture(scope="module")
def clean(tmp_path_factory):
    """What uninterrupted runs left, made when asked for."""
    folder, found = tmp_path_factory.mktemp("clean"), {}

    def run(method: str, fast: bool):
        if (method, fast) not in found:
            out = folder / f"{method}-{fast}"
            play(out, tiny_run(method, fast=fast))
            found[method, fast] = out, contents(out)
        return found[method, fast]

    return run


def test_every_method_is_tried():
    assert {"mcat", *NAMES} == set(METHODS)


@EACH
@BOTH
def test_a_run_says_what_happened(clean, method, fast):
    out, _ = clean(method, fast)
    metrics, episodes = rows(out / "metrics.csv"), rows(out / "episodes.csv")
    assert [int(row["step"]) for row in metrics] == [60, 120, 180, 240, 300, 360]
    algorithm = trainer(out, tiny_run(method, fast=fast)).algorithm
    assert set(algorithm.metrics) < set(metrics[0])
    last = metrics[-1]
    always = [name for name in algorithm.metrics if not name.startswith("credit/")]
    assert all(np.isfinite(float(last[name])) for name in always)
    assert (float(last["losses/imitation"]) > 0) is not fast
    assert ("eval/untried/test" in last) == (algorithm.trials > 0)
    assert "time/dynamics" not in last
    drivers = {"distral": {"own"}, "pearl": {"prior", "posterior"}}.get(method, {"shared"})
    assert {row["driver"] for row in episodes} == {"random", *drivers}


@EACH
@BOTH
def test_a_killed_run_goes_on_as_if_nothing_had_happened(tmp_path, clean, method, fast):
    learner = RecurrentTD3 if method == "mql" else SAC
    deaths = {
        "collecting": lambda: die_at_call(PointMasses, "step", 105),
        "learning": lambda: die_at_call(learner, "update", 27),
        "a checkpoint": lambda: die_replacing("step-", 4),
    }
    for name, death in deaths.items():
        out = tmp_path / name

        def work(out=out, death=death):
            death()
            play(out, tiny_run(method, fast=fast))

        assert spawn(work) == -signal.SIGKILL
        play(out, tiny_run(method, fast=fast), resume=True)
        assert contents(out) == clean(method, fast)[1], name


def test_another_process_gives_the_same_runs(tmp_path, clean):
    program = (
        "import sys; from pathlib import Path; import torch\n"
        "from mcat.agents.runs import folder as runs\n"
        "from tests.agents.meta.methods.made import NAMES, play, tiny_run\n"
        "import numpy\n"
        "torch.set_num_threads(1)\n"
        "torch.manual_seed(99); numpy.random.seed(99)  # global streams must not matter\n"
        "runs._tensorboard = lambda folder, until: None\n"
        "for name in NAMES: play(Path(sys.argv[1]) / name, tiny_run(name, fast=True))\n"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True)
    for name in NAMES:
        assert contents(tmp_path / name) == clean(name, True)[1], name


@EACH
@BOTH
def test_evaluating_changes_nothing(tmp_path, clean, method, fast):
    """Neither a tensor nor a stream of random numbers, and it finds the same every time."""
    config = tiny_run(method, fast=fast)
    work = trainer(tmp_path / "run", config)
    out, _ = clean(method, fast)
    for name in ("checkpoints", "replay"):
        (tmp_path / "run" / name).symlink_to(out / name)
    work.restore()
    algorithm = work.algorithm
    # Rows to adapt with come with a round: learn as the run would have before it evaluated.
    algorithm.prepare(no_progress)
    algorithm.learn(no_progress)
    tensors = {name: tensor.clone() for name, tensor in algorithm.tensors().items()}
    state = json.dumps(algorithm.state())
    found = [work.evaluation.run(algorithm) for _ in range(2)]
    assert found[0] == found[1]
    assert json.dumps(algorithm.state()) == state
    after = algorithm.tensors()
    assert all(torch.equal(after[name], tensors[name]) for name in tensors)
    assert after.keys() == tensors.keys()


@EACH
def test_a_run_that_is_not_looked_at_learns_the_same(tmp_path, clean, method):
    rarely = tiny_run(method, evaluate_every=100)
    play(tmp_path / "run", rarely)
    found, wanted = contents(tmp_path / "run"), clean(method, False)[1]
    for name in ("episodes", "policy", "step-0000000360.safetensors"):
        assert found[name] == wanted[name]


@EACH
@BOTH
def test_a_saved_policy_earns_what_the_evaluation_said(clean, method, fast):
    """Of MQL, which adapts by more than the file holds, what it earned before."""
    out, _ = clean(method, fast)
    policy, last = load_policy(out / "policy.safetensors"), rows(out / "metrics.csv")[-1]
    names = tiny_task_set().names
    assert (policy.observation_size, policy.action_size) == (2, 2)

    class Saved:
        @staticmethod
        def acting_policy(tasks, trials):
            if isinstance(policy, RecurrentPolicy):
                return policy.start_episode()
            return policy.begin(tasks, names, trials)

    trials = (
        METHODS[method].make(tiny_task_set(), tiny_run(method), np.random.SeedSequence(0)).trials
    )
    found = Evaluation(tiny_task_set(), 2, 0, trials).run(Saved())
    assert isinstance(policy, RecurrentPolicy if method == "mql" else CodedPolicy)
    compared = [name for name in found if method != "mql" or "untried" in name]
    assert compared
    tolerance = 1e-6 if method == "mql" else 0  # torch's GRU rounds by where its weights lie
    for name in compared:
        assert found[name] == pytest.approx(float(last[name]), rel=tolerance, abs=0), name


@EACH
def test_a_loss_that_is_not_finite_is_named(tmp_path, method):
    algorithm = trainer(tmp_path, tiny_run(method)).algorithm
    for number in range(2):
        algorithm.remember(random_round(tiny_task_set(), number))
    with torch.no_grad():
        algorithm.learner.critics.layers[0].fill_(float("nan"))
    with pytest.raises(DivergedError, match=r"the critic loss became nan: try a lower"):
        algorithm.learn(no_progress)


@EACH
def test_nothing_is_learned_before_the_random_actions_are_over(tmp_path, method):
    algorithm = trainer(tmp_path, tiny_run(method, **{f"{method}.start_steps": 121})).algorithm
    before = {name: tensor.clone() for name, tensor in algorithm.tensors().items()}
    for number in range(2):
        assert algorithm.plan() == ("random", "random")
        algorithm.remember(random_round(tiny_task_set(), number))
        assert all(np.isnan(value) for value in algorithm.learn(no_progress).values())
    after = algorithm.tensors()
    learned = [name for name in before if not name.startswith(("imitation", "credit"))]
    assert all(torch.equal(after[name], before[name]) for name in learned)
    algorithm.remember(random_round(tiny_task_set(), 2))
    assert "random" not in algorithm.plan()


def test_a_signal_ends_a_run_between_two_updates(tmp_path):
    work = trainer(tmp_path, tiny_run("pcgrad"))
    with Interrupts() as stop:
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(Exception, match="stopped in iteration 1"):
            work.run(stop, quiet=True)


def test_the_fast_ones_have_the_critics_of_crossq(tmp_path):
    for method in NAMES:
        learner = trainer(tmp_path / method, tiny_run(method, fast=True)).algorithm.learner
        assert not isinstance(learner, CrossQ)
        assert hasattr(learner.critics, "norms"), method
