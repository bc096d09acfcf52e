"""`Episodes`: read access to transitions in whole episodes.

Histories and futures are never stored: they are gathered by index.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mcat.datasets.arrays import DTYPES, Columns
from mcat.errors import UsageError, counted

Floats = NDArray[np.float32]
Indices = NDArray[np.int64]


class Transitions(NamedTuple):
    """A batch for learning. Every array has the shape of `indices`, then its own width."""

    indices: Indices
    observations: Floats
    actions: Floats
    rewards: Floats
    next_observations: Floats
    terminals: Floats
    """1 where the episode truly ended: no value follows. A time limit is 0 (bootstrap)."""


class StoredRows:
    """The arrays that a store and selections of its episodes share."""

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        self.evictions = 0

    def __len__(self) -> int:
        return len(self.columns["rewards"])


class Episodes:
    """Transitions in whole episodes, of a store or of some of its episodes.

    Transitions are numbered 0 … `len(episodes)` - 1, episode after episode, steps in order. What a
    method returns depends on the contents and the generator only, never on how the store was
    filled, so a restored store samples as the original would have.

    Args:
        rows: The arrays, shared with the store. An episode may run over their end and go on at
            their beginning (a ring).
        starts: The row where each episode starts.
        lengths: The number of steps of each episode, at least 1.
        tasks: The task number of each episode.
    """

    def __init__(self, rows: StoredRows, starts: Indices, lengths: Indices, tasks: Indices) -> None:
        self._rows = rows
        self._set_episodes(starts=starts, lengths=lengths, tasks=tasks)

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({counted(len(self), 'transition')}, "
            f"{counted(self.num_episodes, 'episode')}, "
            f"observations {self.observation_size}, actions {self.action_size})"
        )

    @property
    def observation_size(self) -> int:
        """Numbers per observation."""
        return int(self._rows.columns["observations"].shape[1])

    @property
    def action_size(self) -> int:
        """Numbers per action."""
        return int(self._rows.columns["actions"].shape[1])

    @property
    def num_episodes(self) -> int:
        """How many episodes there are."""
        return len(self._lengths)

    @property
    def nbytes(self) -> int:
        """Memory held by the arrays, boundaries included."""
        tables = (self._starts, self._lengths, self._ends, self._tasks)
        arrays = (*self._rows.columns.values(), *tables)
        return sum(array.nbytes for array in arrays)

    @property
    def lengths(self) -> Indices:
        """`(episodes,)`: steps of each episode."""
        return _read_only(self._lengths)

    @property
    def episode_ends(self) -> Indices:
        """`(episodes,)`: the number after each episode's last transition."""
        return _read_only(self._ends)

    @property
    def tasks(self) -> Indices:
        """`(episodes,)`: the task number of each episode."""
        return _read_only(self._tasks)

    @property
    def observations(self) -> Floats:
        """The observations `(len, obs)` of all transitions."""
        return self.column("observations")

    @property
    def actions(self) -> Floats:
        """The actions `(len, act)` of all transitions."""
        return self.column("actions")

    @property
    def rewards(self) -> Floats:
        """The rewards `(len,)` of all transitions."""
        return self.column("rewards")

    @property
    def next_observations(self) -> Floats:
        """The observations `(len, obs)` after all transitions."""
        return self.column("next_observations")

    @property
    def terminals(self) -> NDArray[np.bool_]:
        """`(len,)`: True at the last step of an episode that ended in a terminal state."""
        return self.column("terminals")

    @property
    def timeouts(self) -> NDArray[np.bool_]:
        """`(len,)`: True at the last step of an episode that was cut off."""
        return self.column("timeouts")

    def column(self, name: str) -> NDArray[Any]:
        """All values of one column, in order and read-only; no copy if they lie in one piece."""
        self._check_current()
        values = self._rows.columns[name]
        first = int(self._starts[0]) if self.num_episodes else 0
        in_one_piece = np.array_equal(self._starts, first + self._ends - self._lengths)
        if in_one_piece and first + len(self) <= len(values):
            return _read_only(values[first : first + len(self)])
        shifts = self._starts - (self._ends - self._lengths)
        rows = np.arange(len(self)) + np.repeat(shifts, self._lengths)
        return _read_only(values.take(rows, axis=0, mode="wrap"))

    def episode(self, number: int) -> Columns:
        """The columns of one episode."""
        episode = self.select([number])
        return {name: episode.column(name) for name in DTYPES}

    def select(self, episodes: ArrayLike) -> Episodes:
        """Some of the episodes, without copying a row.

        The selection keeps its contents while the store grows. Once a store with a capacity has
        dropped episodes, using an older selection raises a `UsageError`.
        """
        self._check_current()
        chosen = np.asarray(episodes, dtype=np.int64)
        return Episodes(
            self._rows, self._starts[chosen], self._lengths[chosen], self._tasks[chosen]
        )

    def task(self, number: int) -> Episodes:
        """The episodes of one task, without copying a row."""
        return self.select(np.flatnonzero(self._tasks == number))

    def sample_transitions(self, rng: np.random.Generator, n: int) -> Transitions:
        """`n` transitions, uniformly and with replacement."""
        if len(self) == 0:
            raise UsageError("cannot sample from a store without transitions")
        return self.transitions(rng.integers(len(self), size=n))

    def transitions(self, indices: ArrayLike) -> Transitions:
        """The transitions with these numbers, in the shape of `indices`."""
        wanted, rows, _ = self._locate(indices)
        names = ("observations", "actions", "rewards", "next_observations", "terminals")
        taken = [self._take(name, rows).astype(np.float32, copy=False) for name in names]
        return Transitions(wanted, *taken)

    def histories(self, indices: ArrayLike, k: int) -> tuple[Floats, Floats]:
        """What happened in the `k` steps before each of these transitions.

        The newest step is last, the transition itself is not included, and steps before the
        episode began are zero (docs/decisions.md#what-the-context-encoder-reads).

        Returns:
            State differences `(n, k, obs)` and actions `(n, k, act)`.
        """
        names = ("next_observations", "observations", "actions")
        differences, before, actions = self.past(indices, k, names)
        differences -= before
        return differences, actions

    def past(self, indices: ArrayLike, k: int, names: Sequence[str]) -> list[NDArray[Any]]:
        """Columns of the `k` steps before each of these transitions, `(n, k, ...)` each.

        The newest step is last, the transition itself is not included, and steps before the
        episode began are zero.

        Args:
            indices: Numbers of transitions.
            k: How many steps.
            names: Of the columns, such as "actions".
        """
        _, rows, steps = self._locate(indices)
        back = np.arange(-k, 0)
        before_start = steps[..., None] + back < 0
        window = rows[..., None] + np.where(before_start, 0, back)
        found = [self._take(name, window) for name in names]
        for values in found:
            values[before_start] = 0
        return found

    def futures(self, indices: ArrayLike, m: int) -> tuple[Indices, NDArray[np.bool_]]:
        """Each of these transitions and the `m` - 1 that follow it in its episode.

        Returns:
            Transition numbers `(n, m)` for `transitions`, and a mask `(n, m)` that is False beyond
            the end of the episode, where the last transition is repeated.
        """
        wanted = np.asarray(indices, dtype=np.int64)
        last = self._ends[self.episode_of(wanted)] - 1
        ahead = wanted[..., None] + np.arange(m)
        return np.minimum(ahead, last[..., None]), ahead <= last[..., None]

    def episode_of(self, indices: ArrayLike) -> Indices:
        """The episode that each of these transitions belongs to."""
        wanted = np.asarray(indices, dtype=np.int64)
        if wanted.size and (wanted.min() < 0 or wanted.max() >= len(self)):
            raise IndexError(f"transition numbers must be from 0 to {len(self) - 1}")
        return np.searchsorted(self._ends, wanted, side="right").astype(np.int64, copy=False)

    def _locate(self, indices: ArrayLike) -> tuple[Indices, Indices, Indices]:
        """Transition numbers as an array, their rows, and their steps within the episode.

        A ring may make a row number exceed the arrays; `_take` wraps it round.
        """
        self._check_current()
        wanted = np.asarray(indices, dtype=np.int64)
        episode = self.episode_of(wanted)
        steps = wanted - (self._ends - self._lengths)[episode]
        return wanted, self._starts[episode] + steps, steps

    def _take(self, name: str, rows: Indices) -> NDArray[Any]:
        return self._rows.columns[name].take(rows, axis=0, mode="wrap")

    def episode_returns(self) -> NDArray[np.float64]:
        """`(episodes,)`: the undiscounted sum of rewards of each episode."""
        if self.num_episodes == 0:
            return np.empty(0)
        return np.add.reduceat(self.rewards, self._ends - self._lengths, dtype=np.float64)

    def discounted_returns(self, gamma: float) -> Floats:
        """`(len,)`: R_t = Σ γ^i r_{t+i} to the end of the episode, no bootstrap."""
        rewards = self.rewards
        returns = np.empty(len(self), dtype=np.float32)
        longest_first = np.argsort(-self._lengths, kind="stable")
        begins = (self._ends - self._lengths)[longest_first]
        lengths = self._lengths[longest_first]
        following = np.zeros(self.num_episodes)
        for step in range(int(lengths.max(initial=0)) - 1, -1, -1):  # all episodes at once
            running = int(np.searchsorted(-lengths, -step, side="left"))
            rows = begins[:running] + step
            following[:running] = rewards[rows] + gamma * following[:running]
            returns[rows] = following[:running]
        return returns

    def _set_episodes(self, *, starts: Indices, lengths: Indices, tasks: Indices) -> None:
        """Rows where the episodes start, their lengths and tasks: all that differs in a view."""
        self._starts, self._lengths, self._tasks = starts, lengths, tasks
        self._ends = np.cumsum(lengths)
        self._evictions_seen = self._rows.evictions

    def _check_current(self) -> None:
        if self._evictions_seen != self._rows.evictions:
            raise UsageError("the store dropped episodes since this selection: select again")


def _read_only(values: NDArray[Any]) -> NDArray[Any]:
    view = values.view()
    view.flags.writeable = False
    return view
