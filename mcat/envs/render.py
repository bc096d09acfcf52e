"""Pictures of tasks: one frame, a short film, or a sheet of several robots."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import mujoco
import numpy as np
from gymnasium.error import DependencyNotInstalled
from numpy.typing import NDArray

from mcat.envs.backend import no_gl
from mcat.envs.simulation import Simulation
from mcat.envs.tasks import Task
from mcat.errors import MissingInputError, UsageError, install, printable
from mcat.safe_io import new_file
from mcat.types import AnyPolicy, started

if TYPE_CHECKING:
    from gymnasium.envs.mujoco.mujoco_rendering import MujocoRenderer

Frame = NDArray[np.uint8]


def open_renderer(task: Task, simulation: Simulation, width: int, height: int) -> MujocoRenderer:
    """Gymnasium's renderer, looking at the robot through a camera of its model."""
    from gymnasium.envs.mujoco.mujoco_rendering import MujocoRenderer

    simulation.model.vis.global_.offwidth = max(width, 640)
    simulation.model.vis.global_.offheight = max(height, 480)
    if max(width, height) < 256:  # shadows are hardly seen there and most of a frame's time
        simulation.model.vis.quality.shadowsize = 0
    renderer = MujocoRenderer(
        simulation.model, simulation.data, _camera(task), width, height, camera_name=""
    )
    renderer.camera_id = None  # -1 would turn the tracking camera into a fixed one
    return renderer


def _camera(task: Task) -> dict[str, Any]:
    """A view from the side that follows the torso; for Meta-World one over the table."""
    if task.on_table:
        centre = np.array((0.0, 0.68, 0.08))
        return {"lookat": centre, "distance": 1.25, "azimuth": 140.0, "elevation": -28.0}
    distance, azimuth, elevation = _SIDE_VIEWS[task.robot]
    return {
        "type": 1,  # mjCAMERA_TRACKING
        "trackbodyid": 1,
        "distance": distance,
        "azimuth": azimuth,
        "elevation": elevation,
    }


_SIDE_VIEWS = {
    "hopper": (3.6, 115.0, -12.0),
    "halfcheetah": (3.0, 115.0, -15.0),
    "halfcheetah3leg": (3.0, 115.0, -15.0),
    "ant": (3.4, 100.0, -38.0),
}


def film(
    task: Task, policy: AnyPolicy | None, steps: int, seed: int, width: int, height: int
) -> Iterator[Frame]:
    """The frames of an episode: after the reset and after each of `steps` steps.

    Without a policy the robot stands still (all actions zero).
    """
    env = _stage(task, width, height)
    try:
        observation, _ = env.reset(seed=seed)
        idle = np.zeros(task.spec.action_size)
        act = None if policy is None else started(policy)
        yield _frame(env)
        for _ in range(min(steps, task.horizon)):
            action = idle if act is None else act(observation[None])[0]
            observation, _, terminated, truncated, _ = env.step(action)
            yield _frame(env)
            if terminated or truncated:
                return
    finally:
        env.close()


def _stage(task: Task, width: int, height: int) -> Any:
    """An environment to picture; not every robot lets one choose the size."""
    look = {"render_mode": "rgb_array", "width": width, "height": height}
    try:
        return task.make(**look)
    except UsageError as error:
        if task.own or not re.search("'(width|height)'", str(error)):
            raise
    return task.make(render_mode="rgb_array")


def _frame(env: Any) -> Frame:
    # gymnasium reports a missing backend as RuntimeError, PyOpenGL as ImportError or, with
    # MUJOCO_GL set to one that is not installed, as AttributeError; without a screen GLFW warns
    # and goes on, and MuJoCo then ends with its own error.
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module="glfw")
            return np.asarray(env.render(), dtype=np.uint8)
    except DependencyNotInstalled as error:  # of a robot that is not mcat's
        raise MissingInputError(f"this robot cannot be pictured: {printable(error)}") from error
    except (RuntimeError, ImportError, AttributeError, mujoco.FatalError) as error:
        raise no_gl() from error


def render(
    task: Task,
    path: Path,
    *,
    policy: AnyPolicy | None = None,
    steps: int = 0,
    seed: int = 0,
    width: int = 480,
    height: int = 480,
    overwrite: bool = False,
) -> None:
    """Write a picture after `steps` steps (.png), or all of them as a film (.gif, .mp4)."""
    frames = film(task, policy, steps, seed, width, height)
    if path.suffix == ".png":
        *_, last = frames
        save_png(path, last, overwrite=overwrite)
    elif path.suffix in (".gif", ".mp4"):
        save_film(path, list(frames), fps=25, overwrite=overwrite)
    else:
        raise UsageError(f"cannot write '{path.name}': give --out a name in .png, .gif or .mp4")


def sheet(tasks: Sequence[Task], path: Path, *, seed: int, overwrite: bool) -> None:
    """Write one labelled picture per task, five abreast."""
    tiles = []
    for task in tasks:
        (frame,) = film(task, None, 0, seed, 256, 256)
        tiles.append(_labelled(frame, task.label()))
    save_png(path, _side_by_side(tiles, 5), overwrite=overwrite)


def film_sheet(
    tasks: Mapping[str, tuple[Task, AnyPolicy]], path: Path, *, steps: int, seed: int
) -> None:
    """Write the first `steps` of one episode per task, three abreast under their names."""
    # One robot after the other: their OpenGL contexts do not take turns.
    reels = [
        [_labelled(frame, name) for frame in film(task, policy, steps, seed, 240, 180)]
        for name, (task, policy) in tasks.items()
    ]
    longest = max(map(len, reels))
    held = [reel + reel[-1:] * (longest - len(reel)) for reel in reels]
    frames = (_side_by_side(tiles, 3) for tiles in zip(*held, strict=True))
    save_film(path, frames, fps=25, overwrite=True)


def _labelled(frame: Frame, text: str) -> Frame:
    from PIL import Image, ImageDraw, ImageFont

    tile = Image.fromarray(frame)
    size = tile.width
    drawing = ImageDraw.Draw(tile)
    drawing.rectangle((0, 0, size, size // 11), fill="black")
    font = ImageFont.load_default(size=size // 18)
    drawing.text((size // 40, size // 60), text, fill="white", font=font)
    return np.asarray(tile)


def _side_by_side(tiles: Sequence[Frame], columns: int) -> Frame:
    """Tiles of one size in rows, the rest of the last row white."""
    columns = min(columns, len(tiles))
    height, width, _ = tiles[0].shape
    page = np.full((-(-len(tiles) // columns) * height, columns * width, 3), 255, dtype=np.uint8)
    for place, tile in enumerate(tiles):
        top, left = place // columns * height, place % columns * width
        page[top : top + height, left : left + width] = tile
    return page


def save_png(path: Path, frame: Frame, *, overwrite: bool = False) -> None:
    """Write one frame."""
    from PIL import Image

    with new_file(path, overwrite=overwrite) as temporary:
        Image.fromarray(frame).save(temporary, format="PNG", optimize=True)


def save_film(path: Path, frames: Iterable[Frame], fps: int, *, overwrite: bool = False) -> None:
    """Write frames as .gif or .mp4."""
    from PIL import Image

    with new_file(path, overwrite=overwrite) as temporary:
        if path.suffix == ".mp4":
            temporary.write_bytes(_mp4(frames, fps))
        else:
            reel = (Image.fromarray(frame) for frame in frames)
            first, rest = next(reel), reel
            pause = round(1000 / fps)
            first.save(temporary, "GIF", save_all=True, append_images=rest, duration=pause, loop=0)


def _mp4(frames: Iterable[Frame], fps: int) -> bytes:
    try:
        import imageio_ffmpeg
    except ImportError:
        raise MissingInputError(f"mp4 needs ffmpeg: {install('video')}, or write a .gif") from None
    reel = iter(frames)
    first = next(reel)
    height, width, _ = first.shape
    with TemporaryDirectory() as folder:
        film = Path(folder) / "film.mp4"  # ffmpeg tells the format by the name
        writer = imageio_ffmpeg.write_frames(
            str(film), (width, height), fps=fps, macro_block_size=2
        )
        writer.send(None)
        for frame in chain((first,), reel):
            writer.send(np.ascontiguousarray(frame))
        writer.close()
        return film.read_bytes()
