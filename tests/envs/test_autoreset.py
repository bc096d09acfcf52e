"""After the end of an episode `TaskVectorEnv` does what gymnasium's `SyncVectorEnv` does."""

import copy
import re
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import ClipReward
from gymnasium.wrappers.vector import RecordEpisodeStatistics

import mcat  # noqa: F401  (registers the ids)
from mcat.envs import ROBOTS, Task, TaskVectorEnv
from mcat.envs.env import simulate
from mcat.errors import UsageError

MODES = list(AutoresetMode)
MIXES = {
    "equal lengths": [Task("halfcheetah", armature=a, horizon=6) for a in (0.1, 0.3, 0.7)],
    "lengths and delays": [
        Task("hopper", size=s, delay=d, horizon=h)
        for s, d, h in ((0.02, 1, 9), (0.05, 3, 5), (0.07, 20, 12))
    ],
    "one step": [Task("ant", cripple=leg, horizon=1) for leg in (None, 2)],
}
ROBOTS_MIXED = [Task("push", horizon=4), Task("reach", goal=(0.1, 0.8, 0.2), horizon=7)]


def assert_alike(one, other, where="result"):
    """Equal to the bit, with equal types, shapes and keys."""
    assert type(one) is type(other), where
    if isinstance(one, dict):
        assert one.keys() == other.keys(), where
        for key in one:
            assert_alike(one[key], other[key], f"{where}[{key!r}]")
    elif isinstance(one, np.ndarray):
        assert (one.dtype, one.shape) == (other.dtype, other.shape), where
        if one.dtype == object:
            for i, (a, b) in enumerate(zip(one, other, strict=True)):
                assert_alike(a, b, f"{where}[{i}]")
        assert one.dtype == object or one.tobytes() == other.tobytes(), where
    else:
        assert one == other, where


def run_side_by_side(ours, gymnasiums, steps, seed=3):
    """Both take the same actions; where they do not reset themselves, both are reset alike."""
    disabled = ours.metadata["autoreset_mode"] is AutoresetMode.DISABLED
    rng = np.random.default_rng(0)
    pairs = [ours.reset(seed=seed), gymnasiums.reset(seed=seed)]
    ends, unstable = 0, 0
    for step in range(steps):
        for one, other in zip(*pairs, strict=True):
            assert_alike(one, other, f"step {step}")
        low, high = ours.action_space.low, ours.action_space.high
        actions = rng.uniform(low, high).astype(np.float32)
        pairs = [env.step(actions) for env in (ours, gymnasiums)]
        over = pairs[0][3]
        ends += int(over.sum())
        infos = pairs[0][4]
        unstable += int(np.sum(infos.get("final_info", infos).get("unstable", 0)))
        if disabled and over.any():
            for one, other in zip(*pairs, strict=True):
                assert_alike(one, other, f"step {step}")
            mask = over.copy()
            pairs = [env.reset(options={"reset_mask": mask}) for env in (ours, gymnasiums)]
    return ends, unstable


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.value)
@pytest.mark.parametrize("tasks", MIXES.values(), ids=MIXES)
def test_equal_to_gymnasiums_own_over_several_episodes(tasks, mode, workers):
    ours = TaskVectorEnv(tasks, workers=workers, autoreset_mode=mode)
    gymnasiums = SyncVectorEnv([task.make for task in tasks], autoreset_mode=mode)
    assert ours.metadata["autoreset_mode"] is gymnasiums.metadata["autoreset_mode"] is mode
    assert ours.observation_space == gymnasiums.observation_space
    assert ours.action_space == gymnasiums.action_space
    ends, _ = run_side_by_side(ours, gymnasiums, 30)
    assert ends >= 2 * len(tasks)
    ours.close()
    gymnasiums.close()


def test_robots_with_other_parameters_side_by_side():
    """Where one has a parameter that the other lacks, gymnasium's masks tell."""
    mode = AutoresetMode.SAME_STEP
    ours = TaskVectorEnv(ROBOTS_MIXED, workers=2, autoreset_mode=mode)
    gymnasiums = SyncVectorEnv([task.make for task in ROBOTS_MIXED], autoreset_mode=mode)
    assert ours.reset(seed=0)[1]["context"]["_goal_0"].tolist() == [False, True]
    assert run_side_by_side(ours, gymnasiums, 12)[0] >= 3
    ours.close()


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.value)
def test_a_diverged_robot_starts_again_as_gymnasiums_does(mode):
    tasks = [Task("halfcheetah", horizon=50, delay=4)] * 2
    ours = TaskVectorEnv(tasks, autoreset_mode=mode)
    gymnasiums = SyncVectorEnv([task.make for task in tasks], autoreset_mode=mode)
    for model in (ours.simulations[0].model, gymnasiums.envs[0].unwrapped.model):
        model.actuator_gear[:] *= 1000
    ends, unstable = run_side_by_side(ours, gymnasiums, 120)
    assert unstable >= 2
    assert ends > unstable  # the other one's episodes end too


def test_make_vec_starts_again_by_itself():
    """As every gymnasium id does, and bit for bit as without our vector environment."""
    ours = gym.make_vec("mcat/HalfCheetah-v0", num_envs=3, horizon=5, delay=2)
    gymnasiums = gym.make_vec(
        "mcat/HalfCheetah-v0", num_envs=3, vectorization_mode="sync", horizon=5, delay=2
    )
    assert isinstance(ours, TaskVectorEnv)
    assert ours.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    assert run_side_by_side(ours, gymnasiums, 40) == (3 * (40 // 6), 0)


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.value)
def test_make_vec_takes_the_mode_as_a_word_or_as_gymnasiums_constant(mode):
    for given in (mode, mode.value):
        env = gym.make_vec("mcat/Hopper-v0", num_envs=2, autoreset_mode=given, workers=2)
        assert env.metadata["autoreset_mode"] is mode
        env.close()


def test_gymnasiums_vectorisation_takes_its_own_arguments():
    env = gym.make_vec(
        "mcat/Hopper-v0",
        num_envs=2,
        vectorization_mode="sync",
        vector_kwargs={"autoreset_mode": AutoresetMode.SAME_STEP},
        wrappers=[lambda single: ClipReward(single, max_reward=0.5)],
        horizon=3,
    )
    env.reset(seed=0)
    for _ in range(3):
        _, rewards, _, truncated, infos = env.step(np.zeros((2, 3), np.float32))
    assert (rewards == 0.5).all()
    assert truncated.all()
    assert infos["_final_obs"].all()


def test_gymnasiums_statistics_see_every_episode():
    env = gym.make_vec("mcat/Hopper-v0", num_envs=2, horizon=4)
    env = RecordEpisodeStatistics(env)
    env.reset(seed=0)
    for _ in range(14):
        env.step(env.action_space.sample())
    assert list(env.length_queue) == [4] * 6


def test_make_vec_draws_pictures_through_gymnasium():
    env = gym.make_vec(
        "mcat/HalfCheetah-v0",
        num_envs=2,
        armature=[0.1, 0.7],
        render_mode="rgb_array",
        width=64,
        height=48,
        autoreset_mode="SameStep",
    )
    assert isinstance(env, SyncVectorEnv)
    assert env.render_mode == "rgb_array"
    assert env.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    assert [e.unwrapped.task.params["armature"] for e in env.envs] == [0.1, 0.7]
    assert env.envs[1].unwrapped._frame_size == (64, 48)


def test_the_spec_rebuilds_the_vector_environment():
    env = gym.make_vec("mcat/Ant-v0", num_envs=2, cripple=[None, 3], autoreset_mode="SameStep")
    again = gym.make_vec(type(env.spec).from_json(env.spec.to_json()))
    assert again.tasks == env.tasks
    assert again.metadata == env.metadata


@pytest.mark.parametrize("workers", [1, 2])
def test_without_autoreset_a_step_past_the_end_is_refused(workers):
    env = TaskVectorEnv([Task("hopper", horizon=h) for h in (2, 5)], workers=workers)
    actions = np.zeros((2, 3))
    with pytest.raises(UsageError, match=r"sub-environment 0 has not been reset: call reset\(\)"):
        env.step(actions)
    first = env.reset(seed=0)[0]
    env.step(actions)
    last, _, _, truncated, _ = env.step(actions)
    assert truncated.tolist() == [True, False]
    with pytest.raises(UsageError, match=r"episode of sub-environment 0 is over.*reset_mask"):
        env.step(actions)
    # Nothing moved, and after a reset of that one both go on.
    start, _ = env.reset(seed=0, options={"reset_mask": np.array([True, False])})
    assert np.array_equal(start, [first[0], last[1]])
    assert not env.step(actions)[3].any()
    env.close()


def test_parked_episodes_wait_for_the_longest():
    env = TaskVectorEnv([Task("hopper", horizon=3), Task("hopper", horizon=10)])
    env.reset(seed=0, options={"park": True})
    actions = np.zeros((2, 3))
    for _ in range(3):
        last, *_ = env.step(actions)
    observations, rewards, _, truncated, _ = env.step(actions)
    assert truncated.tolist() == [True, False]
    assert rewards[0] == 0
    assert rewards[1] != 0
    assert np.array_equal(observations[0], last[0])
    env.reset(seed=0)  # parking was asked for once
    for _ in range(3):
        env.step(actions)
    with pytest.raises(UsageError, match="is over"):
        env.step(actions)


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_autoreset_needs_a_first_reset_and_does_not_park(mode):
    env = TaskVectorEnv([Task("hopper")] * 2, autoreset_mode=mode)
    with pytest.raises(UsageError, match="sub-environment 0 has not been reset"):
        env.step(np.zeros((2, 3)))
    env.reset(options={"reset_mask": np.array([True, False])})
    with pytest.raises(UsageError, match="sub-environment 1 has not been reset"):
        env.step(np.zeros((2, 3)))
    with pytest.raises(UsageError, match="park goes with autoreset_mode Disabled"):
        env.reset(options={"park": True})


def test_an_unknown_mode_is_one_clear_line():
    with pytest.raises(UsageError, match="unknown autoreset_mode 'NextStop': did you mean Next"):
        gym.make_vec("mcat/Hopper-v0", num_envs=2, autoreset_mode="NextStop")


@pytest.mark.parametrize("robot", ["ant", "push"])
def test_info_is_what_the_robot_declares(robot):
    assert tuple(simulate(Task(robot)).info()) == ROBOTS[robot].info


def test_what_a_step_returned_does_not_change_later():
    env = TaskVectorEnv([Task("hopper", horizon=3)] * 2, autoreset_mode="SameStep")
    env.reset(seed=0)
    results = [env.step(np.zeros((2, 3))) for _ in range(3)]
    then = copy.deepcopy(results)
    env.step(np.ones((2, 3)))
    env.reset(seed=1)
    for one, other in zip(sum(results, ()), sum(then, ()), strict=True):
        assert_alike(one, other)


def test_the_guide_runs():
    guide = (Path(__file__).parents[2] / "docs" / "environments.md").read_text()
    (block,) = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)
    names: dict = {}
    exec(block, names)
    assert names["wrapped"].metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
