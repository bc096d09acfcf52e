"""Values of settings as text, TOML and JSON give them, turned into what a field takes."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from mcat.errors import UsageError

_MISFITS = (ValueError, TypeError, OverflowError)  # what Python's own conversions raise


def converted(kind: Any, value: Any, key: str) -> Any:
    """The value of the setting `key`, of the type that its field has.

    Raises:
        UsageError: saying what it takes, if it is none.
    """
    try:
        return _parse(kind, value)
    except _MISFITS:
        raise UsageError(f"{key} takes {_expected(kind)}, not {value!r}") from None


def _parse(kind: Any, value: Any) -> Any:
    """`value` as that type; one of `_MISFITS` is raised if it cannot be one."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return _first_of(arguments, value)
    if origin is Literal:
        return _choice(arguments, value)
    if origin is tuple:
        if isinstance(value, str):  # "256,256", and as Python and TOML write it
            value = [item for item in value.strip(" ()[]").split(",") if item.strip()]
        if not isinstance(value, list | tuple):
            raise ValueError
        return tuple(_parse(arguments[0], item) for item in value)
    if isinstance(kind, type) and kind not in _SCALARS:  # such as a task: only as it is
        if isinstance(value, kind):
            return value
        raise ValueError
    parse, _ = _SCALARS[kind]
    return parse(value)


def _first_of(kinds: tuple[Any, ...], value: Any) -> Any:
    for kind in sorted(kinds, key=lambda kind: kind is not NoneType):  # "none" is no text then
        try:
            return _parse(kind, value)
        except _MISFITS:
            continue
    raise ValueError


def _choice(choices: tuple[Any, ...], value: Any) -> Any:
    for choice in choices:
        if value == choice and type(value) is type(choice):
            return choice
        if isinstance(value, str) and value == str(choice):
            return choice
    raise ValueError


def _whole(value: Any) -> int:
    if isinstance(value, str):
        try:
            return int(value)
        except ValueError:
            value = float(value)  # "1e6"
    if isinstance(value, bool) or value != int(value):
        raise ValueError
    return int(value)


def _number(value: Any) -> float:
    if isinstance(value, bool) or not math.isfinite(number := float(value)):
        raise ValueError
    return number


def _truth(value: Any) -> bool:
    answer = {"true": True, "false": False}.get(str(value).lower())
    if answer is None:
        raise ValueError
    return answer


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError
    return value


def _nothing(value: Any) -> None:
    if value is not None and value != "none":
        raise ValueError


_SCALARS: dict[Any, tuple[Callable[[Any], Any], str]] = {
    int: (_whole, "a whole number"),
    float: (_number, "a number"),
    bool: (_truth, "true or false"),
    str: (_text, "text"),
    Path: (lambda value: Path(_text(value)), "a path"),
    NoneType: (_nothing, "none"),
}


def _expected(kind: Any) -> str:
    """What a value of that type is called in an error."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return " or ".join(_expected(argument) for argument in arguments)
    if origin is Literal:
        return " or ".join(map(str, arguments))
    if origin is tuple:
        return f"a list, each item {_expected(arguments[0])}"
    return _SCALARS[kind][1] if kind in _SCALARS else f"a {kind.__name__}"
