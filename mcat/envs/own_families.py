"""Families of one's own: a TOML file, or `module:function`, wherever a family is named.

env = "Walker2d-v5"          # a robot of mcat's, or any gymnasium id
varies = "mass"              # a parameter, several in a list, or "arguments.NAME"
train = [0.7, 1.0, 1.3]
test = [0.5, 1.6]
delay = 100
horizon = 1000
damping = 2.0                # any other parameter, the same for all tasks

[arguments]                  # of gymnasium.make, the same for all tasks
healthy_reward = 0.5
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mcat.config import read_toml
from mcat.envs.families import PACKAGED
from mcat.envs.gym_robots import allow_module, is_gym_id
from mcat.envs.tasks import Family, Task
from mcat.errors import DataError, UsageError, short
from mcat.own_code import names_code, run_code

_ARGUMENT = "arguments."
_WORDS = ("delay", "horizon", "arguments", "test", "name", "title", "note")  # besides parameters


def own_family(name: str) -> Family | None:
    """The family in a file, or that a user's function returns; None if the name is neither's.

    Raises:
        MissingInputError: if it is a file that is not there.
        DataError: if the file does not describe one.
        UsageError: if there is no such function, or a task makes no sense.
    """
    if name.endswith(".toml"):
        return read_family(name)
    if not names_code(name):
        return None
    made = run_code("family", name)
    if not isinstance(made, Family):
        raise UsageError(
            f"family {name}: the function must return a Family, not {type(made).__name__}"
        )
    return _with_own_names(made, name)


def read_family(path: str | Path) -> Family:
    """The family that a TOML file describes; a module in front of its id is imported.

    Raises:
        MissingInputError: if it is not there.
        DataError: if it is no TOML, or lacks something.
        UsageError: if a task of it makes no sense.
    """
    given = read_toml(path)
    missing = [key for key in ("env", "varies", "train") if key not in given]
    if missing:
        raise DataError(f"{path}: it lacks {', '.join(missing)} (a family has env, varies, train)")
    env, varies = given.pop("env"), given.pop("varies")
    varies = [varies] if isinstance(varies, str) else varies
    if not isinstance(env, str) or not varies or not all(isinstance(v, str) for v in varies):
        raise DataError(f"{path}: env is a name, varies a name or a list of names")
    name = str(given.pop("name", Path(path).stem))
    title, note = str(given.pop("title", name)), str(given.pop("note", ""))
    splits = {split: given.pop(split, []) for split in ("train", "test")}
    if is_gym_id(env):
        allow_module(env)
    tasks = {
        split: tuple(_task(path, env, given, varies, value) for value in _list(path, split, values))
        for split, values in splits.items()
    }
    made = Family(name=name, title=title, varies=tuple(varies), note=note, **tasks)
    return _with_own_names(made, path)


def _list(path: str | Path, split: str, values: Any) -> list[Any]:
    if not isinstance(values, list):
        raise DataError(f"{path}: {split} is a list of values, not {short(values)}")
    return values


def _task(
    path: str | Path, env: str, fixed: Mapping[str, Any], varies: list[str], value: Any
) -> Task:
    """One task: what all have in common, and its own values of what varies."""
    values = [value] if len(varies) == 1 else value
    if not isinstance(values, list) or len(values) != len(varies):
        raise DataError(f"{path}: {short(value)} is no list of {len(varies)}: {', '.join(varies)}")
    arguments = fixed.get("arguments", {})
    if not isinstance(arguments, Mapping):
        raise DataError(f"{path}: arguments is a table of names and values")
    own = dict(zip(varies, values, strict=True))
    arguments = {**arguments, **_named(own, inside=True)}
    parameters = {key: item for key, item in fixed.items() if key != "arguments"}
    near = [near for key in parameters for near in difflib.get_close_matches(key, _WORDS, 1)
            if near not in parameters and key not in _WORDS]  # fmt: skip
    try:
        return Task(env, arguments=arguments, **{**parameters, **_named(own, inside=False)})
    except UsageError as error:
        hint = f" (did you mean {near[0]}?)" if near else ""
        raise UsageError(f"{path}: {error}{hint}") from error


def _named(own: Mapping[str, Any], *, inside: bool) -> dict[str, Any]:
    """What varies, of `arguments.NAME` those or the others."""
    return {
        key.removeprefix(_ARGUMENT): value
        for key, value in own.items()
        if key.startswith(_ARGUMENT) == inside
    }


def _with_own_names(made: Family, where: str | Path) -> Family:
    """The family, if it and its tasks can be told apart in files and tables."""
    if made.name in PACKAGED:
        raise UsageError(f"{where}: {made.name} is a family of mcat's: give yours another name")
    labels = [task.label(*made.varies) for task in made.tasks]
    double = {label for label in labels if labels.count(label) > 1}
    if double:
        raise UsageError(f"{where}: two tasks are called {', '.join(sorted(double))}")
    return made
