"""`TaskVectorEnv` steps tasks together exactly as they step alone."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

from mcat.envs import ROBOTS, Task, TaskVectorEnv, family
from mcat.errors import UsageError

MIXES = {
    "armatures": [Task("halfcheetah", armature=a, horizon=40) for a in (0.05, 0.1, 0.7)],
    "legs": [Task("ant", cripple=leg, delay=7, horizon=40) for leg in (None, 0, 3)],
    "sizes": [Task("hopper", size=s, delay=d, horizon=h)
              for s, d, h in ((0.02, 1, 40), (0.05, 9, 25), (0.07, 40, 30))],
    "objects": [Task("push", horizon=40), Task("coffee-push", gripper=0.1, horizon=40)],
}  # fmt: skip


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("tasks", MIXES.values(), ids=MIXES)
def test_bitwise_equal_to_the_single_environments(tasks, workers):
    vector = TaskVectorEnv(tasks, workers=workers)
    singles = [task.make() for task in tasks]
    rng = np.random.default_rng(0)
    for seed in (5, None):  # the second episode goes on with the same generators
        together, _ = vector.reset(seed=seed, options={"park": True})
        alone = [
            env.reset(seed=None if seed is None else seed + i)[0] for i, env in enumerate(singles)
        ]
        assert np.array_equal(together, alone)
        done = [False] * len(tasks)
        for _ in range(40):
            actions = rng.uniform(-1, 1, vector.action_space.shape)
            observations, rewards, terminated, truncated, _ = vector.step(actions)
            for i, env in enumerate(singles):
                if done[i]:
                    continue
                observation, reward, _, done[i], _ = env.step(actions[i])
                assert np.array_equal(observations[i], observation)
                assert rewards[i] == reward
                assert truncated[i] == done[i]
                assert not terminated[i]
        assert all(done)
    vector.close()


def test_one_diverging_robot_does_not_disturb_the_others():
    tasks = [Task("halfcheetah", horizon=200)] * 2
    vector, alone = TaskVectorEnv(tasks), TaskVectorEnv(tasks)
    vector.simulations[0].model.actuator_gear[:] *= 1000
    vector.reset(seed=0, options={"park": True})
    alone.reset(seed=0)
    rng = np.random.default_rng(0)
    for _ in range(200):
        actions = rng.uniform(-1, 1, (2, 6))
        observations, rewards, _, _, info = vector.step(actions)
        expected, expected_rewards, *_ = alone.step(actions)
        assert np.array_equal(observations[1], expected[1])
        assert rewards[1] == expected_rewards[1]
        assert np.isfinite(observations).all()
    assert info["unstable"].tolist() == [True, False]
    assert info["fault"][0].startswith("BADQ")
    assert info["fault"][1] is None
    vector.reset(seed=1)
    assert not vector.step(np.zeros((2, 6)))[3].any()


def test_context_is_batched():
    _, info = TaskVectorEnv(family("ant-cripple").train).reset(seed=0)
    assert info["context"]["cripple"].tolist() == [-1, 0, 1, 2]


def test_bad_actions_name_the_place():
    vector = TaskVectorEnv([Task("hopper")] * 3)
    vector.reset(seed=0)
    actions = np.zeros((3, 3))
    actions[2, 1] = np.nan
    with pytest.raises(UsageError, match=r"index \[2, 1\] is nan"):
        vector.step(actions)
    with pytest.raises(UsageError, match="shape"):
        vector.step(np.zeros((2, 3)))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: TaskVectorEnv([]), "at least one task"),
        (lambda: TaskVectorEnv([Task("ant"), Task("hopper")]), "equal spaces"),
        (lambda: TaskVectorEnv([Task("ant")], workers=0), "workers must be 1 or more"),
        (lambda: TaskVectorEnv([Task("ant")]).reset(seed=[1, 2]), "1 seeds are needed, got 2"),
        (lambda: TaskVectorEnv([Task("ant")]).reset(seed=1.5), "whole number or a list .* got 1.5"),
        (lambda: TaskVectorEnv([Task("ant")]).reset(seed="7"), "whole number or a list"),
        (lambda: TaskVectorEnv([Task("ant")]).reset(seed=[0.5]), "seeds must be 0 to"),
        (lambda: TaskVectorEnv([Task("ant")]).reset(seed=-1), "seeds must be 0 to"),
        (lambda: TaskVectorEnv([Task("ant")]).reset(seed=10**5000), "got a number of thousands"),
        (lambda: TaskVectorEnv([Task("ant")]).reset(options={"reset_mask": [1]}), "reset_mask"),
    ],
)
def test_misuse_is_one_clear_line(build, message):
    with pytest.raises(UsageError, match=message):
        build()


def test_make_vec_gives_each_its_own_value():
    vector = gym.make_vec("mcat/HalfCheetah-v0", num_envs=3, armature=[0.1, 0.2, 0.3], delay=500)
    assert vector.tasks == tuple(
        Task("halfcheetah", armature=a, delay=500) for a in (0.1, 0.2, 0.3)
    )
    goal = [0.1, 0.8, 0.2]
    shared = gym.make_vec("mcat/Reach-v0", num_envs=3, goal=goal)
    assert {task.params["goal"] for task in shared.tasks} == {tuple(goal)}
    with pytest.raises(UsageError, match="armature lists 2 values for 3"):
        gym.make_vec("mcat/HalfCheetah-v0", num_envs=3, armature=[0.1, 0.2])


def test_gymnasiums_own_vector_envs_agree():
    makers = [Task("ant", cripple=leg, delay=3, horizon=20).make for leg in (None, 1, 3)]
    envs = [SyncVectorEnv(makers), AsyncVectorEnv(makers)]
    ours = TaskVectorEnv([Task("ant", cripple=leg, delay=3, horizon=20) for leg in (None, 1, 3)])
    starts = [env.reset(seed=4)[0] for env in (*envs, ours)]
    assert np.array_equal(starts[0], starts[1])
    assert np.array_equal(starts[0], starts[2])
    rng = np.random.default_rng(0)
    for _ in range(20):
        actions = rng.uniform(-1, 1, (3, 8)).astype(np.float32)
        results = [env.step(actions) for env in (*envs, ours)]
        for other in results[1:]:
            assert np.array_equal(results[0][0], other[0])
            assert np.array_equal(results[0][1], other[1])
            assert np.array_equal(results[0][3], other[3])
    for env in envs:
        env.close()


@pytest.mark.parametrize("name", ["hopper-size", "halfcheetah-mass", "ant-damping"])
def test_whole_families_step_together(name):
    vector = TaskVectorEnv(family(name).tasks)
    observations, _ = vector.reset(seed=0)
    assert observations.shape == (len(family(name).tasks), vector.tasks[0].spec.observation_size)
    for _ in range(10):
        observations, *_ = vector.step(vector.action_space.sample())
    assert np.isfinite(observations).all()


def test_sizes_are_as_declared():
    for robot in ROBOTS.values():
        vector = TaskVectorEnv([Task(robot.name)])
        assert vector.single_observation_space.shape == (robot.observation_size,)
        assert vector.single_action_space.shape == (robot.action_size,)
