"""The loop: what is started when, what becomes of each ending, who may drive."""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import signal
import time

import pytest

from mcat.errors import MissingInputError
from mcat.interrupts import StoppedError
from mcat.sweeps.attempt import Attempt
from mcat.sweeps.driver import stop_runs
from mcat.sweeps.endings import kind_of, read_ending
from mcat.sweeps.folder import open_sweep
from mcat.sweeps.state import holder_of, look
from mcat.workplaces import BusyError
from tests.sweeps.small import drive, planned, small_sweep, tries, wait_for

pytestmark = pytest.mark.usefixtures("quick")


def test_every_run_is_done_once_and_again_there_is_nothing_to_do(tmp_path):
    runs = [planned(f"r{n}") for n in range(5)]
    sweep = small_sweep(tmp_path, *runs)
    assert {s.state for s in drive(sweep).values()} == {"done"}
    assert [tries(sweep, run) for run in runs] == [1] * 5
    assert {s.state for s in drive(sweep).values()} == {"done"}
    assert [tries(sweep, run) for run in runs] == [1] * 5


def test_no_more_at_once_than_asked_for_each_on_a_core_of_its_own(tmp_path):
    runs = [planned(f"r{n}", "time.sleep(0.2)") for n in range(5)]
    sweep = small_sweep(tmp_path, *runs)
    most = []
    drive(sweep, 2, lambda states: most.append(sum(s.state == "running" for s in states)))
    assert max(most) == 2
    own = [json.loads((sweep.out(run) / "affinity").read_text()) for run in runs]
    if len(os.sched_getaffinity(0)) > 1:
        assert all(len(cores) == 1 for cores in own)
        assert len({cores[0] for cores in own}) == 2


def test_one_number_of_cpus_is_cores_and_threads(tmp_path):
    run = planned("r")
    sweep = small_sweep(tmp_path, run, cpus=2)
    drive(sweep, 1)
    cores = json.loads((sweep.out(run) / "affinity").read_text())
    assert len(cores) == min(2, len(os.sched_getaffinity(0)))
    assert (sweep.out(run) / "threads").read_text() == "2"


def test_looking_takes_a_small_share_however_many_runs_there_are(tmp_path):
    run = planned("r", "time.sleep(1)")
    looks = []

    def slow(states):
        looks.append(time.monotonic())
        until = time.process_time() + 0.02  # as with hundreds of runs
        while time.process_time() < until:
            pass

    drive(small_sweep(tmp_path, run), watch=slow)
    between = itertools.pairwise(looks[1:-1])  # the first starts the run, the last sees its end
    assert min(b - a for a, b in between) >= 0.02 / 0.04


def test_inputs_come_first_and_what_needs_a_failed_one_is_not_started(tmp_path):
    late = "open(out.parent / 'order', 'a').write(out.name)"
    runs = [
        planned("a", "time.sleep(0.2)", late, variant=""),
        planned("b", "sys.exit(66)", variant=""),
        planned("c", late, needs=("a",)),
        planned("d", needs=("a", "b")),
    ]
    sweep = small_sweep(tmp_path, *runs)
    states = drive(sweep)
    assert {name: s.state for name, s in states.items()} == {
        "a": "done", "b": "failed", "c": "done", "d": "blocked"
    }  # fmt: skip
    assert (tmp_path / "runs" / "order").read_text() == "ac"


ENDINGS = {
    # what the run does: its state in the end, how often it was started
    "sys.exit(75) if attempt < 4 else 0": ("done", 4),
    "os.kill(os.getpid(), 9) if attempt < 3 else 0": ("done", 3),
    "os.kill(os.getpid(), 9)": ("failed", 3),
    "print('no space left'); sys.exit(74)": ("failed", 3),
    "os._exit(0)": ("failed", 3),  # it says it is done, but made nothing
    "print('loss is NaN'); sys.exit(4)": ("diverged", 1),
    "sys.exit(3)": ("diverged", 1),
    "print('no such option'); sys.exit(2)": ("failed", 1),
    "sys.exit(65)": ("failed", 1),
    "print('exists already'); sys.exit(73)": ("failed", 1),  # and nobody works there
}


@pytest.mark.parametrize("line", ENDINGS)
def test_the_ending_decides_about_another_attempt(tmp_path, line):
    run = planned("r", line)
    sweep = small_sweep(tmp_path, run, retries=2)
    state = drive(sweep)["r"]
    assert (state.state, tries(sweep, run)) == ENDINGS[line]
    if state.state != "done":
        assert state.ending.attempts == tries(sweep, run)


def test_the_last_words_of_a_run_are_kept_and_a_new_drive_tries_again(tmp_path):
    run = planned("r", "print('a'); print('no space left'); sys.exit(74 if attempt < 3 else 0)")
    sweep = small_sweep(tmp_path, run, retries=0)
    assert drive(sweep)["r"].ending.line == "no space left"
    assert drive(sweep)["r"].state == "failed"
    assert drive(sweep)["r"].state == "failed"  # it ends with 0, but makes nothing
    diverged = planned("d", "sys.exit(4)")
    sweep = small_sweep(tmp_path / "other", diverged)
    assert [drive(sweep)["d"].state for _ in range(2)] == ["diverged"] * 2
    assert tries(sweep, diverged) == 1  # it would only do so again


def test_a_mistake_stops_its_variant_and_no_other(tmp_path):
    bad = [planned(f"bad{n}", "sys.exit(2)", variant="bad") for n in range(4)]
    good = [planned(f"good{n}", variant="good") for n in range(2)]
    sweep = small_sweep(tmp_path, *bad, *good)
    states = drive(sweep, jobs=1)
    assert [states[run.name].state for run in good] == ["done"] * 2
    assert sum(tries(sweep, run) for run in bad) == 1
    assert [states[run.name].state for run in bad] == ["failed", *["waiting"] * 3]


def test_what_an_exit_code_means():
    assert kind_of(0, made=True, busy=False) == "done"
    assert kind_of(0, made=False, busy=False) == "killed"
    assert kind_of(73, made=False, busy=True) == "busy"
    assert kind_of(73, made=False, busy=False) == "mistake"
    assert {kind_of(code, made=False, busy=False) for code in (75, 130, -15, -2)} == {"stopped"}
    assert {kind_of(code, made=False, busy=False) for code in (-9, 137, 74, 71, 1)} == {"killed"}


def test_a_run_that_somebody_else_works_on_is_waited_for(tmp_path):
    run = planned("r", "time.sleep(0.5)")
    sweep = small_sweep(tmp_path, run)
    other = Attempt(sweep, run)
    states = drive(sweep)
    assert states["r"].state == "done"
    assert tries(sweep, run) == 1
    other.process.wait()


def test_the_lock_is_the_process_not_its_driver(tmp_path):
    run = planned("r", "time.sleep(30)")
    sweep = small_sweep(tmp_path, run)
    attempt = Attempt(sweep, run)
    assert holder_of(sweep, run).pid == attempt.process.pid
    assert look(sweep)[0].state == "running"
    second = Attempt(sweep, run)
    assert second.process is None
    assert second.poll().kind == "busy"
    os.kill(attempt.process.pid, signal.SIGKILL)
    attempt.process.wait()
    assert holder_of(sweep, run) is None
    assert attempt.poll().kind == "killed"
    assert look(sweep)[0].state == "waiting"


def _drive_in_child(folder):
    drive(open_sweep(folder), jobs=2)


def forked(folder):
    context = multiprocessing.get_context("fork")
    child = context.Process(target=_drive_in_child, args=(folder,))
    child.start()
    return child


def test_runs_outlive_a_killed_driver_and_the_next_one_adopts_them(tmp_path):
    go = tmp_path / "go"
    slow = f"[time.sleep(0.02) for _ in range(2000) if not os.path.exists({str(go)!r})]"
    runs = [planned(f"r{n}", slow) for n in range(3)]
    sweep = small_sweep(tmp_path / "s", *runs)
    first = forked(sweep.folder)
    # not their state: a run's lock is its driver's for a moment, before there is a process
    wait_for(lambda: [tries(sweep, run) for run in runs] == [1, 1, 0])
    os.kill(first.pid, signal.SIGKILL)
    first.join()
    assert sum(s.state == "running" for s in look(sweep)) == 2
    second = forked(sweep.folder)
    time.sleep(0.3)
    assert [tries(sweep, run) for run in runs] == [1, 1, 0]  # no room, as two are alive
    go.touch()
    second.join(20)
    assert [s.state for s in look(sweep)] == ["done"] * 3
    assert [tries(sweep, run) for run in runs] == [1] * 3


def _drive_when_all_are_there(folder, together, codes):
    together.wait()
    try:
        drive(open_sweep(folder), jobs=2)
        codes.put(0)
    except BusyError as error:
        codes.put(error.exit_code)


def test_of_three_drivers_at_once_one_drives(tmp_path):
    runs = [planned(f"r{n}", "time.sleep(1)") for n in range(3)]
    sweep = small_sweep(tmp_path, *runs)
    context = multiprocessing.get_context("fork")
    together, codes = context.Barrier(3), context.Queue()
    drivers = [
        context.Process(target=_drive_when_all_are_there, args=(tmp_path, together, codes))
        for _ in range(3)
    ]
    for driver in drivers:
        driver.start()
    assert sorted(codes.get(timeout=60) for _ in drivers) == [0, 73, 73]
    for driver in drivers:
        driver.join(20)
    assert [tries(sweep, run) for run in runs] == [1] * 3


def test_a_second_ctrl_c_leaves_at_once_and_the_runs_go_on(tmp_path):
    go = tmp_path / "go"
    stubborn = "signal.signal(signal.SIGTERM, lambda *_: (out / 'asked').touch())"
    slow = f"[time.sleep(0.02) for _ in range(2000) if not os.path.exists({str(go)!r})]"
    run = planned("r", stubborn, "(out / 'ready').touch()", slow)
    sweep = small_sweep(tmp_path / "s", run)
    driver = forked(sweep.folder)
    wait_for(lambda: (sweep.out(run) / "ready").exists())
    os.kill(driver.pid, signal.SIGINT)
    wait_for(lambda: (sweep.out(run) / "asked").exists())
    assert driver.is_alive()  # it waits for the run to save
    os.kill(driver.pid, signal.SIGINT)
    driver.join(20)
    assert driver.exitcode == 1
    assert look(sweep)[0].state == "running"
    go.touch()
    wait_for(lambda: look(sweep)[0].state == "done")
    assert tries(sweep, run) == 1


MARK = "(out / 'failure.json').write_text(json.dumps({'code': 4, 'line': 'loss is NaN'}))"


def test_an_adopted_run_that_diverges_is_not_run_again(tmp_path):
    go = tmp_path / "go"
    slow = f"[time.sleep(0.02) for _ in range(2000) if not os.path.exists({str(go)!r})]"
    run = planned("r", slow, MARK, "sys.exit(4)")
    sweep = small_sweep(tmp_path / "s", run)
    first = forked(sweep.folder)
    wait_for(lambda: tries(sweep, run) == 1)
    os.kill(first.pid, signal.SIGKILL)
    first.join()
    go.touch()
    state = drive(sweep)["r"]
    assert (state.state, state.ending.code, state.ending.line) == ("diverged", 4, "loss is NaN")
    assert (tries(sweep, run), state.ending.attempts) == (1, 1)


def test_a_signal_stops_runs_well_and_the_next_drive_goes_on(tmp_path):
    runs = [planned(f"r{n}", "time.sleep(30) if attempt == 1 else 0") for n in range(3)]
    sweep = small_sweep(tmp_path, *runs)

    def stop_once_two_run(states):
        if all(tries(sweep, run) for run in runs[:2]):
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(StoppedError, match="goes on") as stopped:
        drive(sweep, 2, stop_once_two_run)
    assert stopped.value.exit_code == 75
    assert [s.state for s in look(sweep)] == ["waiting"] * 3
    assert [read_ending(sweep, run).kind for run in runs[:2]] == ["stopped"] * 2
    assert [tries(sweep, run) for run in runs] == [1, 1, 0]
    runs_again = drive(sweep, jobs=1, watch=lambda states: _stop_the_third(sweep, runs))
    assert [runs_again[run.name].state for run in runs] == ["done", "done", "stopped"]


def _stop_the_third(sweep, runs):
    if tries(sweep, runs[2]) == 1:
        stop_runs(sweep, [runs[2].name])


def test_stopping_by_name_leaves_the_others_alone(tmp_path):
    runs = [planned(f"r{n}", "time.sleep(30)") for n in range(2)]
    sweep = small_sweep(tmp_path, *runs)
    attempts = [Attempt(sweep, run) for run in runs]
    wait_for(lambda: all(tries(sweep, run) for run in runs))
    time.sleep(0.1)
    with pytest.raises(MissingInputError, match="has no run 'r7'"):
        stop_runs(sweep, ["r7"])
    assert stop_runs(sweep, ["r0"]) == ["r0"]
    wait_for(lambda: attempts[0].process.poll() is not None)
    assert attempts[0].poll().kind == "stopped"
    assert [s.state for s in look(sweep)] == ["stopped", "running"]
    assert stop_runs(sweep, []) == ["r1"]
    assert attempts[1].process.wait(10) == 75
