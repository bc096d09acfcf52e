"""The choice of an OpenGL backend, made before mujoco is imported."""

from __future__ import annotations

import os
import sys
from ctypes.util import find_library

from mcat.errors import MissingInputError


def no_gl() -> MissingInputError:
    """The error for a machine on which the chosen backend cannot draw."""
    given = os.environ.get("MUJOCO_GL")
    return MissingInputError(
        (f"MUJOCO_GL={given}: " if given else "")
        + "no OpenGL for off-screen pictures: install one, e.g. 'apt-get install libosmesa6' "
        "(or libegl1), then run again with MUJOCO_GL=osmesa (or egl)"
    )


def choose() -> None:
    """Without a screen, pick OSMesa or EGL, whichever is installed; the user's MUJOCO_GL wins.

    Must run before mujoco is imported. Only commands call it; a library leaves the choice alone.
    """
    if "MUJOCO_GL" not in os.environ and sys.platform.startswith("linux") and not _has_screen():
        backend = next((name for name, library in _LIBRARIES if find_library(library)), None)
        if backend is None:
            raise no_gl()
        os.environ["MUJOCO_GL"] = os.environ["PYOPENGL_PLATFORM"] = backend
    try:
        from mujoco import GLContext  # noqa: F401  (absent if MUJOCO_GL=off)
    except (ImportError, AttributeError, RuntimeError) as error:  # a backend that is not there
        raise no_gl() from error


_LIBRARIES = (("osmesa", "OSMesa"), ("egl", "EGL"))


def _has_screen() -> bool:
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
