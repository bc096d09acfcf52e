"""A user's own code, named `module:function`: only what somebody typed is ever imported or run."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import sys
from pathlib import Path
from typing import Any

from mcat.errors import UsageError, printable

_FORM = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")


def names_code(name: str) -> bool:
    """Whether a text has the form `module:function`, and is no file."""
    return bool(_FORM.fullmatch(name)) and not Path(name).exists()


def require_module(kind: str, name: str) -> None:
    """Refuse a module that is not there; nothing of it is run yet.

    Args:
        kind: What the code shall make, for the message.
        name: `module:function`, or whatever else begins with a module and a colon.
    """
    module = name.partition(":")[0].partition(".")[0]
    _look_here()
    if importlib.util.find_spec(module) is None:
        raise UsageError(
            f"no {kind} {name}: there is no module '{module}', neither installed nor in this folder"
        )


def run_code(kind: str, name: str) -> Any:
    """Call a user's function, without arguments, and return what it returns.

    Raises:
        UsageError: if there is no such function, or it fails.
    """
    require_module(kind, name)
    module_name, _, function_name = name.partition(":")
    try:
        return getattr(importlib.import_module(module_name), function_name)()
    except Exception as error:  # whatever a user's code may raise
        raise UsageError(f"{kind} {name} could not be made: {reason(error)}") from error


def import_module(kind: str, name: str) -> None:
    """Import the module that `name` begins with.

    Raises:
        UsageError: if it is not there, or fails.
    """
    require_module(kind, name)
    try:
        importlib.import_module(name.partition(":")[0])
    except Exception as error:  # whatever a user's code may raise
        raise UsageError(f"{kind} {name} could not be imported: {reason(error)}") from error


def reason(error: Exception) -> str:
    """What went wrong in somebody else's code, in a line."""
    return printable(" ".join(f"{type(error).__name__}: {error}".split()), 200)


def _look_here() -> None:
    """Let modules of the current folder be found, after all others: none of them hides another."""
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
        importlib.invalidate_caches()
