"""Which columns of a log are what: named on the command line, or in a robot card, a TOML file."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

from mcat.config import read_toml
from mcat.datasets.cards import Card, Channel
from mcat.errors import DataError, UsageError, printable, short, unknown
from mcat.safe_io import StrPath

SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ns": 1e-9}
_SCALARS = ("episode", "time", "reward", "terminal")
_CARD = (*_SCALARS, "time_unit", "rate", "observations", "actions")

Bounds = tuple[float | None, float | None]


@dataclass(frozen=True, kw_only=True)
class LogColumns:
    """Where in a log everything is; `*` and `?` in a name stand for others, as in file names.

    Attributes:
        observations: Columns of an observation, in this order.
        actions: Columns of an action.
        episode: What changes when a new episode begins, a number or a text; None: all is one.
        time: The moment of each row, in its unit or as an ISO date; None if there is none.
        reward: What each row was paid; None if nothing.
        terminal: Whether a row's action ended its episode. Of these four an empty name says that
            there is none, whatever a column is called.
        units: (column, unit), the later ones count.
        bounds: (column, (smallest, largest)), the later ones count.
        rate_hz: The rate that logs shall have; None for the one they have.
    """

    observations: tuple[str, ...] = ("obs_*",)
    actions: tuple[str, ...] = ("act_*",)
    episode: str | None = None
    time: str | None = None
    reward: str | None = None
    terminal: str | None = None
    units: tuple[tuple[str, str], ...] = ()
    bounds: tuple[tuple[str, Bounds], ...] = ()
    rate_hz: float | None = None

    def __post_init__(self) -> None:
        if not self.observations or not self.actions:
            raise UsageError("name at least one column of observations and one of actions")
        if self.rate_hz is not None and not 0 < self.rate_hz < math.inf:
            raise UsageError(f"a rate is more than 0, not {self.rate_hz:g}")

    @property
    def scalars(self) -> dict[str, str]:
        """What each of the columns is that are one number a row, by its name."""
        found = {kind: getattr(self, kind) for kind in _SCALARS}
        return {name: kind for kind, name in found.items() if name}

    @property
    def seconds(self) -> float:
        """How long a unit of the time is."""
        unit = _last(self.units, self.time or "", "s")
        if unit not in SECONDS:
            raise UsageError(f"the time is in s, ms, us or ns, not in {short(unit)}")
        return SECONDS[unit]

    def wanted(self, available: Sequence[str]) -> tuple[list[str], list[str]]:
        """The columns among `available` of which observations and actions are made.

        Raises:
            UsageError: if one is not there, or is named twice.
        """
        for name in self.scalars:
            if name not in available:
                raise unknown("column", name, available)
        observations, actions = (
            _matching(names, available, self.scalars) for names in (self.observations, self.actions)
        )
        both = [name for name in observations if name in actions]
        if both:
            raise UsageError(f"{both[0]} is among the observations and among the actions")
        return observations, actions

    def card(
        self, observations: Sequence[str], actions: Sequence[str], available: Sequence[str]
    ) -> Card:
        """Names, units and bounds of the columns that were found.

        Args:
            observations: Those of an observation.
            actions: Those of an action.
            available: All columns of the log.

        Raises:
            UsageError: if a unit or a bound is for none that is there.
        """
        for pattern, _ in (*self.units, *self.bounds):
            if not any(_fits(name, pattern) for name in available):
                raise unknown("column", pattern, available)

        def channel(name: str) -> Channel:
            return Channel(
                name, _last(self.units, name, ""), *_last(self.bounds, name, (None, None))
            )

        return Card(
            observations=tuple(map(channel, observations)),
            actions=tuple(map(channel, actions)),
            rate_hz=self.rate_hz,
        )


def read_card(path: StrPath) -> LogColumns:
    """The columns that a robot card names.

    As in::

        episode = "run"
        time = "t"
        time_unit = "ms"          # s if missing
        rate = 50                 # Hz, to which logs are brought

        [observations]
        "q*" = "rad"              # a unit, or a table of unit, low and high
        dq1 = { unit = "rad/s", low = -10, high = 10 }

        [actions]
        "tau*" = { unit = "N·m", limit = 8 }   # from -8 to 8

    Raises:
        MissingInputError: if it is not there.
        DataError: if it is no TOML, or says something else.
    """
    content = read_toml(path)
    try:
        return _of_card(content)
    except (UsageError, TypeError, ValueError) as error:
        raise DataError(f"{path}: {error}") from error


def _of_card(content: Mapping[str, Any]) -> LogColumns:
    for key in content:
        if key not in _CARD:
            raise unknown("key", key, _CARD)
    units: list[tuple[str, str]] = []
    bounds: list[tuple[str, Bounds]] = []
    names: dict[str, Any] = {}
    for kind in ("observations", "actions"):
        table = content.get(kind, {})
        if not isinstance(table, dict):
            raise UsageError(f"[{kind}] is a table: a line for each column, such as q1 = 'rad'")
        if table:
            names[kind] = tuple(table)
        for name, about in table.items():
            unit, limits = _channel(name, about)
            units += [(name, unit)] * bool(unit)
            bounds += [(name, limits)] * (limits != (None, None))
    texts = {key: content[key] for key in (*_SCALARS, "time_unit") if key in content}
    for key, value in texts.items():
        if not isinstance(value, str):
            raise UsageError(f"{key} is the name of a column, not {short(value)}")
    if "time_unit" in texts:
        units.append((str(texts.get("time")), texts.pop("time_unit")))
    rate = content.get("rate")
    return LogColumns(
        **names,
        **texts,
        units=tuple(units),
        bounds=tuple(bounds),
        rate_hz=None if rate is None else _number("rate", rate),
    )


def _channel(name: str, about: object) -> tuple[str, Bounds]:
    if isinstance(about, str):
        return about, (None, None)
    keys = ("unit", "low", "high", "limit")
    if not isinstance(about, dict):
        raise UsageError(f"{name} = a unit, or a table of {', '.join(keys)}, not {short(about)}")
    for key in about:
        if key not in keys:
            raise unknown(f"key of {name}", key, keys)
    unit = about.get("unit", "")
    if not isinstance(unit, str):
        raise UsageError(f"the unit of {name} is a text, not {short(unit)}")
    if "limit" in about:
        if "low" in about or "high" in about:
            raise UsageError(f"{name}: limit = 8 is from -8 to 8: leave out low and high")
        limit = _number(name, about["limit"])
        return unit, (-limit, limit)
    low, high = (None if about.get(s) is None else _number(name, about[s]) for s in ("low", "high"))
    return unit, (low, high)


def with_options(columns: LogColumns, **options: str | float | None) -> LogColumns:
    """`columns` with what options of a command say otherwise.

    Args:
        columns: Those of a card, or the usual ones.
        **options: `obs` and `act` (names with commas between them), `episode`, `time`, `reward`,
            `terminal` (a name, `none` for none), `units` (`q*=rad,tau1=N·m`), `bounds`
            (`tau*=8,grip=0:1`) and `rate`; None where nothing is said.

    Raises:
        UsageError: if one of them is no such thing.
    """
    changes: dict[str, Any] = {}
    for option, field in (("obs", "observations"), ("act", "actions")):
        if (given := options.get(option)) is not None:
            changes[field] = tuple(part.strip() for part in str(given).split(",") if part.strip())
    for name in _SCALARS:
        if (given := options.get(name)) is not None:
            changes[name] = "" if given == "none" else given
    if (given := options.get("units")) is not None:
        changes["units"] = (*columns.units, *_pairs(str(given), "--units q1=rad,tau1=N·m"))
    if (given := options.get("bounds")) is not None:
        how = "--bounds tau1=8,tau2=-4:6"
        pairs = tuple((name, _limits(text, how)) for name, text in _pairs(str(given), how))
        changes["bounds"] = (*columns.bounds, *pairs)
    if options.get("rate") is not None:
        changes["rate_hz"] = options["rate"]
    return replace(columns, **changes)


def _pairs(text: str, how: str) -> list[tuple[str, str]]:
    found = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, sign, value = part.partition("=")
        if not (sign and name.strip() and value.strip()):
            raise UsageError(f"'{printable(part, 40)}' is no NAME=VALUE: write {how}")
        found.append((name.strip(), value.strip()))
    return found


def _limits(text: str, how: str) -> Bounds:
    try:
        numbers = [float(part) for part in text.removeprefix("±").split(":")]
    except ValueError:
        numbers = []
    if len(numbers) not in (1, 2) or not all(map(math.isfinite, numbers)):
        raise UsageError(f"'{printable(text, 40)}' is no LIMIT or LOW:HIGH: write {how}")
    return (-numbers[0], numbers[0]) if len(numbers) == 1 else (numbers[0], numbers[1])


def _number(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise UsageError(f"{name} takes a number, not {short(value)}")
    return float(value)


def _fits(name: str, pattern: str) -> bool:
    """Whether a pattern means a column, or the array that it is a column of."""
    stem, _, number = name.rpartition("_")
    whole = stem if number.isdigit() and stem else name
    return name == pattern or fnmatchcase(name, pattern) or whole == pattern


def _last(pairs: Iterable[tuple[str, Any]], name: str, otherwise: Any) -> Any:
    """What the last pair says whose pattern fits."""
    return next((v for pattern, v in reversed(list(pairs)) if _fits(name, pattern)), otherwise)


def _matching(
    patterns: Sequence[str], available: Sequence[str], taken: Mapping[str, str]
) -> list[str]:
    """The columns that patterns mean, in their order; one that is named is never another's."""
    found: list[str] = []
    free = [name for name in available if name not in taken and name not in patterns]
    for pattern in patterns:
        named = [name for name in available if name == pattern]
        matches = named or [name for name in free if _fits(name, pattern) and name not in found]
        if not matches:
            raise unknown("column", pattern, available)
        if any(name in found for name in matches):
            raise UsageError(f"{pattern} is named twice")
        found += matches
    return found
