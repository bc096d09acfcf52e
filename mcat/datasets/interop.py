"""Minari data sets in and out, and `load`, which takes any source a command is given."""

from __future__ import annotations

import copy
import io
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mcat import __version__
from mcat.datasets.arrays import place_of
from mcat.datasets.checks import gaps
from mcat.datasets.child import read_in_child
from mcat.datasets.episodes import EpisodeStore
from mcat.datasets.foreign import assemble_arrays
from mcat.datasets.hdf5 import facts, read_dataset
from mcat.datasets.lerobot import import_lerobot, is_lerobot
from mcat.datasets.tables import read_csv, read_parquet
from mcat.datasets.views import Episodes
from mcat.envs.tasks import Task
from mcat.errors import (
    CannotCreateError,
    DataError,
    MissingInputError,
    UsageError,
    printable,
)
from mcat.safe_io import StrPath, new_file, read_json, write_json
from mcat.workplaces import new_folder

MINARI_VERSION = "0.5.0"  # of the layout below; Minari 0.5.0 and later read it

_ID = re.compile(r"([\w-]+/)*[\w-]+-v\d+", re.ASCII)


def load(source: StrPath, *, trust_seal: bool = True) -> tuple[EpisodeStore, dict[str, Any]]:
    """The episodes and metadata of any source: what every command calls.

    `metadata["action_range"]` is the smallest and the largest action, whatever the file says.

    Args:
        source: A file of mcat or D4RL (.h5, .hdf5), a log (.csv, .csv.gz, .parquet, .npz), or the
            folder or the id of a Minari data set, or the folder of a LeRobot data set.
        trust_seal: False parses even sealed files in a child process; see `read_dataset`.
    """
    store, metadata = _read(source, trust_seal=trust_seal)
    actions = store.actions
    return store, metadata | {"action_range": [float(actions.min()), float(actions.max())]}


def _read(source: StrPath, *, trust_seal: bool) -> tuple[EpisodeStore, dict[str, Any]]:
    path = Path(source)
    if is_lerobot(path):
        return import_lerobot(path)
    if path.is_dir() or (_ID.fullmatch(str(source)) and not path.exists()):
        return import_minari(source)
    if not path.exists():
        raise MissingInputError(f"{path} does not exist: name a file, a Minari folder or id")
    name = path.name.lower()
    if name.endswith((".h5", ".hdf5")):
        return read_dataset(path, trust_seal=trust_seal)
    for suffix, read in LOGS.items():
        if name.endswith(suffix):
            return read(path)
    known = ", ".join((".h5", ".hdf5", *LOGS))
    raise UsageError(f"{path}: cannot tell its format, name it {known}")


def read_npz(path: StrPath) -> tuple[EpisodeStore, dict[str, Any]]:
    """A log that `np.savez` wrote, under the names of `EpisodeStore.from_arrays`."""
    arrays, notes = read_in_child(path, "npz", "NumPy archive")
    return assemble_arrays(path, arrays, notes["ignored"])


LOGS = {".csv": read_csv, ".csv.gz": read_csv, ".parquet": read_parquet, ".npz": read_npz}
"""What reads a log, by the end of its name."""


def import_minari(
    source: StrPath, *, root: StrPath | None = None
) -> tuple[EpisodeStore, dict[str, Any]]:
    """The episodes and metadata of a Minari data set with vector (Box) spaces.

    Minari itself is not needed. The environment that the data set names is never made: such a
    description is code.

    Args:
        source: An id, such as `mujoco/hopper/expert-v0`, or a data set's folder.
        root: Where ids are looked up; `MINARI_DATASETS_PATH` or Minari's default if missing.
    """
    folder = _minari_folder(source, root)
    described = read_json(folder / "metadata.json")
    if not isinstance(described, dict) or described.get("data_format", "hdf5") != "hdf5":
        raise DataError(f"{folder}: not a Minari data set in HDF5")
    spaces = {name: _box(folder, described, name) for name in ("observation", "action")}
    path = folder / "main_data.hdf5"
    arrays, _ = read_in_child(path, "minari", "Minari file")
    try:
        store = _from_minari(arrays)
    except DataError as error:
        raise DataError(f"{path}: {error}") from None
    for name, size in (("observation", store.observation_size), ("action", store.action_size)):
        if spaces[name].shape[1] != size:
            raise DataError(
                f"{path}: {name}s have {size} columns, but the space has {spaces[name].shape[1]}"
            )
    return store, _imported_metadata(store, described, spaces["action"])


def export_minari(
    store: Episodes,
    metadata: Mapping[str, Any],
    dataset_id: str,
    *,
    root: StrPath | None = None,
    overwrite: bool = False,
) -> Path:
    """Write a data set that Minari loads; Minari itself is not needed.

    If `metadata["task"]` is there, Minari's `recover_environment()` makes that task.

    Args:
        store: The episodes.
        metadata: What `read_dataset` gave; it comes back through `import_minari`.
        dataset_id: Such as `mcat/ant/cripple3-v0`.
        root: Minari's folder; `MINARI_DATASETS_PATH` or its default if missing.
        overwrite: Replace a data set of this id.

    Returns:
        The folder of the data set.
    """
    namespace = dataset_id.rpartition("/")[0]
    if not _ID.fullmatch(dataset_id) or len(namespace) == 1:
        raise UsageError(
            f"'{dataset_id}' is not a Minari id: write it as namespace/name-v0, the namespace with"
            " two letters at least"
        )
    _require_continuity(store)
    content = _minari_file(store)
    described = _minari_metadata(store, metadata, dataset_id, len(content.getbuffer()))
    final = _minari_root(root) / dataset_id
    if overwrite and final.is_dir() and not (final / "data" / "metadata.json").is_file():
        raise CannotCreateError(f"{final} is no Minari data set and will not be replaced")
    with new_folder(final, overwrite=overwrite) as folder:
        (folder / "data").mkdir()
        with new_file(folder / "data" / "main_data.hdf5") as part:
            part.write_bytes(content.getbuffer())
        write_json(folder / "data" / "metadata.json", described)
    return final


def _minari_root(root: StrPath | None) -> Path:
    default = os.environ.get("MINARI_DATASETS_PATH") or "~/.minari/datasets"
    return Path(root or default).expanduser()


def _minari_folder(source: StrPath, root: StrPath | None) -> Path:
    """The folder with a data set's two files."""
    path = Path(source)
    if path.is_dir():
        tried = [path / "data", path]
    elif _ID.fullmatch(str(source)):
        tried = [_minari_root(root) / source / "data"]
    else:
        raise MissingInputError(f"{source} is neither a folder nor a Minari id like name-v0")
    for folder in tried:
        if (folder / "metadata.json").is_file():
            return folder
    raise MissingInputError(
        f"no Minari data set in {tried[0]}: see `minari list local`, get it by `minari download`"
    )


def _box(folder: Path, described: Mapping[str, Any], name: str) -> NDArray[np.float64]:
    """Low and high of a Box space of vectors, `(2, size)`."""
    text = described.get(f"{name}_space")
    space: Any = None
    try:
        space = json.loads(text) if isinstance(text, str) else None  # with Infinity, unlike ours
        if space["type"] == "Box":
            bounds = np.array([space["low"], space["high"]], dtype=np.float64)
            if bounds.ndim == 2:
                return bounds
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        pass
    kind = printable(space.get("type") if isinstance(space, dict) else None, 40)
    raise DataError(
        f"{folder}: its {name} space ({kind}) is not a Box of vectors, which mcat needs"
    )


def _from_minari(arrays: Mapping[str, NDArray[Any]]) -> EpisodeStore:
    """Minari keeps one more observation than steps in every episode."""
    lengths = arrays["lengths"]
    last = np.cumsum(lengths + 1) - 1
    observations = arrays["observations"]
    ends = np.cumsum(lengths)
    return EpisodeStore.from_arrays(
        observations=np.delete(observations, last, axis=0),
        next_observations=np.delete(observations, last - lengths, axis=0),
        actions=arrays["actions"],
        rewards=arrays["rewards"],
        terminals=arrays["terminations"],
        timeouts=arrays["truncations"],
        episode_ends=ends,
    )


def _imported_metadata(
    store: EpisodeStore, described: Mapping[str, Any], actions: NDArray[np.float64]
) -> dict[str, Any]:
    """What we once exported, with everything that can be known from the data set itself renewed."""
    exported = described.get("mcat")
    metadata = dict(exported) if isinstance(exported, dict) else {}
    metadata |= {"minari_id": str(described.get("dataset_id"))} | facts(store)
    for side, bounds in zip(("action_low", "action_high"), actions.tolist(), strict=True):
        metadata.pop(side, None)
        if np.isfinite(actions).all():
            metadata[side] = bounds
    return metadata


def _require_continuity(store: Episodes) -> None:
    broken = gaps(store)
    if broken.any():
        place = place_of(int(np.argmax(broken)), store.episode_ends)
        raise DataError(
            f"{place} is not continued by the next row: Minari cannot hold such an episode"
        )


def _minari_file(store: Episodes) -> io.BytesIO:
    """Minari's HDF5 file, made in memory: h5py does not survive a full disk."""
    import h5py

    content = io.BytesIO()
    with h5py.File(content, "w", track_order=True) as file:
        for number in range(store.num_episodes):
            rows = store.episode(number)
            group = file.create_group(f"episode_{number}")
            group.attrs["id"] = number
            group.attrs["total_steps"] = len(rows["rewards"])
            columns = {
                "observations": np.concatenate(
                    [rows["observations"], rows["next_observations"][-1:]]
                ),
                "actions": rows["actions"],
                "rewards": rows["rewards"].astype(np.float64),
                "terminations": rows["terminals"],
                "truncations": rows["timeouts"],
            }
            for name, values in columns.items():
                shape = (None, *values.shape[1:])  # as Minari does, which may extend an episode
                group.create_dataset(name, data=values, chunks=True, maxshape=shape)
            group.create_group("infos")  # without it Minari cannot print an episode
    return content


def _minari_metadata(
    store: Episodes, metadata: Mapping[str, Any], dataset_id: str, size: int
) -> dict[str, Any]:
    described = {
        "total_episodes": store.num_episodes,
        "total_steps": len(store),
        "data_format": "hdf5",
        "dataset_id": dataset_id,
        "minari_version": MINARI_VERSION,
        "dataset_size": round(size / 1e6, 1),
        "observation_space": _space(store.observation_size),
        "action_space": _space(
            store.action_size, metadata.get("action_low"), metadata.get("action_high")
        ),
        "description": "Exported by mcat.",
        "requirements": [f"mcat>={__version__}"],
        "mcat": {name: value for name, value in metadata.items() if name not in facts(store)},
    }
    if metadata.get("task") is not None:
        described["env_spec"] = _env_spec(_task_of(store, metadata["task"]))
    return described


def _task_of(store: Episodes, description: Any) -> Task:
    try:
        task = Task.from_dict(description)
    except (ValueError, TypeError, AttributeError) as error:
        raise DataError(f"its task is none of mcat's ({printable(error)})") from error
    sizes = task.spec.observation_size, task.spec.action_size
    if sizes != (store.observation_size, store.action_size):
        raise DataError(
            f"the episodes have {store.observation_size} observations and {store.action_size}"
            f" actions, their task {task.label()} has {sizes[0]} and {sizes[1]}: leave 'task' out"
            " of the metadata, or name the right one"
        )
    return task


def _space(size: int, low: Any = None, high: Any = None) -> str:
    space = {
        "type": "Box",
        "dtype": "float32",
        "shape": [size],
        "low": [-np.inf] * size if low is None else list(low),
        "high": [np.inf] * size if high is None else list(high),
    }
    return json.dumps(space)


def _env_spec(task: Task) -> str:
    """Gymnasium's description of a task, from our own registration and checked values only."""
    import gymnasium as gym

    if not task.own:  # its wrappers are part of the description
        env = task.make()
        assert env.spec is not None
        text = env.spec.to_json()
        env.close()
        return text
    spec = copy.deepcopy(gym.spec(task.spec.env_id))
    spec.kwargs = {**spec.kwargs, **task.kwargs()}
    return spec.to_json()
