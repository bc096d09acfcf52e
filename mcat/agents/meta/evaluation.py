"""What the policy of a meta-training run earns on every task, and what it took them for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mcat.agents.evaluation import episode_outcomes
from mcat.agents.meta.algorithm import Algorithm, TaskSet
from mcat.datasets.episodes import EpisodeStore
from mcat.datasets.rollout import roll_out
from mcat.datasets.views import Episodes
from mcat.tensor_files import Arrays, save_safetensors
from mcat.types import PolicyFunction

if TYPE_CHECKING:
    from mcat.envs.lockstep import Lockstep

CONTEXTS_FILE = "contexts.safetensors"
SNAPSHOTS = 20  # of the contexts of an episode
SUCCESS_COLUMNS = "eval/success"  # what the names of columns with success rates start with
UNTRIED_COLUMNS = "eval/untried"  # and of those with what the first trial earned


class Evaluation:
    """Episodes on training and test tasks in lockstep, from the same starts every time.

    Args:
        task_set: The tasks.
        episodes: Per task, of those that count (docs/decisions.md#how-policies-are-evaluated).
        seed: The root of the starts.
        trials: Episodes per task before those, from which a method finds out which task it is.
    """

    def __init__(self, task_set: TaskSet, episodes: int, seed: int, trials: int = 0) -> None:
        self._task_set, self._episodes = task_set, episodes
        self._root, self._trials = seed, trials
        self._trial_env = task_set.make(range(len(task_set.names))) if trials else None
        self._tasks = np.repeat(np.arange(len(task_set.names)), episodes)
        self._env = task_set.make(self._tasks.tolist())
        sequence = np.random.SeedSequence(seed, spawn_key=(2,))
        self._seed = int(sequence.generate_state(1)[0] >> 1)
        self._contexts: list[NDArray[np.float32]] = []

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of what `run` measures."""
        found = self._columns("eval")
        if self._trials:
            found += self._splits(UNTRIED_COLUMNS)
        return found + self._columns(SUCCESS_COLUMNS) if self._task_set.can_succeed else found

    def _splits(self, measure: str) -> tuple[str, ...]:
        return (f"{measure}/train", *[f"{measure}/test"] * bool(self._task_set.test))

    def _columns(self, measure: str) -> tuple[str, ...]:
        """The splits, then the tasks."""
        task_set = self._task_set
        splits = self._splits(measure)
        tasks = [f"{measure}/train/{name}" for name in task_set.train]
        return (*splits, *tasks, *(f"{measure}/test/{name}" for name in task_set.test))

    def run(self, algorithm: Algorithm) -> dict[str, float]:
        """The mean return on each task and each split and, where there are goals, success rates."""
        trials, untried = self._try(algorithm)
        policy = algorithm.acting_policy(self._tasks.tolist(), trials)
        self._contexts = []
        every, step = max(1, self._task_set.horizon // SNAPSHOTS), 0

        def look(states: NDArray[Any]) -> None:
            nonlocal step
            contexts = getattr(policy, "contexts", None)
            if contexts is not None and step and step % every == 0:
                self._contexts.append(contexts.numpy())
            step += 1

        returns, successes = episode_outcomes(self._env, policy, self._seed, look)
        found = self._means("eval", returns) | untried
        return found if successes is None else found | self._means(SUCCESS_COLUMNS, successes)

    def _try(self, algorithm: Algorithm) -> tuple[EpisodeStore | None, dict[str, float]]:
        """The trials on each task, and what the first earned in each split."""
        if self._trial_env is None:
            return None, {}
        seeds = trial_seeds(self._root, self._trials)
        trials = roll_trials(self._trial_env, algorithm.acting_policy, seeds)
        first = [_first_return(trials.task(task)) for task in range(len(self._task_set.names))]
        train = len(self._task_set.train)
        means = [_mean(np.array(part)) for part in (first[:train], first[train:]) if part]
        return trials, dict(zip(self._splits(UNTRIED_COLUMNS), means, strict=True))

    def _means(self, measure: str, episodes: NDArray[Any]) -> dict[str, float]:
        """The mean over the episodes of each split and each task."""
        means = episodes.reshape(-1, self._episodes).mean(axis=1)
        train = len(self._task_set.train)
        splits = [part.mean() for part in (means[:train], means[train:]) if len(part)]
        values = map(float, (*splits, *means))
        return dict(zip(self._columns(measure), values, strict=True))

    def save_contexts(self, folder: Path, step: int) -> None:
        """Write the contexts of the last `run` and the numbers of their tasks."""
        if self._contexts:
            arrays: Arrays = {
                "contexts": np.concatenate(self._contexts),
                "tasks": np.tile(self._tasks, len(self._contexts)),
            }
            header = {"kind": "contexts", "names": list(self._task_set.names), "step": step}
            save_safetensors(folder / CONTEXTS_FILE, arrays, header, overwrite=True)


def trial_seeds(seed: int, trials: int) -> list[np.random.SeedSequence]:
    """The seeds of trials, one after another; each can be used once, as it counts its children."""
    return [np.random.SeedSequence(seed, spawn_key=(3, trial)) for trial in range(trials)]


def roll_trials(
    env: Lockstep,
    acting: Callable[[Sequence[int], Episodes | None], PolicyFunction],
    seeds: Sequence[np.random.SeedSequence],
) -> EpisodeStore:
    """One trial after another on every task; an episode that diverged is left out."""
    tasks = range(env.num_envs)
    trials = EpisodeStore(*env.single_observation_space.shape, *env.single_action_space.shape)
    for seed in seeds:
        policy = acting(tasks, trials if len(trials) else None)
        found = roll_out(env, policy, seed=seed, noise=(0.0, 0.0), episodes=len(tasks))
        for task, episode in enumerate(found):
            if episode:
                trials.append_episode(**episode, task=task)
    return trials


def _first_return(trials: Episodes) -> float:
    """What the first of a task's trials earned; NaN if there is none."""
    return float(trials.episode_returns()[0]) if len(trials) else float("nan")


def _mean(values: NDArray[np.float64]) -> float:
    """The mean of those that there are; NaN if there are none."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else float("nan")
