"""Whether episodes succeed: at any step, in their own time, and where a run writes it down."""

import csv
import json
from dataclasses import replace

import numpy as np
import pytest

from mcat.agents.configs import TD3Config
from mcat.agents.evaluation import Evaluator, Trial, episode_outcomes, run_episodes
from mcat.agents.meta.algorithm import TaskSet
from mcat.agents.meta.evaluation import Evaluation
from mcat.agents.meta.loop import EPISODE_COLUMNS
from mcat.agents.meta.rounds import load_rounds
from mcat.agents.returns import Returns
from mcat.agents.runs import folder as runs
from mcat.agents.single.config import PRESETS, TrainConfig
from mcat.agents.single.run import train
from mcat.agents.single.trainer import COLUMNS
from mcat.config import overlay
from mcat.envs.families import family
from mcat.envs.robots import ROBOTS
from mcat.envs.scripted import SCRIPTED, scripted_policy
from mcat.envs.tasks import Task
from mcat.interrupts import Interrupts
from tests.agents.meta.point_mass import (
    WANTED,
    Gain,
    PointMasses,
    tiny_config,
    tiny_task_set,
    trainer,
)

NEAR = 0.45  # to the wanted speed, which counts as the goal


class Told:
    """Episodes in lockstep whose `info["success"]` is told step by step.

    Args:
        steps: One row for each step, one number for each episode; None says nothing of success.
        lengths: Of the episodes; those that are over stand still, but go on saying something.
    """

    def __init__(self, steps, lengths):
        self.num_envs, self._steps, self._lengths = len(lengths), steps, np.array(lengths)
        self.horizon = max(lengths)

    def reset(self, **options):
        self._at = 0
        return np.zeros((self.num_envs, 1)), {}

    def step(self, actions):
        running = self._at < self._lengths
        told = self._steps[self._at] if self._steps is not None else None
        self._at += 1
        info = {} if told is None else {"success": np.array(told, dtype=float)}
        never, over = np.zeros(self.num_envs, dtype=bool), self._at >= self._lengths
        return np.zeros((self.num_envs, 1)), 1.0 * running, never, over, info


def outcomes(steps, lengths):
    return episode_outcomes(Told(steps, lengths), lambda obs: obs, 0)


def test_success_at_any_step_counts():
    steps = [(0, 0, 0, 1), (0, 1, 0, 0), (0, 0, 1, 0)]  # never, in the middle, at the end, at once
    found = outcomes(steps, (3, 3, 3, 3))
    assert found.successes.tolist() == [False, True, True, True]
    assert found.returns.tolist() == [3, 3, 3, 3]


def test_what_is_said_after_the_end_does_not_count():
    steps = [(0, 0), (1, 0), (1, 1), (1, 1)]
    assert outcomes(steps, (1, 4)).successes.tolist() == [False, True]
    assert outcomes(steps, (2, 4)).successes.tolist() == [True, True]
    assert outcomes(steps, (4, 2)).successes.tolist() == [True, False]


def test_physics_that_diverged_is_no_success_and_a_robot_without_a_goal_has_none():
    assert outcomes([(np.nan, 0), (np.nan, 1)], (2, 2)).successes.tolist() == [False, True]
    assert outcomes(None, (2, 2)).successes is None
    assert [name for name, robot in ROBOTS.items() if robot.can_succeed] == list(SCRIPTED)


def test_the_scripted_policy_pushes_the_cylinder_to_its_goal():
    # It gets there between step 56 and step 64; before that nothing succeeds.
    trials = [
        Trial(str(horizon), scripted_policy("push"), Task("push", horizon=horizon))
        for horizon in (40, 100)
    ]
    (early, late), _ = run_episodes(trials, episodes=3, seed=0, quiet=True)
    assert (early.successes, early.success_rate) == ((False,) * 3, 0)
    assert (late.successes, late.success_rate) == ((True,) * 3, 1)
    cheetah = Trial("x", lambda obs: np.zeros((len(obs), 6)), Task("halfcheetah", horizon=5))
    assert run_episodes([cheetah], episodes=1, seed=0, quiet=True)[0][0].successes is None


def test_returns_know_their_rate_and_are_read_with_or_without_it():
    known = Returns(label="x", values=(1.0, 2.0, 6.0), successes=(True, False, True))
    assert known.success_rate == pytest.approx(2 / 3)
    assert Returns.from_json({"label": "x", "values": [1.0], "mean": 1.0}).success_rate is None
    data = {"label": "x", "values": [1.0, 2.0, 6.0], "successes": [True, False, True]}
    assert Returns.from_json(data) == known
    with pytest.raises(ValueError, match="2 successes of 1 episodes"):
        Returns(label="x", values=(1.0,), successes=(True, False))


# --- meta-training ------------------------------------------------------------------------------


class Masses(PointMasses):
    """Point masses whose goal is the wanted speed."""

    def step(self, actions):
        *taken, _ = super().step(actions)
        return *taken, {"success": 1.0 * (np.linalg.norm(taken[0] - WANTED, axis=1) < NEAR)}


def test_a_family_of_meta_world_has_goals_and_others_have_none():
    told = {
        name: TaskSet.of(family(name)).can_succeed for name in ("metaworld-objects", "ant-cripple")
    }
    assert told == {"metaworld-objects": True, "ant-cripple": False}


def goal_task_set():
    """The tiny tasks, with a goal that the strong mass reaches by chance and no other does."""
    gains = [Gain(2.5), Gain(0.2), Gain(1.5, 90.0)]
    make = lambda numbers: Masses([gains[i] for i in numbers], 4.0)  # noqa: E731
    return replace(tiny_task_set(), make=make, can_succeed=True)


def play(out, task_set, **changes):
    run = trainer(out, overlay(tiny_config(120, seed=1), changes), task_set)
    with Interrupts() as stop:
        return run.run(stop, quiet=True)


def rows(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def at_goal(states):
    return (np.linalg.norm(states - WANTED, axis=1) < NEAR).any()


@pytest.mark.parametrize("lengths", [None, (5, 15)])
def test_meta_training_writes_down_who_succeeded(tmp_path, lengths):
    changes = {} if lengths is None else {"episode_lengths": lengths}
    result = play(tmp_path, goal_task_set(), **changes)
    told = rows(tmp_path / "episodes.csv")
    assert tuple(told[0]) == (*EPISODE_COLUMNS, "success")
    # A round keeps the states, in float32: every episode is looked at again.
    replayed = [
        at_goal(new.episodes.episode(number)["next_observations"])
        for new in load_rounds(tmp_path / "replay", [None, None])
        for number in range(len(new.drivers))
    ]
    assert [row["success"] for row in told] == [str(int(success)) for success in replayed]
    assert {row["success"] for row in told} == {"0", "1"}
    assert len(told) == 4 if lengths is None else len(told) > 4

    last = rows(tmp_path / "metrics.csv")[-1]
    names = goal_task_set()
    by_task = [float(last[f"eval/success/train/{name}"]) for name in names.train]
    assert float(last["eval/success/train"]) == np.mean(by_task) == result.train_success
    (test,) = names.test
    unseen = last["eval/success/test"], last[f"eval/success/test/{test}"]
    assert [float(value) for value in unseen] == [result.test_success] * 2


def test_evaluation_tells_tasks_apart():
    """The first task is at its goal in one of its two episodes, the second never, the test always.

    Pushed at full strength to the right, a mass with gain g ends at speed g.
    """
    evaluation = Evaluation(goal_task_set(), 2, seed=0)
    evaluation._env = Masses([Gain(0.6), *[Gain(0.1)] * 3, *[Gain(0.5)] * 2], 4.0)

    class Right:
        acting_policy = staticmethod(
            lambda *_: lambda states: np.tile([1.0, 0.0], (len(states), 1))
        )

    found = evaluation.run(Right())
    assert tuple(found) == evaluation.columns
    first, second = goal_task_set().train
    assert {name: value for name, value in found.items() if "success" in name} == {
        "eval/success/train": 0.25,
        "eval/success/test": 1.0,
        f"eval/success/train/{first}": 0.5,
        f"eval/success/train/{second}": 0.0,
        f"eval/success/test/{goal_task_set().test[0]}": 1.0,
    }


def test_tasks_without_a_goal_have_the_columns_they_had(tmp_path):
    result = play(tmp_path, tiny_task_set())
    assert tuple(rows(tmp_path / "episodes.csv")[0]) == EPISODE_COLUMNS
    assert not [name for name in rows(tmp_path / "metrics.csv")[0] if "success" in name]
    assert (result.train_success, result.test_success) == (None, None)


# --- one task -----------------------------------------------------------------------------------


def single(task, **changes):
    small = {"steps": 40, "start_steps": 30, "batch_size": 8, "evaluate_every": 20,
             "evaluation_episodes": 2, "checkpoint_every": 20,
             "td3": TD3Config(hidden=(8, 8))}  # fmt: skip
    return TrainConfig(**({"task": task} | PRESETS["paper"] | small | changes))


def test_training_on_one_task_writes_the_rate_and_keeps_it(tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "_tensorboard", lambda folder, until: None)  # slow to import
    # The fingertips start 2 cm from this goal: whoever acts, the first step succeeds.
    here = Task("reach", goal=(0.0, 0.58, 0.15), reward="sparse", horizon=20)
    result = train(single(here), tmp_path / "here", quiet=True)
    told = rows(tmp_path / "here" / "metrics.csv")
    assert tuple(told[0]) == (*COLUMNS, "eval/success/train")
    assert [row["eval/success/train"] for row in told] == ["1.0", "1.0"]
    assert result.success_rate == 1
    assert json.loads((tmp_path / "here" / "result.json").read_text())["success_rate"] == 1
    assert train(single(here), tmp_path / "here", resume=True, quiet=True) == result

    away = train(single(here.replace(goal=(0.3, 0.8, 0.3))), tmp_path / "away", quiet=True)
    assert away.success_rate == 0
    assert Evaluator(here, 1, 0).outcomes(lambda obs: np.zeros((1, 4))).successes.tolist() == [True]


def test_training_without_a_goal_has_the_columns_it_had(tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "_tensorboard", lambda folder, until: None)
    result = train(single(Task("hopper", horizon=10)), tmp_path / "run", quiet=True)
    assert tuple(rows(tmp_path / "run" / "metrics.csv")[0]) == COLUMNS
    assert result.success_rate is None
    assert "success_rate" not in json.loads((tmp_path / "run" / "result.json").read_text())
