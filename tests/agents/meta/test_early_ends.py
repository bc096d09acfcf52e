"""Meta-training where episodes end by themselves: rounds, paces, credit, and going on exactly."""

from dataclasses import replace

import numpy as np
import pytest

import tests.count_env  # noqa: F401  (registers Count-v0)
from mcat.agents.credit.segments import paid_segments
from mcat.agents.lengths import cut, endless_pieces
from mcat.agents.meta.algorithm import Round, TaskSet
from mcat.agents.meta.config import PRESETS
from mcat.agents.meta.loop import MetaTrainer
from mcat.agents.meta.run import metatrain, read_config
from mcat.agents.trained_run import evaluate_run, open_run
from mcat.datasets.episodes import EpisodeStore
from mcat.datasets.rollout import Taken
from mcat.envs import FAMILIES, Family, Task
from mcat.errors import DataError, UsageError
from mcat.tensor_files import content_digest


def counting(*ends, delay=1, **options):
    tasks = [
        Task("Count-v0", arguments={"ends_at": end, "gain": 1.0 + i}, delay=delay)
        for i, end in enumerate(ends)
    ]
    return Family(
        name="counting", title="counting", varies=("arguments.ends_at",),
        train=tuple(tasks[:-1]), test=(tasks[-1],), **options,
    )  # fmt: skip


class Still:
    """A method that rests in the middle, and keeps what it is shown."""

    metrics = phases = ()
    trials = 0

    def __init__(self, tasks):
        self.tasks, self.seen = tasks, []

    def plan(self):
        return ("random",) * self.tasks

    def explorer(self, drivers):
        return lambda states: np.zeros((len(states), 1), np.float32)

    def after_step(self, taken: Taken, on_progress):
        self.seen.append((taken.running.copy(), taken.terminated.copy(), taken.rewards.copy()))


def collected(family, folder, lengths=None):
    task_set = TaskSet.of(family)
    algorithm = Still(len(task_set.train))
    config = replace(PRESETS["smoke"], episode_lengths=lengths)
    trainer = MetaTrainer(config, task_set, algorithm, folder)
    return trainer._collect(lambda *args: None), algorithm


def test_tasks_begin_new_episodes_until_each_has_its_steps(tmp_path):
    """7 + 7 + 7 steps of one, 20 of the other: the last one is not cut."""
    new, algorithm = collected(counting(7, None, 5), tmp_path)
    assert new.episodes.tasks.tolist() == [0, 1, 0, 0]
    assert new.episodes.lengths.tolist() == [7, 20, 7, 7]
    assert new.step == 41
    ends = new.episodes.transitions(new.episodes.episode_ends - 1).terminals
    assert ends.tolist() == [True, False, True, True]
    running = np.stack([row[0] for row in algorithm.seen])
    assert running.sum(axis=0).tolist() == [21, 20]
    terminated = np.stack([row[0] & row[1] for row in algorithm.seen])
    assert terminated.sum(axis=0).tolist() == [3, 0]


def test_pieces_that_are_cut_and_ends_go_together(tmp_path):
    new, _ = collected(counting(7, None, 5), tmp_path, lengths=(5, 10))
    tasks, lengths = new.episodes.tasks, new.episodes.lengths
    assert lengths[tasks == 1].sum() == 20
    assert 20 <= lengths[tasks == 0].sum() < 27
    ends = new.episodes.transitions(new.episodes.episode_ends - 1).terminals > 0
    assert (ends == ((tasks == 0) & (lengths == 7))).all()
    assert ends.any()
    assert not ends.all()


def test_whoever_ends_early_earns_what_it_earned_and_no_pace():
    """An episode of 5 steps that fell earned 5; one that was cut after 5 is on the way to 20."""
    store = EpisodeStore(1, 1)
    for terminal in (True, False):
        rows = np.zeros((5, 1), np.float32)
        store.append_episode(
            observations=rows, actions=rows, next_observations=rows, rewards=np.ones(5),
            terminal=terminal,
        )  # fmt: skip
    new = Round(step=10, episodes=store, drivers=("shared", "shared"))
    assert new.paces(20).tolist() == [5.0, 20.0]


@pytest.mark.parametrize(("terminal", "payments"), [(True, [3, 3, 1]), (False, [3, 3])])
def test_what_is_owed_at_an_end_is_paid_and_at_a_cut_is_not(terminal, payments):
    store = EpisodeStore(1, 1)
    rows = np.zeros((7, 1), np.float32)
    store.append_episode(
        observations=rows, actions=rows, next_observations=rows,
        rewards=[0, 0, 3, 0, 0, 3, 1 if terminal else 0], terminal=terminal,
    )  # fmt: skip
    segments = paid_segments(store, 3, horizon=20)
    assert segments.payments.tolist() == payments
    assert segments.step_rewards.tolist() == [1] * len(payments)


def test_the_first_horizon_of_pieces_is_what_it_was_before_there_were_more():
    """Runs of our own families never ask for more, and keep their numbers."""
    pieces = endless_pieces(None, horizon=20, delay=1, seed=np.random.SeedSequence(3))
    first, second, third = (next(pieces) for _ in range(3))
    assert (first[0], second[0], third[0]) == (20, 20, 20)
    assert first[1].spawn_key == ()
    assert second[1].spawn_key != third[1].spawn_key != ()
    seed = np.random.SeedSequence(3)
    rng = np.random.default_rng(seed.spawn(1)[0])
    lengths = cut((2, 9), horizon=20, delay=1, rng=rng)
    seeds = seed.spawn(len(lengths))
    pieces = endless_pieces((2, 9), horizon=20, delay=1, seed=np.random.SeedSequence(3))
    found = [next(pieces) for _ in lengths]
    assert [length for length, _ in found] == lengths
    assert [s.spawn_key for _, s in found] == [s.spawn_key for s in seeds]


TOML = """
env = "Count-v0"
varies = "arguments.ends_at"
train = [6, 9]
test = [12]
delay = 2
"""


@pytest.mark.parametrize("preset", ["smoke", "fast"])
def test_a_run_of_ones_own_family_goes_on_exactly_without_its_file(preset, tmp_path, monkeypatch):
    """Also where the policy learns while acting, and rounds are longer than they must be."""
    path = tmp_path / "counts.toml"
    path.write_text(TOML)
    small, chosen = PRESETS["smoke"].mcat, PRESETS[preset].mcat
    learner = replace(chosen.crossq, hidden=(16, 16))
    tiny = replace(
        chosen, context=small.context, action=small.action, crossq=learner, batch_size=16,
        start_steps=40, updates_per_step=0.1,
    )  # fmt: skip
    config = replace(
        PRESETS[preset], family=str(path), steps=120, evaluate_every=1, evaluation_episodes=1,
        episode_lengths=None if preset == "smoke" else (4, 10), mcat=tiny,
    )  # fmt: skip
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    metatrain(config, whole, quiet=True)
    metatrain(replace(config, steps=70), stopped, quiet=True)
    path.unlink()
    monkeypatch.delitem(FAMILIES, str(path), raising=False)
    again = replace(read_config(stopped), steps=120)
    metatrain(again, stopped, resume=True, quiet=True)
    policies = [content_digest(folder / "policy.safetensors") for folder in (whole, stopped)]
    assert policies[0] == policies[1]
    monkeypatch.delitem(FAMILIES, str(path), raising=False)
    run = open_run(stopped, "test")
    (found,) = evaluate_run(run, episodes=2, seed=0, quiet=True)
    assert (found.label, found.values) == ("count-ends_at12", (12.0, 12.0))


def test_a_family_that_changed_since_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "counts.toml"
    path.write_text(TOML)
    config = replace(PRESETS["smoke"], family=str(path), steps=20)
    metatrain(config, tmp_path / "run", quiet=True)
    path.write_text(TOML + "[arguments]\ngain = 2.0\n")
    with pytest.raises(DataError, match="its tasks are not those of its family"):
        metatrain(replace(config, steps=60), tmp_path / "run", resume=True, quiet=True)


def test_tasks_of_a_family_share_horizon_and_delay():
    tasks = Task("Count-v0"), Task("Count-v0", arguments={"gain": 2.0}, delay=3)
    mixed = Family(name="mixed", title="mixed", varies=("arguments.gain",), train=tasks)
    with pytest.raises(UsageError, match=r"must share horizon and delay: count-gain2\.0-delay3"):
        TaskSet.of(mixed)
