"""`mcat doctor`, on this machine and on ones where something is missing, broken or crashes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

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


def test_without_simulators_logs_are_imported_and_collect_says_what_is_missing(tmp_path):
    """The commands that a robot needs, where no simulator can be imported."""
    (tmp_path / "log.csv").write_text("q,tau\n" + "".join(f"{k},{k % 3 - 1}\n" for k in range(9)))
    blocker = (
        "import sys\n"
        "class Blocked:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in ('mujoco', 'metaworld', 'gymnasium', 'scipy'):\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Blocked())\n"
        "from mcat.cli import run\n"
        "assert run('dataset import log.csv --obs q --act tau --out log.h5'.split()) == 0\n"
        "assert run(['dataset', 'check', 'log.h5']) == 65  # too short, not missing\n"
        "sys.exit(run('collect --env ant --steps 10 --policy random'.split()))\n"
    )
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", blocker], cwd=tmp_path, env=env, capture_output=True, text=True
    )
    assert done.returncode == 66, done.stderr
    last = done.stderr.splitlines()[-1]
    assert re.fullmatch(r"error: this needs \w+, which is not installed: see mcat doctor", last)
