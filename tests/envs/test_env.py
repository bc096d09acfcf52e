"""The gymnasium side: ids, specs, seeding, bad actions, divergence."""

import json
import subprocess
import sys
import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec

import mcat  # noqa: F401  (registers the ids)
from mcat.envs import ROBOTS, Task, TaskVectorEnv
from mcat.envs.check import check_env_id
from mcat.envs.env import TaskEnv
from mcat.errors import UsageError

QUICK = ("halfcheetah", "ant", "push")


@pytest.mark.parametrize("robot", ROBOTS)
def test_every_id_keeps_gymnasiums_and_our_promises(robot):
    """check_env, seeding, spaces, spec round trip, vector equality."""
    assert check_env_id(ROBOTS[robot].env_id).problems == []


@pytest.mark.parametrize("robot", ROBOTS)
def test_make_gives_the_declared_sizes_and_the_context(robot):
    spec = ROBOTS[robot]
    env = gym.make(spec.env_id)
    assert env.observation_space.shape == (spec.observation_size,)
    assert env.action_space.shape == (spec.action_size,)
    _, info = env.reset(seed=0)
    assert info["context"] == Task(robot).context
    assert env.step(env.action_space.sample())[4]["context"] == info["context"]
    assert all(isinstance(value, float) for value in info["context"].values())


def test_make_through_the_module_prefix():
    code = "import gymnasium; gymnasium.make('mcat:mcat/Ant-v0', cripple=3, delay=500).reset()"
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)


@pytest.mark.parametrize(
    "order", ["import gymnasium as gym, mcat", "import mcat, gymnasium as gym"]
)
def test_ids_are_there_whichever_is_imported_first(order):
    code = f"{order}; assert 'mcat/Ant-v0' in gym.registry"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_usual_imports_make_no_noise():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*Box.*infinity.*")
        warnings.filterwarnings("ignore", message=".*precision lowered.*")
        env = gym.make("mcat/Ant-v0", cripple=3, delay=500)
        env.reset(seed=0)
        for _ in range(5):
            env.step(env.action_space.sample())


def test_spec_with_parameters_survives_json():
    env = gym.make("mcat/Ant-v0", cripple=3, delay=30, horizon=70)
    again = gym.make(EnvSpec.from_json(env.spec.to_json()))
    assert (
        again.unwrapped.task == env.unwrapped.task == Task("ant", cripple=3, delay=30, horizon=70)
    )
    for one in (env, again):
        one.reset(seed=1)
    rng = np.random.default_rng(0)
    paid = []
    for _ in range(70):
        action = rng.uniform(-1, 1, 8)
        first, second = env.step(action), again.step(action)
        assert np.array_equal(first[0], second[0])
        assert first[1:4] == second[1:4]
        paid.append(first[1])
    assert np.flatnonzero(paid).tolist() == [29, 59, 69]
    assert first[3]


def test_delayed_rewards_add_up_to_the_dense_ones():
    def rewards(delay):
        env = Task("halfcheetah", delay=delay).make()
        env.reset(seed=0)
        rng = np.random.default_rng(0)
        return np.array([env.step(rng.uniform(-1, 1, 6))[1] for _ in range(1000)])

    dense, delayed = rewards(1), rewards(350)
    assert np.flatnonzero(delayed).tolist() == [349, 699, 999]
    assert delayed.sum() == pytest.approx(dense.sum(), rel=1e-12)


@pytest.mark.parametrize(
    "task",
    [
        Task("hopper", size=0.03),
        Task("halfcheetah", armature=0.5, mass=2, inertia=0.5),
        Task("ant", cripple=2, damping=10),
    ],
    ids=lambda task: task.robot,
)
def test_the_machine_stays_the_same_through_steps_and_resets(task):
    """And is what a fresh one is: nothing drifts, nothing leaks from one to the next."""
    names = ("body_mass", "body_inertia", "dof_armature", "dof_damping", "actuator_gear")
    envs = [task.make(), Task(task.robot).make(), task.make()]
    made = [{name: getattr(e.unwrapped.model, name).copy() for name in names} for e in envs]
    rng = np.random.default_rng(0)
    for turn in range(60):
        for env in envs[:2]:
            if turn % 6 == 0:
                env.reset(seed=turn if turn % 12 else None)
            env.step(rng.uniform(-1, 1, env.action_space.shape))
    for env, before in zip(envs, made, strict=True):
        for name in names:
            assert np.array_equal(getattr(env.unwrapped.model, name), before[name])
    assert all(np.array_equal(made[0][name], made[2][name]) for name in names)


FINGERPRINTS = """
import hashlib
import numpy as np
from mcat.envs import ROBOTS, Task, TaskVectorEnv

def fingerprint(robot):
    env, rng = Task(robot).make(), np.random.default_rng(0)
    digest = hashlib.sha256(env.reset(seed=11)[0].tobytes())
    for _ in range(40):
        observation, reward, *_ = env.step(rng.uniform(-1, 1, env.action_space.shape))
        digest.update(observation.tobytes() + np.float64(reward).tobytes())
    return digest.hexdigest()

fingerprints = {robot: fingerprint(robot) for robot in ROBOTS}
"""


def test_same_seed_same_episode_in_another_process():
    code = FINGERPRINTS + "import json; print(json.dumps(fingerprints))"
    other = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], check=True, capture_output=True, text=True
    ).stdout
    here: dict = {}
    exec(FINGERPRINTS, here)
    assert json.loads(other) == here["fingerprints"]
    assert len(set(here["fingerprints"].values())) == len(ROBOTS)


@pytest.mark.parametrize("robot", QUICK)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_actions_that_are_not_finite_never_reach_the_simulator(robot, value):
    env = Task(robot).make()
    env.reset(seed=0)
    before = env.unwrapped.data.qpos.copy()
    action = np.zeros(env.action_space.shape)
    action[1] = value
    with pytest.raises(UsageError, match=r"index \[1\] is .*: must be finite"):
        env.unwrapped.step(action)
    assert np.array_equal(before, env.unwrapped.data.qpos)


def test_an_action_of_the_wrong_shape_is_refused():
    env = TaskEnv(Task("ant"))
    env.reset(seed=0)
    with pytest.raises(UsageError, match=r"shape \(8,\), got \(3,\)"):
        env.step(np.zeros(3))


def test_a_diverged_simulation_is_reported_and_truncates():
    """With motors a thousand times too strong MuJoCo resets itself silently; we say so."""
    env = TaskEnv(Task("halfcheetah"))
    env.model.actuator_gear[:] *= 1000
    last, _ = env.reset(seed=0)
    rng = np.random.default_rng(0)
    for _ in range(200):
        observation, reward, terminated, truncated, info = env.step(rng.uniform(-1, 1, 6))
        if truncated:
            break
        last = observation
    assert truncated
    assert not terminated
    assert info["unstable"] is True
    assert info["fault"].startswith("BADQ")
    assert reward == 0.0
    assert np.array_equal(observation, last)  # the last good one
    env.reset(seed=1)
    assert env.simulation.fault is None


def test_divergence_in_the_very_first_substep_is_noticed():
    """MuJoCo's clock is still 0 then, so only its warning counters can tell."""
    env = TaskEnv(Task("halfcheetah"))
    env.model.actuator_gear[:] *= 1e12
    env.reset(seed=0)
    *_, truncated, info = env.step(np.ones(6))
    assert truncated
    assert info["fault"].startswith("BADQACC")


def check_no_false_alarm(robot, episodes):
    env = TaskEnv(Task(robot))
    env.action_space.seed(0)
    for seed in range(episodes):
        env.reset(seed=seed)
        for _ in range(1000):
            *_, truncated, info = env.step(env.action_space.sample())
            assert not truncated
            assert "unstable" not in info


@pytest.mark.parametrize("robot", ["hopper", "halfcheetah", "ant"])
def test_normal_episodes_are_never_flagged(robot):
    check_no_false_alarm(robot, 3)


@pytest.mark.slow
@pytest.mark.parametrize("robot", ["hopper", "halfcheetah", "ant"])
def test_normal_episodes_are_never_flagged_100000(robot):
    check_no_false_alarm(robot, 34)


def extremes(robot):
    """The robot with each parameter at each end of what it declares."""
    for parameter in ROBOTS[robot].parameters:
        for value in parameter.choices or parameter.bounds or ():
            yield Task(robot, **{parameter.name: value})


def check_stable(tasks):
    env = TaskVectorEnv(tasks)
    env.reset(seed=0)
    env.action_space.seed(0)
    for _ in range(150):
        observations, rewards, _, _, info = env.step(env.action_space.sample())
        assert "unstable" not in info
        assert np.isfinite(observations).all()
        assert np.isfinite(rewards).all()


@pytest.mark.parametrize("robot", ["hopper", "halfcheetah", "halfcheetah3leg", "ant"])
def test_every_declared_machine_is_stable(robot):
    check_stable(list(extremes(robot)))


@pytest.mark.slow
@pytest.mark.parametrize("robot", [name for name in ROBOTS if ROBOTS[name].suite == "metaworld"])
def test_every_declared_gripper_is_stable(robot):
    check_stable(list(extremes(robot)))


def test_no_mujoco_log_is_left_behind(tmp_path):
    code = """
import numpy as np
from mcat.envs.env import TaskEnv
from mcat.envs import Task
env = TaskEnv(Task("halfcheetah"))
env.model.actuator_gear[:] *= 1000
env.reset(seed=0)
for _ in range(100):
    if env.step(env.action_space.sample())[3]: break
else: raise SystemExit("never diverged")
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], cwd=tmp_path, check=True)
    assert list(tmp_path.iterdir()) == []
