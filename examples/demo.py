"""`make demo`: the main job, end to end, on a small case. Everything lands in ./demo."""

from __future__ import annotations

import shlex
import shutil
import sys
import time
from pathlib import Path

from mcat.cli import run
from mcat.errors import MissingInputError

OUT = Path("demo")


def mcat(command: str, *, optional: bool = False) -> None:
    """Run one command as a user would type it; stop the demo if it fails."""
    print(f"\n$ mcat {command}", flush=True)
    code = run(shlex.split(command))
    if code and not (optional and code == MissingInputError.exit_code):
        sys.exit(code)


def main() -> None:
    """Run the commands one after another."""
    started = time.monotonic()
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir()

    mcat("envs show ant-cripple")
    mcat(f"render --gallery --out {OUT}/robots.png", optional=True)
    mcat(f"render --env push --policy scripted --steps 80 --width 240 --height 240 "
         f"--out {OUT}/push.gif", optional=True)  # fmt: skip

    # Logs of two machines: a cheetah with its good policy, and the same with sluggish joints.
    source, target = (OUT / f"halfcheetah-armature{a}.h5" for a in (0.1, 0.5))
    mcat(f"collect --env halfcheetah --armature 0.1 --policy good --noise 0,0.3 --steps 20000 "
         f"--out {source}")  # fmt: skip
    mcat(f"collect --env halfcheetah --armature 0.5 --policy mediocre --noise 0,0.5 --steps 30000 "
         f"--out {target}")  # fmt: skip
    mcat(f"dataset check {source} {target}")
    mcat(f"translate --src {source} --tgt {target} --preset quick --episodes 20 "
         f"--out {OUT}/transfer")  # fmt: skip

    # A policy that needs no translator, from the same logs and a few hundred real steps.
    mcat(f"adapt --logs {target} --translator {OUT}/transfer --env halfcheetah --armature 0.5 "
         f"--steps 300 --evaluate-every 100 --out {OUT}/adapt")  # fmt: skip

    # One policy for five variants at once; a real run takes an hour, this one shows the way.
    mcat(f"metatrain --preset smoke --out {OUT}/metatrain")
    mcat(f"plot {OUT}/metatrain --out {OUT}/metatrain/plots")

    # Two such runs as a sweep: killed at any moment and started again, it would go on.
    mcat(f"sweep run --name demo --out {OUT}/sweep --set preset=smoke --set steps=10000 "
         f"--grid seed=0 --variant 'no transfer: mcat.transfer=false' --variant MCAT")  # fmt: skip
    mcat(f"sweep report {OUT}/sweep")

    print(f"\nDone in {time.monotonic() - started:.0f} s. Results:")
    for path in sorted(OUT.rglob("*")):
        if path.suffix in (".gif", ".h5", ".html", ".png") or path.name.startswith("policy"):
            print(f"  {path}  ({path.stat().st_size / 1e6:.1f} MB)")
    print(f"Open {OUT}/transfer/report.html (what translating and its alternatives earn), and")
    print(f"{OUT}/adapt/report.html (what real steps add). {OUT}/metatrain/plots/learning.html")
    print(f"is of a meta-training run; {OUT}/sweep/report/report.html compares two of them.")


if __name__ == "__main__":
    main()
