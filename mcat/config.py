"""Settings in layers: a frozen dataclass, and what files, the environment and options change in it.

A setting is named by a dotted key such as `td3.learning_rate`. Its value may be text, as options
and variables give it, or what TOML and JSON can say; the annotation of the field decides.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from mcat.config_values import converted
from mcat.errors import DataError, UsageError, unknown
from mcat.safe_io import StrPath, open_input

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")
V = TypeVar("V")


def overlay(config: T, changes: Mapping[str, Any]) -> T:
    """`config` with other values under the keys of `changes`, nested, dotted or whole groups.

    Raises:
        UsageError: if there is no such key, or its value is of the wrong type or out of range.
    """
    values = {
        field.name: value if _is_whole(type(value)) else _plain(value)
        for field in fields(config)
        for value in (getattr(config, field.name),)
    }
    wanted = {key: _plain(value) if _is_group(type(value)) else value
              for key, value in changes.items()}  # fmt: skip
    return _build(type(config), flatten(values) | flatten(wanted))


def to_json(config: DataclassInstance) -> dict[str, Any]:
    """`config` as JSON; `from_json` is the way back."""
    return {field.name: _plain(getattr(config, field.name)) for field in fields(config)}


def from_json(cls: type[T], data: Mapping[str, Any]) -> T:
    """The config of which `to_json` made `data`.

    Raises:
        DataError: if a key is unknown or missing, or a value is not one of its type.
    """
    kinds = get_type_hints(cls)
    try:
        whole = {
            name: kinds[name].from_dict(value)
            for name, value in data.items()
            if name in kinds and _is_whole(kinds[name])
        }
        return _build(cls, flatten({**data, **whole}))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(str(error)) from error


def as_type(kind: type[V], value: Any) -> V:
    """What JSON has as objects and lists, as the dataclasses, tuples and lists that `kind` names.

    Fields that are not there get their defaults; numbers and text are taken as they are.

    Raises:
        TypeError: or AttributeError, if it is something else.
    """
    found: V = _as_type(kind, value)
    return found


def read_toml(path: StrPath) -> dict[str, Any]:
    """What a TOML file says.

    Raises:
        MissingInputError: if it is not there.
        DataError: if it is not TOML; the message names the line.
    """
    import tomllib  # here because every command would wait for it

    with open_input(path) as file:
        text = file.read()
    try:
        return tomllib.loads(text.decode())
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: not a TOML file: {error}") from error


def to_toml(values: Mapping[str, Any]) -> str:
    """Settings as TOML that `read_toml` and `overlay` take back."""
    return "\n".join(_toml_lines(values, ())) + "\n"


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings under dotted keys; where two name the same one, the later counts."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            found |= flatten(value, f"{prefix}{name}.")
        else:
            found[prefix + name] = value
    return found


def defaults_of(cls: type[DataclassInstance], prefix: str = "") -> dict[str, Any]:
    """The settings of a config that need not be given, as JSON under dotted keys."""
    hints = get_type_hints(cls)
    found: dict[str, Any] = {}
    for field in fields(cls):
        key = prefix + field.name
        if field.default is not MISSING:
            found |= flatten({key: _plain(field.default)})
        elif field.default_factory is not MISSING:
            found |= flatten({key: _plain(field.default_factory())})
        elif _is_group(hints[field.name]):
            found |= defaults_of(hints[field.name], f"{key}.")
    return found


def completed(config: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """A config as JSON under dotted keys, with the defaults of settings that it does not name.

    So a config of before there was a setting equals one of today that leaves it at its default.
    """
    return {**defaults, **flatten(config)}


def require_key(key: str, known: Collection[str]) -> None:
    """Refuse a dotted key that is not known, with what it may stand for."""
    if key not in known:
        raise unknown("key", key, [name for name in known if name.endswith(f".{key}")] or known)


def differences(
    old: Mapping[str, Any], new: Mapping[str, Any], defaults: Mapping[str, Any] | None = None
) -> list[str]:
    """What differs between a config that was saved and this one, both as JSON, a line each.

    Args:
        old: The one that was saved.
        new: This one.
        defaults: To complete both with; without it, a setting that one of them does not name is a
            difference.
    """
    there, here = completed(old, defaults or {}), completed(new, defaults or {})
    lines = []
    for key in there | here:
        if key not in here:
            lines.append(f"{key}: {there[key]} there, unknown here")
        elif key not in there:
            lines.append(f"{key}: unknown there, {here[key]} here")
        elif there[key] != here[key]:
            lines.append(f"{key}: {there[key]} there, {here[key]} here")
    return lines


def require_same(
    where: str,
    old: Mapping[str, Any],
    new: Mapping[str, Any],
    may_change: Collection[str] = (),
    *,
    defaults: Mapping[str, Any] | None = None,
    otherwise: str = "start another run",
) -> None:
    """Refuse to go on with work that was begun with other settings.

    Args:
        where: What is there.
        old: The settings that it was begun with, as JSON.
        new: Those that it shall go on with.
        may_change: Keys that may differ.
        defaults: For work that is finished: see `differences`.
        otherwise: What to do instead.
    """
    found = differences(old, new, defaults)
    fixed = [line for line in found if line.partition(":")[0] not in may_change]
    if fixed:
        raise UsageError(f"{where} was started otherwise ({'; '.join(fixed)}): {otherwise}")


def _as_type(kind: Any, value: Any) -> Any:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):  # of something and None
        return None if value is None else _as_type(arguments[0], value)
    if isinstance(kind, type) and is_dataclass(kind):
        hints = get_type_hints(kind)
        return kind(**{name: _as_type(hints.get(name), item) for name, item in value.items()})
    if origin is dict:
        return {name: _as_type(arguments[1], item) for name, item in value.items()}
    if origin in (list, tuple):
        if not isinstance(value, list | tuple):
            raise TypeError(f"{value!r:.40} is no list")
        return origin(_as_type(arguments[0], item) for item in value)
    return value


def _is_whole(kind: Any) -> bool:
    """Whether it has a form of its own in JSON, as tasks do: no keys of it can be set."""
    return hasattr(kind, "from_dict")


def _is_group(kind: Any) -> bool:
    """Whether it is a config inside a config."""
    return isinstance(kind, type) and is_dataclass(kind) and not _is_whole(kind)


def _plain(value: Any) -> Any:
    if _is_whole(type(value)):
        return value.to_dict()
    if is_dataclass(value) and not isinstance(value, type):
        return to_json(value)
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def _build(cls: type[T], values: Mapping[str, Any]) -> T:
    kinds = _kinds(cls)
    for key, value in values.items():
        inside = [name for name in kinds if name.startswith(f"{key}.")]
        if inside:
            raise UsageError(f"{key} is a group, not {value!r}: set its keys, such as {inside[0]}")
        require_key(key, kinds)
    return _make(cls, values, "")


def _make(cls: type[T], values: Mapping[str, Any], prefix: str) -> T:
    hints = get_type_hints(cls)
    arguments: dict[str, Any] = {}
    for field in fields(cls):
        key, kind = prefix + field.name, hints[field.name]
        if _is_group(kind):
            arguments[field.name] = _make(kind, values, f"{key}.")
        elif key in values:
            arguments[field.name] = converted(kind, values[key], key)
        else:
            raise UsageError(f"the key {key} is missing")
    return cls(**arguments)


def _kinds(cls: type[DataclassInstance], prefix: str = "") -> dict[str, Any]:
    """The types of all settings of a config by their keys."""
    hints = get_type_hints(cls)
    found: dict[str, Any] = {}
    for field in fields(cls):
        kind = hints[field.name]
        if _is_group(kind):
            found |= _kinds(kind, f"{prefix}{field.name}.")
        else:
            found[prefix + field.name] = kind
    return found


def _toml_lines(values: Mapping[str, Any], path: tuple[str, ...]) -> list[str]:
    """A table's own settings, then the tables in it."""
    groups = {name: value for name, value in values.items() if isinstance(value, Mapping)}
    lists = {
        name: value
        for name, value in values.items()
        if isinstance(value, list) and value and all(isinstance(item, Mapping) for item in value)
    }
    own = [name for name in values if name not in groups and name not in lists]
    lines = [f"{_toml_key(name)} = {_toml(values[name])}" for name in own]
    for name, group in groups.items():
        inner = (*path, _toml_key(name))
        lines += ["", f"[{'.'.join(inner)}]", *_toml_lines(group, inner)]
    for name, items in lists.items():
        inner = (*path, _toml_key(name))
        for item in items:
            lines += ["", f"[[{'.'.join(inner)}]]", *_toml_lines(item, inner)]
    return lines


def _toml_key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_.-]+", name) else json.dumps(name)


def _toml(value: Any) -> str:
    if value is None:
        return '"none"'  # TOML has no null
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
