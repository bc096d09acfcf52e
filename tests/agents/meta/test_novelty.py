"""Reward for moving objects to new places: what it is worth, who gets it, and who cannot ask."""

from __future__ import annotations

from collections import Counter
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
from mcat.envs import Task
from mcat.envs.families import family
from mcat.envs.lockstep import lockstep
from mcat.envs.robots import ROBOTS, Places
from mcat.errors import UsageError

AT = Places(hand=(0, 3), object=(3, 6))


def path(*places: float, reach: float = 0.01) -> np.ndarray:
    """States of an object that is moved along x; the hand stays as far from it."""
    return np.array([[x + reach, 0.01, 0.01, x, 0.01, 0.01] for x in places], np.float32)


def episodes(*paths: np.ndarray, tasks: list[int], rewards: float = 0.0) -> EpisodeStore:
    store = EpisodeStore(6, 1)
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


def worth(*visits: tuple[int | None, int | None]) -> list[float]:
    """What steps earn after so many visits of (the object's place, the hand's).

    None: the object rests, the hand is far.
    """
    earned = [[0.0 if n is None else 1 / np.sqrt(1 + n) for n in both] for both in visits]
    return pytest.approx([place + 0.1 * hand for place, hand in earned])


def test_a_place_is_worth_less_the_more_often_it_was_visited():
    novelty = Novelty(AT, 1.0)
    walk = path(0.01, 0.03, 0.05)
    assert bonus(novelty, walk) == worth((0, 0), (0, 0))
    for visits in (1, 2, 3):
        novelty.add(episodes(walk[:2], tasks=[0]))
        assert bonus(novelty, walk) == worth((visits, visits), (0, visits))
    assert bonus(novelty, path(0.1, 0.0399)) == worth((3, 3))  # a place is 2 cm wide
    assert bonus(novelty, path(0.1, 0.0401)) == worth((0, 3))
    assert bonus(novelty, path(0.1, 0.03, reach=0.0199)) == worth((3, 3))
    assert bonus(novelty, path(0.1, 0.03, reach=0.0201)) == worth((3, 0))
    half = Novelty(AT, 0.5)
    assert np.array(bonus(half, walk)) == pytest.approx([0.55, 0.55])


def test_far_from_the_object_the_hand_earns_nothing_anywhere():
    novelty = Novelty(AT, 1.0)
    for reach in (0.151, -0.151):
        away = path(0.01, 0.0101, reach=reach)
        assert bonus(novelty, away) == [0.0]
        novelty.add(episodes(away, tasks=[0]))
    assert bonus(novelty, path(0.01, 0.0101, reach=0.149)) == worth((None, 0))


def test_an_object_that_rests_earns_nothing_and_its_place_stays_new():
    novelty = Novelty(AT, 1.0)
    still = path(0.03, 0.0309, 0.0309)  # less than a millimetre in a step
    assert bonus(novelty, still) == worth((None, 0), (None, 0))
    novelty.add(episodes(still, tasks=[0]))
    assert bonus(novelty, path(0.01, 0.03)) == worth((0, 2))


def test_each_task_has_places_of_its_own_wherever_they_are():
    novelty = Novelty(AT, 1.0)
    novelty.add(episodes(path(0.01, 0.03), tasks=[1]))
    assert bonus(novelty, path(0.01, 0.03), task=0) == worth((0, 0))
    assert bonus(novelty, path(0.01, 0.03), task=1) == worth((1, 1))
    assert bonus(novelty, path(0.01, -0.03), task=1) == worth((0, 1))
    far = path(0.01, 1e9, -1e9, reach=0.0)  # all that is farther than 650 m is one place
    novelty.add(episodes(far, tasks=[0]))
    assert bonus(novelty, path(0.01, 2e9, -2e9, reach=0.0)) == worth((1, 2), (1, 2))


def test_it_matches_counting_one_by_one():
    rng, novelty = np.random.default_rng(0), Novelty(AT, 1.0)
    hands, objects = Counter(), Counter()

    def cells(task, state):
        reach, place = state[:3] - state[3:], state[3:]
        found = [
            (task, *np.floor(x / np.float32(0.02)).astype(int).tolist()) for x in (reach, place)
        ]
        return found[0] if np.abs(reach).max() < 0.15 else None, found[1]

    for _ in range(5):
        walks = [rng.uniform(-0.1, 0.1, (21, 6)).astype(np.float32) for _ in range(3)]
        for task, walk in enumerate(walks):
            seen = [cells(task, state) for state in walk[1:]]
            visits = [(objects[o], None if h is None else hands[h]) for h, o in seen]
            assert bonus(novelty, walk, task) == worth(*visits)
        for task, walk in enumerate(walks):
            for hand, place in (cells(task, state) for state in walk[1:]):
                hands[hand] += hand is not None
                objects[place] += 1
        novelty.add(episodes(*walks, tasks=[0, 1, 2]))
    assert max(objects.values()) > 1
    assert max(hands.values()) > 1
    assert None in hands


@pytest.mark.parametrize("kind", ["none", "learned"])
def test_rows_have_it_besides_their_reward_whoever_says_that(kind):
    replay = episodes(path(0.01, 0.03, 0.05), path(0.01, 0.03, 0.03), tasks=[0, 1], rewards=1.0)
    generator = torch.Generator().manual_seed(0)
    credit = Credit(6, 1, CreditConfig(kind=kind), delay=1, horizon=2, generator=generator)
    credit.add(replay)
    plain, with_it = (
        LearningRows(replay, credit, novelty=novelty, room=2) for novelty in (None, Novelty(AT, 1))
    )
    before = replay.transitions(np.array([1, 3])).next_observations
    after = np.stack([path(0.07)[0], path(0.03)[0]])
    no = np.zeros(2, bool)
    step = Taken(before, np.zeros((2, 1), np.float32), np.ones(2, np.float32), after, no, ~no, no)
    found = []
    for rows in (plain, with_it):
        assert rows.add(step).tolist() == [0, 1]
        found.append(rows.batch(np.arange(6)).reward[:, 0])
    more = (found[1] - found[0]).tolist()
    assert more == pytest.approx([1.1, 1.1, 1.1, 0.1, 1.1, 0.1], abs=1e-6)
    with_it.scale_rewards(np.arange(4), centred=True)
    assert with_it.batch(np.arange(4)).reward.mean() == pytest.approx(0, abs=1e-6)


def test_fast_has_it_for_every_method_where_an_object_is_moved_and_nothing_else_does():
    movers = {"push", "coffee-push", "sweep-into", "drawer-close", "soccer", "plate-slide"}
    assert {name for name, robot in ROBOTS.items() if robot.places} == movers
    for name, method in METHODS.items():
        for preset in method.presets:
            for robot in ROBOTS:
                wanted = 1.0 if preset == "fast" and robot in movers else 0.0
                assert method.preset(preset, robot).own.novelty == wanted, (name, preset, robot)


def test_hand_and_object_are_where_the_declaration_says():
    env = lockstep([Task("push")])
    env.reset(seed=0)
    before, *_, info = env.step(np.zeros((1, 4), np.float32))
    where = TaskSet.of(family("metaworld-objects")).places
    place, goal = before[0, slice(*where.object)], before[0, 11:]
    assert np.linalg.norm(place - goal) == pytest.approx(info["distance"][0], abs=1e-5)
    for _ in range(10):
        after, *_ = env.step(np.array([[0, 0, 1, 0]], np.float32))
    moved = (after - before)[0, slice(*where.hand)]
    assert moved[2] > 0.05 > np.abs(moved[:2]).max()  # up, and nowhere else


def test_without_an_object_it_is_refused(tmp_path):
    config = overlay(replace(PRESETS["smoke"], steps=5000), {"mcat.novelty": 1.0})
    with pytest.raises(UsageError, match=r"none in halfcheetah-armature0\.2: leave it at 0"):
        metatrain(config, tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()
    with pytest.raises(UsageError, match="novelty"):
        overlay(MetaTrainConfig(), {"mcat.novelty": -1.0})


@pytest.mark.parametrize("method", ["mcat", "pcgrad"])
def test_a_run_that_goes_on_has_counted_all_that_was_collected(tmp_path, method):
    changes = {f"{method}.novelty": 0.5, f"{method}.start_steps": 100_000}
    base = replace(METHODS[method].presets["smoke"], family="metaworld-objects", steps=5000)
    metatrain(overlay(base, changes), tmp_path / "run", quiet=True)
    algorithm = restored(tmp_path / "run")
    owner = algorithm if method == "mcat" else algorithm.experience
    again = Novelty(Places(hand=(0, 3), object=(4, 7)), 0.5)
    again.add(owner.replay)
    for kind in ("of_hand", "of_object"):
        counted, expected = getattr(owner.novelty, kind), getattr(again, kind)
        assert np.array_equal(counted._places, expected._places)
        assert np.array_equal(counted._counts, expected._counts)
        assert counted._counts.sum() > 50
