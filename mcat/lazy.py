"""What waits until somebody needs it, so that importing mcat stays light."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any


def on_first_use(package: str) -> Callable[[str], Any]:
    """A `__getattr__` for `package`: finds what it imports `if TYPE_CHECKING`.

    That block and `__all__` are all that a package says of its names, and tools check both.
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


def after_import(name: str, act: Callable[[], object]) -> None:
    """Call `act` once a package is imported, whoever imports it; at once if it is already."""
    if name in sys.modules:
        act()
    else:
        sys.meta_path.insert(0, _Watch(name, act))


class _Watch:
    """A finder that finds nothing itself, but sees that a package is imported."""

    def __init__(self, name: str, act: Callable[[], object]) -> None:
        self.name, self.act = name, act

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name != self.name or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        if spec is None or spec.loader is None:
            return None
        run = spec.loader.exec_module

        def run_and_act(module: ModuleType) -> None:
            run(module)
            self.act()

        spec.loader.exec_module = run_and_act  # type: ignore[method-assign]
        return spec
