"""Environments without an id, as tasks: objects, classes and functions of one's own."""

from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

from mcat.agents import PRESETS, Evaluator, TrainConfig, metatrain, train
from mcat.agents.configs import CrossQConfig
from mcat.datasets.collect import CollectConfig, collect
from mcat.datasets.hdf5 import read_dataset
from mcat.envs import FAMILIES, Family, in_lockstep, task_of
from mcat.envs.promises import check_family, check_task
from mcat.envs.wrappers import PerturbPhysics
from mcat.errors import UsageError
from mcat.tensor_files import content_digest
from tests.count_env import Count


def middling(observations):
    return np.zeros((len(observations), 1))


def test_a_class_makes_tasks_with_arguments(tmp_path):
    task = task_of(Count, "counting", horizon=12, delay=3, arguments={"ends_at": 7})
    assert task == task_of(Count, "counting", horizon=12, delay=3, arguments={"ends_at": 7})
    assert task.label() == "counting-ends_at7-delay3"
    assert not check_task(task).problems
    found = collect(CollectConfig(task=task, steps=20), middling, tmp_path / "a.h5", quiet=True)
    assert found.episodes == 3
    assert read_dataset(tmp_path / "a.h5")[0].rewards[:7].tolist() == [0, 0, 3, 0, 0, 3, 1]


def test_an_object_is_copied_as_it_is_wrappers_included():
    walker = PerturbPhysics(gym.make("Walker2d-v5"), mass=1.5)
    task = task_of(walker, "heavy-walker")
    assert task.horizon == 1000
    masses = task.make().unwrapped.model.body_mass
    np.testing.assert_array_equal(masses, walker.unwrapped.model.body_mass)
    before = walker.unwrapped.data.qpos.copy()
    assert Evaluator(task, 2, 0).returns(lambda obs: np.zeros((len(obs), 6))).shape == (2,)
    np.testing.assert_array_equal(walker.unwrapped.data.qpos, before)  # it was not touched


def test_an_object_is_trained_on_and_a_run_goes_on_to_the_bit(tmp_path):
    task = task_of(Count(ends_at=9), "ends-at-nine", horizon=20)
    config = TrainConfig(
        task=task, steps=60, start_steps=20, evaluate_every=30, evaluation_episodes=2,
        batch_size=8, crossq=CrossQConfig(hidden=(8, 8)),
    )  # fmt: skip
    assert train(config, tmp_path / "whole", quiet=True).mean_return == 9
    train(replace(config, steps=33), tmp_path / "parts", quiet=True)
    train(config, tmp_path / "parts", resume=True, quiet=True)
    files = [tmp_path / name / "policy-60.safetensors" for name in ("whole", "parts")]
    assert content_digest(files[0]) == content_digest(files[1])
    # A vector of one's own collects the same, in its one row; two rows are refused.
    for rows, kind in ((1, SyncVectorEnv), (1, AsyncVectorEnv), (2, SyncVectorEnv)):
        vector = kind([config.task.make] * rows)
        place, out = in_lockstep(vector, config.task.horizon), tmp_path / f"{kind.__name__}{rows}"
        try:
            if rows == 2:
                with pytest.raises(UsageError, match=r"and \(1, 20"):
                    train(config, out, env=place, quiet=True)
                continue
            train(config, out, env=place, quiet=True)
        finally:
            vector.close()
        assert content_digest(out / "policy-60.safetensors") == content_digest(files[0])


def test_objects_make_a_family_to_meta_train_on(tmp_path, monkeypatch):
    tasks = [task_of(Count(ends_at=n), f"ends-at-{n}", horizon=20) for n in (6, 9, 12)]
    mine = Family(name="ends", title="Ends", varies=("robot",), train=tuple(tasks[:2]),
                  test=(tasks[2],))  # fmt: skip
    assert not any(found.problems for found in check_family(mine).values())
    monkeypatch.setitem(FAMILIES, "ends", mine)
    config = replace(PRESETS["smoke"], family="ends", steps=20)
    result = metatrain(config, tmp_path / "run", quiet=True)
    assert (result.train_return, result.test_return) == (7.5, 12)
    # A vector of one's own, such as one of processes, collects the same: one row for each task.
    for number, kind in enumerate((SyncVectorEnv, AsyncVectorEnv)):
        vector = kind([task.make for task in mine.train])
        out = tmp_path / f"vector{number}"
        again = metatrain(config, out, env=in_lockstep(vector, 20), quiet=True)
        vector.close()
        assert content_digest(again.policy) == content_digest(result.policy)
    with pytest.raises(UsageError, match=r"\(1, 20, \(3,\), \(1,\)\), and \(2, 20"):
        metatrain(config, tmp_path / "x", env=in_lockstep(Count(), 20), quiet=True)


@pytest.mark.parametrize(
    ("env", "options", "told"),
    [
        ("Count-v0", {}, "is no environment, nor does it make one"),
        (SyncVectorEnv([Count]), {}, "acts by in_lockstep"),
        (Count, {"name": "no time"}, "is no name"),
        (Count, {"name": "timeless"}, "no time limit: give a horizon"),
        (Count, {"name": "Walker2d", "horizon": 9}, "another Walker2d-v0 already"),
    ],
)
def test_mistakes_are_told_in_a_line(env, options, told):
    gym.registry.setdefault("Walker2d-v0", gym.spec("Walker2d-v5"))
    try:
        with pytest.raises(UsageError, match=told):
            task_of(env, **options)
    finally:
        gym.registry.pop("Walker2d-v0")


def test_what_cannot_be_copied_is_told():
    env = Count()
    env.socket = (line for line in "a generator, as a connection would be")
    with pytest.raises(UsageError, match=r"cannot be copied .* give the class or function"):
        task_of(env, "connected", horizon=5)
