"""The logs `mcat translate` learns from: loaded, and refused before anything is trained on them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from mcat.datasets import Episodes, EpisodeStore, check, load
from mcat.datasets.arrays import DTYPES
from mcat.datasets.cards import Card
from mcat.datasets.checks import CONSTANT, rate_hz
from mcat.envs.tasks import Task
from mcat.errors import DataError, UsageError
from mcat.tensor_files import digest
from mcat.transfer.result import Machine
from mcat.translator.limits import require_log_limits

RATE_TOLERANCE = 1.1


@dataclass(frozen=True, kw_only=True)
class Logs:
    """All logs of one machine."""

    files: tuple[str, ...]  # where they came from
    hashes: tuple[str, ...]  # a SHA-256 of the transitions of each
    episodes: Episodes  # all of them together
    task: Task | None  # what made them; None for a machine that mcat cannot simulate
    notes: tuple[str, ...]  # what is odd about them, yet no reason to stop
    rates: tuple[float | None, ...] = ()  # rows per second of each file; None where it does not say
    # Of the numbers in a state; empty if a log does not name them.
    observation_names: tuple[str, ...] = ()
    has_rewards: bool = True  # whether all of them came with rewards
    # What their numbers are; None if the logs do not say. Of the episodes, actions are scaled from
    # its bounds to [-1, 1].
    card: Card | None = None

    @property
    def sizes(self) -> tuple[int, int]:
        """Numbers in a state and in an action."""
        return self.episodes.observation_size, self.episodes.action_size


def load_logs(files: Sequence[str], *, history: int) -> Logs:
    """Load the files of one machine, for a model that looks back `history` steps.

    Raises:
        DataError: if one of them cannot be learned from, or they are of different machines.
    """
    stores, tasks, notes, headers, hashes = [], [], [], [], []
    for file in files:
        store, metadata = load(file)
        headers.append(metadata)
        hashes.append(_hash(store))
        notes += [f"{file}: {note}" for note in _refuse_or_note(file, store, metadata, history)]
        stores.append(_scaled(file, metadata, store))
        task, unknown_why = _task(file, metadata, store)
        tasks.append(task)
        notes += unknown_why
    for file, other, task in zip(files[1:], stores[1:], tasks[1:], strict=True):
        _require_same_machine((files[0], stores[0], tasks[0]), (file, other, task))
    cards = [_card(header, stores[0]) for header in headers]
    _require_same_card(files, cards)
    episodes = stores[0] if len(stores) == 1 else EpisodeStore.concatenate(stores)
    if episodes.num_episodes < 2:
        raise DataError(
            f"{files[0]}: one episode only, and one must be held out: add another log or cut it"
        )
    return Logs(
        files=tuple(files),
        hashes=tuple(hashes),
        episodes=episodes,
        task=tasks[0],
        notes=tuple(notes),
        rates=tuple(map(rate_hz, headers)),
        observation_names=_observation_names(headers[0], episodes),
        has_rewards=all(header.get("has_rewards", True) for header in headers),
        card=cards[0],
    )


def join_tasks(logs: Sequence[Logs]) -> list[Logs]:
    """Several logs of one task are one machine; each unknown machine is its own."""
    joined: list[Logs] = []
    for item in logs:
        same = [k for k, other in enumerate(joined) if item.task and other.task == item.task]
        if not same:
            joined.append(item)
            continue
        first = joined[same[0]]
        joined[same[0]] = replace(
            first,
            files=first.files + item.files,
            hashes=first.hashes + item.hashes,
            episodes=EpisodeStore.concatenate([first.episodes, item.episodes]),
            notes=first.notes + item.notes,
            rates=first.rates + item.rates,
            has_rewards=first.has_rewards and item.has_rewards,
        )
    return joined


def require_apart(machines: Sequence[Logs]) -> None:
    """Refuse the same data under two names."""
    seen: dict[str, str] = {}
    for logs in machines:
        for file, sha256 in zip(logs.files, logs.hashes, strict=True):
            if sha256 in seen:
                raise DataError(
                    f"{seen[sha256]} and {file} hold the same transitions: source and target need"
                    " logs of their own"
                )
            seen[sha256] = file


def require_same_rate(machines: Sequence[Logs]) -> None:
    """Refuse logs of different rates: what a step of one does takes several of the other."""
    known = [
        (rate, file)
        for logs in machines
        for rate, file in zip(logs.rates, logs.files, strict=False)
        if rate is not None
    ]
    if known and max(known)[0] > RATE_TOLERANCE * min(known)[0]:
        (slow, slow_file), (fast, fast_file) = min(known), max(known)
        raise DataError(
            f"{slow_file} has {slow:g} rows a second, {fast_file} {fast:g}: bring all logs to one"
            " rate"
        )


def require_same_units(machines: Sequence[Logs]) -> None:
    """Refuse machines whose observations have other units, or the same names in another order."""
    known = [(logs.files[0], logs.card) for logs in machines if logs.card is not None]
    for (file, card), (other_file, other) in itertools.pairwise(known):
        names, other_names = ([c.name for c in k.observations] for k in (card, other))
        if names != other_names and sorted(names) == sorted(other_names):
            raise DataError(
                f"{file} has {', '.join(names)}, {other_file} {', '.join(other_names)}: bring them"
                " into one order"
            )
        for ours, theirs in zip(card.observations, other.observations, strict=False):
            if ours.unit and theirs.unit and ours.unit != theirs.unit:
                raise DataError(
                    f"{ours.name} is in {ours.unit} in {file}, {theirs.name} in {theirs.unit} in"
                    f" {other_file}: bring them to one unit"
                )


def require_equal_spaces(machines: Sequence[Logs]) -> None:
    """Refuse machines whose states or actions differ in size."""
    first = machines[0]
    for other in machines[1:]:
        if other.sizes != first.sizes:
            raise DataError(
                "{} has {} states and {} actions, {} has {} and {}: say what matches what by --map"
                " NAME|FILE (see docs/translator.md)".format(
                    first.files[0], *first.sizes, other.files[0], *other.sizes
                )
            )


def require_rewards(machines: Sequence[Logs]) -> None:
    """Refuse logs in which there is no reward to match."""
    for logs in machines:
        rewards = logs.episodes.column("rewards")
        if not logs.has_rewards:
            raise DataError(f"{logs.files[0]} has no rewards: leave out --reward-aware")
        if np.ptp(rewards) <= CONSTANT:
            raise DataError(
                f"{logs.files[0]}: every reward is {rewards[0]:g}, so there is nothing to match:"
                " leave out --reward-aware"
            )


def describe(machines: Sequence[Logs]) -> tuple[Machine, ...]:
    """What a result records of them; tasks are named by the parameters in which they differ."""
    tasks = [logs.task for logs in machines if logs.task is not None]
    parameters = {name for task in tasks for name in task.params}
    differing = [n for n in parameters if len({str(t.params.get(n)) for t in tasks}) > 1]
    return tuple(
        Machine(
            name=logs.task.label(*differing) if logs.task else Path(logs.files[0]).stem,
            files=logs.files,
            hashes=logs.hashes,
            transitions=len(logs.episodes),
            episodes=logs.episodes.num_episodes,
            task=logs.task.to_dict() if logs.task else None,
            observation_names=logs.observation_names,
            action_names=() if logs.card is None else tuple(c.name for c in logs.card.actions),
            action_bounds=tuple(map(str, logs.card.actions))
            if logs.card is not None and logs.card.scaled
            else (),
        )
        for logs in machines
    )


def require_own_names(machines: Sequence[Machine]) -> None:
    """Refuse several tasks of one name: none could be asked for."""
    names = [machine.name for machine in machines]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"two of the tasks are called '{name}': give each task once")


def _refuse_or_note(
    file: str, store: Episodes, metadata: dict[str, Any], history: int
) -> list[str]:
    """What is odd about one file.

    Raises:
        DataError: if it cannot be learned from.
    """
    findings = check(store, metadata, history=history)
    for finding in findings:
        if finding.severity == "error":
            raise DataError(f"{file}: {finding.message}")
    for name in ("observations", "actions"):
        if (store.column(name).std(axis=0, dtype=np.float64) <= CONSTANT).all():
            raise DataError(f"{file}: none of its {name} ever changes: nothing can be learned")
    return [finding.message for finding in findings]


def _scaled(file: str, metadata: dict[str, Any], store: Episodes) -> Episodes:
    """The episodes with actions in [-1, 1].

    Raises:
        DataError: if they are neither so nor within known bounds.
    """
    card = Card.of_metadata(metadata, (store.observation_size, store.action_size))
    try:
        scaled = card.scale(store)
    except DataError as error:
        raise DataError(f"{file}: {error}") from None
    require_log_limits(scaled, file)
    return scaled


def _card(metadata: dict[str, Any], episodes: Episodes) -> Card | None:
    """What the numbers are, if a log says more than their bounds in [-1, 1]."""
    card = Card.of_metadata(metadata, (episodes.observation_size, episodes.action_size))
    named = "observation_names" in metadata or "action_names" in metadata
    return card if named or card.scaled else None


def _require_same_card(files: Sequence[str], cards: Sequence[Card | None]) -> None:
    # Without the rate, which is measured and looked at elsewhere.
    kinds = [None if card is None else replace(card, rate_hz=None) for card in cards]
    for file, kind in zip(files, kinds, strict=True):
        if kind != kinds[0]:
            raise DataError(
                f"{files[0]} and {file} have other names, units or bounds: files given together"
                " must be of one machine"
            )


def _observation_names(metadata: dict[str, Any], episodes: Episodes) -> tuple[str, ...]:
    """One for each number of the state, or none at all."""
    names = metadata.get("observation_names")
    if not isinstance(names, list) or len(names) != episodes.observation_size:
        return ()
    return tuple(map(str, names))


def _task(
    file: str, metadata: dict[str, Any], store: Episodes
) -> tuple[Task | None, Sequence[str]]:
    """The task a file names, checked as if typed in; no other part of a file makes an env.

    A robot that is not mcat's may be nobody's here: then it is a machine that cannot be simulated,
    and a note says why.
    """
    if metadata.get("task") is None:
        return None, ()
    try:
        task = Task.from_dict(metadata["task"])
    except (ValueError, TypeError, AttributeError) as error:
        raise DataError(f"{file}: its task is none of mcat's ({error})") from error
    try:
        spec = task.spec
    except (UsageError, ImportError) as error:  # or a computer without simulators
        return None, (f"{file}: its machine cannot be simulated here: {error}",)
    if (spec.observation_size, spec.action_size) != (
        store.observation_size,
        store.action_size,
    ):
        raise DataError(f"{file}: its sizes are not those of its task, {task.label()}")
    return task, ()


def _require_same_machine(
    first: tuple[str, Episodes, Task | None], other: tuple[str, Episodes, Task | None]
) -> None:
    (file, store, task), (other_file, other_store, other_task) = first, other
    if task != other_task:
        names = [t.label() if t else "an unknown machine" for t in (task, other_task)]
        raise DataError(
            f"{file} is a log of {names[0]}, {other_file} of {names[1]}: files given together must"
            " be of one task"
        )
    sizes = [(s.observation_size, s.action_size) for s in (store, other_store)]
    if sizes[0] != sizes[1]:
        raise DataError(
            "{} has {} states and {} actions, {} has {} and {}: files given together must be of"
            " one machine".format(file, *sizes[0], other_file, *sizes[1])
        )


def _hash(store: Episodes) -> str:
    columns = {name: store.column(name) for name in DTYPES}
    return digest(columns | {"episode_ends": store.episode_ends})
