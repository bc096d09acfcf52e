"""The choice of an OpenGL backend, made before mujoco is imported."""

from __future__ import annotations

import os
import sys
from ctypes.util import find_library

from mcat.errors import MissingInputError

NO_GL = (
    "no OpenGL for off-screen pictures: install one, e.g. 'apt-get install libosmesa6' "
    "(or libegl1), then run again with MUJOCO_GL=osmesa (or egl)"
)


def choose() -> None:
    """Without a screen, pick OSMesa or EGL, whichever is installed; the user's MUJOCO_GL wins.

    Must run before mujoco is imported. Only commands call it; a library leaves the choice alone.
    """
    if "MUJOCO_GL" not in os.environ and sys.platform.startswith("linux") and not _has_screen():
        backend = next((name for name, library in _LIBRARIES if find_library(library)), None)
        if backend is None:
            raise MissingInputError(NO_GL)
        os.environ["MUJOCO_GL"] = os.environ["PYOPENGL_PLATFORM"] = backend
    try:
        import mujoco  # noqa: F401
    except (ImportError, AttributeError, RuntimeError) as error:  # a backend that is not there
        raise MissingInputError(f"MUJOCO_GL={os.environ.get('MUJOCO_GL')}: {NO_GL}") from error


_LIBRARIES = (("osmesa", "OSMesa"), ("egl", "EGL"))


def _has_screen() -> bool:
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
