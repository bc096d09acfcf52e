"""Names of a package that are imported on first use, so that the package itself stays light."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any


def on_first_use(package: str) -> Callable[[str], Any]:
    """A `__getattr__` for `package`: finds what it imports `if TYPE_CHECKING`.

    That block and `__all__` are all that a package says of its names, and tools check both.

    Args:
        package: Its `__name__`.
    """

    @cache
    def homes() -> dict[str, str]:
        blocks = ast.parse(inspect.getsource(sys.modules[package])).body
        lines = [line for block in blocks if isinstance(block, ast.If) for line in block.body]
        imports = [line for line in lines if isinstance(line, ast.ImportFrom)]
        return {name.name: str(line.module) for line in imports for name in line.names}

    def find(name: str) -> Any:
        if name.startswith("__") or name not in homes():
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(homes()[name]), name)

    return find
