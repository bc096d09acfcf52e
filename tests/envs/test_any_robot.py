"""Robots that are not mcat's: any gymnasium id, with early ends, in lockstep and one by one."""

import json
from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

import tests.count_env  # noqa: F401  (registers Count-v0)
from mcat.agents import CrossQConfig, TrainConfig, train
from mcat.agents.evaluation import episode_outcomes
from mcat.agents.single.episode import Episode
from mcat.datasets.collect import CollectConfig, collect
from mcat.datasets.hdf5 import read_dataset
from mcat.datasets.rollout import roll_out
from mcat.envs import Task, TaskVectorEnv, in_lockstep
from mcat.envs.lockstep import AnyRobots, lockstep
from mcat.errors import UsageError
from mcat.tensor_files import content_digest
from tests.count_env import Count


def middling(observations):
    """The middle of the actions, (0 + 10) / 2."""
    return np.zeros((len(observations), 1))


def count(ends_at=None, **more):
    return Task("Count-v0", arguments={"ends_at": ends_at}, **more)


# --- tasks --------------------------------------------------------------------------------------


WALKER = Task(
    "Walker2d-v5", mass=1.5, gear={"thigh_joint": 0.5}, mask="leg_joint,foot_joint", delay=100,
    arguments={"healthy_reward": 0.5},
)  # fmt: skip


def test_a_task_of_an_id_says_all_of_itself():
    assert Task.from_dict(json.loads(json.dumps(WALKER.to_dict()))) == WALKER
    assert WALKER.to_dict() == {
        "robot": "Walker2d-v5",
        "mass": 1.5,
        "gear": {"thigh_joint": 0.5},
        "mask": ["leg_joint", "foot_joint"],
        "arguments": {"healthy_reward": 0.5},
        "delay": 100,
        "horizon": 1000,
    }
    label = (
        "walker2d-mass1.5-gearthigh_joint0.5-maskleg_joint_foot_joint-healthy_reward0.5-delay100"
    )
    assert WALKER.label() == label
    assert WALKER.arguments == {"healthy_reward": 0.5}
    assert not WALKER.own
    assert WALKER.replace(mass=1.0, delay=1).changes == {
        "gear": (("thigh_joint", 0.5),), "mask": ("leg_joint", "foot_joint")
    }  # fmt: skip
    assert (WALKER.spec.observation_size, WALKER.spec.action_size) == (17, 6)
    assert Task("Walker2d-v5") == Task("Walker2d-v5", mass="1", gear={}, horizon=1000)
    assert Task("Walker2d-v5", gear="thigh_joint=0.5").params["gear"] == (("thigh_joint", 0.5),)


def test_its_environment_is_changed_as_asked():
    env = WALKER.make()
    _, info = env.reset(seed=0)
    assert info["context"] == {
        "mass": 1.5, "gear.thigh_joint": 0.5, "control.leg_joint": 0.0, "control.foot_joint": 0.0
    }  # fmt: skip
    stock = gym.make("Walker2d-v5")
    ratio = env.unwrapped.model.body_mass[1:] / stock.unwrapped.model.body_mass[1:]
    assert np.allclose(ratio, 1.5)
    assert env.unwrapped._healthy_reward == 0.5


MISTAKES = {
    "a typo": ("Walker2d-v6", {}, "did you mean Walker2d-v"),
    "no such robot": ("walker", {}, "unknown robot 'walker'"),
    "other actions": ("CartPole-v1", {}, "its actions are Discrete(2), not a Box"),
    "no parameter": (
        "Walker2d-v5",
        {"masss": 2},
        "or mass? (those of gymnasium.make go",
    ),
    "no factor": ("Walker2d-v5", {"mass": "heavy"}, "mass must be a number from 0.001 to 1000"),
    "no body": ("Walker2d-v5", {"mass": {"head": 2}}, "unknown body 'head'"),
    "no argument": ("Count-v0", {"arguments": {"end": 3}}, "cannot be made: TypeError"),
    "no JSON": ("Count-v0", {"arguments": {"gain": float("nan")}}, "argument gain must be finite"),
    "ours": ("ant", {"arguments": {"x": 1}}, "takes parameters, no arguments"),
    "no time limit": ("Endless-v0", {}, "has no time limit: give a horizon"),
    "no MuJoCo": ("Count-v0", {"mass": 2}, "PerturbPhysics needs a MuJoCo environment"),
    "a module nobody asked for": ("antigravity:X-v0", {}, "which a file may not import"),
    "another library": ("GymV26Environment-v0", {"horizon": 5}, "is another library's"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_told_in_a_line(mistake):
    robot, options, told = MISTAKES[mistake]
    with pytest.raises(UsageError) as caught:
        Task(robot, **options).make()
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_task_in_a_file_imports_nothing(monkeypatch):
    """Reading one is harmless; asking for its sizes is refused unless the module is allowed."""
    import sys

    task = Task.from_dict({"robot": "this:X-v0", "horizon": 5})
    assert task.label() == "x"
    with pytest.raises(UsageError, match="which a file may not import"):
        _ = task.spec
    assert "this" not in sys.modules
    monkeypatch.setenv("MCAT_TRUST_FILES", "1")
    with pytest.raises(UsageError, match=r"unknown robot or gymnasium id 'json\.tool:X-v0'"):
        _ = Task("json.tool:X-v0", horizon=5).spec
    assert "json.tool" in sys.modules


def test_what_a_file_says_is_safe_in_names_and_messages():
    parts = {"mask": ["../../x\x1b[31m"], "mass": {"/etc\x07": 2}, "arguments": {"a": "../b\n"}}
    label = Task.from_dict({"robot": "Walker2d-v5", "horizon": 5, **parts}).label()
    assert label == "walker2d-massetc_2-mask.._.._x_31m-a.._b_n"
    with pytest.raises(UsageError) as caught:
        Task.from_dict({"robot": "Walker2d-v5", "horizon": 5, "mass": {"\x1b[31m": "x"}})
    assert str(caught.value).isprintable()


def test_a_task_in_a_file_chooses_no_text(monkeypatch):
    """A path to read, say: not before somebody typed the same."""
    description = {"robot": "Count-v0", "arguments": {"fault": "strange"}, "horizon": 5}
    task = Task.from_dict(description)
    with pytest.raises(UsageError, match="text, which a file may not choose"):
        task.make()
    monkeypatch.setenv("MCAT_TRUST_FILES", "1")
    task.make()
    monkeypatch.delenv("MCAT_TRUST_FILES")
    assert Task("Count-v0", arguments={"fault": "strange"}, horizon=5) == task
    task.replace(delay=3).make()


# --- in lockstep --------------------------------------------------------------------------------


def test_rows_that_ended_stay_and_are_paid_nothing():
    env = lockstep([count(2), count(4), count()])
    assert isinstance(env, AnyRobots)
    env.reset(seed=[5, 6, 7])
    seen = [env.step(middling(range(3))) for _ in range(21)]
    observations, rewards, terminated, truncated, _ = (np.stack(x) for x in zip(*seen, strict=True))
    assert rewards.sum(axis=0).tolist() == [2, 4, 20]
    assert observations[-1, :, 0].tolist() == [2, 4, 20]
    assert terminated.argmax(axis=0).tolist()[:2] == [1, 3]  # and so for ever
    assert terminated[-1].tolist() == [True, True, False]
    assert truncated[-1].tolist() == [False, False, True]
    assert truncated[18].tolist() == [False, False, False]


def test_actions_are_scaled_to_the_bounds_of_the_machine_and_clipped():
    env = lockstep([count()] * 5)
    env.reset(seed=0)
    observations, *_ = env.step(np.array([[-1.0], [0.0], [0.5], [1.0], [3.0]]))
    assert observations[:, 1].tolist() == [0.0, 5.0, 7.5, 10.0, 10.0]
    single = count().make()
    single.reset(seed=0)
    assert single.step(np.float32([0.5]))[0][1] == 7.5


def test_a_number_that_is_none_ends_the_episode_as_diverged():
    env = lockstep([Task("Count-v0", arguments={"fault": "nan"})])
    env.reset(seed=0)
    first, second, third = (env.step(middling([0])) for _ in range(3))
    assert [step[1][0] for step in (first, second, third)] == [1.0, 1.0, 0.0]
    assert third[0][0, 0] == 2  # the last good one
    assert (third[2][0], third[3][0]) == (False, True)
    assert third[4]["unstable"].tolist() == [True]
    found = roll_out(
        env, middling, seed=np.random.SeedSequence(0), noise=(0.0, 0.0), episodes=1
    )  # fmt: skip
    assert list(found) == [None]


def test_mujocos_silent_restarts_are_found_in_other_robots_too():
    env = lockstep([Task("HalfCheetah-v5", gear=1000.0), Task("HalfCheetah-v5")])
    env.reset(seed=0)
    rng = np.random.default_rng(0)
    for _ in range(50):
        observations, rewards, terminated, truncated, info = env.step(rng.uniform(-1, 1, (2, 6)))
        if truncated.any():
            break
    assert truncated.tolist() == [True, False]
    assert not terminated.any()
    assert info["unstable"].tolist() == [True, False]
    assert rewards[0] == 0
    assert np.isfinite(observations).all()


def test_lockstep_equals_one_by_one_to_the_bit():
    task = Task("Walker2d-v5", mass=1.5, delay=7)
    rng = np.random.default_rng(0)
    actions = rng.uniform(-1, 1, (60, 2, 6)).astype(np.float32)
    env = lockstep([task] * 2)
    together, _ = env.reset(seed=[3, 4])
    single = task.make()
    alone, _ = single.reset(seed=4)
    ended = False
    for action in actions:
        assert np.array_equal(together[1], alone)
        together, rewards, terminated, _, _ = env.step(action)
        alone, reward, ended, cut, _ = single.step(action[1])
        assert rewards[1] == reward
        assert terminated[1] == ended
        if ended or cut:
            break
    assert ended  # it falls, as every walker that moves at random


def test_our_robots_keep_their_fast_path():
    assert isinstance(lockstep([Task("hopper")] * 2), TaskVectorEnv)
    mixed = lockstep([Task("hopper"), Task("Hopper-v5")])
    assert isinstance(mixed, AnyRobots)
    with pytest.raises(UsageError, match="need equal spaces"):
        lockstep([Task("ant"), Task("Hopper-v5")])


@pytest.mark.parametrize("mode", ["NextStep", "SameStep", "Disabled"])
def test_gymnasiums_vectors_serve_as_well(mode):
    makers = [count(3).make, count(5).make, count().make]
    vector = SyncVectorEnv(makers, autoreset_mode=mode)
    seen = []
    found = episode_outcomes(in_lockstep(vector, 12), middling, 0, seen.append)
    assert found.returns.tolist() == [3, 5, 12]
    assert seen[-1][:, 0].tolist() == [3, 5, 12]  # where each ended, not where the next began


def test_processes_and_single_objects_serve_as_well():
    vector = AsyncVectorEnv([count(3).make, count(5).make])
    assert episode_outcomes(in_lockstep(vector, 12), middling, 0).returns.tolist() == [3, 5]
    vector.close()
    assert episode_outcomes(gym.make("Count-v0"), middling, 0).returns.tolist() == [20]
    assert episode_outcomes(in_lockstep([Count(2), Count(4)], 9), middling, 0).returns[1] == 4
    with pytest.raises(UsageError, match="no time limit"):
        in_lockstep(Count())
    with pytest.raises(UsageError, match="no gymnasium environment"):
        in_lockstep("Count-v0")


# --- ends of episodes ---------------------------------------------------------------------------


def test_data_sets_tell_an_end_from_a_time_limit(tmp_path):
    """With a delay of 3, steps 1 to 7 are paid 3, 3 and, at the end, 1."""
    for ends_at, length in ((7, 7), (None, 20)):
        path = tmp_path / f"{length}.h5"
        config = CollectConfig(task=count(ends_at, delay=3), steps=50, envs=3, seed=1)
        found = collect(config, middling, path, quiet=True)
        store, metadata = read_dataset(path)
        assert found.episodes == -(-50 // length)
        assert set(store.lengths.tolist()) == {length}
        last = store.episode_ends - 1
        assert (store.terminals[last] == (ends_at is not None)).all()
        assert (store.timeouts[last] == (ends_at is None)).all()
        assert store.terminals.sum() + store.timeouts.sum() == found.episodes
        paid = [0, 0, 3, 0, 0, 3, 1] if ends_at else [0, 0, 3] * 6 + [0, 2]
        assert store.rewards[:length].tolist() == paid
        assert metadata["task"] == count(ends_at, delay=3).to_dict()


def test_a_collection_of_short_episodes_is_resumed_to_the_same(tmp_path):
    whole, half = (CollectConfig(task=count(7), steps=steps, envs=4, seed=2) for steps in (100, 40))
    collect(whole, None, tmp_path / "whole.h5", quiet=True)
    collect(half, None, tmp_path / "half.h5", quiet=True)
    one, other = (read_dataset(tmp_path / name)[0] for name in ("whole.h5", "half.h5"))
    assert (one.num_episodes, other.num_episodes) == (15, 6)
    rows = slice(0, len(other))
    assert np.array_equal(one.actions[rows], other.actions)


def test_a_vector_of_ones_own_collects_the_same_bytes(tmp_path):
    config = CollectConfig(task=count(7, delay=3), steps=60, envs=4, seed=3)
    collect(config, None, tmp_path / "own.h5", quiet=True)
    vector = in_lockstep(SyncVectorEnv([config.task.make] * 4), 20)
    for _ in range(2):  # it is left open
        collect(config, None, tmp_path / "vector.h5", env=vector, overwrite=True, quiet=True)
    assert (tmp_path / "own.h5").read_bytes() == (tmp_path / "vector.h5").read_bytes()
    with pytest.raises(UsageError, match=r"\(4, 20, \(3,\), \(1,\)\), and \(9, 20"):
        collect(replace(config, envs=9), None, tmp_path / "x.h5", env=vector, quiet=True)


def test_a_run_on_another_robot_goes_on_exactly_from_the_middle_of_an_episode(tmp_path):
    """Walkers fall after 20 steps or so: step 100 is within an episode."""
    config = TrainConfig(
        task=Task("Walker2d-v5", mass=1.5, delay=5, horizon=200), steps=160, start_steps=40,
        evaluate_every=80, evaluation_episodes=2, batch_size=16,
        crossq=CrossQConfig(hidden=(16, 16)),
    )  # fmt: skip
    train(config, tmp_path / "whole", quiet=True)
    train(replace(config, steps=100), tmp_path / "stopped", quiet=True)
    train(config, tmp_path / "stopped", resume=True, quiet=True)
    whole, stopped = (
        content_digest(tmp_path / name / "policy-160.safetensors") for name in ("whole", "stopped")
    )
    assert whole == stopped


@pytest.mark.parametrize(("ends_at", "terminal"), [(4, True), (20, True), (None, False)])
def test_critics_learn_that_an_end_is_one_and_a_time_limit_is_none(ends_at, terminal):
    """An end at the very last step is an end, and bootstraps as little."""
    episode = Episode(count(ends_at))
    episode.start(0)
    while not (step := episode.step(np.zeros(1, np.float32))).over:
        assert not step.terminal
    assert (episode.length, step.terminal) == (ends_at or 20, terminal)
