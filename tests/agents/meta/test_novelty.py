"""Reward for moving objects to new places: what it is worth, who gets it, and who cannot ask."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from mcat.agents.configs import CreditConfig
from mcat.agents.credit.credit import Credit
from mcat.agents.meta.algorithm import TaskSet
from mcat.agents.meta.config import PRESETS, MetaTrainConfig
from mcat.agents.meta.methods.registry import METHODS
from mcat.agents.meta.novelty import Novelty
from mcat.agents.meta.rows import LearningRows
from mcat.agents.meta.run import metatrain, restored
from mcat.config import overlay
from mcat.datasets.episodes import EpisodeStore
from mcat.datasets.rollout import Taken
from mcat.envs.families import family
from mcat.envs.robots import ROBOTS
from mcat.errors import UsageError

AT = (1, 3)  # of the two numbers behind the hand's


def path(*places: float) -> np.ndarray:
    """States of an object that is moved along x; the hand is elsewhere in every one of them."""
    return np.array([[i, x, 0.5] for i, x in enumerate(places)], np.float32)


def episodes(*paths: np.ndarray, tasks: list[int], rewards: float = 0.0) -> EpisodeStore:
    store = EpisodeStore(3, 1)
    for states, task in zip(paths, tasks, strict=True):
        steps = len(states) - 1
        store.append_episode(
            observations=states[:-1],
            next_observations=states[1:],
            actions=np.zeros((steps, 1)),
            rewards=np.full(steps, rewards),
            task=task,
        )
    return store


def bonus(novelty: Novelty, states: np.ndarray, task: int = 0) -> list[float]:
    owners = np.full(len(states) - 1, task)
    return novelty.bonus(owners, states[:-1], states[1:])[:, 0].tolist()


def test_a_place_is_worth_less_the_more_often_the_object_was_moved_there():
    novelty = Novelty(AT, 0.5)
    walk = path(0.01, 0.03, 0.05)
    assert bonus(novelty, walk) == [0.5, 0.5]
    for visits in (1, 2, 3):
        novelty.add(episodes(walk[:2], tasks=[0]))
        assert bonus(novelty, walk) == pytest.approx([0.5 / np.sqrt(1 + visits), 0.5])
    assert bonus(novelty, path(0.1, 0.0399)) == pytest.approx([0.25])  # a place is 2 cm wide
    assert bonus(novelty, path(0.1, 0.0401)) == [0.5]


def test_an_object_that_rests_earns_nothing_and_its_place_stays_new():
    novelty = Novelty(AT, 0.5)
    still = path(0.03, 0.0309, 0.0309)  # less than a millimetre in a step
    assert bonus(novelty, still) == [0.0, 0.0]
    novelty.add(episodes(still, tasks=[0]))
    assert bonus(novelty, path(0.01, 0.03)) == [0.5]


def test_each_task_has_places_of_its_own_wherever_they_are():
    novelty = Novelty(AT, 0.5)
    novelty.add(episodes(path(0.01, 0.03), tasks=[1]))
    assert bonus(novelty, path(0.01, 0.03), task=0) == [0.5]
    assert bonus(novelty, path(0.01, 0.03), task=1) == pytest.approx([0.5 / np.sqrt(2)])
    assert bonus(novelty, path(0.01, -0.03), task=1) == [0.5]
    far = path(0.01, 1e9, -1e9)  # all that is farther than 650 m is one place
    novelty.add(episodes(far, tasks=[0]))
    assert bonus(novelty, path(0.01, 2e9, -2e9)) == pytest.approx([0.5 / np.sqrt(2)] * 2)


def test_it_matches_counting_one_by_one():
    rng, novelty, seen = np.random.default_rng(0), Novelty(AT, 2.0), {}
    for _ in range(5):
        walks = [rng.uniform(-0.1, 0.1, (21, 3)).astype(np.float32) for _ in range(3)]
        for task, walk in enumerate(walks):
            for place, expected in zip(walk[1:], bonus(novelty, walk, task), strict=True):
                cell = (task, *np.floor(place[1:] / np.float32(0.02)).astype(int).tolist())
                assert expected == pytest.approx(2 / np.sqrt(1 + seen.get(cell, 0)))
        for task, walk in enumerate(walks):
            for place in walk[1:]:
                cell = (task, *np.floor(place[1:] / np.float32(0.02)).astype(int).tolist())
                seen[cell] = seen.get(cell, 0) + 1
        novelty.add(episodes(*walks, tasks=[0, 1, 2]))


@pytest.mark.parametrize("kind", ["none", "learned"])
def test_rows_have_it_besides_their_reward_whoever_says_that(kind):
    replay = episodes(path(0.01, 0.03, 0.05), path(0.01, 0.03, 0.03), tasks=[0, 1], rewards=1.0)
    generator = torch.Generator().manual_seed(0)
    credit = Credit(3, 1, CreditConfig(kind=kind), delay=1, horizon=2, generator=generator)
    credit.add(replay)
    plain, with_it = (
        LearningRows(replay, credit, novelty=novelty, room=2)
        for novelty in (None, Novelty(AT, 0.5))
    )
    after = np.array([[1, 0.07, 0.5], [1, 0.03, 0.5]], np.float32)
    no = np.zeros(2, bool)
    step = Taken(
        replay.transitions(np.array([1, 3])).next_observations,
        np.zeros((2, 1), np.float32), np.ones(2, np.float32), after, no, ~no, no,
    )  # fmt: skip
    found = []
    for rows in (plain, with_it):
        assert rows.add(step).tolist() == [0, 1]
        found.append(rows.batch(np.arange(6)).reward[:, 0])
    assert (found[1] - found[0]).tolist() == pytest.approx([0.5, 0.5, 0.5, 0, 0.5, 0], abs=1e-6)
    with_it.scale_rewards(np.arange(4), centred=True)
    assert with_it.batch(np.arange(4)).reward.mean() == pytest.approx(0, abs=1e-6)


def test_fast_has_it_for_every_method_where_an_object_is_moved_and_nothing_else_does():
    movers = {"push", "coffee-push", "sweep-into", "drawer-close", "soccer", "plate-slide"}
    assert {name for name, robot in ROBOTS.items() if robot.object_at} == movers
    assert TaskSet.of(family("metaworld-objects")).object_at == (4, 7)
    for name, method in METHODS.items():
        for preset in method.presets:
            for robot in ROBOTS:
                wanted = 0.5 if preset == "fast" and robot in movers else 0.0
                assert method.preset(preset, robot).own.novelty == wanted, (name, preset, robot)


def test_the_object_is_where_the_declaration_says():
    from mcat.envs import Task
    from mcat.envs.lockstep import lockstep

    env = lockstep([Task("push")])
    env.reset(seed=0)
    seen, *_, info = env.step(np.zeros((1, 4), np.float32))
    place, goal = seen[0, slice(*ROBOTS["push"].object_at)], seen[0, 11:]
    assert np.linalg.norm(place - goal) == pytest.approx(info["distance"][0], abs=1e-5)


def test_without_an_object_it_is_refused(tmp_path):
    config = overlay(replace(PRESETS["smoke"], steps=5000), {"mcat.novelty": 1.0})
    with pytest.raises(UsageError, match=r"none in halfcheetah-armature0\.2: leave it at 0"):
        metatrain(config, tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()
    with pytest.raises(UsageError, match="novelty"):
        overlay(MetaTrainConfig(), {"mcat.novelty": -1.0})


@pytest.mark.parametrize("method", ["mcat", "pcgrad"])
def test_a_run_that_goes_on_has_counted_the_same(tmp_path, method):
    changes = {f"{method}.novelty": 0.5, f"{method}.start_steps": 100_000}
    base = replace(METHODS[method].presets["smoke"], family="metaworld-objects", steps=5000)
    config = overlay(base, changes)
    metatrain(config, tmp_path / "run", quiet=True)
    algorithm = restored(tmp_path / "run")
    counted = (algorithm if method == "mcat" else algorithm.experience).novelty
    rounds = 2 * 5 * 500
    assert 0 < counted._visits.sum() < rounds
    again = Novelty((4, 7), 0.5)
    replay = (algorithm if method == "mcat" else algorithm.experience).replay
    again.add(replay)
    assert np.array_equal(again._places, counted._places)
    assert np.array_equal(again._visits, counted._visits)
