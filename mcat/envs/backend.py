"""The choice of an OpenGL backend, made before mujoco is imported."""

from __future__ import annotations

import os
import sys

from mcat.errors import MissingInputError

NO_GL = (
    "no OpenGL for off-screen pictures: install one, e.g. 'apt-get install libosmesa6' "
    "(or libegl1), then run again with MUJOCO_GL=osmesa (or egl)"
)


def choose() -> None:
    """Without a screen, pick EGL or OSMesa, whichever works; the user's MUJOCO_GL wins.

    Must run before mujoco is imported. Only commands call it; a library leaves the choice alone.
    """
    if "mujoco" in sys.modules or "MUJOCO_GL" in os.environ or not sys.platform.startswith("linux"):
        return
    if os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        return
    from ctypes.util import find_library

    for backend, library in (("osmesa", "OSMesa"), ("egl", "EGL")):
        if find_library(library):
            os.environ["MUJOCO_GL"] = os.environ["PYOPENGL_PLATFORM"] = backend
            return
    raise MissingInputError(NO_GL)
