"""What policies earn: deterministic episodes in lockstep, from the same starts every time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mcat.agents.limits import require_room
from mcat.envs.scripted import SCRIPTED
from mcat.envs.tasks import Task
from mcat.envs.vector import TaskVectorEnv
from mcat.progress import Progress
from mcat.types import AnyPolicy, begun

FILMED = 3  # episodes of which a Meta-World hand's path is kept


Paths = dict[str, list[list[list[float]]]]


class Run(NamedTuple):
    """Episodes to be run: who acts where."""

    label: str
    task: Task
    policy: AnyPolicy


@dataclass(frozen=True, kw_only=True)
class Returns:
    """The undiscounted returns of some episodes.

    Attributes:
        label: Who acted where: `ON_SOURCE`, `UNTRANSLATED` or `TRANSFERRED`.
        values: One number per episode; equal labels' episodes start alike everywhere.
    """

    label: str
    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Their mean."""
        return float(np.mean(self.values))

    @property
    def standard_error(self) -> float:
        """Of the mean; 0 if there is but one episode."""
        n = len(self.values)
        return float(np.std(self.values, ddof=1)) / math.sqrt(n) if n > 1 else 0.0


class Evaluator:
    """Deterministic episodes in lockstep, from the same starts every time.

    Args:
        task: Where to act.
        episodes: Episodes of each evaluation.
        seed: The first starts from this number, the second from the next, and so on.
        workers: Processes that share the physics.
    """

    def __init__(self, task: Task, episodes: int, seed: int, workers: int = 1) -> None:
        require_room(task, episodes)
        self._env = TaskVectorEnv([task] * episodes, workers=workers)
        self._seed = seed

    def returns(
        self,
        policy: AnyPolicy,
        watch: Callable[[NDArray[np.float64]], None] | None = None,
    ) -> NDArray[np.float64]:
        """The undiscounted return of each episode.

        Args:
            policy: Who acts; one with a memory begins here.
            watch: Shown the observations `(episodes, obs)` of the start and after every step.
        """
        return episode_returns(self._env, policy, self._seed, watch)


def episode_returns(
    env: TaskVectorEnv,
    policy: AnyPolicy,
    seed: int,
    watch: Callable[[NDArray[np.float64]], None] | None = None,
) -> NDArray[np.float64]:
    """The undiscounted return of one episode in each sub-environment; see `Evaluator.returns`."""
    obs, _ = env.reset(seed=seed, options={"park": True})
    act = begun(policy)
    returns = np.zeros(env.num_envs)
    over = np.zeros(env.num_envs, dtype=bool)
    if watch is not None:
        watch(obs)
    while not over.all():
        obs, rewards, terminated, truncated, _ = env.step(act(obs))
        returns += rewards  # 0 for episodes that are over
        over = terminated | truncated
        if watch is not None:
            watch(obs)
    return returns


def run_episodes(
    runs: Sequence[Run], *, episodes: int, seed: int, workers: int = 1, quiet: bool = False
) -> tuple[tuple[Returns, ...], Paths]:
    """The returns of each run, from equal starts on equal tasks, and on Meta-World hand paths.

    Args:
        runs: Who acts where, and what to call it: (label, task, policy).
        episodes: Episodes of each run.
        seed: Of the episodes' starts.
        workers: Processes that share the physics.
        quiet: Show no progress.
    """
    evaluators: dict[Task, Evaluator] = {}
    returns, paths = [], {}
    with Progress("running", len(runs) * episodes, "episodes", quiet=quiet) as progress:
        for label, task, policy in runs:
            if task not in evaluators:
                evaluators[task] = Evaluator(task, episodes, seed, workers)
            seen: list[NDArray[np.float64]] = []
            on_table = task.robot in SCRIPTED  # there the hand comes first in a state
            watch = (lambda obs, seen=seen: seen.append(obs[:FILMED, :3])) if on_table else None
            values = evaluators[task].returns(policy, watch)
            returns.append(Returns(label=label, values=tuple(values.tolist())))
            if seen:
                paths[label] = np.round(np.stack(seen, axis=1), 4).tolist()
            progress.advance(episodes, note=f"{label}: {values.mean():,.1f}")
    return tuple(returns), paths
