"""What the policy of a meta-training run earns on every task, and what it took them for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mcat.agents.evaluation import episode_outcomes
from mcat.agents.meta.algorithm import Algorithm, TaskSet
from mcat.tensor_files import Arrays, save_safetensors

CONTEXTS_FILE = "contexts.safetensors"
SNAPSHOTS = 20  # of the contexts of an episode
SUCCESS_COLUMNS = "eval/success"  # what the names of columns with success rates start with


class Evaluation:
    """Episodes on training and test tasks in lockstep, from the same starts every time."""

    def __init__(self, task_set: TaskSet, episodes: int, seed: int) -> None:
        self._task_set, self._episodes = task_set, episodes
        self._tasks = np.repeat(np.arange(len(task_set.names)), episodes)
        self._env = task_set.make(self._tasks.tolist())
        sequence = np.random.SeedSequence(seed, spawn_key=(2,))
        self._seed = int(sequence.generate_state(1)[0] >> 1)
        self._contexts: list[NDArray[np.float32]] = []

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of what `run` measures."""
        returns = self._columns("eval")
        return returns + self._columns(SUCCESS_COLUMNS) if self._task_set.can_succeed else returns

    def _columns(self, measure: str) -> tuple[str, ...]:
        """The splits, then the tasks."""
        task_set = self._task_set
        splits = [f"{measure}/train"] + [f"{measure}/test"] * bool(task_set.test)
        tasks = [f"{measure}/train/{name}" for name in task_set.train]
        return (*splits, *tasks, *(f"{measure}/test/{name}" for name in task_set.test))

    def run(self, algorithm: Algorithm) -> dict[str, float]:
        """The mean return on each task and each split and, where there are goals, success rates."""
        policy = algorithm.acting_policy()
        self._contexts = []
        every, step = max(1, self._task_set.horizon // SNAPSHOTS), 0

        def look(states: NDArray[Any]) -> None:
            nonlocal step
            contexts = getattr(policy, "contexts", None)
            if contexts is not None and step and step % every == 0:
                self._contexts.append(contexts.numpy())
            step += 1

        returns, successes = episode_outcomes(self._env, policy, self._seed, look)
        found = self._means("eval", returns)
        return found if successes is None else found | self._means(SUCCESS_COLUMNS, successes)

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
