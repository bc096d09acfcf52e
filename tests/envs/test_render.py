"""Pictures: looked at by the numbers here, by eye before each release."""

import os
import subprocess
import sys
from ctypes.util import find_library
from pathlib import Path

import pytest
from click.testing import CliRunner

from mcat.cli import cli
from mcat.envs import backend
from mcat.errors import CannotCreateError

pytestmark = pytest.mark.skipif(
    not find_library("OSMesa") and not os.environ.get("DISPLAY"),
    reason="no OSMesa: apt-get install libosmesa6",
)

CLEAN = {k: v for k, v in os.environ.items() if k not in ("MUJOCO_GL", "PYOPENGL_PLATFORM")}


def render(arguments, folder, **environment):
    """`mcat render` in a process of its own: the GL backend is chosen once per process."""
    return subprocess.run(
        [sys.executable, "-m", "mcat", "render", *arguments.split()],
        cwd=folder, env=CLEAN | environment, capture_output=True, text=True, check=False,
    )  # fmt: skip


def picture(path):
    import numpy as np
    from PIL import Image

    return np.asarray(Image.open(path).convert("RGB")).astype(int)


def redness(frame):
    """Share of pixels that are clearly red."""
    red, green, blue = frame[..., 0], frame[..., 1], frame[..., 2]
    return ((red > 90) & (green < red / 3) & (blue < red / 3)).mean()


def test_a_crippled_leg_is_visibly_marked(tmp_path):
    done = render("--env ant --cripple 3 --out ant.png --width 200 --height 160", tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "ant.png"
    assert render("--env ant --out whole.png --width 200 --height 160", tmp_path).returncode == 0
    crippled, whole = picture(tmp_path / "ant.png"), picture(tmp_path / "whole.png")
    assert crippled.shape == (160, 200, 3)
    assert redness(crippled) > 0.005
    assert redness(whole) == 0


def test_films_and_scripted_policies(tmp_path):
    from PIL import Image

    size = "--width 96 --height 96"
    done = render(f"--env push --policy scripted --steps 12 --out push.gif {size}", tmp_path)
    assert done.returncode == 0, done.stderr
    with Image.open(tmp_path / "push.gif") as film:
        assert film.n_frames == 13
        first = picture(tmp_path / "push.gif")
        film.seek(12)
        assert abs(picture_of(film) - first).max() > 50  # the arm moved


def picture_of(image):
    import numpy as np

    return np.asarray(image.convert("RGB")).astype(int)


def test_mp4(tmp_path):
    pytest.importorskip("imageio_ffmpeg")
    import imageio.v3 as imageio

    done = render("--env hopper --steps 9 --out hop.mp4 --width 96 --height 96", tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(imageio.imread(tmp_path / "hop.mp4")) == 10


def test_a_sheet_of_a_family(tmp_path):
    done = render("--family hopper-size --out sheet.png", tmp_path)
    assert done.returncode == 0, done.stderr
    assert picture(tmp_path / "sheet.png").shape == (2 * 256, 5 * 256, 3)


@pytest.mark.parametrize("backend", ["", "osmesa"], ids=["none set", "set to osmesa"])
def test_a_missing_gl_library_is_one_line(tmp_path, backend):
    """As if neither OSMesa nor EGL were installed: their bindings cannot be imported."""
    (tmp_path / "sitecustomize.py").write_text(
        "import ctypes.util, sys\n"
        "class Missing:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name in ('mujoco.osmesa', 'mujoco.egl', 'mujoco.glfw'):\n"
        "            raise ImportError(name)\n"
        "sys.meta_path.insert(0, Missing())\n"
        "ctypes.util.find_library = lambda name: None\n"
    )
    environment = {"PYTHONPATH": str(tmp_path)} | ({"MUJOCO_GL": backend} if backend else {})
    done = render("--env hopper --out a.png", tmp_path, **environment)
    assert done.returncode == 66, done.stderr
    assert "apt-get install libosmesa6" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "a.png").exists()


def test_an_unwritable_place_is_found_before_anything_is_drawn(tmp_path):
    done = render("--env hopper --out /proc/a.png", tmp_path)
    assert done.returncode == 73
    assert len(done.stderr.splitlines()) == 1
    assert not Path("/proc/a.png").exists()


@pytest.mark.parametrize(
    "environment",
    [{"MUJOCO_GL": "glfw"}, {"MUJOCO_GL": "off"}],
    ids=["no screen", "switched off"],
)
def test_a_backend_that_cannot_draw_is_one_line(tmp_path, environment):
    done = render("--env hopper --out a.png", tmp_path, **({"DISPLAY": ""} | environment))
    assert done.returncode == 66, done.stderr
    assert "MUJOCO_GL=osmesa" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["file", "link", "folder", "dangling link", "no folder"])
def test_nothing_that_exists_is_drawn_over(tmp_path, monkeypatch, kind):
    """Found before anything is drawn: nothing here needs OpenGL."""
    monkeypatch.setattr(backend, "choose", lambda: pytest.fail("went on to draw"))
    mine, out = tmp_path / "mine.png", tmp_path / "a.png"
    mine.write_text("precious")
    if kind == "file":
        out.write_text("precious")
    elif kind == "folder":
        out.mkdir()
    elif kind == "no folder":
        out = tmp_path / "none" / "a.png"
    else:
        out.symlink_to(mine if kind == "link" else tmp_path / "nothing")
    before = sorted((p.name, p.is_file() and p.read_text()) for p in tmp_path.iterdir())
    for arguments in (["--env", "hopper"], ["--gallery"]):
        result = CliRunner().invoke(cli, ["render", *arguments, "--out", str(out)])
        assert isinstance(result.exception, CannotCreateError)
        assert "--resume" not in str(result.exception)
        if kind in ("file", "link"):
            assert "pass --overwrite" in str(result.exception)
    assert sorted((p.name, p.is_file() and p.read_text()) for p in tmp_path.iterdir()) == before


def test_overwrite_replaces_a_picture_as_a_whole(tmp_path):
    size = "--width 32 --height 32"
    (tmp_path / "a.png").write_text("precious")
    done = render(f"--env hopper --out a.png --overwrite {size}", tmp_path)
    assert done.returncode == 0, done.stderr
    assert picture(tmp_path / "a.png").shape == (32, 32, 3)
    assert [p.name for p in tmp_path.iterdir()] == ["a.png"]
