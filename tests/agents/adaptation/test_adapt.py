"""Adaptations: the known optimum, exact resumption, the budget, live machines and their faults."""

from __future__ import annotations

import csv
import os
import signal
from dataclasses import replace
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch

from mcat.agents.adaptation import machine as machines
from mcat.agents.adaptation.config import AdaptConfig, AnchoredConfig
from mcat.agents.adaptation.run import adapt
from mcat.agents.adaptation.trainer import Adapter
from mcat.agents.policies.names import open_policy
from mcat.agents.runs import folder as runs
from mcat.datasets.collect import CollectConfig, collect
from mcat.datasets.interop import load
from mcat.envs.tasks import Task
from mcat.errors import DataError, DivergedError, RetryError, UnstableError, UsageError
from mcat.safe_io import read_json
from mcat.tensor_files import load_safetensors
from tests.agents.adaptation.linear import (
    DISCOUNT,
    LENGTH,
    LinearEnv,
    best,
    best_gain,
    gained,
    linear_logs,
    seen,
)

TASK = Task("hopper", horizon=20)
SMALL = AnchoredConfig(hidden=(8, 8))


@pytest.fixture(autouse=True)
def no_tensorboard(monkeypatch):
    monkeypatch.setattr(runs, "_tensorboard", lambda folder, until: None)  # slow to import


@pytest.fixture(scope="module")
def hopper_logs(tmp_path_factory):
    path = tmp_path_factory.mktemp("logs") / "hopper.h5"
    collect(CollectConfig(task=TASK, steps=200), None, path, quiet=True)
    return load(path)[0]


def config(**changes) -> AdaptConfig:
    small = {"offline_updates": 60, "updates_per_step": 2, "batch_size": 8, "evaluate_every": 20,
             "evaluation_episodes": 1, "checkpoint_every": 25, "learner": SMALL}  # fmt: skip
    return AdaptConfig(**small | {"task": TASK} | changes)


def live(**changes) -> AdaptConfig:
    return config(task=None, live="linear", evaluation_episodes=None, **changes)


def constant(obs):
    return np.full((len(obs), 3), 0.25, np.float32)


def weights(out: Path):
    return load_safetensors(out / "policy.safetensors")[0]


def measured(out: Path):
    """The rows of metrics, without how long they took."""
    with (out / "metrics.csv").open() as file:
        return [{k: v for k, v in row.items() if "time/" not in k} for row in csv.DictReader(file)]


def same(one: Path, two: Path) -> bool:
    left, right = weights(one), weights(two)
    equal = left.keys() == right.keys() and all(np.array_equal(left[k], right[k]) for k in left)
    return equal and measured(one) == measured(two)


# --- what is learned ------------------------------------------------------------------------


def linear_config(**changes) -> AdaptConfig:
    learner = AnchoredConfig(hidden=(32, 32), learning_rate=2e-3, discount=DISCOUNT, greed=50.0,
                             target_rate=0.02, deployed_rate=0.02)  # fmt: skip
    usual = {"offline_updates": 1200, "batch_size": 128, "learner": learner}
    return AdaptConfig(**usual | changes)


@pytest.mark.parametrize("delay", [1, 5])
def test_logs_of_random_actions_are_enough_for_the_best_policy_of_a_linear_machine(tmp_path, delay):
    """Seeds 0 to 2 reach 0.95 to 0.99 of it, with payments at once and late alike."""
    assert 0.5 < best_gain() < 1  # from starts within [-1, 1] the best actions are, too
    settings = linear_config(log_delay=delay)
    adapt(settings, tmp_path / "run", linear_logs(delay=delay), quiet=True)
    assert gained(open_policy(tmp_path / "run")) > 0.9


def test_a_good_policy_in_the_anchor_helps_the_timid(tmp_path):
    """Without it, an actor that must stay near random actions hardly moves."""
    timid = replace(linear_config().learner, greed=0.1)
    found = {}
    for name, policy in (("with", best), ("without", None)):
        settings = linear_config(learner=timid, offline_updates=600)
        adapt(settings, tmp_path / name, linear_logs(), policy, quiet=True)
        found[name] = gained(open_policy(tmp_path / name))
    assert found["with"] > found["without"] + 0.1


def test_real_steps_find_what_logs_do_not_tell(tmp_path):
    """The logs are of a machine that nobody rewarded; real episodes show what is good."""
    logs = linear_logs()
    silent = type(logs).from_arrays(
        **{name: logs.column(name) for name in ("observations", "actions", "next_observations")},
        episode_ends=logs.episode_ends,
    )
    settings = linear_config(
        live="linear", steps=20 * LENGTH, log_share=0.0, offline_updates=0, exploration=0.5,
        updates_per_step=4, random_steps=50,
    )  # fmt: skip
    adapt(settings, tmp_path / "run", silent, live=LinearEnv(), quiet=True)
    assert gained(open_policy(tmp_path / "run")) > 0.8


def test_a_clone_of_the_policy_acts_like_it(tmp_path):
    learner = replace(linear_config().learner, greed=0.0)
    settings = linear_config(anchor="policy", learner=learner, offline_updates=400)
    adapt(settings, tmp_path / "run", linear_logs(), best, quiet=True)
    obs = seen(np.linspace(-1, 1, 9)).astype(np.float32)
    assert np.allclose(open_policy(tmp_path / "run")(obs), best(obs), atol=0.1)


# --- the budget -----------------------------------------------------------------------------


@pytest.mark.parametrize("task", [TASK, None])
def test_without_real_steps_no_environment_is_touched(tmp_path, monkeypatch, hopper_logs, task):
    def refuse(*args, **kwargs):
        raise AssertionError("an environment was made")

    for place in ("mcat.envs.lockstep.lockstep", "gymnasium.make"):
        monkeypatch.setattr(place, refuse)
    settings = config(task=task, evaluation_episodes=None)
    result = adapt(settings, tmp_path / "run", hopper_logs, constant, quiet=True)
    assert (result.step, result.mean_return) == (0, None)
    assert open_policy(tmp_path / "run").action_size == 3
    with pytest.raises(AssertionError, match="was made"):  # so that the above could have failed
        adapt(config(), tmp_path / "other", hopper_logs, quiet=True)


def test_an_anchor_may_hold_while_real_steps_are_made(tmp_path):
    """With rewards that lead astray, only what holds on to the policy still acts like it."""
    learner, found = replace(linear_config().learner, greed=0.01), {}
    for weight in (0.0, 1.0):
        settings = linear_config(
            live="linear", steps=60, anchor="policy", learner=learner, offline_updates=200,
            updates_per_step=5, online_anchor=weight,
        )  # fmt: skip
        env = type("Astray", (LinearEnv,), {"step": lambda self, a: _astray(self, a)})()
        adapt(settings, tmp_path / str(weight), linear_logs(), best, live=env, quiet=True)
        found[weight] = gained(open_policy(tmp_path / str(weight)))
    assert found[1.0] > 0.9
    assert found[0.0] < found[1.0] - 0.2


def _astray(env, action):
    obs, _, *rest = LinearEnv.step(env, action)
    return obs, 10 * float(action[0]), *rest  # whatever the state, the more the better


@pytest.mark.parametrize("steps", [1, 7, 10, 25])
def test_a_live_machine_makes_exactly_as_many_steps_as_allowed(tmp_path, steps):
    env = LinearEnv()
    result = adapt(live(steps=steps), tmp_path / "run", linear_logs(), live=env, quiet=True)
    assert env.steps == result.step == steps
    assert measured(tmp_path / "run")[-1]["charts/episodes"] == str(steps // LENGTH)
    assert read_json(tmp_path / "run" / "result.json")["step"] == steps


def test_actions_are_stretched_to_what_the_machine_takes(tmp_path):
    taken = []

    class Noting(LinearEnv):
        def step(self, action):
            taken.append(action.copy())
            return super().step(action)

    adapt(live(steps=20, random_steps=20), tmp_path / "run", linear_logs(), live=Noting(),
          quiet=True)  # fmt: skip
    assert 1.5 < np.abs(taken).max() <= 2.0


def test_more_steps_may_be_asked_for_later(tmp_path, hopper_logs):
    adapt(config(steps=0), tmp_path / "run", hopper_logs, constant, quiet=True)
    adapt(config(steps=33), tmp_path / "run", hopper_logs, constant, resume=True, quiet=True)
    adapt(config(steps=33), tmp_path / "once", hopper_logs, constant, quiet=True)
    assert same(tmp_path / "run", tmp_path / "once")
    with pytest.raises(UsageError, match="33 real steps already"):
        adapt(config(steps=20), tmp_path / "run", hopper_logs, constant, resume=True)


# --- going on -------------------------------------------------------------------------------


def killed(method: str, at: int, *arguments, **keywords) -> None:
    """Run an adaptation in a child that dies by SIGKILL at its `at`-th call of that method."""
    child = os.fork()
    if child == 0:
        calls, inner = [0], getattr(Adapter, method)

        def counting(self):
            calls[0] += 1
            if calls[0] == at:
                os.kill(os.getpid(), signal.SIGKILL)
            inner(self)

        setattr(Adapter, method, counting)
        try:
            adapt(*arguments, quiet=True, **keywords)
        finally:
            os._exit(99)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


@pytest.mark.parametrize(
    ("method", "at"),
    [("_learn_from_logs", 3), ("_learn_from_logs", 57), ("_one_step", 1), ("_one_step", 31)],
)
@pytest.mark.parametrize("delay", [1, 4])
def test_a_killed_run_goes_on_exactly(tmp_path, hopper_logs, method, at, delay):
    settings = config(task=TASK.replace(delay=delay), steps=45, log_delay=delay)
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    adapt(settings, whole, hopper_logs, constant, quiet=True)
    killed(method, at, settings, broken, hopper_logs, constant)
    adapt(settings, broken, hopper_logs, constant, resume=True, quiet=True)
    assert same(whole, broken)
    adapt(settings, broken, hopper_logs, constant, resume=True, quiet=True)  # found done
    assert same(whole, broken)


@pytest.mark.parametrize("at", [1, 12, 31])
def test_a_live_machine_makes_no_step_twice_though_its_run_is_killed(tmp_path, at):
    count, run = tmp_path / "count", tmp_path / "run"
    settings = live(steps=45, delay=5)
    logs = linear_logs(delay=5)
    env = LinearEnv(str(count), delay=5)
    killed("_one_step", at, settings, run, logs, live=env)
    adapt(settings, run, logs, live=env, resume=True, quiet=True)
    assert count.stat().st_size == 45


def test_the_tape_alone_gives_the_same_policy_again(tmp_path):
    """Also if the process died while the machine was moving: that step counts, and is lost."""
    count, run = tmp_path / "count", tmp_path / "run"

    class Deadly(LinearEnv):
        def step(self, action):
            answer = super().step(action)
            if self.steps == 23:
                os.kill(os.getpid(), signal.SIGKILL)
            return answer

    settings = live(steps=45)
    child = os.fork()
    if child == 0:
        adapt(settings, run, linear_logs(), live=Deadly(str(count)), quiet=True)
        os._exit(99)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    adapt(settings, run, linear_logs(), live=LinearEnv(str(count)), resume=True, quiet=True)
    assert count.stat().st_size == 45
    first, rows = weights(run), measured(run)
    for path in (run / "checkpoints").iterdir():
        path.unlink()

    class Untouchable(LinearEnv):
        def reset(self, **kwargs):
            raise AssertionError("the machine was touched")

        step = reset

    adapt(settings, run, linear_logs(), live=Untouchable(), resume=True, quiet=True)
    assert all(np.array_equal(first[name], weights(run)[name]) for name in first)
    assert measured(run) == rows


def test_another_run_in_the_folder_is_named_and_kept(tmp_path, hopper_logs):
    run = tmp_path / "run"
    adapt(config(), run, hopper_logs, made_of={"log 0": "a"}, quiet=True)
    before = weights(run)
    with pytest.raises(UsageError, match=r"learner\.greed: 2\.5 there, 1\.0 here"):
        adapt(config(learner=replace(SMALL, greed=1.0)), run, hopper_logs, resume=True,
              made_of={"log 0": "a"})  # fmt: skip
    with pytest.raises(UsageError, match="log 0: a there, b here"):
        adapt(config(), run, hopper_logs, made_of={"log 0": "b"}, resume=True)
    assert all(np.array_equal(before[name], weights(run)[name]) for name in before)


# --- machines that fail ---------------------------------------------------------------------


def test_a_machine_that_fails_is_told_of_and_its_run_goes_on(tmp_path):
    count, run = tmp_path / "count", tmp_path / "run"
    settings = live(steps=30)
    with pytest.raises(RetryError, match="ConnectionError: the cable is loose") as told:
        adapt(settings, run, linear_logs(), live=LinearEnv(str(count), fails_at=14), quiet=True)
    assert told.value.exit_code == 75
    adapt(settings, run, linear_logs(), live=LinearEnv(str(count)), resume=True, quiet=True)
    assert count.stat().st_size == 30


def test_a_sensor_that_fails_ends_the_episode_and_teaches_nothing(tmp_path):
    env = LinearEnv(nan_at=(4, 5, 17))
    adapt(live(steps=30), tmp_path / "run", linear_logs(), live=env, quiet=True)
    assert env.steps == 30
    assert all(np.isfinite(array).all() for array in weights(tmp_path / "run").values())
    assert float(measured(tmp_path / "run")[-1]["charts/episodes"]) == 2


def test_a_sensor_that_is_broken_stops_the_run(tmp_path):
    env = LinearEnv(nan_at=range(100))
    with pytest.raises(UnstableError, match="last 10 episodes"):
        adapt(live(steps=30), tmp_path / "run", linear_logs(), live=env, quiet=True)


def test_a_live_machine_of_another_kind_is_refused_before_anything_is_made(tmp_path, hopper_logs):
    cases = {
        "2 observations and 1 actions, the logs 11 and 3": LinearEnv(),
        "bounded Box": type("Free", (LinearEnv,), {"action_space": gym.spaces.Discrete(2)})(),
    }
    for message, env in cases.items():
        with pytest.raises(UsageError, match=message):
            adapt(live(steps=5), tmp_path / "run", hopper_logs, live=env)
    for arguments, message in ((("x",), "NAME=VALUE"), (("unheard=1",), "unexpected keyword")):
        with pytest.raises(UsageError, match=message):
            machines.open_live("McatTest/Linear-v0", arguments, (2, 1))
    with pytest.raises(UsageError, match="no live machine Nowhere-v0"):
        machines.open_live("Nowhere-v0", (), (2, 1))
    assert not (tmp_path / "run").exists()


def test_losses_without_bounds_stop_the_run(tmp_path, hopper_logs):
    wild = replace(SMALL, learning_rate=1e30)
    with pytest.raises(DivergedError, match="NaN or infinite"):
        adapt(config(learner=wild), tmp_path / "run", hopper_logs, quiet=True)


def test_a_policy_that_answers_nan_is_refused(tmp_path, hopper_logs):
    with pytest.raises(DataError, match="logged state 0 is NaN"):
        adapt(config(), tmp_path / "run", hopper_logs, lambda obs: constant(obs) * np.nan)


def test_settings_that_make_no_sense():
    for changes, message in (
        ({"steps": 5, "task": None}, "real steps need a machine"),
        ({"live": "Arm-v0"}, "one machine"),
        ({"steps": -1}, "steps must not be negative"),
        ({"log_share": 1.5}, "from 0 to 1"),
        ({"batch_size": 0}, "at least 1"),
        ({"task": None, "live": "Arm-v0", "evaluation_episodes": 3}, "would cost real steps"),
        ({"live_args": ("a=1",)}, "--live-arg is of --live"),
    ):
        with pytest.raises(UsageError, match=message):
            config(**changes)


def test_the_policy_file_acts_as_the_learner_does(tmp_path, hopper_logs):
    adapt(config(), tmp_path / "run", hopper_logs, quiet=True)
    policy = open_policy(tmp_path / "run")
    obs = hopper_logs.column("observations")[:5].copy()
    assert policy.task == TASK
    assert policy(obs).shape == (5, 3)
    assert np.abs(policy(obs)).max() <= 1
    checkpoint = sorted((tmp_path / "run" / "checkpoints").iterdir())[-1]
    arrays = load_safetensors(checkpoint)[0]
    states = torch.from_numpy(hopper_logs.column("observations").copy())
    scaled = (states - states.mean(0)) / states.std(0, correction=0).clamp_min(1e-3)
    out = scaled[:5]
    for layer in range(3):
        weight, bias = (
            torch.from_numpy(arrays[f"learner/deployed/layers.{2 * layer + k}"]) for k in range(2)
        )
        out = out @ weight[0].T + bias[0]
        out = out.relu() if layer < 2 else out.tanh()
    assert np.allclose(policy(obs), out.numpy(), atol=1e-4)
