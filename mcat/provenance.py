"""Who made a file and with what: command, commit, versions, machine."""

from __future__ import annotations

import importlib.metadata
import platform
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mcat
from mcat.config import differences
from mcat.progress import Notify

_PACKAGES = ("torch", "numpy", "mujoco", "gymnasium", "metaworld")


def provenance() -> dict[str, Any]:
    """Who made a file and with what: command, commit, versions, machine."""
    program = Path(sys.argv[0]).name.replace("__main__.py", "mcat")  # `python -m mcat` is `mcat`
    return {
        "command": shlex.join([program, *sys.argv[1:]]),
        "commit": _git("rev-parse", "HEAD"),
        "dirty": bool(_git("status", "--porcelain", "--untracked-files=no")),
        "versions": installed_versions(*_PACKAGES),
        "host": {
            "name": platform.node(),
            "system": platform.platform(),
            "machine": platform.machine(),
        },
    }


def installed_versions(*packages: str) -> dict[str, str]:
    """The versions of Python, mcat and those of the packages that are installed."""
    versions = {"python": platform.python_version(), "mcat": mcat.__version__}
    for name in packages:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def note_other_code(record: Mapping[str, Any], notify: Notify) -> None:
    """Say in what this mcat and the libraries under it differ from those that made a run."""
    now = provenance()
    made_by = {key: record.get(key) for key in ("commit", "versions")}
    for line in differences(made_by, {key: now[key] for key in made_by}):
        notify(f"note: the run was made by other code, so its last bits may differ ({line})")


def _git(*arguments: str) -> str | None:
    """What git says about the checkout this package lies in, None if it is not in one."""
    try:
        done = subprocess.run(
            ["git", *arguments],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
