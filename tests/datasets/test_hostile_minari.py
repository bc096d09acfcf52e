"""Minari files that are damaged or mean harm: refused in a line, and never more than data."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import h5py
import minari
import numpy as np
import pytest

from mcat.datasets import export_minari, load
from mcat.errors import DataError, MissingInputError
from tests.datasets.test_interop import (
    DOCS,
    ID,
    make_store,
)

pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning:minari"),
    pytest.mark.usefixtures("minari_root"),
]


def edit_metadata(root, **changes):
    """Change keys of an exported data set's metadata; None removes one."""
    path = root / ID / "data" / "metadata.json"
    described = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({k: v for k, v in described.items() if v is not None}))


MAKE_FOLDER = {
    "id": "x-v0",
    "entry_point": "os:mkdir",
    "kwargs": {"path": "HERE"},
    "additional_wrappers": [],
}
WITHOUT_SPACES = {"observation_space": None, "action_space": None}


@pytest.mark.parametrize(
    "spec",
    [
        MAKE_FOLDER,
        {"id": "mcat_hostile:x-v0", "entry_point": "mcat_hostile:Env"},
        {"id": "x-v0", "entry_point": "subprocess:Popen", "kwargs": {"args": ["touch", "HERE"]}},
        {
            "id": "Pendulum-v1",
            "entry_point": "gymnasium.envs.classic_control.pendulum:PendulumEnv",
            "additional_wrappers": [{"name": "w", "entry_point": "os:mkdir", "kwargs": {}}],
        },
    ],
)
def test_a_hostile_environment_is_inert(spec, minari_root, tmp_path):
    """With the spaces missing, as in the second round, Minari makes the environment to ask it."""
    (tmp_path / "mcat_hostile.py").write_text("open('HERE', 'w')")
    export_minari(make_store(), {}, ID)
    edit_metadata(minari_root, env_spec=json.dumps(spec), eval_env_spec=json.dumps(spec))
    code = "import sys; from mcat.datasets import load; print(len(load(sys.argv[1])[0]))"
    environment = {**os.environ, "PYTHONPATH": f"{DOCS.parents[1]}:{tmp_path}"}

    def run():
        return subprocess.run(
            [sys.executable, "-c", code, ID],
            cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip

    assert run().stdout.split() == ["13"]
    edit_metadata(minari_root, **WITHOUT_SPACES)
    failed = run()
    assert "is not a Box of vectors" in failed.stderr
    assert not (tmp_path / "HERE").exists()


def test_minari_itself_would_have_run_it(minari_root, tmp_path, monkeypatch):
    """Negative control for the test above."""
    monkeypatch.chdir(tmp_path)
    export_minari(make_store(), {}, ID)
    edit_metadata(minari_root, env_spec=json.dumps(MAKE_FOLDER), **WITHOUT_SPACES)
    with pytest.raises(TypeError):  # None is no environment, but the folder is there
        minari.load_dataset(ID)
    assert (tmp_path / "HERE").is_dir()


def spoil_file(root, change):
    with h5py.File(root / ID / "data" / "main_data.hdf5", "r+") as file:
        change(file)


def replace(file, name, make):
    del file[name]
    make(file, name)


def bomb(file, name):
    file.create_dataset(name, shape=(2**40, 27), dtype="f4", chunks=(1, 27))


def three_columns(file, name):
    file.create_dataset(name, data=np.zeros((len(file[name.replace("actions", "rewards")]), 3)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: f.__delitem__("episode_1"), "has no 'episode_1'"),
        (lambda f: f.__delitem__("episode_2/actions"), "has no 'actions'"),
        (lambda f: f.create_group("more"), "has no 'episode_3'"),
        (
            lambda f: replace(
                f, "episode_0", lambda f, n: f.__setitem__(n, h5py.SoftLink("/episode_2"))
            ),
            "is a link to somewhere else",
        ),
        (
            lambda f: replace(
                f,
                "episode_0/actions",
                lambda f, n: f.__setitem__(n, h5py.ExternalLink("secret.h5", "/x")),
            ),
            "is a link to somewhere else",
        ),
        (
            lambda f: replace(f, "episode_0", lambda f, n: f.__setitem__(n, f["episode_2"])),
            "part of two",
        ),
        (lambda f: replace(f, "episode_0/observations", bomb), "far above its size"),
        (
            lambda f: replace(
                f, "episode_0/rewards", lambda f, n: f.create_dataset(n, data=np.zeros(4))
            ),
            "episode 0 has 6 observations for 4 rewards",
        ),
        (
            lambda f: replace(
                f,
                "episode_0/actions",
                lambda f, n: f.create_dataset(n, data=np.zeros((5, 8), "S3")),
            ),
            "has type",
        ),
        (
            lambda f: f["episode_0/actions"].__setitem__((2, 3), np.nan),
            "episode 0, step 2, column 3",
        ),
        (
            lambda f: f["episode_2/terminations"].__setitem__(1, True),
            "terminals: episode 2, step 1 is set",
        ),
        (
            lambda f: [replace(f, f"episode_{i}/actions", three_columns) for i in range(3)],
            "actions have 3 columns, but the space has 8",
        ),
    ],
)
def test_bad_minari_files(change, message, minari_root):
    export_minari(make_store(), {}, ID)
    spoil_file(minari_root, change)
    with pytest.raises(DataError, match=re.escape(message)) as caught:
        load(ID)
    assert "\n" not in str(caught.value)


def test_truncated_minari_files(minari_root):
    export_minari(make_store(), {}, ID)
    path = minari_root / ID / "data" / "main_data.hdf5"
    content = path.read_bytes()
    for size in (0, 100, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:size])
        with pytest.raises(DataError, match="not a readable Minari file"):
            load(ID)
    path.unlink()
    with pytest.raises(MissingInputError, match=r"main_data\.hdf5"):
        load(ID)


# -- load ----------------------------------------------------------------------------------------
