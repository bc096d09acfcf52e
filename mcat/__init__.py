"""mcat: robots whose bodies change, and policies that follow.

Importing the package registers the gymnasium ids; it imports neither torch, mujoco nor metaworld.
"""

from __future__ import annotations

import sys

__version__ = "0.1.0"


class _WhenGymnasiumIsImported:
    """Registers our ids once gymnasium is there, so that `mcat --help` need not wait for it."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> object:
        if name != "gymnasium":
            return None
        import importlib.util

        sys.meta_path.remove(self)  # type: ignore[arg-type]
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            run_module = spec.loader.exec_module

            def run_and_register(module: object) -> None:
                run_module(module)  # type: ignore[arg-type]
                _register()

            spec.loader.exec_module = run_and_register  # type: ignore[method-assign]
        return spec


def _register() -> None:
    from mcat.envs.registration import register_all

    register_all()


if "gymnasium" in sys.modules:
    _register()
else:
    sys.meta_path.insert(0, _WhenGymnasiumIsImported())  # type: ignore[arg-type]
