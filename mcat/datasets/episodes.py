"""`EpisodeStore`: flat arrays plus episode boundaries, for data sets and for replay alike."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from mcat.datasets.arrays import DTYPES, Columns, checked_columns
from mcat.datasets.views import Episodes, Indices, StoredRows
from mcat.errors import DataError, UsageError

GROWTH = 1.125  # spare memory of a growing store at most; each row is copied about 9 times


class EpisodeStore(Episodes):
    """Transitions in whole episodes, to which more can be added.

    Of all tasks together too (docs/decisions.md#one-replay-for-all-tasks).

    Args:
        observation_size: Numbers per observation.
        action_size: Numbers per action.
        capacity: Transitions to keep at most. Appending beyond it drops the oldest episodes, whole
            ones, and moves none of the others. None: keep all.
    """

    def __init__(
        self, observation_size: int, action_size: int, *, capacity: int | None = None
    ) -> None:
        if capacity is not None and capacity < 1:
            raise UsageError(f"capacity must be at least 1 transition, got {capacity}")
        self.capacity = capacity
        widths = {
            "observations": (observation_size,),
            "next_observations": (observation_size,),
            "actions": (action_size,),
        }
        # With a capacity the arrays are a ring of that size. np.empty costs no memory until a row
        # is first written.
        shapes = {name: (capacity or 0, *widths.get(name, ())) for name in DTYPES}
        none = np.empty(0, dtype=np.int64)
        rows = StoredRows({name: np.empty(shapes[name], dtype) for name, dtype in DTYPES.items()})
        super().__init__(rows, starts=none, lengths=none, tasks=none)

    @classmethod
    def from_arrays(
        cls,
        *,
        observations: ArrayLike,
        actions: ArrayLike,
        next_observations: ArrayLike | None = None,
        rewards: ArrayLike | None = None,
        terminals: ArrayLike | None = None,
        timeouts: ArrayLike | None = None,
        episode_ends: ArrayLike | None = None,
        tasks: ArrayLike = 0,
    ) -> EpisodeStore:
        """A store of the rows of a log, one row per step.

        Float32 arrays are used as they are, not copied: do not write to them afterwards.

        Args:
            observations: `(rows, obs)`, before each action.
            actions: `(rows, act)`.
            next_observations: `(rows, obs)`, after each action. If missing, the following row's
                observation; the last row of each episode, which has none, is then left out.
            rewards: `(rows,)`; zeros if missing.
            terminals: `(rows,)`, True where the episode ended in a terminal state.
            timeouts: `(rows,)`, True where a time limit cut the episode.
            episode_ends: The row after each episode's last one. If missing, episodes end at
                `terminals` and `timeouts`; without `timeouts` also wherever a row's next
                observation is not the following row's observation. The last row always ends one.
            tasks: A task number, for all episodes or one for each.

        Raises:
            DataError: Naming the first array, episode, step and column that is wrong.
        """
        columns, ends = checked_columns(
            observations=observations,
            actions=actions,
            next_observations=next_observations,
            rewards=rewards,
            terminals=terminals,
            timeouts=timeouts,
            episode_ends=episode_ends,
        )
        store = cls(columns["observations"].shape[1], columns["actions"].shape[1])
        store._rows = StoredRows({name: columns[name] for name in DTYPES})
        lengths = np.diff(ends, prepend=0)
        store._set_episodes(
            starts=ends - lengths, lengths=lengths, tasks=_task_numbers(tasks, len(ends))
        )
        return store

    @classmethod
    def concatenate(
        cls, stores: Sequence[Episodes], *, tasks: Sequence[int] | None = None
    ) -> EpisodeStore:
        """One store with the episodes of all.

        Args:
            stores: At least one, all with the same sizes.
            tasks: A task number for each store in place of those its episodes have.
        """
        if not stores:
            raise UsageError("concatenate needs at least one store")
        if tasks is not None and len(tasks) != len(stores):
            raise UsageError(f"{len(tasks)} task numbers for {len(stores)} stores")
        joined = cls(stores[0].observation_size, stores[0].action_size)
        joined._reserve(sum(map(len, stores)))
        for number, store in enumerate(stores):
            joined.extend(store, task=None if tasks is None else tasks[number])
        return joined

    def append_episode(
        self,
        *,
        observations: ArrayLike,
        actions: ArrayLike,
        next_observations: ArrayLike,
        rewards: ArrayLike,
        terminal: bool = False,
        task: int = 0,
    ) -> None:
        """Add one episode.

        Args:
            observations: `(steps, obs)`, before each action.
            actions: `(steps, act)`.
            next_observations: `(steps, obs)`, after each action.
            rewards: `(steps,)`.
            terminal: Whether it ended in a terminal state, not because it was cut off.
            task: The number of its task.
        """
        ends = [len(np.asarray(rewards))]
        columns, _ = checked_columns(
            observations=observations,
            actions=actions,
            next_observations=next_observations,
            rewards=rewards,
            episode_ends=ends,
        )
        columns["terminals"][-1] = terminal
        columns["timeouts"][-1] = not terminal
        self._append(columns, np.array(ends), _task_numbers(task, 1))

    def extend(self, other: Episodes, *, task: int | None = None) -> None:
        """Add every episode of another store, under the tasks they have or all under `task`."""
        tasks = other.tasks if task is None else _task_numbers(task, other.num_episodes)
        self._append({name: other.column(name) for name in DTYPES}, other.lengths, tasks)

    def _append(self, columns: Columns, lengths: Indices, tasks: Indices) -> None:
        for name in ("observations", "actions"):
            ours, theirs = self._rows.columns[name].shape[1], columns[name].shape[1]
            if ours != theirs:
                raise DataError(f"{name} have {theirs} columns but the store has {ours}")
        if len(lengths) == 0:
            return
        if self.capacity is not None:
            skipped = self._make_room(lengths, self.capacity)
            skipped_rows = int(lengths[:skipped].sum())
            columns = {name: values[skipped_rows:] for name, values in columns.items()}
            lengths, tasks = lengths[skipped:], tasks[skipped:]

        first = int(self._starts[-1] + self._lengths[-1]) if self.num_episodes else 0
        count = int(lengths.sum())
        if self.capacity is None:
            self._reserve(first + count)
        size = len(self._rows)
        first %= size
        before_end = min(count, size - first)  # the rest goes to the beginning of the ring
        for name, values in columns.items():
            column = self._rows.columns[name]
            column[first : first + before_end] = values[:before_end]
            column[: count - before_end] = values[before_end:]
        starts = (first + np.cumsum(lengths) - lengths) % size
        self._set_episodes(
            starts=np.concatenate([self._starts, starts]),
            lengths=np.concatenate([self._lengths, lengths]),
            tasks=np.concatenate([self._tasks, tasks]),
        )

    def _make_room(self, lengths: Indices, capacity: int) -> int:
        """Keep the newest episodes that fit together, old and new; returns new ones to skip."""
        if lengths.max() > capacity:
            raise UsageError(f"an episode of {lengths.max()} steps exceeds the capacity {capacity}")
        newest_first = np.cumsum(np.concatenate([self._lengths, lengths])[::-1])
        surplus = int((newest_first > capacity).sum())
        dropped = min(surplus, self.num_episodes)
        if dropped:
            self._rows.evictions += 1
            self._set_episodes(
                starts=self._starts[dropped:],
                lengths=self._lengths[dropped:],
                tasks=self._tasks[dropped:],
            )
        return surplus - dropped

    def _reserve(self, rows: int) -> None:
        if rows > len(self._rows):
            rows = max(rows, int(len(self._rows) * GROWTH))
            bigger = {}
            for name, old in self._rows.columns.items():
                bigger[name] = np.empty((rows, *old.shape[1:]), old.dtype)
                bigger[name][: len(old)] = old
            self._rows = StoredRows(bigger)  # a selection made earlier keeps the old arrays


def _task_numbers(tasks: ArrayLike, episodes: int) -> Indices:
    numbers = np.asarray(tasks)
    if numbers.dtype.kind not in "iu" or numbers.shape not in ((), (episodes,)):
        raise DataError(f"tasks must be a whole number or {episodes} of them, one per episode")
    return np.broadcast_to(numbers, (episodes,)).astype(np.int64)
