"""The same seed gives the same numbers, to the bit, after code was moved about.

The numbers were recorded on one machine; another processor or library rounds otherwise, and there
nothing can be said. A change that is meant to change them records them anew:

    RECORD=1 python -m pytest -m "slow or not slow" tests/test_same_numbers.py
"""

import csv
import json
import os
import platform
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest
import torch

from mcat.cli import run
from mcat.tensor_files import digest, load_safetensors

RECORDED = Path(__file__).with_suffix(".json")
CPU = Path("/proc/cpuinfo")


def machine() -> dict[str, str]:
    """All that decides how numbers are rounded."""
    model = next((line for line in CPU.read_text().splitlines() if "model name" in line), "")
    return {
        "processor": model.partition(": ")[2] or platform.machine(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        **{m.__name__: m.__version__ for m in (torch, np, mujoco)},
    }


def expect(name: str, numbers: Any) -> None:
    recorded = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    if os.environ.get("RECORD"):
        if recorded.get("machine") != machine():
            recorded = {"machine": machine()}
        RECORDED.write_text(json.dumps(recorded | {name: numbers}, indent=1) + "\n")
    elif recorded["machine"] != machine():
        pytest.skip(f"recorded on another machine: {recorded['machine']}")
    else:
        assert numbers == recorded[name]


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_metatrain_gives_the_numbers_it_gave(tmp_path):
    out = tmp_path / "run"
    assert run(f"metatrain --preset smoke --seed 3 --threads 1 --quiet --out {out}".split()) == 0
    with (out / "metrics.csv").open() as file:
        rows = [
            {key: value for key, value in row.items() if not key.startswith(("time/", "charts/"))}
            for row in csv.DictReader(file)
        ]
    policy, _ = load_safetensors(out / "policy.safetensors")
    expect("metatrain", {"rows": rows, "policy": digest(policy)})


@pytest.mark.slow
def test_reproduce_gives_the_numbers_it_gave(tmp_path):
    out = tmp_path / "out"
    small = "--preset smoke --row halfcheetah --method ours --method cycle --seeds 0 --episodes 2"
    command = f"reproduce table1 {small} --work {tmp_path / 'work'} --out {out}"
    assert run(command.split()) == 0
    rows = json.loads((out / "table1.json").read_text())["rows"]
    for row in rows:
        for cell in row["cells"].values():
            assert cell.pop("seeds") == [0]
    expect("reproduce", [row["cells"] for row in rows])
