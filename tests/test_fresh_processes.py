"""Equal seeds give equal files in processes that know nothing of each other, wherever they run."""

import hashlib
import json
import os
import subprocess
import sys

import pytest

from mcat.tensor_files import digest, load_safetensors

CALLS = (
    "envs show ant",
    "collect --env hopper --policy random --horizon 20 --steps 60 --seed 3 --out x.h5",
    "dataset info x.h5",
    "dataset check x.h5",
    "dataset export-minari x.h5 --id mcat/hopper/x-v0 --root minari",
    "train --env hopper --horizon 20 --steps 60 --start-steps 40 --seed 1 --out run",
    "collect --env hopper --horizon 20 --steps 40 --policy run/policy-60.safetensors --out y.h5",
)
CODE = """
import os, sys, json, shlex
from mcat.cli import run
codes = [run(shlex.split(call)) for call in json.loads(sys.argv[1])]
assert not any(codes), codes
"""
# Each is hostile in its own way; None removes a variable.
HOSTILE = {
    "C locale": {"LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    "ascii streams": {"PYTHONIOENCODING": "ascii"},
    "no home": {"HOME": "/nonexistent", "XDG_CACHE_HOME": None, "XDG_CONFIG_HOME": None},
    "a home nobody can write to": {"HOME": "/proc"},
    "no home at all": {"HOME": None, "USER": None, "LOGNAME": None},
    "no programs": {"PATH": "/nonexistent"},
    "narrow": {"COLUMNS": "20"},
    "no columns": {"COLUMNS": "0", "LINES": "0"},
    "dumb terminal": {"NO_COLOR": "1", "TERM": "dumb"},
    "another time zone": {"TZ": "Pacific/Kiritimati"},
    "other hashes": {"PYTHONHASHSEED": "7"},
    "two threads asked for": {"OMP_NUM_THREADS": "2"},
}


def made_in(folder, changes):
    """The files that a fresh process makes there, as hashes."""
    folder.mkdir(parents=True)
    env = dict(os.environ)
    for name, value in changes.items():
        env.pop(name, None)
        env |= {} if value is None else {name: value}
    done = subprocess.run(
        [sys.executable, "-c", CODE, json.dumps(CALLS)],
        cwd=folder, env=env, stdin=subprocess.DEVNULL, capture_output=True, check=False,
        start_new_session=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    assert b"Traceback" not in done.stderr
    found = {
        name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in ("x.h5", "y.h5")
    }
    arrays, _ = load_safetensors(folder / "run" / "policy-60.safetensors")
    return found | {"policy": digest(arrays)}


def test_equal_seeds_give_equal_files_also_where_everything_is_hostile_at_once(tmp_path):
    everything = {name: value for one in HOSTILE.values() for name, value in one.items()}
    friendly = made_in(tmp_path / "plain", {"PYTHONHASHSEED": "1"})
    assert made_in(tmp_path / "späces and ünicode 机器人", everything) == friendly


@pytest.mark.slow
def test_equal_seeds_give_equal_files_in_each_hostile_place(tmp_path):
    friendly = made_in(tmp_path / "plain", {})
    for name, changes in HOSTILE.items():
        assert made_in(tmp_path / name / "späces and ünicode 机器人", changes) == friendly, name
