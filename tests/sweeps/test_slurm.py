"""Jobs of Slurm: the scripts against a fake `sbatch`, and a real cluster of two nodes."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from mcat.cli import run as mcat
from mcat.errors import MissingInputError, UsageError
from mcat.sweeps import slurm
from mcat.sweeps.endings import read_ending
from mcat.sweeps.folder import open_sweep
from mcat.sweeps.runs import PlannedRun
from mcat.sweeps.slurm import SlurmOptions
from mcat.sweeps.state import look
from tests.sweeps.small import as_script, planned, small_sweep, tries
from tests.sweeps.test_real_runs import METATRAIN, contents, finish

FAKE = {
    "sbatch": 'for f; do true; done; n=$(($(cat "$JOBS" | wc -l) + 1));'
    ' name=$(grep -o "job-name=.*" "$f" | cut -d= -f2); echo "$n $name" >> "$JOBS";'
    ' echo "$@" > "$JOBS.$n"; cat "$f" >> "$JOBS.$n"; echo "$n;toy"',
    "squeue": 'cat "$JOBS"',
    "scancel": 'echo "$@" >> "$JOBS.cancelled"',
    "srun": 'shift; exec "$@"',
    "scontrol": 'echo "$@" >> "$JOBS.requeued"',
}


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    """Slurm's commands, as far as they are asked for, in a few lines of shell."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, body in FAKE.items():
        (folder / name).write_text(f"#!/bin/sh\n{body}\n")
        (folder / name).chmod(0o755)
    jobs = tmp_path / "jobs"
    jobs.touch()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("JOBS", str(jobs))
    return jobs


def test_the_script_says_what_a_site_wants_to_know(tmp_path):
    run = planned("r0")
    sweep = small_sweep(tmp_path, run, cpus=3, memory="2GB", time="1:30:00")
    options = SlurmOptions(partition="cpu", account="lab", more=("--qos=long",))
    lines = slurm.script(sweep, run, options).splitlines()
    assert lines[0] == "#!/bin/bash"
    assert set(lines[1:13]) == {
        "#SBATCH --job-name=mcat-small-r0",
        "#SBATCH --partition=cpu",
        "#SBATCH --account=lab",
        "#SBATCH --cpus-per-task=3",
        "#SBATCH --mem=1908M",
        "#SBATCH --time=1:30:00",
        "#SBATCH --signal=USR1@120",
        f"#SBATCH --output={tmp_path}/slurm/r0.log",
        "#SBATCH --open-mode=append",
        "#SBATCH --dependency=singleton",
        "#SBATCH --requeue",
        "#SBATCH --qos=long",
    }
    assert lines[14].startswith("srun --cpus-per-task=3 ")
    assert lines[14].endswith(f"-m mcat sweep attempt {tmp_path} r0")
    assert lines[-2] == (
        'if [ $code -eq 75 ] || [ $code -eq 138 ]; then scontrol requeue "$SLURM_JOB_ID"; fi'
    )


def test_what_is_missing_is_queued_once_after_its_inputs(tmp_path, cluster):
    sweep = small_sweep(
        tmp_path / "s", planned("a", variant=""), planned("b", needs=("a",)), planned("c")
    )
    assert slurm.submit(sweep, SlurmOptions()) == {"a": "1", "b": "2", "c": "3"}
    assert "--dependency=singleton,afterok:1 " in Path(f"{cluster}.2").read_text()
    assert "--dependency=singleton\n" in Path(f"{cluster}.3").read_text()
    assert (tmp_path / "s" / "slurm").stat().st_mode & 0o077 == 0
    assert slurm.submit(sweep, SlurmOptions()) == {}  # all are in the queue
    assert slurm.queued(sweep) == {"a": "1", "b": "2", "c": "3"}
    assert [s.state for s in slurm.with_queue(sweep, look(sweep))] == ["queued"] * 3
    slurm.cancel_waiting(sweep, ["b"])
    assert Path(f"{cluster}.cancelled").read_text() == "--state=PENDING 2\n"
    cluster.write_text("")  # all have ended, one with a result
    assert [s.state for s in slurm.with_queue(sweep, look(sweep))] == [
        "waiting",
        "blocked",
        "waiting",
    ]
    (tmp_path / "s" / "runs" / "a").mkdir(parents=True)
    (tmp_path / "s" / "runs" / "a" / "result.json").write_text(json.dumps({"step": 10}))
    assert slurm.submit(sweep, SlurmOptions()) == {"b": "1", "c": "2"}


def test_a_refusal_of_slurm_is_told_in_its_words(tmp_path, cluster, monkeypatch):
    sweep = small_sweep(tmp_path / "s", planned("a"))
    sbatch = cluster.parent / "bin" / "sbatch"
    sbatch.write_text(
        "#!/bin/sh\necho 'sbatch: error: invalid partition specified: gpu' >&2; exit 1\n"
    )
    with pytest.raises(UsageError, match="sbatch: sbatch: error: invalid partition"):
        slurm.submit(sweep, SlurmOptions(partition="gpu"))
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(MissingInputError, match="no Slurm here"):
        slurm.submit(sweep, SlurmOptions())
    assert slurm.queued(sweep) == {}
    with pytest.raises(UsageError, match="takes an option such as"):
        SlurmOptions(more=("qos=long",))
    with pytest.raises(UsageError, match="no option of sbatch"):
        SlurmOptions(partition="a\nb")


@pytest.mark.parametrize(
    ("line", "code", "again"),
    [("0", 0, False), ("sys.exit(75)", 75, True), ("os.kill(os.getpid(), 9)", 75, True),
     ("print('NaN'); sys.exit(4)", 1, False), ("print('typo'); sys.exit(2)", 1, False)],
)  # fmt: skip
def test_a_job_asks_for_another_one_where_that_helps(tmp_path, cluster, line, code, again):
    """The script as it is, by bash, with a run that ends in one way or another."""
    run = planned("r", line)
    sweep = small_sweep(tmp_path / "s", run)
    text = slurm.script(sweep, run, SlurmOptions())
    program = (
        "import sys; from mcat.sweeps.runs import PlannedRun; from tests.sweeps.small import"
        " as_script; PlannedRun.command_line = as_script; from mcat.cli import main; main()"
    )
    text = text.replace("-m mcat", f"-c '{program}'")
    (tmp_path / "job").write_text(text)
    environment = {**os.environ, "SLURM_JOB_ID": "41", "PYTHONPATH": os.getcwd()}
    done = subprocess.run(["bash", str(tmp_path / "job")], env=environment, timeout=60)
    assert done.returncode == code
    assert Path(f"{cluster}.requeued").exists() == again
    if again:
        assert Path(f"{cluster}.requeued").read_text() == "requeue 41\n"
    assert read_ending(sweep, run).attempts == tries(sweep, run) == 1


def test_submit_and_print_from_the_command_line(tmp_path, cluster, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    plan = ["--grid", "seed=0-1", "--set", "preset=smoke", "--name", "mine"]
    assert mcat(["sweep", "submit", *plan, "--partition", "cpu", "--print"]) == 0
    assert capsys.readouterr().out.count("$(sbatch --parsable ") == 2
    scripts = sorted(Path("sweeps/mine/slurm").iterdir())
    assert len(scripts) == 2
    assert all("#SBATCH --partition=cpu" in path.read_text() for path in scripts)
    assert cluster.read_text() == ""
    assert mcat(["sweep", "submit", *plan, "--json"]) == 0
    assert list(json.loads(capsys.readouterr().out).values()) == ["1", "2"]
    assert mcat(["sweep", "stop", "mine"]) == 0
    assert len(Path(f"{cluster}.cancelled").read_text().splitlines()) == 2
    sweep = open_sweep(tmp_path / "sweeps" / "mine")
    assert all(sweep.stop_mark(run).exists() for run in sweep.runs)


def test_printed_lines_send_what_is_missing_after_its_inputs(tmp_path, cluster):
    """By a shell, as a user would; logs have a folder to go to, and inputs are waited for."""
    runs = planned("a", variant=""), planned("b", variant=""), planned("c", needs=("a", "b"))
    sweep = small_sweep(tmp_path / "a sweep", *runs)
    lines = list(slurm.lines_to_send(sweep, SlurmOptions()))
    assert (sweep.folder / "slurm").is_dir()
    assert cluster.read_text() == ""
    subprocess.run(["sh", "-e", "-c", "\n".join(lines)], check=True, timeout=60)
    assert slurm.queued(sweep) == {"a": "1", "b": "2", "c": "3"}
    assert "--dependency=singleton,afterok:1:2 " in Path(f"{cluster}.3").read_text()
    assert list(slurm.lines_to_send(sweep, SlurmOptions())) == []  # all are in the queue


def test_a_stopped_run_is_not_asked_for_again(tmp_path, monkeypatch):
    monkeypatch.setattr(PlannedRun, "command_line", as_script)
    run = planned("r", "time.sleep(30)")
    sweep = small_sweep(tmp_path, run)
    sweep.stop_mark(run).touch()
    assert mcat(["sweep", "attempt", str(tmp_path), "r"]) == 1
    assert read_ending(sweep, run).kind == "stopped"


# --- a real cluster ------------------------------------------------------------------------

NEEDED = ("slurmctld", "slurmd", "sbatch", "munged")
CONFIG = """
ClusterName=toy
SlurmctldHost={host}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/run/munge.socket.2
ProctrackType=proctrack/linuxproc
TaskPlugin=task/affinity
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
SlurmctldPidFile={folder}/run/slurmctld.pid
SlurmdPidFile={folder}/run/slurmd-%n.pid
SlurmdSpoolDir={folder}/spool-%n
StateSaveLocation={folder}/state
SlurmctldPort=16817
SlurmdTimeout=20
KillWait=5
SlurmdParameters=config_overrides
NodeName=n1 NodeHostname={host} Port=16818 CPUs=1 RealMemory=8000 State=UNKNOWN
NodeName=n2 NodeHostname={host} Port=16819 CPUs=1 RealMemory=8000 State=UNKNOWN
PartitionName=main Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP
"""


def why_no_cluster():
    missing = [name for name in NEEDED if shutil.which(name) is None]
    if missing:
        return f"no {', '.join(missing)}: apt-get install slurmctld slurmd slurm-client munge"
    return "" if os.geteuid() == 0 else "a Slurm of one's own needs root"


@pytest.fixture
def two_nodes(tmp_path, monkeypatch):
    """Two nodes on this machine; every process is ended by its number."""
    for name in ("state", "spool-n1", "spool-n2", "run"):
        (tmp_path / name).mkdir()
    shutil.chown(tmp_path / "run", "munge")
    for folder in (tmp_path, *tmp_path.parents):
        if folder != Path("/") and folder.stat().st_uid == 0 and str(folder).startswith("/tmp/"):
            folder.chmod(0o755)
    host = subprocess.run(["hostname", "-s"], capture_output=True, text=True).stdout.strip()
    config = tmp_path / "slurm.conf"
    config.write_text(CONFIG.format(host=host, folder=tmp_path))
    monkeypatch.setenv("SLURM_CONF", str(config))
    run = tmp_path / "run"
    commands = {
        "munge": ["setpriv", "--reuid", "munge", "--regid", "munge", "--clear-groups", "munged",
                  "--foreground", f"--socket={run}/munge.socket.2",
                  "--key-file=/etc/munge/munge.key", f"--pid-file={run}/munged.pid",
                  f"--seed-file={run}/munged.seed", f"--log-file={run}/munged.log"],
        "slurmctld": ["slurmctld", "-D"],
        "n1": ["slurmd", "-D", "-N", "n1"],
        "n2": ["slurmd", "-D", "-N", "n2"],
    }  # fmt: skip
    started = {}
    for name, line in commands.items():
        log = open(tmp_path / f"{name}.log", "wb")  # noqa: SIM115
        started[name] = subprocess.Popen(line, stdout=log, stderr=log, start_new_session=True)
        time.sleep(2 if name == "munge" else 0.5)
    until = time.monotonic() + 60
    while time.monotonic() < until:
        said = subprocess.run(["sinfo", "-h", "-N", "-o", "%T"], capture_output=True, text=True)
        if said.stdout.split() == ["idle", "idle"]:
            break
        time.sleep(1)
    else:
        pytest.skip(f"this machine lets no Slurm come up: {said.stdout or said.stderr}")
    yield started
    for process in reversed(started.values()):
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


def kill_job(number):
    """Every process of a job, as if its machine had lost power."""
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            environment = Path(f"/proc/{entry}/environ").read_bytes().split(b"\0")
            line = Path(f"/proc/{entry}/cmdline").read_bytes()
        except OSError:
            continue
        ours = f"SLURM_JOB_ID={number}".encode() in environment
        if ours or line.startswith(f"slurmstepd: [{number}.".encode()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(entry), signal.SIGKILL)
    time.sleep(0.5)


@pytest.mark.slow
@pytest.mark.skipif(bool(why_no_cluster()), reason=why_no_cluster())
@pytest.mark.timeout(900)
def test_jobs_survive_a_dead_node_and_a_time_limit(two_nodes, tmp_path, monkeypatch):
    """One run's node is killed, the other's time is up; both go on and end as undisturbed ones."""
    for place in ("plain", "slurm"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "plan.toml").write_text(METATRAIN.replace("20_000", "60_000"))
    wanted = finish(tmp_path / "plain")
    folder = tmp_path / "slurm"
    monkeypatch.setattr(slurm, "WARNING", 30)
    line = ["sweep", "submit", str(folder / "plan.toml"), "--out", str(folder / "sweep")]
    assert mcat([*line, "--time", "1:00"]) == 0  # a minute: the limit comes in the middle
    sweep = open_sweep(folder / "sweep")
    first = sweep.runs[0]
    until = time.monotonic() + 120
    while not (sweep.out(first) / "checkpoints").is_dir() and time.monotonic() < until:
        time.sleep(0.5)
    said = subprocess.run(["squeue", "-h", "-o", "%i %N %j"], capture_output=True, text=True)
    job, node, _ = next(line.split() for line in said.stdout.splitlines() if first.name in line)
    os.kill(two_nodes[node].pid, signal.SIGKILL)
    kill_job(job)
    assert look(sweep)[0].state == "waiting"
    until = time.monotonic() + 700
    while time.monotonic() < until:
        if {state.state for state in look(sweep)} == {"done"} and not slurm.queued(sweep):
            break
        time.sleep(2)
    assert contents(folder) == wanted
    events = [json.loads(line) for line in (sweep.folder / "events.jsonl").read_text().splitlines()]
    assert sum(event["event"] == "started" for event in events) >= 4  # each of them twice
    assert "stopped" in {event["event"] for event in events}  # by the limit
