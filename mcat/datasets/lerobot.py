"""LeRobot data sets (format v3.0) of vectors; LeRobot itself is not needed.

    meta/info.json                              sizes, rate, and what each column is
    meta/stats.json                             smallest, largest, mean and deviation of each
    meta/tasks.parquet                          what the robot was to do, in words
    meta/episodes/chunk-000/file-000.parquet    where each episode lies, and its statistics
    data/chunk-000/file-000.parquet             one row per step, whole episodes
    meta/mcat.json                              units and bounds, for which LeRobot has no place

Only info.json, mcat.json and the data files are read: the others say again what is in them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from mcat.datasets.arrays import ends_of, place_of, steps_of
from mcat.datasets.cards import believed
from mcat.datasets.child import read_in_child
from mcat.datasets.episodes import EpisodeStore
from mcat.datasets.exports import require_pyarrow
from mcat.datasets.foreign import assemble
from mcat.datasets.untrusted import Arrays
from mcat.errors import DataError, MissingInputError, printable
from mcat.safe_io import StrPath, io_errors, read_json

VERSION = "v3.0"
MAX_RATE = 1_000_000  # steps a second; what says more is no rate
INFO, CARD = Path("meta", "info.json"), Path("meta", "mcat.json")
# What LeRobot calls our arrays. It has no name for the observation after the last action; its
# policies overlook whatever begins with `next.`.
ARRAYS = {
    "observation.state": "observations",
    "action": "actions",
    "next.observation.state": "next_observations",
    "next.reward": "rewards",
}

_PLACES = {"frame_index", "episode_index", "index", "task_index"}
_ENDS = {"next.done", "next.truncated"}
_DATA_FILE = re.compile(r"chunk-([0-9]{3,9})/file-([0-9]{3,9})\.parquet")


def is_lerobot(folder: StrPath) -> bool:
    """Whether a folder looks like a LeRobot data set, of whatever version."""
    with io_errors(folder, "read"):
        return (Path(folder) / INFO).is_file()


def import_lerobot(folder: StrPath) -> tuple[EpisodeStore, dict[str, Any]]:
    """The episodes and metadata of a LeRobot data set, from `observation.state` and `action`.

    `next.reward` is read if it is there. Without `next.observation.state`, which only `mcat`
    writes, the last step of each episode is left out. Whether an episode was cut off is told by
    `next.done` together with `next.truncated`; without the latter it counts as cut off.

    Raises:
        MissingInputError: if a file is not there.
        DataError: if it is of another version, holds images, or is not complete.
    """
    require_pyarrow(folder)
    root = Path(folder)
    info = _checked_info(root)
    parts = [read_in_child(path, "lerobot", "LeRobot file") for path in _data_files(root)]
    shapes = [{name: values.shape[1:] for name, values in arrays.items()} for arrays, _ in parts]
    if any(shape != shapes[0] for shape in shapes):
        raise DataError(f"{root}: its data files have different columns")
    found = {name: np.concatenate([arrays[name] for arrays, _ in parts]) for name in shapes[0]}
    for name in ("observation.state", "action", "episode_index", "frame_index"):
        if name not in found:
            raise DataError(f"{root}: its data files have no {name}, which mcat needs")
    rows = len(found["episode_index"])
    if rows != info["total_frames"]:
        total = printable(info["total_frames"], 20)
        raise DataError(f"{root}: {rows} steps, but its info.json says {total}: files missing?")
    arrays = _our_arrays(root, found)
    read = _PLACES | set(found) if "terminals" in arrays else (_PLACES | set(found)) - _ENDS
    ignored = [name for name in parts[0][1]["columns"] if name not in read]
    store, metadata = assemble(root, arrays, ignored)
    sizes = {"observation": store.observation_size, "action": store.action_size}
    card = read_json(root / CARD) if (root / CARD).is_file() else None
    names = _names(info, sizes) | believed(card, (store.observation_size, store.action_size))
    return store, metadata | names | {"rate_hz": float(info["fps"])}


def _names(info: Mapping[str, Any], sizes: Mapping[str, int]) -> dict[str, list[str]]:
    """What a set calls the numbers of its vectors: a list, or lists under names of groups."""
    found = {}
    for kind, feature in (("observation", "observation.state"), ("action", "action")):
        names = info["features"].get(feature, {}).get("names")
        groups = list(names.values()) if isinstance(names, dict) else [names]
        flat = [name for group in groups if isinstance(group, list) for name in group]
        numbers = [f"{kind[:3]}_{n}" for n in range(len(flat))]  # as we write it: no names at all
        texts = all(isinstance(name, str) for name in flat)
        if len(flat) == sizes[kind] and texts and flat != numbers:
            found[f"{kind}_names"] = [printable(name, 60) for name in flat]
    return found


def _checked_info(root: Path) -> dict[str, Any]:
    info = read_json(root / INFO)
    try:
        version, features = str(info["codebase_version"]), dict(info["features"])
        cameras = [n for n, feature in features.items() if feature["dtype"] in ("image", "video")]
        whole = isinstance(info["total_frames"], int) and 0 < float(info["fps"]) <= MAX_RATE
    except (KeyError, TypeError, ValueError, AttributeError):
        whole = False
    if not whole:
        raise DataError(f"{root / INFO}: not what LeRobot writes")
    if not version.startswith("v3."):
        raise DataError(
            f"{root}: LeRobot's format {printable(version, 20)}, mcat reads {VERSION}: convert it"
            " with LeRobot"
        )
    if cameras:
        raise DataError(
            f"{root}: holds images ({printable(cameras[0], 60)}), mcat learns from vectors: leave"
            " them out"
        )
    return dict(info)


def _data_files(root: Path) -> list[Path]:
    """In order; the names that info.json gives them are not believed."""
    with io_errors(root, "read"):
        paths = list((root / "data").glob("chunk-*/file-*.parquet"))
    numbered = []
    for path in paths:
        if match := _DATA_FILE.fullmatch(path.relative_to(root / "data").as_posix()):
            numbered.append((int(match[1]), int(match[2]), path))
    if not numbered:
        raise MissingInputError(f"{root} has no data files (data/chunk-000/file-000.parquet)")
    return [path for _, _, path in sorted(numbered)]


def _our_arrays(root: Path, found: Arrays) -> Arrays:
    episode, frame = found["episode_index"], found["frame_index"]
    ends = ends_of(episode)
    wrong = np.flatnonzero(frame != steps_of(ends))
    if len(wrong):
        place, there = place_of(int(wrong[0]), ends), frame[wrong[0]]
        raise DataError(f"{root}: {place} has the frame_index {there}: steps missing or moved?")
    arrays = {array: found[name] for name, array in ARRAYS.items() if name in found}
    if "timestamp" in found:
        arrays["timestamp"] = found["timestamp"]
    if set(found) >= _ENDS:
        done, cut = (found[name].astype(np.bool_) for name in ("next.done", "next.truncated"))
        arrays |= {"terminals": done & ~cut, "timeouts": cut}
    return arrays | {"episode_ends": ends}
