"""Motors that fail at random while data are collected."""

from __future__ import annotations

import signal
from dataclasses import replace

import numpy as np
import pytest

from mcat.agents.failures import draw_failures, learn_costs, obedience
from mcat.agents.meta.algorithm import SHARED
from mcat.agents.meta.config import PRESETS, MetaTrainConfig
from mcat.agents.meta.rounds import load_rounds
from mcat.datasets.rollout import roll_out
from mcat.errors import UsageError
from mcat.tensor_files import load_safetensors
from tests.agents.meta.point_mass import (
    EFFORT,
    RESPONSE,
    Gain,
    PointMasses,
    mcat,
    random_round,
    tiny_config,
)
from tests.agents.meta.test_loop import (  # noqa: F401
    contents,
    die_at_call,
    play,
    small_and_fast,
    spawn,
)

FAILING = replace(tiny_config(), motor_failures=0.5, failures_after=60)


def test_that_share_of_episodes_has_a_failing_motor_and_costly_ones_fail_more_often():
    rng = np.random.default_rng(0)
    costs = [0.1, 1.0, 0.5, 0.4]
    drawn = draw_failures(0.25, costs, episodes=40_000, rng=rng)
    failed = [motor for motor in drawn if motor is not None]
    assert len(failed) == pytest.approx(10_000, rel=0.05)
    expected = np.array(costs) / 2 * len(failed)
    assert np.bincount(failed, minlength=4) == pytest.approx(expected, rel=0.1)
    assert draw_failures(0.0, costs, episodes=3, rng=rng) == [None] * 3
    assert None not in draw_failures(1.0, costs, episodes=3, rng=rng)


def test_a_failure_costs_the_share_of_the_return_that_it_takes():
    costs, intact = [1.0, 1.0, 0.5], [100.0, 0.0]
    learn_costs(costs, intact, [0, 0, 0], [None, 0, 1], [200.0, 65.0, 500.0])
    assert intact == pytest.approx([130.0, 0.0])  # three tenths of the way to 200
    assert costs[0] == pytest.approx(1 + 0.3 * (0.5 - 1))  # 65 of 130
    assert costs[1] == pytest.approx(1 + 0.3 * (0.1 - 1))  # it gained: as little as can be
    learn_costs(costs, intact, [1, 0], [2, 2], [50.0, -10.0])  # task 1 earns nothing when whole
    assert costs[2] == pytest.approx(0.5 + 0.3 * (1 - 0.5))  # less than nothing is all


def test_only_the_failing_motor_does_not_obey():
    assert obedience([None, 1], 3).tolist() == [[1, 1, 1], [1, 0, 1]]


def test_commands_are_logged_and_the_machine_does_not_follow_them():
    """Both motors are commanded in full; the second of the second mass stands still."""
    seen = []
    episodes = list(
        roll_out(
            PointMasses([Gain(1.0), Gain(1.0)], reach=4.0),
            lambda states: np.ones((2, 2)),
            seed=np.random.SeedSequence(0),
            noise=(0.0, 0.0),
            episodes=2,
            obeyed=obedience([None, 1], 2),
            after=lambda taken: seen.append(taken.actions.copy()),
        )
    )
    whole, broken = episodes
    assert (whole["actions"] == 1).all()
    assert (broken["actions"] == 1).all()
    assert (np.array(seen) == 1).all()
    for episode, goal in (whole, (1, 1)), (broken, (1, 0)):
        before, after = episode["observations"], episode["next_observations"]
        np.testing.assert_allclose(after, before + RESPONSE * (goal - before), rtol=1e-5)
    # It is the machine that pays for an effort, and one of its motors made none.
    distance = [np.linalg.norm(e["next_observations"] - (0.6, 0), axis=1) for e in episodes]
    earned = [np.sum(1 - d / 4) - 30 * EFFORT * n for d, n in zip(distance, (2, 1), strict=True)]
    assert [np.sum(e["rewards"]) for e in episodes] == pytest.approx(earned, rel=1e-4)


def test_rounds_say_which_motor_failed_and_runs_go_on_exactly(tmp_path):
    play(tmp_path / "clean", FAILING)

    def work():
        die_at_call(PointMasses, "reset", 7)
        play(tmp_path / "run", FAILING)

    assert spawn(work) == -signal.SIGKILL
    play(tmp_path / "run", FAILING, resume=True)
    assert contents(tmp_path / "run") == contents(tmp_path / "clean")
    first, *others = load_rounds(tmp_path / "run" / "replay", [None] * 6)
    assert first.failed == ()  # they begin after 60 steps, which is one round
    assert {motor for later in others for motor in later.failed} == {None, 0, 1}
    newest = sorted((tmp_path / "run/checkpoints").glob("step-*"))[-1]
    state = load_safetensors(newest)[1]
    assert state["failure_costs"] != [1.0, 1.0]
    assert all(value != 0 for value in state["intact_returns"])


def test_without_failures_nothing_is_written_about_them(tmp_path):
    play(tmp_path / "run", replace(FAILING, motor_failures=0.0, steps=120))
    for found in load_rounds(tmp_path / "run" / "replay", [None] * 2):
        assert found.failed == ()
        assert found.intact.all()


def test_what_a_broken_machine_earned_does_not_count_against_its_driver():
    agent = mcat(rounds=0)
    new = replace(random_round(agent.task_set, 0), drivers=(SHARED, SHARED), failed=(None, 1))
    agent.remember(new)
    assert agent.selection.mean(0) is not None
    assert agent.selection.mean(1) is None


def test_fast_lets_motors_fail_where_legs_are_crippled():
    shares = {
        family: replace(PRESETS["fast"], family=family).failure_share
        for family in ("ant-cripple", "ant-damping", "halfcheetah-armature")
    }
    assert shares == {"ant-cripple": 0.5, "ant-damping": 0.0, "halfcheetah-armature": 0.0}
    for preset in ("cpu", "paper", "released"):
        assert replace(PRESETS[preset], family="ant-cripple").failure_share == 0.0
    with pytest.raises(UsageError, match="motor_failures must be from 0 to 1"):
        MetaTrainConfig(motor_failures=1.5)
