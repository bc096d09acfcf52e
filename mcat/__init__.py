"""mcat: robots whose bodies change, and policies that follow.

Importing the package registers the gymnasium ids; it imports neither torch, mujoco nor metaworld.
"""

from __future__ import annotations

from contextlib import suppress

__version__ = "0.1.0"

with suppress(ImportError):  # data sets and translators need no gymnasium
    from mcat.envs.registration import register_all

    register_all()
