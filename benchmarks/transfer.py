"""Is transfer worth it? Meta-training with and without it, seed by seed.

Runs both arms for every seed, two processes at a time; runs that are there are gone on with or
taken as they are. Then it prints what each arm's policy earned after so many environment steps, the
difference over the seeds with its 95 % interval, and whether transferred episodes earned more than
the shared policy's on the same task in the rounds around them.

    python benchmarks/transfer.py --family halfcheetah-armature --seeds 0 1 2 --out runs/transfer
    python benchmarks/transfer.py --family ant-cripple --sparse --out runs/transfer

With `--sparse` payments stay where they came and past episodes are imitated, as in the paper.
"""

from __future__ import annotations

import argparse
import csv
import os
import statistics
import subprocess
import sys
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from mcat.reports.runs import LearningRun, read_run

LOOKS = (10_000, 25_000, 50_000, 100_000)
ARMS = {"transfer": [], "no transfer": ["--no-transfer"]}
SPARSE = ["--credit", "none", "--set", "mcat.imitate=true"]
T_975 = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262}


def run(folder: Path, family: str, seed: int, steps: int, options: list[str]) -> None:
    """One arm of one seed, from wherever it is."""
    command = [sys.executable, "-m", "mcat", "metatrain", "--quiet"]
    if (folder / "run.json").is_file():
        command += ["--resume", str(folder), "--steps", str(steps)]
    else:
        command += ["--family", family, "--seed", str(seed), "--steps", str(steps)]
        command += ["--set", "evaluate_every=1", *options, "--out", str(folder)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)


def looked_at(run: LearningRun, column: str, look: int) -> float:
    """What the policy earned at the first evaluation not before that step."""
    steps, values = run.curve(column)
    return float(values[steps >= look][0])


def interval(values: list[float]) -> str:
    """Mean and 95 % interval of paired differences."""
    mean = statistics.mean(values)
    if len(values) < 2:
        return f"{mean:+,.0f} (one seed)"
    half = T_975.get(len(values) - 1, T_975[9]) * statistics.stdev(values) / len(values) ** 0.5
    return f"{mean:+,.0f} [{mean - half:+,.0f}, {mean + half:+,.0f}]"


def against_neighbours(folder: Path) -> list[float]:
    """By how much each transferred round beat the shared policy's around it, per 1,000 steps."""
    earned: dict[tuple[str, int], list[float]] = defaultdict(lambda: [0.0, 0.0])
    drivers: dict[tuple[str, int], str] = {}
    with (folder / "episodes.csv").open() as file:
        for row in csv.DictReader(file):
            key = row["task"], int(row["iteration"])
            drivers[key] = row["driver"]
            earned[key][0] += float(row["return"])
            earned[key][1] += float(row["length"])
    paces = {key: 1000 * value / length for key, (value, length) in earned.items()}
    found = []
    for (task, number), driver in drivers.items():
        around = [(task, number - 1), (task, number + 1)]
        if driver in ("shared", "random") or any(drivers.get(key) != "shared" for key in around):
            continue
        found.append(paces[task, number] - statistics.mean(paces[key] for key in around))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--family", default="halfcheetah-armature")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--sparse", action="store_true", help="no credit, but self-imitation")
    parser.add_argument("--out", type=Path, default=Path("runs/transfer"))
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time")
    chosen = parser.parse_args()
    kind = "-sparse" if chosen.sparse else ""
    folders = {
        (arm, seed): chosen.out / f"{chosen.family}{kind}-{arm.replace(' ', '-')}-seed{seed}"
        for seed in chosen.seeds
        for arm in ARMS
    }
    chosen.out.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(chosen.jobs) as pool:
        jobs = [
            pool.submit(run, folder, chosen.family, seed, chosen.steps,
                        [*ARMS[arm], *(SPARSE if chosen.sparse else [])])
            for (arm, seed), folder in folders.items()
        ]  # fmt: skip
        for job in jobs:
            job.result()

    print(f"{chosen.family}{kind}, seeds {', '.join(map(str, chosen.seeds))}")
    runs = {key: read_run(folder) for key, folder in folders.items()}
    for column in ("eval/train", "eval/test"):
        print(f"  {column.removeprefix('eval/')} tasks")
        for look in (look for look in LOOKS if look <= chosen.steps):
            values = {
                arm: [looked_at(runs[arm, seed], column, look) for seed in chosen.seeds]
                for arm in ARMS
            }
            differences = [a - b for a, b in zip(*values.values(), strict=True)]
            arms = "   ".join(
                f"{arm} {' / '.join(f'{v:,.0f}' for v in found)}" for arm, found in values.items()
            )
            print(f"    {look:>7,} steps: {arms}   difference {interval(differences)}")
    beaten = [
        gain
        for (arm, _), folder in folders.items()
        if arm == "transfer"
        for gain in against_neighbours(folder)
    ]
    if len(beaten) > 1:
        error = statistics.stdev(beaten) / len(beaten) ** 0.5
        better = sum(gain > 0 for gain in beaten)
        print(f"  transferred rounds against the shared policy's around them: {better} of"
              f" {len(beaten)} better, {statistics.mean(beaten):+,.0f} ± {error:,.0f}")  # fmt: skip


if __name__ == "__main__":
    main()
