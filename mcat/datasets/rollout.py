"""One round of episodes, all stepped in lockstep."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from gymnasium import Env
from gymnasium.spaces import Box
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from mcat.envs.lockstep import Lockstep, in_lockstep
from mcat.errors import UsageError
from mcat.types import AnyPolicy, PolicyFunction, started


class Taken(NamedTuple):
    """One step of episodes in lockstep; row i of every array is episode i."""

    observations: NDArray[np.float32]
    actions: NDArray[np.float32]
    rewards: NDArray[np.float32]
    next_observations: NDArray[np.float32]
    terminated: NDArray[np.bool_]
    # Which episodes took part and are sound; the other rows mean nothing.
    running: NDArray[np.bool_]
    at_goal: NDArray[np.bool_]  # which are at their goal; none of a robot without one


def roll_out(
    env: Lockstep | VectorEnv[Any, Any, Any] | Env[Any, Any],
    policy: AnyPolicy | None,
    *,
    seed: np.random.SeedSequence,
    noise: tuple[float, float],
    episodes: int | NDArray[np.bool_],
    steps: int | None = None,
    after: Callable[[Taken], None] = lambda taken: None,
) -> Iterator[dict[str, Any] | None]:
    """One episode from each of the first `episodes` sub-environments, which share one horizon.

    Args:
        env: Where to act, also an environment or a vector environment of gymnasium; its state
            before the call does not matter.
        policy: Maps observations `(n, obs)` to actions `(n, act)`; one with a memory begins here.
            None draws uniform actions.
        seed: Determines start states and noise.
        noise: Range from which each episode draws the σ of its action noise.
        episodes: How many sub-environments take part, or which ones. The policy sees all rows
            nevertheless, so that it rounds alike however many are wanted.
        steps: Cut the episodes after so many steps; what is owed then is never paid.
        after: Called after every step; the arrays are the roll-out's own, so it must not keep them.

    Yields:
        Arguments for `EpisodeStore.append_episode`, or None where the simulation diverged.
    """
    env_seeds, noise_seed = seed.spawn(2)
    rng = np.random.default_rng(noise_seed)
    env = in_lockstep(env)
    n, horizon = env.num_envs, env.horizon if steps is None else min(steps, env.horizon)
    sizes = (*env.single_observation_space.shape, *env.single_action_space.shape)
    acting = None if policy is None else started(policy)
    act = _actor(acting, env, rng.uniform(*noise, size=(n, 1)), rng)
    paid = getattr(acting, "paid", None)
    observations = np.empty((horizon + 1, n, sizes[0]), np.float32)
    actions = np.empty((horizon, n, sizes[1]), np.float32)
    rewards = np.empty((horizon, n), np.float32)
    lengths = np.full(n, horizon)
    terminal, diverged = np.zeros(n, dtype=bool), np.zeros(n, dtype=bool)

    chosen = np.arange(n) < episodes if isinstance(episodes, int) else episodes
    running = chosen
    seeds = [int(number) for number in env_seeds.generate_state(n)]
    observation, _ = env.reset(seed=seeds, options={"reset_mask": running, "park": True})
    observations[0] = observation
    for t in range(horizon):
        actions[t] = act(observation)
        observation, rewards[t], terminated, truncated, info = env.step(actions[t])
        observations[t + 1] = observation
        if paid is not None:
            paid(rewards[t])
        unstable = info.get("unstable", np.zeros(n, dtype=bool))
        at_goal = info.get("success", np.zeros(n)) > 0
        sound = running & ~unstable & np.isfinite(observations[t + 1]).all(axis=1)
        moved = observations[t], actions[t], rewards[t], observations[t + 1]
        after(Taken(*moved, terminated, sound, at_goal))
        ended = running & (terminated | truncated)
        if ended.any():
            lengths[ended] = t + 1
            terminal |= ended & terminated
            diverged |= ended & unstable
            running = running & ~ended
            if not running.any():
                break

    for i in np.flatnonzero(chosen).tolist():
        length = lengths[i]
        episode = {
            "observations": observations[:length, i],
            "actions": actions[:length, i],
            "next_observations": observations[1 : length + 1, i],
            "rewards": rewards[:length, i],
        }
        # Values beyond float32 are as diverged as those MuJoCo notices itself.
        finite = all(np.isfinite(values).all() for values in episode.values())
        good = finite and not diverged[i]
        yield {**episode, "terminal": bool(terminal[i])} if good else None


def _actor(
    policy: PolicyFunction | None,
    env: Lockstep,
    sigma: NDArray[np.float64],
    rng: np.random.Generator,
) -> PolicyFunction:
    """The policy with its noise, clipped to the action space."""
    space = env.single_action_space
    assert isinstance(space, Box)
    low, high = space.low, space.high
    shape = (env.num_envs, *low.shape)
    noisy = bool(sigma.any())
    remember = getattr(policy, "took", None)

    def act(observations: NDArray[Any]) -> NDArray[Any]:
        if policy is None:
            return rng.uniform(low, high, size=shape)
        actions = np.asarray(policy(observations))
        if actions.shape != shape:
            raise UsageError(f"the policy gives actions {actions.shape}, the task takes {shape}")
        if not np.isfinite(actions).all():
            raise UsageError("the policy gives actions that are NaN or infinite")
        if noisy:
            actions = actions + sigma * rng.standard_normal(shape)
        clipped: NDArray[Any] = np.clip(actions, low, high)
        if remember is not None:
            remember(clipped)
        return clipped

    return act
