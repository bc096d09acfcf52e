"""mcat: robots whose bodies change, and policies that follow.

Importing the package registers its gymnasium ids as soon as gymnasium is imported; by itself it
imports neither that nor numpy, torch, mujoco or metaworld.
"""

from __future__ import annotations

from mcat.lazy import after_import

__version__ = "0.1.0"


def _register() -> None:
    from mcat.envs.registration import register_all

    register_all()


after_import("gymnasium", _register)
