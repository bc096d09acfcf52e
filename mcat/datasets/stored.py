"""Data sets of any format as logs of a robot, so that they can get units, bounds and a rate."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mcat.datasets.arrays import steps_of
from mcat.datasets.cards import Card, completed
from mcat.datasets.checks import gaps, has_rewards, rate_hz
from mcat.datasets.columns import LogColumns
from mcat.datasets.episodes import EpisodeStore
from mcat.datasets.hdf5 import is_sealed
from mcat.datasets.interop import LOGS, load
from mcat.datasets.named import RawLog
from mcat.errors import DataError, UsageError
from mcat.safe_io import StrPath


def is_table(path: StrPath, columns: LogColumns) -> bool:
    """Whether columns of a file are found by name (`named.read_log`); else it is a data set.

    HDF5 files may be either: ours are data sets, and so are others of which no name is given.
    """
    name = str(path).lower()
    if name.endswith((".h5", ".hdf5")):
        named = (columns.observations, columns.actions) != _usual_names()
        return named and Path(path).is_file() and not is_sealed(path)
    return name.endswith(tuple(LOGS))


def _usual_names() -> tuple[tuple[str, ...], tuple[str, ...]]:
    usual = LogColumns()
    return usual.observations, usual.actions


def stored_log(path: StrPath, columns: LogColumns) -> RawLog:
    """The rows of a data set, with one more at the end of each episode: what was seen last.

    Args:
        path: What `load` takes.
        columns: Units and bounds count; observations and actions are chosen by the names that the
            data set has, or by `obs_0` …, `act_0` …. Its episodes, times and rewards are its own.

    Raises:
        UsageError: if `columns` name something that it does not have.
        DataError: if rows are missing within an episode.
    """
    store, metadata = load(path)
    if columns.scalars:
        raise UsageError(
            f"{path} has its own episodes, times and rewards: leave out"
            f" --{next(iter(columns.scalars.values()))}"
        )
    if gaps(store).any():
        raise DataError(f"{path}: rows are missing within an episode: see mcat dataset check")
    known = Card.of_metadata(metadata, (store.observation_size, store.action_size))
    names = [[c.name for c in channels] for channels in (known.observations, known.actions)]
    given = columns.observations, columns.actions
    seen_names, act_names = (
        tuple(own) if asked == usual else asked
        for asked, usual, own in zip(given, _usual_names(), names, strict=True)
    )
    chosen = replace(columns, observations=seen_names, actions=act_names)
    observations, actions = chosen.wanted([*names[0], *names[1]])
    rate = rate_hz(metadata)
    seen, acted = _with_last(store)
    ends = store.episode_ends + np.arange(1, store.num_episodes + 1)
    rewards = np.insert(store.rewards.astype(np.float64), store.episode_ends, 0.0)
    return RawLog(
        observations=seen[:, [names[0].index(name) for name in observations]],
        actions=acted[:, [names[1].index(name) for name in actions]],
        ends=ends,
        card=_with_units(columns.card(observations, actions, [*names[0], *names[1]]), known),
        time=None if rate is None else steps_of(ends) / rate,
        rewards=rewards if has_rewards(metadata) else None,
        terminals=None,
        ignored=[name for name in (*names[0], *names[1]) if name not in (*observations, *actions)],
    )


def _with_last(store: EpisodeStore) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Observations and actions with a row after each episode: where it led to, and any action."""
    ends = store.episode_ends
    seen = np.insert(
        store.observations.astype(np.float64), ends, store.next_observations[ends - 1], axis=0
    )
    return seen, np.insert(store.actions.astype(np.float64), ends, store.actions[ends - 1], axis=0)


def _with_units(card: Card, known: Card) -> Card:
    """A card with what a data set knew itself, where nobody says otherwise."""
    there = {channel.name: channel for channel in (*known.observations, *known.actions)}
    observations, actions = (
        tuple(completed(channel, there[channel.name]) for channel in channels)
        for channels in (card.observations, card.actions)
    )
    return replace(card, observations=observations, actions=actions)
