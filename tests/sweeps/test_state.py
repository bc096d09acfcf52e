"""The state of a run is a function of its folder."""

from __future__ import annotations

import fcntl
import json
import math
import os
import shutil
import time

import pytest

from mcat.commands.sweep_table import print_states
from mcat.errors import DataError, MissingInputError
from mcat.sweeps.attempt import Attempt
from mcat.sweeps.endings import Ending, read_ending, write_ending
from mcat.sweeps.folder import LOCK_FILE, open_sweep
from mcat.sweeps.runs import PlannedRun
from mcat.sweeps.state import RunState, counts, holder_of, is_made, look
from tests.leases.made import no_locks, write_lease
from tests.sweeps.small import as_script, planned, small_sweep, write_run


def test_progress_is_read_from_the_end_of_the_table(tmp_path):
    sweep = small_sweep(tmp_path, planned("a"), planned("b"), planned("c"))
    write_run(tmp_path / "runs" / "a", step=4)
    write_run(tmp_path / "runs" / "b", step=10, done=True)
    a, b, c = look(sweep)
    assert (a.state, a.step, a.seconds, a.test) == ("waiting", 4, 2.0, 9.0)
    assert a.left == pytest.approx(6 * 0.5)
    assert (b.state, b.step) == ("done", 10)
    assert (c.state, c.step) == ("waiting", 0)
    assert math.isnan(c.test)
    assert counts([a, b, c]) == {"waiting": 2, "done": 1}


def test_what_is_done_is_told_by_its_result_alone(tmp_path):
    sweep = small_sweep(tmp_path, planned("a"))
    write_run(tmp_path / "runs" / "a", step=10, done=True)
    result = {"step": 10, "seconds": 7.5, "train_return": 1.0, "test_return": 2.5}
    (tmp_path / "runs" / "a" / "result.json").write_text(json.dumps(result))
    (tmp_path / "runs" / "a" / "metrics.csv").unlink()
    (state,) = look(sweep)
    assert (state.state, state.step, state.seconds, state.test) == ("done", 10, 7.5, 2.5)


def test_a_run_with_fewer_steps_than_wanted_is_not_done(tmp_path):
    run = planned("a")
    sweep = small_sweep(tmp_path, run)
    write_run(tmp_path / "runs" / "a", step=10, done=True, steps=9)
    assert not is_made(sweep, run)
    (tmp_path / "runs" / "a" / "result.json").write_text("{")
    assert not is_made(sweep, run)
    (tmp_path / "runs" / "a" / "result.json").write_text('{"step": 11}')
    assert is_made(sweep, run)


@pytest.mark.parametrize(
    "text", ["", "step,eval/test", "step\n7\n", "a,b\n1", "step,x\n1,2,3\n\xff"]
)
def test_a_table_in_any_condition_is_no_obstacle(tmp_path, text):
    sweep = small_sweep(tmp_path, planned("a"))
    folder = tmp_path / "runs" / "a"
    folder.mkdir(parents=True)
    (folder / "metrics.csv").write_bytes(text.encode("latin-1"))
    (state,) = look(sweep)
    assert state.step == (7 if text == "step\n7\n" else 0)


def test_a_damaged_ending_is_no_ending(tmp_path):
    run = planned("a")
    sweep = small_sweep(tmp_path, run)
    for text in ("{", "[]", '{"kind": "done"}'):
        sweep.ending(run).write_text(text)
        assert read_ending(sweep, run) is None
        assert look(sweep)[0].state == "waiting"
    write_ending(sweep, run, -9, made=False)
    assert read_ending(sweep, run).killed == 1


def test_attempts_wait_longer_each_time_they_are_killed():
    def ending(kind, killed):
        return Ending(kind=kind, code=1, line="", killed=killed, time=100.0, attempts=9)

    waits = [ending("killed", n).again_at - 100 for n in (1, 2, 3, 4)]
    assert waits == [10, 60, 300, 300]
    assert ending("stopped", 2).again_at == 100
    assert [ending("killed", n).over(2) for n in (1, 2, 3)] == [False, False, True]


def test_one_that_writes_nothing_for_long_is_stalled():
    run = planned("a")

    def state(age):
        return RunState(run=run, state="running", step=50_000, seconds=500.0, age=age)

    assert not state(590.0).stalled
    assert state(601.0).stalled


def test_one_that_goes_on_is_silent_since_it_goes_on(tmp_path):
    run = planned("a")
    sweep = small_sweep(tmp_path, run)
    table, lock = sweep.out(run) / "metrics.csv", sweep.lock(run)
    for path in (table, lock):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("step,time/seconds\n5,1\n")
    with lock.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        for begun, stalled in ((60, False), (900, True)):
            os.utime(table, (time.time() - 3600,) * 2)
            os.utime(lock, (time.time() - begun,) * 2)
            (found,) = look(sweep)
            assert found.state == "running"
            assert found.age == pytest.approx(begun, abs=5)
            assert found.stalled == stalled


def test_a_sweep_is_read_from_its_folder(tmp_path):
    runs = planned("a", "x"), planned("b", needs=("a",))
    sweep = small_sweep(tmp_path, *runs, cpus=3, memory="1.5GB")
    assert open_sweep(tmp_path) == sweep
    assert sweep.runs == runs
    assert sweep.resources.memory_bytes == 1_500_000_000
    with pytest.raises(MissingInputError, match="is no sweep"):
        open_sweep(tmp_path / "runs")
    for text in ("{", "[]", '{"format": 1}', '{"format": 99}'):
        (tmp_path / LOCK_FILE).write_text(text)
        with pytest.raises(DataError):
            open_sweep(tmp_path)


def test_a_copy_of_the_results_alone_can_be_looked_at(tmp_path):
    sweep = small_sweep(tmp_path / "whole", planned("a"), planned("b"))
    write_run(sweep.out(planned("a")), step=10, done=True)
    copy = tmp_path / "copy"
    copy.mkdir()
    shutil.copy(sweep.folder / LOCK_FILE, copy)
    shutil.copytree(sweep.folder / "runs", copy / "runs")
    assert [state.state for state in look(open_sweep(copy))] == ["done", "waiting"]


def test_without_locks_a_run_is_told_by_its_process_and_by_its_own_lease(tmp_path, monkeypatch):
    no_locks(monkeypatch)
    monkeypatch.setattr(PlannedRun, "command_line", as_script)
    run = planned("r", "time.sleep(30)")
    sweep = small_sweep(tmp_path, run)
    first = Attempt(sweep, run)
    assert holder_of(sweep, run).pid == first.process.pid
    assert Attempt(sweep, run).poll().kind == "busy"  # no second process
    first.process.kill()
    first.process.wait()
    assert holder_of(sweep, run) is None
    said = json.loads(sweep.lock(run).read_text())
    sweep.lock(run).write_text(json.dumps(said | {"pid": os.getpid()}))
    assert holder_of(sweep, run) is None  # another process has its number now
    sweep.out(run).mkdir(parents=True, exist_ok=True)
    (sweep.out(run) / ".lock").touch()  # a run of another machine: its lease is all there is
    lease = write_lease(sweep.out(run) / ".lock", host="node7", boot="b")
    sweep.lock(run).write_text(json.dumps(said | {"host": "node7"}))
    assert look(sweep)[0].state == "running"
    assert Attempt(sweep, run).process is None
    lease.unlink()
    assert look(sweep)[0].state == "waiting"


def test_two_thousand_runs_are_shown_in_a_second(tmp_path, capsys):
    """CPU time of reading, looking and printing."""
    runs = [planned(f"r{n}") for n in range(2000)]
    small_sweep(tmp_path, *runs)
    for run in runs:
        folder = tmp_path / run.out
        folder.mkdir(parents=True)
        row = ",".join(["1.5"] * 20)
        names = ",".join(["step", "eval/test", *(f"x{n}" for n in range(18))])
        (folder / "metrics.csv").write_text(f"{names}\n" + f"{row}\n" * 40)
        (tmp_path / "locks" / run.name).write_text(
            json.dumps({"pid": os.getpid(), "host": "x", "cores": []})
        )
    started = time.process_time()
    sweep = open_sweep(tmp_path)
    print_states(sweep, look(sweep), as_json=False)
    took = time.process_time() - started
    assert "2,000 runs: 2,000 waiting" in capsys.readouterr().out
    print(f"2,000 runs: {took:.2f} CPU s")
    assert took < 1
