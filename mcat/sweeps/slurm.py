"""Runs as jobs of Slurm: plain scripts, no pickle, no accounting needed.

A job ends with 75 when its run was stopped and saved, as by the signal before the time limit; the
script then asks Slurm to queue it again. A job whose node died is queued again by Slurm itself.
Either way the run goes on from its folder. Jobs of one run never run together (`singleton`).
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mcat.errors import MissingInputError, UsageError, printable
from mcat.safe_io import io_errors, write_file
from mcat.sweeps.folder import Sweep
from mcat.sweeps.runs import PlannedRun
from mcat.sweeps.state import RunState, look

WARNING = 120  # seconds from the signal to the time limit
ALONE = "singleton"  # no two jobs of a run at once


@dataclass(frozen=True, kw_only=True)
class SlurmOptions:
    """What a site wants to know."""

    partition: str = ""  # where to queue; empty for the site's default
    account: str = ""  # who pays; empty for the user's default
    time: str = ""  # limit of one attempt; empty for the plan's
    more: tuple[str, ...] = ()  # any other lines of `#SBATCH`, such as `--qos=long`

    def __post_init__(self) -> None:
        for text in (self.partition, self.account, self.time, *self.more):
            if not text.isprintable():
                raise UsageError(f"no option of sbatch: {printable(text, 60)}")
        for text in self.more:
            if not text.startswith("-"):
                raise UsageError(f"--sbatch takes an option such as --qos=long, not '{text}'")


def job_name(sweep: Sweep, run: PlannedRun) -> str:
    """What Slurm calls the jobs of a run."""
    return f"mcat-{sweep.name}-{run.name}"


def script(sweep: Sweep, run: PlannedRun, options: SlurmOptions) -> str:
    """The script of a run's job."""
    resources = sweep.resources
    lines = {
        "job-name": job_name(sweep, run),
        "partition": options.partition,
        "account": options.account,
        "cpus-per-task": str(resources.cpus),
        "mem": f"{-(-resources.memory_bytes // 2**20)}M",
        "time": options.time or resources.time,
        "signal": f"USR1@{WARNING}",
        "output": str(sweep.folder / "slurm" / f"{run.name}.log"),
        "open-mode": "append",
        "dependency": ALONE,
    }
    given = [f"#SBATCH --{name}={value}" for name, value in lines.items() if value]
    given += ["#SBATCH --requeue", *(f"#SBATCH {text}" for text in options.more)]
    attempt = [sys.executable, "-m", "mcat", "sweep", "attempt", str(sweep.folder), run.name]
    return "\n".join(
        [
            "#!/bin/bash",
            *given,
            f"cd {shlex.quote(os.getcwd())}",
            f"srun --cpus-per-task={resources.cpus} {shlex.join(attempt)}",
            "code=$?",
            "# 75: stopped and saved, or worth another attempt; 138: SIGUSR1 before it listened",
            'if [ $code -eq 75 ] || [ $code -eq 138 ]; then scontrol requeue "$SLURM_JOB_ID"; fi',
            "exit $code",
            "",
        ]
    )


def submit(sweep: Sweep, options: SlurmOptions) -> dict[str, str]:
    """Queue every run that is neither done, nor running, nor queued; returns at once.

    Returns:
        The numbers of the new jobs by the names of their runs.

    Raises:
        MissingInputError: if there is no Slurm here.
        UsageError: if it refuses a job, with its words.
    """
    jobs = queued(sweep)
    new: dict[str, str] = {}
    for run, path in _scripts(sweep, options, jobs):
        jobs[run.name] = new[run.name] = _slurm(*_sbatch(run, path, jobs)).split(";")[0]
        sweep.note("queued", run, job=new[run.name])
    return new


def lines_to_send(sweep: Sweep, options: SlurmOptions) -> Iterator[str]:
    """The scripts are written, but not sent: these lines of shell do what `submit` would."""
    jobs = queued(sweep)
    for number, (run, path) in enumerate(_scripts(sweep, options, jobs)):
        *words, script_path = _sbatch(run, path, jobs)
        yield f"job{number}=$({' '.join(words)} {shlex.quote(script_path)} | cut -d';' -f1)"
        jobs[run.name] = f"${{job{number}}}"


def _scripts(
    sweep: Sweep, options: SlurmOptions, queued: Mapping[str, str]
) -> list[tuple[PlannedRun, Path]]:
    """The scripts of all runs that are neither done, nor running, nor queued, inputs first."""
    folder = sweep.folder / "slurm"
    with io_errors(folder, "write"):
        folder.mkdir(mode=0o700, exist_ok=True)
    found = []
    for state in look(sweep, detailed=False):
        run, path = state.run, folder / f"{state.run.name}.sh"
        if state.state not in ("done", "running", "diverged") and run.name not in queued:
            write_file(path, script(sweep, run, options), overwrite=True)
            found.append((run, path))
    return found


def _sbatch(run: PlannedRun, path: Path, jobs: Mapping[str, str]) -> list[str]:
    """The command that sends a script, to wait for the jobs of what the run needs."""
    after = [jobs[name] for name in run.needs if name in jobs]
    wait = [f"--dependency={ALONE},afterok:{':'.join(after)}"] if after else []
    return ["sbatch", "--parsable", *wait, str(path)]


def queued(sweep: Sweep) -> dict[str, str]:
    """The numbers of jobs that Slurm has of a sweep's runs, by name; none if there is no Slurm."""
    if not (sweep.folder / "slurm").is_dir():
        return {}
    try:
        lines = _slurm("squeue", "--me", "--noheader", "--format=%i %j").splitlines()
    except (MissingInputError, UsageError):
        return {}
    found = [line.split(maxsplit=1) for line in lines if " " in line]
    jobs = {name: number for number, name in found}
    runs = {job_name(sweep, run): run.name for run in sweep.runs}
    return {runs[name]: number for name, number in jobs.items() if name in runs}


def with_queue(sweep: Sweep, states: Sequence[RunState]) -> list[RunState]:
    """The same states, with "queued" for what waits in Slurm's queue."""
    names = queued(sweep)
    return [
        replace(state, state="queued")
        if state.state in ("waiting", "blocked") and state.run.name in names
        else state
        for state in states
    ]


def cancel_waiting(sweep: Sweep, names: Sequence[str]) -> None:
    """Take jobs that have not begun out of Slurm's queue; those that run see their mark."""
    for name, number in queued(sweep).items():
        if name in names:
            _slurm("scancel", "--state=PENDING", number)


def _slurm(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MissingInputError(f"no Slurm here: {command[0]} cannot be run ({error})") from None
    if done.returncode:
        words = (done.stderr or done.stdout).strip().splitlines()
        raise UsageError(f"{command[0]}: {printable(words[-1] if words else 'refused')}")
    return done.stdout.strip()
