"""`mcat doctor`, on this machine and on ones where something is missing, broken or crashes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
import torch

from mcat.cli import run
from mcat.commands import examination
from mcat.commands.examination import Package

ROOT = Path(__file__).parents[1]
NUMPY = Package("numpy", "numpy", "all commands", "install", always=True)


@pytest.fixture
def modules(tmp_path, monkeypatch):
    """A folder in which modules are found first, here and in children."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "refusing.py").write_text("raise ImportError('no libgomp')")
    (tmp_path / "crashing.py").write_text("import os; os.abort()")
    return tmp_path


def examined(monkeypatch, capsys, *packages, at="."):
    monkeypatch.setattr(examination, "PACKAGES", packages)
    code = run(["doctor", "--json", "--at", str(at)])
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    return code, {item["name"]: item for item in json.loads(out)}, err


def test_a_machine_that_lacks_something_is_well(modules, monkeypatch, capsys):
    optional = [Package(name, name, f"{name} things", f"get {name}")
                for name in ("unicorn", "refusing", "crashing")]  # fmt: skip
    code, found, _ = examined(monkeypatch, capsys, *optional, NUMPY, at=modules)
    assert code == 0
    assert found["unicorn"]["state"] == "missing"
    assert found["unicorn"]["advice"] == "get unicorn"
    assert found["refusing"]["state"] == "missing"
    assert "no libgomp" in found["refusing"]["found"]
    assert "ended Python (-6)" in found["crashing"]["found"]
    assert found["numpy"]["state"] == "ok"  # though imported after the crash
    assert re.fullmatch(r"\d+\.\d+.*", found["numpy"]["found"])
    assert found["locks"]["found"] == "file locks and hard links"
    assert "GB free" in found[f"folder {modules.resolve()}"]["found"]
    assert {"python", "mcat", "OpenGL", "cores", "slurm"} <= found.keys()
    assert sorted(path.name for path in modules.iterdir() if path.suffix) == [
        "crashing.py", "refusing.py",
    ]  # fmt: skip


def test_one_that_lacks_what_all_need_is_not(modules, monkeypatch, capsys):
    needed = Package("refusing", "refusing", "all commands", "get it", always=True)
    code, found, err = examined(monkeypatch, capsys, needed, at=modules / "nowhere")
    assert code == 1
    assert found["refusing"]["state"] == "broken"
    assert found[f"folder {modules.resolve() / 'nowhere'}"]["state"] == "broken"
    assert err.startswith("error: 2 things broken: refusing, folder")


def test_a_screen_that_is_not_there_is_told(modules, monkeypatch, capsys):
    monkeypatch.setenv("MUJOCO_GL", "nonsense")
    code, found, _ = examined(monkeypatch, capsys, at=modules)
    assert code == 0
    assert found["OpenGL"]["state"] == "missing"
    assert "nonsense" in found["OpenGL"]["found"]


def test_every_dependency_is_looked_at():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *extras["plot"], *extras["log"], *extras["parquet"],
              *extras["onnx"], *extras["ray"]]  # fmt: skip
    names = {re.match(r"[\w-]+", line)[0] for line in wanted}
    assert names <= {package.name for package in examination.PACKAGES}


def test_the_robot_gets_all_but_the_simulators():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    simulators = ("gymnasium", "mujoco", "metaworld", "scipy")
    needed = [line for line in project["dependencies"] if not line.startswith(simulators)]
    listed = (ROOT / "requirements-robot.txt").read_text().splitlines()
    listed = [line for line in listed if not line.startswith("#")]
    assert sorted(listed) == sorted(needed + project["optional-dependencies"]["onnx"])


WITHOUT_SIMULATORS = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split('.')[0] in ('mujoco', 'metaworld', 'gymnasium', 'scipy', 'matplotlib'):
            raise ModuleNotFoundError(f'No module named {name!r}', name=name)

sys.meta_path.insert(0, Blocked())
from mcat.cli import run

for command in open("commands").read().splitlines():
    assert run(command.split()) == 0, command
sys.exit(run('collect --env ant --steps 10 --policy random'.split()))
"""
SMALL = "--quiet --offline-updates 5 --set learner.hidden=8,8 --set batch_size=8"
ON_THE_ROBOT = f"""dataset import a.csv --obs q --act tau --episode run --reward r --out a.h5
dataset import b.csv --obs q --act tau --episode run --reward r --bounds tau=2 --out b.h5
dataset check a.h5 b.h5
translate --src a.h5 --tgt b.h5 --preset smoke --quiet --out a-to-b
policies import agent.pt --out own.safetensors
adapt --logs b.h5 --translator a-to-b --policy own.safetensors {SMALL} --out adapted
export onnx own.safetensors --translator a-to-b --out b.onnx
export onnx adapted --out adapted.onnx
"""


def test_without_simulators_logs_become_a_policy_and_collect_says_what_is_missing(tmp_path):
    """The commands that a robot needs, where no simulator can be imported."""
    for name, gain, largest in (("a", 1.0, 1.0), ("b", 0.3, 2.0)):
        rng = np.random.default_rng(0)
        lines = ["run,q,tau,r"]
        for run_number in range(12):
            state = rng.normal()
            for action in rng.uniform(-largest, largest, 20):
                lines.append(f"{run_number},{state},{action},{-abs(state)}")
                state = 0.8 * state + gain * action
        (tmp_path / f"{name}.csv").write_text("\n".join(lines) + "\n")
    actor = {"actor_mean.0.weight": torch.ones(1, 1), "actor_mean.0.bias": torch.zeros(1)}
    torch.save({**actor, "actor_logstd": torch.zeros(1, 1)}, tmp_path / "agent.pt")
    (tmp_path / "commands").write_text(ON_THE_ROBOT)
    env = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_SIMULATORS], cwd=tmp_path, env=env, capture_output=True,
        text=True,
    )  # fmt: skip
    assert "AssertionError" not in done.stderr, done.stderr
    assert done.returncode == 66, done.stderr
    last = done.stderr.splitlines()[-1]
    assert re.fullmatch(r"error: this needs \w+, which is not installed: see mcat doctor", last)
