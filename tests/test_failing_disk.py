"""A disk that fails for good in the middle of the work: one line, the right code, nothing lost."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mcat.tensor_files import load_safetensors

HERE = Path(__file__).parent
COLLECT = "collect --env hopper --horizon 20 --policy random --steps 800 --workers 1 --out {}"
METATRAIN = "metatrain --family halfcheetah-armature --preset smoke --quiet"


@pytest.fixture(scope="module")
def shim(tmp_path_factory):
    """The library that makes file calls fail."""
    if not (compiler := shutil.which("gcc")):
        pytest.skip("no gcc to build the failing disk with")
    library = tmp_path_factory.mktemp("shim") / "failing_disk.so"
    source = HERE / "failing_disk.c"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    return library


def faults(shim, folder, points, command, again):
    """What became of the command with the disk failing from different calls on."""
    folder.mkdir()
    call = [sys.executable, "-m", "tests.failing_disk", str(folder), str(points)]
    done = subprocess.run(
        [*call, *command.split(), "--", *again.split()],
        env=os.environ | {"LD_PRELOAD": str(shim), "PYTHONPATH": str(HERE.parent)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    found = [json.loads(line) for line in done.stdout.splitlines()]
    for fault in found:
        lines = fault["said"].splitlines()
        assert "Traceback" not in fault["said"], fault
        late = fault["code"] == 0 and fault["there"]  # all was written, only tidying up failed
        assert fault["code"] in (73, 74) or late, fault
        assert sum(line.startswith("error: ") for line in lines) == (fault["code"] != 0), fault
        assert len(lines) <= 2 or fault["code"] == 0, fault  # the progress, the error
    return found


def check_collect(shim, tmp_path, points):
    found = faults(shim, tmp_path / "disk", points, COLLECT, f"{COLLECT} --resume")
    clean = (tmp_path / "disk/clean.h5").read_bytes()
    for fault in found:
        assert fault["resumed"] == 0, fault
        assert Path(fault["out"]).read_bytes() == clean
    assert sorted(path.name for path in (tmp_path / "disk").iterdir()) == sorted(
        ["clean.h5", *(Path(fault["out"]).name for fault in found)]
    )
    return len(found)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_collect_on_a_disk_that_fails_for_good_at_every_call(shim, tmp_path):
    assert check_collect(shim, tmp_path, 1000) > 100


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_metatrain_on_a_disk_that_fails_for_good(shim, tmp_path):
    found = faults(
        shim, tmp_path / "disk", 12, f"{METATRAIN} --out {{}}", "metatrain --quiet --resume {}"
    )
    assert len(found) == 24
    clean, _ = load_safetensors(tmp_path / "disk/clean.h5/policy.safetensors")
    for fault in found:
        assert fault["resumed"] == 0 or "steps already" in fault["error"], fault
        policy, _ = load_safetensors(Path(fault["out"]) / "policy.safetensors")
        assert all(np.array_equal(policy[name], clean[name]) for name in clean)
        assert not list(Path(fault["out"]).rglob(".*.part*"))
