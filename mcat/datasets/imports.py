"""Logs as they come off a robot → one data set that knows its names, units, bounds and rate."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mcat.datasets.cards import Card
from mcat.datasets.checks import rate_hz
from mcat.datasets.columns import LogColumns
from mcat.datasets.episodes import EpisodeStore
from mcat.datasets.foreign import timing
from mcat.datasets.named import RawLog, read_log
from mcat.datasets.pace import pace_of
from mcat.datasets.repair import repair
from mcat.datasets.resample import resample
from mcat.datasets.stored import is_table, stored_log
from mcat.errors import DataError, McatError, UsageError, counted
from mcat.safe_io import StrPath


class Imported(NamedTuple):
    """A log of a robot.

    Attributes:
        store: Its episodes.
        metadata: For `write_dataset`: what its numbers are, and where they come from.
        said: What was done with the rows, a line for each file and deed.
    """

    store: EpisodeStore
    metadata: dict[str, Any]
    said: list[str]

    @property
    def card(self) -> Card:
        """What the numbers are."""
        sizes = self.store.observation_size, self.store.action_size
        return Card.of_metadata(self.metadata, sizes)


def import_logs(
    files: Sequence[StrPath],
    columns: LogColumns | None = None,
    *,
    clip: bool = False,
    mend: bool = False,
) -> Imported:
    """The episodes of some logs of one machine, whose columns have names of their own.

    Where a file ends, so does an episode. With a rate in `columns` and a time in the log, the
    episodes are brought to that rate (`resample`).

    Args:
        files: Files in .csv, .csv.gz, .parquet, .npz or .h5, with the same columns, or anything
            else that `load` takes, whose terminal states then count as cut off.
        columns: Which of them are what; None for the usual names `obs_0` …, `act_0` ….
        clip: Cut actions beyond their bounds to them, as motors do; else they are refused.
        mend: Save what can be saved of damaged files (`repair`); else they are refused.

    Raises:
        MissingInputError: if a file is not there.
        UsageError: if a column is not there.
        DataError: if a file cannot be read or a number is not as it should be; it is named.
    """
    if not files:
        raise UsageError("name at least one log")
    columns = columns or LogColumns()
    parts, said = [], []
    for file in files:
        try:
            part, words = _import_one(file, columns, clip=clip, mend=mend)
        except McatError as error:
            text = str(error)
            raise type(error)(text if text.startswith(str(file)) else f"{file}: {text}") from error
        parts.append(part)
        said += [f"{Path(file).name}: {line}" for line in words]
    stores, headers = zip(*parts, strict=True)
    for file, header in zip(files[1:], headers[1:], strict=True):
        _require_alike(str(files[0]), headers[0], str(file), header)
    findings = [
        [severity, f"{Path(file).name}: {text}" if len(files) > 1 else text]
        for file, header in zip(files, headers, strict=True)
        for severity, text in header.get("time_findings", [])
    ]
    metadata = headers[0] | {
        "source": [Path(file).name for file in files] if len(files) > 1 else Path(files[0]).name,
        "time_findings": findings[:50],
        "imported": said[:50],
    }
    return Imported(EpisodeStore.concatenate(stores), metadata, said)


def _import_one(
    file: StrPath, columns: LogColumns, *, clip: bool, mend: bool
) -> tuple[tuple[EpisodeStore, dict[str, Any]], list[str]]:
    said: list[str] = []
    if is_table(file, columns):
        log = read_log(file, columns, damage=said if mend else None)
    else:
        log = stored_log(file, columns)
    if mend:
        log, words = repair(log)
        said += words
    _bounded(log, clip=clip, said=said)
    store, facts, words = _episodes(log, columns.rate_hz)
    facts = {
        **log.card.to_metadata(),
        "ignored_columns": log.ignored,
        "has_rewards": log.rewards is not None,
        **facts,
    }
    return (store, facts), said + words


def _episodes(log: RawLog, rate: float | None) -> tuple[EpisodeStore, dict[str, Any], list[str]]:
    """The episodes of a log, what its time tells, and what was done."""
    if log.time is not None and not np.isfinite(log.time).all():
        row = int(np.argmin(np.isfinite(log.time)))
        raise DataError(f"its time at row {row} is {log.time[row]}: mcat dataset repair")
    if rate is not None and log.time is not None:
        _require_finite(log)
        store, said = resample(log, rate)
        return store, {"rate_hz": rate}, said
    store = EpisodeStore.from_arrays(
        observations=log.observations,
        actions=log.actions,
        rewards=log.rewards,
        terminals=log.terminals,
        episode_ends=log.ends,
    )
    if log.time is None:
        said = [] if rate else ["its rate is not known: name its time by --time, or --rate HZ"]
        return store, {} if rate is None else {"rate_hz": rate}, said
    pace = pace_of(log.time, log.ends)
    said = []
    if pace is not None and not pace.even:
        said.append(f"logged at {pace}: --rate {float(f'{1 / pace.usual:.2g}'):g} makes it even")
    return store, timing(log.time, log.ends), said


def _require_finite(log: RawLog) -> None:
    """Refuse holes before numbers are interpolated; without, `from_arrays` does."""
    for name, values in log.columns.items():
        finite = np.isfinite(values.reshape(len(values), -1)).all(axis=1)
        if not finite.all():
            row = int(np.argmin(finite))
            raise DataError(f"{name}: row {row} is NaN, infinite or empty: mcat dataset repair")


def _bounded(log: RawLog, *, clip: bool, said: list[str]) -> None:
    """Bring actions within their bounds, or refuse them."""
    limits = log.card.limits
    if limits is None:
        return
    if not clip:
        try:
            log.card.require_within(log.actions, "actions")
        except DataError as error:
            raise DataError(
                f"{error}: mend --bounds, or pass --clip if the motor cut it off itself"
            ) from None
    low, high = limits.inner()
    outside = ((log.actions < limits.low) | (log.actions > limits.high)).any(axis=1)
    if clip and outside.any():
        said.append(f"{counted(int(outside.sum()), 'action')} cut to the bounds")
    log.actions = np.clip(log.actions, low, high)


def _require_alike(first: str, ours: dict[str, Any], file: str, theirs: dict[str, Any]) -> None:
    for key in ("observation_names", "action_names"):
        if ours[key] != theirs[key]:
            raise DataError(
                f"{first} has the {key.replace('_', ' ')} {', '.join(ours[key])}, {file} has"
                f" {', '.join(theirs[key])}: logs given together are of one machine"
            )
    rates = [rate for header in (ours, theirs) if (rate := rate_hz(header)) is not None]
    if len(rates) == 2 and max(rates) > 1.1 * min(rates):
        raise DataError(
            f"{first} has {rates[0]:g} rows a second, {file} {rates[1]:g}: bring them to one by"
            " --rate"
        )
