"""Policies as a user's own code: `module:function`, called once and without arguments.

What it returns is called with observations `(n, obs)` and gives actions `(n, act)`; or it has a
`start_episode` that returns such a function for the episodes that start now.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mcat.errors import DataError, UsageError
from mcat.own_code import reason, run_code
from mcat.types import AnyPolicy, PolicyFunction, Remembering


def load_code(name: str, action_size: int) -> AnyPolicy:
    """Run a user's own code and return its policy, whose actions are checked at every step.

    Raises:
        UsageError: if there is no such function, it fails, or returns no policy.
    """
    made = run_code("policy", name)
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
            raise UsageError(f"policy {name} cannot act: {reason(error)}") from error
        if actions.shape != wanted:
            raise UsageError(f"policy {name} gives actions of shape {actions.shape}, not {wanted}")
        if not np.isfinite(actions).all():
            raise DataError(f"policy {name} gives an action that is NaN or infinite")
        return actions

    return act
