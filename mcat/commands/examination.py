"""What `mcat doctor` finds out about the machine it runs on."""

from __future__ import annotations

import fcntl
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import mcat
from mcat.errors import install, printable

PATIENCE = 120  # seconds for a child: the first import of torch on a network disk takes long
LITTLE_SPACE = 1e9
_SIMULATION = "collect, train, metatrain, evaluate, render, reproduce, adapt --env|--live"
_ALL = "pip install -e . in mcat's folder"


State = Literal["ok", "missing", "broken"]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing about the machine."""

    name: str  # what was looked at
    state: State  # "ok"; "missing": what `needed_for` names does not work; "broken": nothing does
    found: str  # its version, or what was seen
    needed_for: str = ""  # the commands that use it
    advice: str = ""  # what to do about it; empty if nothing is wrong


@dataclass(frozen=True)
class Package:
    """A package by its name on PyPI and its module, for which commands, and how to get it."""

    name: str
    module: str
    needed_for: str
    advice: str
    always: bool = False


PACKAGES = (
    *(Package(name, name, "all commands", _ALL, always=True)
      for name in ("numpy", "torch", "h5py", "safetensors", "click", "rich")),
    *(Package(name, name, _SIMULATION, _ALL) for name in ("mujoco", "gymnasium")),
    Package("metaworld", "metaworld", "tasks of Meta-World", _ALL),
    Package("scipy", "scipy", "sweep report, Meta-World", _ALL),
    Package("matplotlib", "matplotlib", "plot; pictures in reports", install("plot")),
    Package("scikit-learn", "sklearn", "pictures of contexts in reports", install("plot")),
    Package("tensorboard", "tensorboard", "curves in TensorBoard", install("log")),
    Package("pyarrow", "pyarrow", "Parquet and LeRobot data sets", install("parquet")),
    Package("onnx", "onnx", "export onnx, policies in .onnx", install("onnx")),
    Package("onnxruntime", "onnxruntime", "export onnx, policies in .onnx", install("onnx")),
    Package("imageio", "imageio", "render to .gif and .mp4", install("video")),
    Package("imageio-ffmpeg", "imageio_ffmpeg", "render to .mp4", install("video")),
    Package("ray", "ray", "sweep run --engine ray", install("ray")),
)  # fmt: skip

# Says the name of each module before and after it is imported: a crash is then known by its name.
_IMPORT = """
import importlib, sys
for name in sys.argv[1:]:
    print("try", name, flush=True)
    try:
        importlib.import_module(name)
    except BaseException as error:
        print("bad", name, type(error).__name__, " ".join(str(error).split())[:200], flush=True)
    else:
        print("good", name, flush=True)
"""
_DRAW = """
import os
from mcat.envs import backend
backend.choose()
import mujoco
model = mujoco.MjModel.from_xml_string("<mujoco><worldbody><geom size='.1'/></worldbody></mujoco>")
data = mujoco.MjData(model)
mujoco.mj_forward(model, data)
with mujoco.Renderer(model, 16, 16) as renderer:
    renderer.update_scene(data)
    assert renderer.render().shape == (16, 16, 3)
print("drawn by", os.environ.get("MUJOCO_GL", "the screen"))
"""


def examine(folder: Path) -> list[Finding]:
    """Everything that `mcat doctor` looks at."""
    where = Path(mcat.__file__).parent
    return [
        _python(),
        Finding(name="mcat", state="ok", found=f"{mcat.__version__} in {where}"),
        *_packages(),
        _drawing(),
        _cores(),
        *_place(folder),
        _slurm(),
    ]  # fmt: skip


def _python() -> Finding:
    good = (3, 11) <= sys.version_info[:2] < (3, 14)
    return Finding(
        name="python",
        state="ok" if good else "broken",
        found=f"{platform.python_version()} on {platform.platform()}",
        needed_for="all commands",
        advice="" if good else "use Python 3.11 to 3.13",
    )


def _packages() -> list[Finding]:
    there = [package.module for package in PACKAGES if find_spec(package.module) is not None]
    failed = _failed_imports(there)
    findings = []
    for package in PACKAGES:
        state: State = "broken" if package.always else "missing"
        found, advice = "not installed", package.advice
        if package.module in failed:
            found = f"cannot be imported: {printable(failed[package.module], 150)}"
        elif package.module in there:
            state, found, advice = "ok", _version(package.name), ""
        findings.append(
            Finding(
                name=package.name,
                state=state,
                found=found,
                needed_for=package.needed_for,
                advice=advice,
            )
        )
    return findings


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "of unknown version"


def _failed_imports(modules: Sequence[str]) -> dict[str, str]:
    """What cannot be imported and why; a crash ends one child, and another goes on after it."""
    failed: dict[str, str] = {}
    left = list(modules)
    while left:
        code, out, _ = _child(_IMPORT, *left)
        lines = [line.split(maxsplit=2) for line in out.splitlines()]
        done = [line[1] for line in lines if line[0] in ("good", "bad")]
        failed |= {line[1]: " ".join(line[2:]) for line in lines if line[0] == "bad"}
        crashed = [name for name in left if name not in done][:1]
        failed |= dict.fromkeys(crashed, f"its import ended Python ({code})")
        left = [name for name in left if name not in done and name not in crashed]
    return failed


def _child(program: str, *arguments: str) -> tuple[int | str, str, str]:
    """A child's exit code (or that it took too long) and what it printed."""
    path = os.pathsep.join([str(Path(mcat.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    try:
        done = subprocess.run(
            [sys.executable, "-c", program, *arguments],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PATIENCE,
            stdin=subprocess.DEVNULL,
            env=os.environ | {"PYTHONPATH": path.rstrip(os.pathsep)},
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        out = late.stdout or b""
        text = out.decode(errors="replace") if isinstance(out, bytes) else out
        return f"more than {PATIENCE} s", text, ""
    return done.returncode, done.stdout, done.stderr


def _drawing() -> Finding:
    if find_spec("mujoco") is None:
        found = "not looked at: mujoco, which draws, is not installed"
        return Finding(name="OpenGL", state="missing", found=found, needed_for="render, --video")
    code, out, err = _child(_DRAW)
    if code == 0:
        return Finding(name="OpenGL", state="ok", found=out.strip(), needed_for="render, --video")
    reason = (err.strip().splitlines() or [f"the test ended with {code}"])[-1]
    given = os.environ.get("MUJOCO_GL")
    return Finding(
        name="OpenGL",
        state="missing",
        found=printable(reason, 150) + (f" (MUJOCO_GL={given})" if given else ""),
        needed_for="render, --video",
        advice="apt-get install libosmesa6 (or libegl1), then MUJOCO_GL=osmesa (or egl)",
    )


def _cores() -> Finding:
    all_cores = os.cpu_count() or 1
    ours = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else all_cores
    load, threads = os.getloadavg()[0], os.environ.get("OMP_NUM_THREADS", "unset")
    return Finding(
        name="cores",
        state="ok",
        found=f"{ours} of {all_cores}, {load:.1f} busy; OMP_NUM_THREADS {threads}",
        needed_for="--workers, --threads",
    )


def _place(folder: Path) -> list[Finding]:
    """Whether results can be written to a folder, and be safe there from another process."""
    name = f"folder {folder.resolve()}"
    try:
        with tempfile.TemporaryDirectory(dir=folder, prefix=".mcat-doctor-") as probe:
            locks = _locks(Path(probe))
        free = shutil.disk_usage(folder).free
    except OSError as error:
        advice = "choose another by --at, or make it writable"
        found = f"cannot be written: {error.strerror or error}"
        return [Finding(name=name, state="broken", found=found, needed_for="all results",
                        advice=advice)]  # fmt: skip
    little = free < LITTLE_SPACE
    space = Finding(
        name=name,
        state="ok",
        found=f"{free / 1e9:,.1f} GB free",
        needed_for="all results",
        advice="little: make room before long runs" if little else "",
    )
    return [space, locks]


def _locks(folder: Path) -> Finding:
    """Tries a lock against another process, and a link, which leases are made of."""
    path = folder / "lock"
    path.touch()
    program = (
        "import fcntl, sys\n"
        "try: fcntl.flock(open(sys.argv[1]), fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
        "except BlockingIOError: print('held')"
    )
    try:
        with path.open() as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            held = _child(program, str(path))[1].strip() == "held"
    except OSError:
        held = False
    try:
        os.link(path, folder / "link")
        links = True
    except OSError:
        links = False
    kinds = {"file locks": held, "hard links": links}
    good = [kind for kind, works in kinds.items() if works]
    return Finding(
        name="locks",
        state="ok" if good else "missing",
        found=" and ".join(good) or "neither file locks nor hard links",
        needed_for="two processes in one folder, sweeps",
        advice="" if good else "start one process at a time here, or use another disk",
    )


def _slurm() -> Finding:
    job = os.environ.get("SLURM_JOB_ID")
    sbatch = shutil.which("sbatch")
    found = sbatch or "no sbatch in PATH"
    return Finding(
        name="slurm",
        state="ok" if sbatch else "missing",
        found=f"{found}; in job {job}" if job else found,
        needed_for="sweep run --engine slurm",
        advice="" if sbatch else "run it on a node of a cluster, if you have one",
    )
