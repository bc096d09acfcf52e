"""`mcat sweep` as a user calls it."""

from __future__ import annotations

import csv
import io
import json
import resource
import subprocess
import sys
from dataclasses import replace

import pytest

from mcat.cli import run
from mcat.commands.sweep_table import Watcher
from mcat.sweeps.endings import write_ending
from mcat.sweeps.folder import DRIVER_LOCK
from mcat.sweeps.runs import PlannedRun
from mcat.sweeps.state import RunState
from mcat.workplaces import claimed
from tests.reports.learning.run_folders import write_run as learned
from tests.sweeps.small import as_script, planned, small_sweep, write_run

SMOKE = ["--set", "preset=smoke", "--set", "steps=500", "--grid", "seed=0-1"]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_plan_shows_runs_and_costs_and_starts_nothing(folder, capsys):
    assert run(["sweep", "plan"]) == 0
    listed = capsys.readouterr().out
    assert "transfer: 30 runs of mcat metatrain" in listed
    assert run(["sweep", "plan", "transfer"]) == 0
    said = capsys.readouterr()
    assert "halfcheetah-armature-no-transfer-seed0-" in said.out
    assert "30 runs, 30 to do: about 11.8 core-hours" in said.err
    assert run(["sweep", "plan", "transfer", "--grid", "seed=0", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found) == 10
    assert found[0]["command"][0] == "metatrain"
    assert list(folder.iterdir()) == []


def test_run_status_stop(folder, capsys, monkeypatch):
    monkeypatch.setattr(PlannedRun, "command_line", as_script)
    runs = [planned(f"r{n}", variant=v) for n, v in enumerate(("a", "a", "b"))]
    sweep = small_sweep(folder / "sweeps" / "small", *runs)
    assert run(["sweep", "status", "small"]) == 0
    assert "3 runs: 3 waiting" in capsys.readouterr().out
    write_run(sweep.out(runs[0]), step=10, done=True)
    assert run(["sweep", "status", "sweeps/small", "--json"]) == 0
    states = json.loads(capsys.readouterr().out)
    assert [state["state"] for state in states] == ["done", "waiting", "waiting"]
    assert states[0]["test"] == 27.0
    assert run(["sweep", "status", "small", "--runs"]) == 0
    assert "r0" in capsys.readouterr().out
    assert run(["sweep", "stop", "small", "r1"]) == 0
    assert "0 runs asked to save and end" in capsys.readouterr().err
    assert run(["sweep", "status", "small"]) == 0
    assert "1 done, 1 waiting, 1 stopped" in capsys.readouterr().out


def test_a_sweep_from_nothing_but_options(folder, capsys, monkeypatch):
    def done_at_once(run, folder, cpus):
        return as_script(replace(run, arguments=()), folder, cpus)

    monkeypatch.setattr(PlannedRun, "command_line", done_at_once)
    line = ["sweep", "run", *SMOKE, "--name", "mine", "--jobs", "2"]
    assert run([*line, "--set", "steps=10"]) == 0
    said = capsys.readouterr()
    assert "2 runs: 2 done" in said.out
    assert (folder / "sweeps" / "mine" / "plan.toml").is_file()
    assert run(["sweep", "run", "sweeps/mine", "--json"]) == 0
    assert [item["state"] for item in json.loads(capsys.readouterr().out)] == ["done", "done"]


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        (["run"], 2, "say what to run: a plan"),
        (["run", "transfr"], 2, "did you mean transfer"),
        (["run", "my.toml"], 66, "my.toml is not there"),
        (["run", "--grid", "sed=0-1"], 2, "variant 'all': unknown key"),
        (["run", "--grid", "seed=0", "--address", "auto"], 2, "add --engine ray"),
        (["status", "nothing"], 66, "no sweep 'nothing' here or in sweeps/"),
        (["stop", "nothing"], 66, "no sweep 'nothing'"),
        (["plan", "--grid", "seed=0", "--set", "family=horse"], 2, "unknown family 'horse'"),
    ],
)
def test_mistakes_are_one_line(folder, capsys, line, code, words):
    assert run(["sweep", *line]) == code
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1
    assert list(folder.iterdir()) == []


def test_a_refused_driver_changes_nothing_of_the_live_ones_plan(folder, capsys):
    line = ["sweep", "submit", *SMOKE, "--name", "mine", "--print"]
    assert run(line) == 0
    made = folder / "sweeps" / "mine"
    before = {path.name: path.read_bytes() for path in made.glob("plan*")}
    assert len(before) == 3
    with claimed(made / DRIVER_LOCK, "it"):
        for command in ("run", "submit"):
            assert run(["sweep", command, "mine", "--set", "steps=900", "--grid", "seed=7"]) == 73
            assert "is being written by another process" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in made.glob("plan*")} == before


def test_a_run_that_came_further_than_is_wanted_now_and_titles_of_one_line(folder, capsys):
    one = planned("r0")
    sweep = small_sweep(folder / "s", one)
    write_run(sweep.out(one), step=12, done=True, steps=12)
    assert run(["sweep", "status", "s", "--runs"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("sweep small: 1 run: 1 done\n")
    assert " 12 " in said
    assert "12/10" not in said


class Terminal(io.StringIO):
    """What takes itself for a terminal."""

    def isatty(self):
        return True


def test_states_are_a_live_table_on_a_terminal_and_lines_elsewhere(folder, monkeypatch):
    runs = [planned("first", variant="a"), planned("second", variant="b")]
    before = [
        RunState(run=runs[0], state="running", step=5),
        RunState(run=runs[1], state="waiting"),
    ]
    after = [RunState(run=runs[0], state="done", step=10), RunState(run=runs[1], state="running")]
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with Watcher("sweep s") as watch:
        watch(before)
        shown = terminal.getvalue()
        watch(after)
    assert "sweep s: 2 runs: 1 running, 1 waiting" in shown
    assert "5/10" in shown
    assert "\x1b[" in terminal.getvalue()[len(shown) :]  # over what was shown before
    plain = io.StringIO()
    monkeypatch.setattr(sys, "stderr", plain)
    with Watcher("sweep s") as watch:
        for states in (before, before, after):
            watch(states)
    assert plain.getvalue().splitlines() == [
        "first: running",
        "sweep s: 2 runs: 1 running, 1 waiting",
        "first: done",
        "second: running",
    ]


def test_status_of_five_hundred_runs_is_quick(folder):
    """CPU time with the start of Python, of runs with configs as large as real ones."""
    config = {f"setting{n}": n / 3 for n in range(160)}
    runs = [replace(planned(f"r{n}"), config=config) for n in range(500)]
    sweep = small_sweep(folder / "s", *runs)
    for run_ in runs:
        write_run(sweep.out(run_), step=10, done=True)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    code = "import sys, mcat.cli; mcat.cli.run(['sweep', 'status', 's']); print(*sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    took = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"mcat sweep status of 500 runs: {took:.2f} CPU s")
    assert "500 runs: 500 done" in said.stdout
    assert not {"numpy", "gymnasium", "torch", "matplotlib"} & set(said.stdout.split())
    assert took < 0.4  # twice what is promised, for a busy machine that compiles what it imports


@pytest.fixture
def compared(folder):
    """A sweep of six runs that learned something, one of them diverged, one not begun."""
    runs = [
        replace(planned(f"{name}-{seed}", variant=name), command="metatrain")
        for seed in range(3)
        for name in ("without", "with")
    ]
    sweep = small_sweep(folder / "sweeps" / "small", *runs, about="A line about it.")
    for number, one in enumerate(runs[:-1]):
        gain = 100.0 * (one.variant == "with") + number
        earned = (5, 100.0, 50.0), (10, 300.0, 200.0 + gain)
        learned(sweep.out(one), family="hopper-size", seed=number // 2, evaluations=earned)
        (sweep.out(one) / "result.json").write_text(json.dumps({"step": 10}))
    (sweep.out(runs[0]) / "result.json").unlink()
    write_ending(sweep, runs[0], 4, made=False)
    return sweep


def test_report_says_what_came_out_so_far(compared, folder, capsys):
    assert run(["sweep", "report", "small"]) == 0
    paths = capsys.readouterr().out.split()
    assert paths[-1] == str(compared.folder / "report" / "report.html")
    page = (compared.folder / "report" / "report.html").read_text()
    assert "“with”" in page
    assert "too few seeds" in page  # of one variant only two have come so far
    assert "4 of 6 planned runs are done (1 diverged, 1 waiting)." in page
    assert "A line about it. 4 of 6" in page
    rows = list(csv.DictReader((compared.folder / "report" / "results.csv").open()))
    assert {row["state"] for row in rows} == {"done", "diverged"}
    assert len(rows) == 5 * 7  # five runs of five training and two test tasks
    assert run(["sweep", "report", "small", "--out", "elsewhere", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[-1] == "elsewhere/report.html"


def test_report_takes_folders_of_any_runs(compared, folder, capsys):
    folders = sorted((compared.folder / "runs").iterdir())
    (folders[0] / "failure.json").write_text('{"code": 4, "line": "a loss is NaN"}')
    again = folders[0].relative_to(folder)  # the same run by another path counts once
    assert run(["sweep", "report", *map(str, folders), str(again)]) == 0
    assert "a loss is NaN" in (folder / "report" / "report.html").read_text()
    rows = list(csv.DictReader((folder / "report" / "results.csv").open()))
    assert [row["state"] for row in rows].count("diverged") == 7  # its tasks
    assert len(rows) == 5 * 7


def test_report_refuses_what_has_nothing_to_say(folder, capsys):
    small_sweep(folder / "sweeps" / "small", planned("a"))
    assert run(["sweep", "report", "small"]) == 66
    assert "no run of small has begun yet" in capsys.readouterr().err
    small_sweep(folder / "sweeps" / "logs", replace(planned("a"), command="collect"))
    assert run(["sweep", "report", "logs"]) == 2
    assert "small trains nothing" in capsys.readouterr().err
    assert run(["sweep", "report", "a", "b", "--every", "5"]) == 2
    assert "--every waits for the runs of a sweep" in capsys.readouterr().err
