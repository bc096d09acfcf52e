"""Small sweeps for tests: runs that are a few lines of Python, or real ones of a second."""

from __future__ import annotations

import json
import sys
import textwrap
import time
from pathlib import Path

from mcat.interrupts import Interrupts
from mcat.sweeps.driver import Driver, driven
from mcat.sweeps.folder import Sweep, create_sweep
from mcat.sweeps.local import LocalEngine
from mcat.sweeps.plan import plan_of
from mcat.sweeps.runs import PlannedRun

# What a run does: it counts its attempts, does as it is told, and writes what a run writes last.
SCRIPT = textwrap.dedent(
    """
    import json, os, pathlib, signal, sys, time
    out, number = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    tries = out / "tries"
    tries.write_text(tries.read_text() + "x" if tries.exists() else "x")
    attempt = len(tries.read_text())
    def stopped(*_):
        print("stopped, saved", flush=True)
        os._exit(75)
    signal.signal(signal.SIGTERM, stopped)
    (out / "affinity").write_text(json.dumps(sorted(os.sched_getaffinity(0))))
    (out / "threads").write_text(os.environ["OMP_NUM_THREADS"])
    for line in sys.argv[3:]:
        exec(line)
    (out / "result.json").write_text(json.dumps({"step": 10}))
    """
)


def planned(name: str, *lines: str, variant: str = "all", needs: tuple[str, ...] = ()):
    """A run that does those lines of Python and then is done."""
    return PlannedRun(
        name=name, variant=variant, command="train", arguments=lines, out=f"runs/{name}",
        steps=10, needs=needs, of="toy", config={"family": "toy", "seed": 0},
    )  # fmt: skip


def small_sweep(folder: Path, *runs: PlannedRun, about: str = "", **resources: object) -> Sweep:
    """A sweep of such runs."""
    plan = plan_of({"name": "small", "about": about, "resources": resources})
    return create_sweep(plan, "", runs, folder)


def as_script(run: PlannedRun, folder: Path, cpus: int) -> list[str]:
    """In place of `PlannedRun.command_line`."""
    return [sys.executable, "-c", SCRIPT, str(folder / run.out), str(cpus), *run.arguments]


def drive(sweep, jobs=2, watch=lambda states: None):
    """Gets them done; their states by name."""
    with driven(sweep.folder), Interrupts() as stop:
        return {s.run.name: s for s in Driver(sweep, LocalEngine(sweep, jobs), watch).drive(stop)}


def tries(sweep: Sweep, run: PlannedRun) -> int:
    """How often it was started."""
    path = sweep.out(run) / "tries"
    return len(path.read_text()) if path.exists() else 0


def wait_for(condition, seconds=20.0):
    """Until it holds."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "waited too long"
        time.sleep(0.02)


def write_run(folder: Path, *, step: int, steps: int = 10, done: bool = False) -> None:
    """Files as a run leaves them."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = ["step,eval/train,eval/test,time/seconds"]
    rows += [f"{n},{n * 2.0},{n * 3.0 if n % 2 else 'nan'},{n * 0.5}" for n in range(1, step + 1)]
    (folder / "metrics.csv").write_text("\n".join(rows) + "\n")
    if done:
        (folder / "result.json").write_text(json.dumps({"step": steps}))
