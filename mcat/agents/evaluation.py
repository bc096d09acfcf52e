"""What policies earn: deterministic episodes in lockstep, from the same starts every time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mcat.agents.limits import require_room
from mcat.agents.returns import Returns
from mcat.envs.tasks import Task
from mcat.progress import Progress
from mcat.types import AnyPolicy, started

if TYPE_CHECKING:  # a robot's computer has no simulator, and translates all the same
    from gymnasium import Env
    from gymnasium.vector import VectorEnv

    from mcat.envs.lockstep import Lockstep

STARTS = 10_000  # as many as an evaluation may have episodes
FILMED = 3  # episodes of which a Meta-World hand's path is kept


Paths = dict[str, list[list[list[float]]]]


class Trial(NamedTuple):
    """Episodes to be run: who acts, as what, and where."""

    label: str
    policy: AnyPolicy
    task: Task


class Outcomes(NamedTuple):
    """What came out of episodes in lockstep; row i of each array is episode i."""

    returns: NDArray[np.float64]  # their undiscounted returns
    # Whether each was at its goal after any of its steps; None for robots without a goal.
    successes: NDArray[np.bool_] | None


class Evaluator:
    """Deterministic episodes in lockstep, from the same starts every time.

    Args:
        task: Where to act.
        episodes: Episodes of each evaluation.
        seed: The first starts from this number, the second from the next, and so on.
        workers: Processes that share the physics.
    """

    def __init__(self, task: Task, episodes: int, seed: int, workers: int = 1) -> None:
        from mcat.envs.lockstep import lockstep

        require_room(task, episodes)
        self._env = lockstep([task] * episodes, workers)
        self._seed = seed

    def returns(
        self,
        policy: AnyPolicy,
        on_observation: Callable[[NDArray[np.float64]], None] | None = None,
    ) -> NDArray[np.float64]:
        """The undiscounted return of each episode; see `outcomes`."""
        return self.outcomes(policy, on_observation).returns

    def outcomes(
        self,
        policy: AnyPolicy,
        on_observation: Callable[[NDArray[np.float64]], None] | None = None,
    ) -> Outcomes:
        """What each episode earned, and whether it succeeded.

        Args:
            policy: Who acts; one with a memory starts with an empty one.
            on_observation: Called with the observations `(episodes, obs)` of the start and after
                every step.
        """
        return episode_outcomes(self._env, policy, self._seed, on_observation)


def episode_outcomes(
    env: Lockstep | VectorEnv[Any, Any, Any] | Env[Any, Any],
    policy: AnyPolicy,
    seed: int,
    on_observation: Callable[[NDArray[np.float64]], None] | None = None,
) -> Outcomes:
    """What comes out of one episode in each sub-environment.

    Args:
        env: Any environment of gymnasium, or a vector of them.
        policy: Who acts; one with a memory starts with an empty one.
        seed: The first starts from this number, the second from the next, and so on.
        on_observation: Called with the observations `(episodes, obs)` of the start and after
            every step.
    """
    from mcat.envs.lockstep import in_lockstep

    env = in_lockstep(env)
    obs, _ = env.reset(seed=seed, options={"park": True})
    act = started(policy)
    paid = getattr(act, "paid", None)
    returns = np.zeros(env.num_envs)
    successes: NDArray[np.bool_] | None = None
    over = np.zeros(env.num_envs, dtype=bool)
    if on_observation is not None:
        on_observation(obs)
    while not over.all():
        obs, rewards, terminated, truncated, info = env.step(act(obs))
        returns += rewards  # 0 for episodes that are over
        if paid is not None:
            paid(rewards)
        if "success" in info:
            now = ~over & (info["success"] > 0)
            successes = now if successes is None else successes | now
        over = terminated | truncated
        if on_observation is not None:
            on_observation(obs)
    return Outcomes(returns, successes)


def first_start(seed: int) -> int:
    """Where the starts of a seed begin, so that no two seeds share one."""
    return seed * STARTS % 2**63


def run_episodes(
    trials: Sequence[Trial], *, episodes: int, seed: int, workers: int = 1, quiet: bool = False
) -> tuple[tuple[Returns, ...], Paths]:
    """The returns of each trial, from equal starts on equal tasks, and on Meta-World hand paths.

    Args:
        trials: Who acts, what to call it, and where.
        episodes: Episodes of each trial.
        seed: Of the episodes' starts.
        workers: Processes that share the physics; no part of the result.
        quiet: Show no progress.
    """
    evaluators: dict[Task, Evaluator] = {}
    returns, paths = [], {}
    with Progress("running", len(trials) * episodes, "episodes", quiet=quiet) as progress:
        for label, policy, task in trials:
            if task not in evaluators:
                evaluators[task] = Evaluator(task, episodes, seed, workers)
            seen: list[NDArray[np.float64]] = []
            # On a table the hand comes first in a state.
            keep = (lambda obs, seen=seen: seen.append(obs[:FILMED, :3])) if task.on_table else None
            values, reached = evaluators[task].outcomes(policy, keep)
            successes = None if reached is None else tuple(reached.tolist())
            returns.append(Returns(label=label, values=tuple(values.tolist()), successes=successes))
            if seen:
                paths[label] = np.round(np.stack(seen, axis=1), 4).tolist()
            progress.advance(episodes, note=f"{label}: {values.mean():,.1f}")
    return tuple(returns), paths
