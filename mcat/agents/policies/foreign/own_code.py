"""Policies as a user's own code: `module:function`, called once and without arguments.

What it returns is called with observations `(n, obs)` and gives actions `(n, act)`; or it has a
`start_episode` that returns such a function for the episodes that start now.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mcat.errors import DataError, UsageError, printable
from mcat.types import AnyPolicy, PolicyFunction, Remembering

_FORM = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")


def names_code(name: str) -> bool:
    """Whether a text has the form `module:function`, and is no file."""
    return bool(_FORM.fullmatch(name)) and not Path(name).exists()


def require_module(name: str) -> None:
    """Refuse a module that is not there; nothing of it is run yet.

    Raises:
        UsageError: if it is neither installed nor in the current folder.
    """
    module = name.partition(":")[0].partition(".")[0]
    _look_here()
    if importlib.util.find_spec(module) is None:
        raise UsageError(
            f"no policy {name}: there is no module '{module}', neither installed nor in this folder"
        )


def load_code(name: str, observation_size: int, action_size: int) -> AnyPolicy:
    """Run a user's own code and return its policy, whose actions are checked at every step.

    Args:
        name: `module:function`.
        observation_size: Numbers in an observation.
        action_size: Numbers in an action.

    Raises:
        UsageError: if there is no such function, it fails, or returns no policy.
    """
    require_module(name)
    module_name, _, function_name = name.partition(":")
    try:
        made = getattr(importlib.import_module(module_name), function_name)()
    except Exception as error:  # whatever a user's code may raise
        reason = printable(" ".join(f"{type(error).__name__}: {error}".split()), 200)
        raise UsageError(f"policy {name} could not be made: {reason}") from error
    if isinstance(made, Remembering):
        return _Remembering(name, made, action_size)
    if not callable(made):
        raise UsageError(
            f"policy {name}: the function must return a policy, not {type(made).__name__}"
        )
    return _checked(name, made, action_size)


class _Remembering:
    """A user's policy with a memory."""

    def __init__(self, name: str, policy: Remembering, action_size: int) -> None:
        self._name, self._policy, self._action_size = name, policy, action_size

    def start_episode(self) -> PolicyFunction:
        return _checked(self._name, self._policy.start_episode(), self._action_size)


def _checked(name: str, policy: PolicyFunction, action_size: int) -> PolicyFunction:
    def act(obs: NDArray[Any]) -> NDArray[np.float32]:
        wanted = (len(obs), action_size)
        try:
            actions = np.asarray(policy(obs), np.float32)
        except (TypeError, ValueError) as error:
            reason = printable(" ".join(f"{type(error).__name__}: {error}".split()), 200)
            raise UsageError(f"policy {name} cannot act: {reason}") from error
        if actions.shape != wanted:
            raise UsageError(f"policy {name} gives actions of shape {actions.shape}, not {wanted}")
        if not np.isfinite(actions).all():
            raise DataError(f"policy {name} gives an action that is NaN or infinite")
        return actions

    return act


def _look_here() -> None:
    """Let modules of the current folder be found, after all others: none of them hides another."""
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
        importlib.invalidate_caches()
