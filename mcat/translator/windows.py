"""Batches for C, F and H: transitions with what went before them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mcat.datasets.views import Episodes
from mcat.errors import DataError
from mcat.translator.configs import ContextConfig

DISJOINT_SHARE = 0.75  # of a machine's values outside another's range: then they are strangers


class Windows(NamedTuple):
    """Transitions with their own past, and the pasts from which their contexts are read.

    `encode(context_past)[window]` is the context of each transition.
    """

    obs: Tensor  # (n, S)
    action: Tensor  # (n, A)
    change: Tensor  # (n, S), next state minus state
    reward: Tensor  # (n,)
    past: Tensor  # (n, recent, S), how the state moved before it; with `recent_actions`
    # (n, recent, S + A), and what was done
    context_past: tuple[Tensor, Tensor]  # (w, K, S) and (w, K, A), moves and actions before an
    # earlier step of the episode
    window: Tensor  # (n,), which of the w is the transition's
    before: Tensor | None = None  # (n, recent, S), in which states; None without `recent_actions`


def sample_windows(
    task: Episodes, config: ContextConfig, rng: np.random.Generator, n: int
) -> Windows:
    """Transitions up to M - 1 steps after the step whose past gives their context (Eq. 1).

    Each of n contexts comes with one such transition, or with `all_future` with all of them
    (docs/decisions.md#deviations-of-preset-cpu).
    """
    starts = rng.integers(len(task), size=n)
    steps, inside = task.futures(starts, config.future)
    windows = np.arange(n)
    if config.all_future:
        windows, steps = np.repeat(windows, inside.sum(axis=1)), steps[inside]
    else:
        ahead = (rng.random(n) * inside.sum(axis=1)).astype(np.int64)
        steps = steps[windows, ahead]
    rows = task.transitions(steps)
    obs = torch.from_numpy(rows.observations)
    past, before = recent_steps(task, steps, config)
    return Windows(
        obs=obs,
        action=torch.from_numpy(rows.actions),
        change=torch.from_numpy(rows.next_observations) - obs,
        reward=torch.from_numpy(rows.rewards),
        past=past,
        context_past=past_of(task, starts, config.history),
        window=torch.from_numpy(windows),
        before=before,
    )


def recent_steps(
    task: Episodes, steps: NDArray[np.int64], config: ContextConfig
) -> tuple[Tensor, Tensor | None]:
    """What F is told of the steps before each of `steps`, and in which states they were."""
    if not config.recent_actions:
        return past_of(task, steps, config.recent)[0], None
    names = ("next_observations", "observations", "actions")
    after, before, done = (
        torch.from_numpy(column.astype(np.float32, copy=False))
        for column in task.past(steps, config.recent, names)
    )
    return torch.cat((after - before, done), dim=2), before


@torch.no_grad()
def translated_past(
    past: Tensor, before: Tensor | None, translate: Callable[[Tensor, Tensor], Tensor]
) -> Tensor:
    """The same past with what `translate` makes of the actions in it, if it has any."""
    if before is None:
        return past
    size = before.shape[2]
    moved, done = past[..., :size], past[..., size:]
    new = translate(before.flatten(0, 1), done.flatten(0, 1)).view_as(done)
    began = before.any(dim=2, keepdim=True)  # before an episode's start there are zeros
    return torch.cat((moved, torch.where(began, new, done)), dim=2)


def past_of(task: Episodes, steps: NDArray[np.int64], k: int) -> tuple[Tensor, Tensor]:
    """State changes `(n, k, S)` and actions `(n, k, A)` of the k steps before each."""
    changes, actions = task.histories(steps, k)
    return torch.from_numpy(changes), torch.from_numpy(actions)


def shared_dimensions(machines: Sequence[Episodes]) -> Tensor:
    """1 for each dimension of the state in which no machine is a stranger to another, else 0.

    One is if nearly all its values are outside the range of the other's.
    """
    states = [machine.column("observations") for machine in machines]
    ranges = [np.quantile(values, (0.005, 0.995), axis=0) for values in states]
    shared = np.ones(machines[0].observation_size, np.float32)
    for values, (low, high) in itertools.product(states, ranges):
        shared[((values < low) | (values > high)).mean(axis=0) > DISJOINT_SHARE] = 0
    return torch.from_numpy(shared)


def split_episodes(task: Episodes, rng: np.random.Generator) -> tuple[Episodes, Episodes]:
    """Nine tenths of the episodes to train on, the rest (at least one) held out."""
    if task.num_episodes < 2:
        raise DataError(
            "learning needs at least 2 episodes, one of them held out: cut the log into pieces by"
            " giving from_arrays episode_ends"
        )
    order = rng.permutation(task.num_episodes)
    cut = max(1, task.num_episodes // 10)
    return task.select(np.sort(order[cut:])), task.select(np.sort(order[:cut]))
