"""Episodes in a mirror: what the twin of a machine would have done, and who learns from it."""

from __future__ import annotations

from dataclasses import replace

import mujoco
import numpy as np
import pytest

from mcat.agents.meta.algorithm import Round
from mcat.agents.meta.config import PRESETS
from mcat.agents.meta.images import mirror_images
from mcat.agents.meta.methods.registry import METHODS
from mcat.agents.meta.rounds import load_rounds
from mcat.datasets.episodes import EpisodeStore
from mcat.datasets.rollout import roll_out
from mcat.envs import Task
from mcat.envs.families import mirror_twins
from mcat.envs.lockstep import lockstep
from mcat.envs.locomotion import build
from mcat.interrupts import Interrupts
from tests.agents.meta.methods.test_experience import experience
from tests.agents.meta.point_mass import (
    TINY,
    mcat,
    random_round,
    tiny_config,
    tiny_task_set,
    trainer,
)
from tests.agents.meta.test_loop import contents

CRIPPLED = tuple(Task("ant", cripple=leg) for leg in (None, 0, 1, 2))
FAST = replace(PRESETS["fast"], family="ant-cripple")


def test_who_is_whose_image():
    assert mirror_twins(FAST.tasks.train) == (0, 4, 3, 2, 1)
    assert mirror_twins(CRIPPLED) == (0, None, 3, 2)  # nobody has leg 3 dead
    assert mirror_twins([Task("ant", cripple=0), Task("ant", cripple=3)]) == (1, 0)
    assert mirror_twins([Task("ant", damping=4.0), Task("ant", damping=0.25)]) == (1, 0)
    assert mirror_twins([Task("ant", damping=4.0, semantics="released")]) == (None,)


def test_an_image_is_what_the_twin_would_have_done():
    tasks = [task.replace(delay=1) for task in FAST.tasks.train]
    rng, env = np.random.default_rng(0), lockstep(tasks)
    shape = len(tasks), 8
    found = roll_out(
        env,
        lambda obs: rng.uniform(-1, 1, shape),
        seed=np.random.SeedSequence(0),
        noise=(0, 0),
        episodes=len(tasks),
        steps=12,
    )
    episodes = EpisodeStore(27, 8)
    for task, episode in enumerate(found):
        episodes.append_episode(**episode, task=task)
    images = mirror_images(tasks)(episodes)
    assert images.tasks.tolist() == [0, 4, 3, 2, 1]
    legs = {0: None, 4: 3, 3: 2, 2: 1, 1: 0}  # what is dead in the flesh
    for number, task in enumerate(images.tasks.tolist()):
        twin, seen = build("ant", **Task("ant", cripple=legs[task]).params), np.empty(27)
        rows = images.task(task).transitions(np.arange(12))
        assert not np.allclose(rows.observations, episodes.task(number).observations)
        for i in range(12):
            twin.data.qpos[2:], twin.data.qvel[:] = np.split(rows.observations[i], [13])
            mujoco.mj_forward(twin.model, twin.data)
            reward = twin.advance(rows.actions[i].astype(np.float64))
            twin.observe(seen)
            assert seen == pytest.approx(rows.next_observations[i], abs=1e-5)
            # MuJoCo's x of the torso is a physics step late, unless the state was just set.
            assert reward == pytest.approx(rows.rewards[i], abs=0.05)


def test_the_image_of_an_image_is_the_episode_and_some_have_none():
    tasks, rng = CRIPPLED, np.random.default_rng(0)
    episodes = EpisodeStore(27, 8)
    for task, length in ((1, 3), (2, 4), (0, 5)):
        episodes.append_episode(
            observations=rng.normal(size=(length, 27)),
            actions=rng.uniform(-1, 1, (length, 8)),
            next_observations=rng.normal(size=(length, 27)),
            rewards=rng.normal(size=length),
            task=task,
            terminal=task == 2,
        )
    images = mirror_images(tasks)
    once = images(episodes)
    assert (once.tasks.tolist(), once.lengths.tolist()) == ([3, 0], [4, 5])
    twice = images(once)
    assert twice.tasks.tolist() == [2, 0]
    for name in ("observations", "actions", "next_observations", "rewards", "terminals"):
        assert np.array_equal(twice.column(name), episodes.select([1, 2]).column(name)), name


def swapped(episodes):
    """In place of a mirror: two point masses change places, and all is negated."""
    columns = {name: -episodes.column(name) for name in ("observations", "next_observations")}
    return EpisodeStore.from_arrays(
        **columns,
        actions=-episodes.column("actions"),
        rewards=episodes.column("rewards"),
        episode_ends=np.cumsum(episodes.lengths),
        tasks=1 - episodes.tasks,
    )


def play(out, steps: int, *, resume: bool = False) -> None:
    """A run with images, to its end or on to it."""
    work = trainer(out, tiny_config(steps), replace(tiny_task_set(), images=swapped))
    if resume:
        work.restore()
    with Interrupts() as stop:
        work.run(stop, quiet=True)


def with_image(new: Round) -> Round:
    return replace(new, images=swapped(new.episodes))


def test_mcat_learns_from_images_and_credits_nobody_for_them():
    task_set = replace(tiny_task_set(), images=swapped)
    imitation = replace(TINY.imitation, capacity=10**4)
    config = replace(TINY, replay_capacity=10**4, imitation=imitation)
    plain, doubled = (mcat(config, rounds=0, task_set=s) for s in (tiny_task_set(), task_set))
    for number in range(3):
        new = random_round(tiny_task_set(), number)
        plain.remember(new)
        doubled.remember(with_image(new))
    assert len(doubled.replay) == 2 * len(plain.replay)
    assert (doubled.step, doubled.collected) == (plain.step, plain.collected)
    assert doubled.selection.state() == plain.selection.state()
    assert len(doubled.credit.ridge) == len(plain.credit.ridge)  # paid once
    assert len(doubled.imitation.episodes) == 2 * len(plain.imitation.episodes)
    episodes = doubled.replay.select([0, 1]).observations
    assert np.array_equal(doubled.replay.select([2, 3]).observations, -episodes)
    held_out = [agent._episodes(0, held_out=True) for agent in (plain, doubled)]
    assert len(held_out[1]) == 2 * len(held_out[0]) > 0  # the second round, with its images


def test_a_run_with_images_goes_on_exactly_and_keeps_none_of_them_in_files(tmp_path):
    play(tmp_path / "whole", 240)
    play(tmp_path / "halves", 120)
    play(tmp_path / "halves", 240, resume=True)
    assert contents(tmp_path / "whole") == contents(tmp_path / "halves")
    rounds = load_rounds(tmp_path / "whole" / "replay", [None] * 4)
    assert [new.episodes.num_episodes for new in rounds] == [2] * 4


def test_the_other_methods_remember_images_too():
    made = experience(replay_capacity=10**4)  # has seen two rounds of two tasks
    new = with_image(random_round(tiny_task_set(), 2))
    made.remember(new)
    assert len(made.replay) == 4 * len(new.episodes)
    assert list(made.latest) == [4, 5, 6, 7]
    assert np.array_equal(made.replay.select([6, 7]).observations, -new.episodes.observations)
    assert made.collected == len(new.episodes)


def test_every_method_of_fast_has_images_where_legs_are_crippled_and_no_other_preset():
    for name, method in METHODS.items():
        for preset in ("fast", "cpu", "paper", "smoke"):
            config = replace(method.presets[preset], family="ant-cripple")
            assert config.mirrors_replay == (preset == "fast"), (name, preset)
        assert not replace(method.presets["fast"], family="ant-damping").mirrors_replay
        assert not replace(method.presets["fast"], family="hopper-size").mirrors_replay
        assert not replace(config, mirror=False, mirror_replay=True).mirrors_replay
