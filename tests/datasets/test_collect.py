"""Collecting: exact counts, whole episodes, one result however it was reached."""

from __future__ import annotations

import dataclasses
import json
import os
import signal

import numpy as np
import pytest

from mcat.config import to_json
from mcat.datasets import check
from mcat.datasets import collect as collecting
from mcat.datasets.collect import CollectConfig, collect
from mcat.datasets.hdf5 import read_dataset, write_dataset
from mcat.datasets.rollout import roll_out
from mcat.envs.tasks import Task
from mcat.envs.vector import TaskVectorEnv
from mcat.errors import CannotCreateError, UnstableError, UsageError
from mcat.interrupts import StoppedError
from tests.datasets.stores import content_hash

CHEETAH = Task("halfcheetah", horizon=20)
CONFIG = CollectConfig(
    task=CHEETAH, steps=200, seed=3, noise=(0.0, 0.5), envs=4, policy_name="tanh"
)
RNG = np.random.default_rng(0)
WEIGHTS = RNG.normal(size=(CHEETAH.spec.observation_size, CHEETAH.spec.action_size))


def policy(observations):
    return np.tanh(observations @ WEIGHTS)


@pytest.fixture(autouse=True)
def small_shards(monkeypatch):
    monkeypatch.setattr(collecting, "SHARD_TRANSITIONS", 60)


def run(path, config=CONFIG, **options):
    return collect(config, policy, path, quiet=True, **options)


def test_the_file_holds_what_was_asked_for(tmp_path):
    path = tmp_path / "a.h5"
    config = dataclasses.replace(CONFIG, policy_sha256="abc")
    summary = run(path, config)
    episodes, metadata = read_dataset(path)
    assert os.listdir(tmp_path) == ["a.h5"]
    assert (summary.transitions, summary.episodes, summary.unstable_episodes) == (200, 10, 0)
    assert summary.file_bytes == path.stat().st_size
    assert (summary.return_min, summary.return_max) == (
        metadata["returns"]["min"],
        metadata["returns"]["max"],
    )
    np.testing.assert_array_equal(episodes.lengths, [20] * 10)
    assert episodes.timeouts.sum() == 10
    assert not episodes.terminals.any()
    assert not check(episodes)  # successors continue, no duplicates, nothing constant
    assert metadata["task"] == CHEETAH.to_dict()
    assert Task.from_dict(metadata["task"]) == CHEETAH
    assert metadata["policy"] == {"name": "tanh", "sha256": "abc"}
    assert metadata["seed"] == 3
    assert metadata["rate_hz"] == 20  # 5 physics steps of 10 ms
    assert metadata["unstable_episodes"] == 0
    assert metadata["config"] == json.loads(json.dumps(to_json(config)))
    assert metadata["versions"].keys() >= {"mcat", "python", "numpy", "mujoco", "gymnasium"}


@pytest.mark.parametrize(("steps", "episodes"), [(1, 1), (20, 1), (21, 2), (79, 4), (81, 5)])
def test_it_stops_at_the_first_whole_episode_at_or_above_the_count(tmp_path, steps, episodes):
    summary = run(tmp_path / "a.h5", dataclasses.replace(CONFIG, steps=steps))
    assert (summary.episodes, summary.transitions) == (episodes, 20 * episodes)


def test_transitions_are_what_a_single_environment_gives(tmp_path):
    """Replays the stored actions in `task.make()`."""
    env = TaskVectorEnv([CHEETAH] * 3)
    seed = np.random.SeedSequence([3, 7])
    stored = list(roll_out(env, policy, seed=seed, noise=(0.1, 0.1), episodes=3))
    seeds = np.random.SeedSequence([3, 7]).spawn(2)[0].generate_state(3)
    for episode, number in zip(stored, seeds, strict=True):
        single = CHEETAH.make()
        observation, _ = single.reset(seed=int(number))
        for t, action in enumerate(episode["actions"]):
            np.testing.assert_array_equal(episode["observations"][t], observation.astype("f4"))
            observation, reward, _, truncated, _ = single.step(action)
            np.testing.assert_array_equal(episode["next_observations"][t], observation.astype("f4"))
            assert episode["rewards"][t] == np.float32(reward)
        assert truncated


def test_noise_is_drawn_per_episode_and_clipped(tmp_path):
    def still(observations):
        return np.full((len(observations), 6), 0.9)

    config = dataclasses.replace(CONFIG, noise=(0.01, 0.6), steps=400)
    collect(config, still, tmp_path / "a.h5", quiet=True)
    episodes, _ = read_dataset(tmp_path / "a.h5")
    assert np.abs(episodes.actions).max() == 1
    low = episodes.actions[episodes.actions < 0.9] - 0.9  # one half of the bell, never clipped
    assert np.sqrt((low**2).mean()) > 0.1
    spreads = [np.std(episodes.episode(i)["actions"]) for i in range(20)]
    assert max(spreads) > 3 * min(spreads)
    config = dataclasses.replace(CONFIG, noise=(0.0, 0.0), steps=80)
    collect(config, still, tmp_path / "b.h5", quiet=True)
    assert (read_dataset(tmp_path / "b.h5")[0].actions == np.float32(0.9)).all()


def test_random_actions_fill_the_action_space(tmp_path):
    collect(CONFIG, None, tmp_path / "a.h5", quiet=True)
    actions = read_dataset(tmp_path / "a.h5")[0].actions
    assert abs(actions.mean()) < 0.05
    assert abs(actions.std() - 1 / np.sqrt(3)) < 0.03


def test_delayed_rewards_are_stored_as_the_task_pays_them(tmp_path):
    for delay in (1, 8):
        task = CHEETAH.replace(delay=delay)
        run(tmp_path / f"{delay}.h5", dataclasses.replace(CONFIG, task=task))
    dense, delayed = (read_dataset(tmp_path / f"{delay}.h5")[0] for delay in (1, 8))
    np.testing.assert_array_equal(dense.observations, delayed.observations)
    paid = np.flatnonzero(delayed.episode(0)["rewards"]) + 1
    np.testing.assert_array_equal(paid, [8, 16, 20])
    np.testing.assert_allclose(dense.episode_returns(), delayed.episode_returns(), rtol=1e-4)


def test_equal_seeds_give_equal_files_however_many_work_on_them(tmp_path):
    run(tmp_path / "a.h5")
    run(tmp_path / "b.h5", workers=2)
    assert (tmp_path / "a.h5").read_bytes() == (tmp_path / "b.h5").read_bytes()
    run(tmp_path / "c.h5", dataclasses.replace(CONFIG, seed=4))
    a, c = (read_dataset(tmp_path / f"{name}.h5")[0] for name in "ac")
    assert not np.array_equal(a.observations, c.observations)


# ---- stopping and going on


def stop_after(calls, number):
    """The policy, which sends its own process a signal on its n-th call."""
    left = [calls]

    def act(observations):
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), number)
        return policy(observations)

    return act


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 75), (signal.SIGUSR1, 75), (signal.SIGUSR2, 75)],
)
@pytest.mark.parametrize(("calls", "shard"), [(1, 60), (20, 500), (21, 60), (39, 500)])
def test_a_signal_keeps_all_finished_episodes_and_resume_completes(
    tmp_path, monkeypatch, calls, shard, number, code
):
    monkeypatch.setattr(collecting, "SHARD_TRANSITIONS", shard)  # one round, or all of them
    run(tmp_path / "clean.h5")
    path = tmp_path / "a.h5"
    with pytest.raises(StoppedError, match="--resume") as caught:
        collect(CONFIG, stop_after(calls, number), path, quiet=True)
    assert caught.value.exit_code == code
    finished = 80 if calls <= 20 else 160  # the round of 4 episodes of 20 steps is completed
    assert f"after {finished} of 200" in str(caught.value)
    assert not path.exists()
    with pytest.raises(CannotCreateError, match="unfinished"):
        run(path)
    run(path, resume=True)
    assert path.read_bytes() == (tmp_path / "clean.h5").read_bytes()
    assert sorted(os.listdir(tmp_path)) == ["a.h5", "clean.h5"]


def test_a_signal_in_the_last_round_is_too_late(tmp_path):
    summary = collect(CONFIG, stop_after(58, signal.SIGTERM), tmp_path / "a.h5", quiet=True)
    assert summary.transitions == 200


def test_a_second_ctrl_c_stops_at_once_and_keeps_the_shards(tmp_path):
    left = [30]

    def impatient(observations):
        left[0] -= 1
        if left[0] <= 0:
            os.kill(os.getpid(), signal.SIGINT)
        return policy(observations)

    path = tmp_path / "a.h5"
    with pytest.raises(KeyboardInterrupt):
        collect(CONFIG, impatient, path, quiet=True)
    (shard,) = (tmp_path / "a.h5.shards").glob("*.h5")
    assert len(read_dataset(shard)[0]) == 80
    run(path, resume=True)
    run(tmp_path / "clean.h5")
    assert path.read_bytes() == (tmp_path / "clean.h5").read_bytes()


def interrupted(path, **options):
    with pytest.raises(StoppedError):
        collect(CONFIG, stop_after(30, signal.SIGTERM), path, quiet=True, **options)
    return path.with_name(f"{path.name}.shards")


@pytest.mark.parametrize("damage", ["first shard", "last shard", "missing shard", "extra files"])
def test_damaged_shards_are_collected_again(tmp_path, damage):
    path = tmp_path / "a.h5"
    folder = interrupted(path)
    first, last = sorted(folder.glob("shard-*"))
    if damage == "missing shard":
        last.unlink()
    elif damage == "extra files":
        (folder / "shard-00002.h5").touch()  # a name that a killed process had claimed
        (folder / ".shard-00002.h5.part-0123456789abcdef0123456789abcdef").touch()
    else:
        target = first if damage == "first shard" else last
        content = bytearray(target.read_bytes())
        content[-1] ^= 1
        target.write_bytes(content)
    stale = tmp_path / f".a.h5.part-{'0' * 32}"
    others = tmp_path / f".b.h5.part-{'0' * 32}"
    stale.touch()
    others.touch()
    run(path, resume=True)
    run(tmp_path / "clean.h5")
    assert path.read_bytes() == (tmp_path / "clean.h5").read_bytes()
    assert sorted(os.listdir(tmp_path)) == [others.name, "a.h5", "clean.h5"]


CHANGES = {
    "steps": 240,
    "seed": 4,
    "noise": (0.0, 0.4),
    "envs": 5,
    "policy_name": "other",
    "policy_sha256": "f00",
    "max_unstable": 0.5,
    "task": CHEETAH.replace(armature=0.2),
}


def test_resuming_with_another_configuration_is_refused_by_name(tmp_path):
    path = tmp_path / "a.h5"
    folder = interrupted(path)
    before = sorted(p.read_bytes() for p in folder.glob("*.h5"))
    for key, value in CHANGES.items():
        if key == "steps":  # may change while it is unfinished
            continue
        with pytest.raises(UsageError, match=rf"otherwise \({key}[.:]"):
            run(path, dataclasses.replace(CONFIG, **{key: value}), resume=True)
    assert sorted(p.read_bytes() for p in folder.glob("*.h5")) == before
    run(path, resume=True)
    for key, value in CHANGES.items():
        with pytest.raises(UsageError, match=rf"otherwise \({key}[.:]"):
            run(path, dataclasses.replace(CONFIG, **{key: value}), resume=True)


def test_resume_starts_if_there_is_nothing_and_is_done_if_all_is_there(tmp_path):
    path = tmp_path / "a.h5"
    first = run(path, resume=True)
    before = path.stat().st_mtime_ns
    again = run(path, resume=True)
    assert dataclasses.replace(again, seconds=0) == dataclasses.replace(first, seconds=0)
    assert path.stat().st_mtime_ns == before
    write_dataset(tmp_path / "b.h5", read_dataset(path)[0], {})
    with pytest.raises(CannotCreateError, match="no collection"):
        run(tmp_path / "b.h5", resume=True)


def test_existing_output_is_replaced_only_on_request(tmp_path):
    path = tmp_path / "a.h5"
    path.write_text("precious")
    with pytest.raises(CannotCreateError, match="--overwrite"):
        run(path)
    assert path.read_text() == "precious"
    interrupted(path, overwrite=True)
    assert path.read_text() == "precious"  # until the new one is whole
    run(path, overwrite=True, resume=True)
    run(tmp_path / "clean.h5")
    assert path.read_bytes() == (tmp_path / "clean.h5").read_bytes()
    other = dataclasses.replace(CONFIG, seed=9)
    interrupted(tmp_path / "b.h5")
    run(tmp_path / "b.h5", other, overwrite=True)  # starts anew
    assert read_dataset(tmp_path / "b.h5")[1]["seed"] == 9
    assert content_hash(tmp_path / "b.h5") != content_hash(path)


# ---- diverged simulations and bad policies


def poison(monkeypatch, place, episodes):
    """Makes given (round, sub-environment) pairs report what no data set may hold, at step 7."""
    real_reset, real_step = TaskVectorEnv.reset, TaskVectorEnv.step
    state = {"round": -1, "step": 0}

    def reset(self, **kwargs):
        state.update(round=state["round"] + 1, step=0)
        return real_reset(self, **kwargs)

    def step(self, actions):
        state["step"] += 1
        rows = [i for number, i in episodes if number == state["round"]]
        observations, rewards, terminated, truncated, info = real_step(self, actions)
        if state["step"] == 7 and place == "observation":
            observations[rows, 2] = np.nan
        if state["step"] == 7 and place == "reward":
            rewards[rows] = np.inf
        if state["step"] == 7 and place == "too large":
            observations[rows, 0] = 1e300
        return observations, rewards, terminated, truncated, info

    monkeypatch.setattr(TaskVectorEnv, "reset", reset)
    monkeypatch.setattr(TaskVectorEnv, "step", step)


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize("place", ["observation", "reward", "too large"])
def test_diverged_episodes_are_dropped_and_counted(tmp_path, monkeypatch, place):
    poison(monkeypatch, place, [(0, 1), (1, 3)])
    config = dataclasses.replace(CONFIG, max_unstable=0.2)
    summary = collect(config, None, tmp_path / "a.h5", quiet=True)
    assert (summary.episodes, summary.unstable_episodes) == (10, 2)
    episodes, metadata = read_dataset(tmp_path / "a.h5")
    assert metadata["unstable_episodes"] == 2
    assert episodes.num_episodes == 10


def test_too_many_diverged_episodes_are_an_error(tmp_path, monkeypatch):
    poison(monkeypatch, "observation", [(0, 1)])
    with pytest.raises(UnstableError, match=r"1 of 4 episodes .* more than 1.0%") as caught:
        collect(CONFIG, None, tmp_path / "a.h5", quiet=True)
    assert caught.value.exit_code == 3
    assert os.listdir(tmp_path) == []


def test_physics_that_really_diverges_is_noticed(tmp_path):
    env = TaskVectorEnv([CHEETAH] * 2)

    def kick(observations):
        env.simulations[1].data.qvel[:] = 1e12
        return policy(observations)

    seed = np.random.SeedSequence(0)
    good, bad = roll_out(env, kick, seed=seed, noise=(0, 0), episodes=2)
    assert bad is None
    assert len(good["rewards"]) == 20


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        (np.full((4, 6), np.nan), "NaN or infinite"),
        (np.full((4, 6), np.inf), "NaN or infinite"),
        (np.zeros((4, 5)), r"\(4, 5\), the task takes \(4, 6\)"),
        (np.zeros(6), r"the task takes \(4, 6\)"),
    ],
)
def test_bad_policies_are_named(tmp_path, actions, message):
    with pytest.raises(UsageError, match=message):
        collect(CONFIG, lambda observations: actions, tmp_path / "a.h5", quiet=True)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "change",
    [
        {"steps": 0}, {"envs": 0}, {"seed": -1}, {"noise": (0.3, 0.1)}, {"noise": (-1.0, 0.0)},
        {"noise": (0.0, float("nan"))}, {"noise": (0.0, float("inf"))}, {"max_unstable": 2.0},
    ],
)  # fmt: skip
def test_bad_settings_are_refused(change):
    with pytest.raises(UsageError):
        dataclasses.replace(CONFIG, **change)
