"""Disks without room: the driver lives, and comes back to its runs."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import subprocess

import pytest

from mcat.sweeps.attempt import Attempt
from mcat.sweeps.endings import read_ending
from mcat.sweeps.folder import open_sweep
from mcat.sweeps.state import look
from tests.sweeps.small import drive, planned, small_sweep, tries

pytestmark = pytest.mark.usefixtures("quick")


def test_a_run_whose_disk_has_no_room_for_its_lock_is_tried_again(tmp_path, monkeypatch):
    run = planned("r")
    sweep = small_sweep(tmp_path, run, retries=1)
    shutil.rmtree(tmp_path / "logs")
    (tmp_path / "logs").write_text("")  # no log can be opened
    monkeypatch.setattr("mcat.safe_io._REFUSED", set())
    state = drive(sweep)["r"]
    assert (state.state, state.ending.code, state.ending.attempts) == ("failed", 74, 2)
    assert "cannot write" in state.ending.line
    assert tries(sweep, run) == 0


def test_a_lock_that_cannot_say_who_holds_it_is_held_all_the_same(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    run = planned("r", "time.sleep(30)")
    sweep = small_sweep(tmp_path, run)
    attempt = Attempt(sweep, run)
    assert look(sweep)[0].state == "running"
    attempt.process.kill()
    attempt.process.wait()


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 400 kB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    line = ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(folder)]
    if os.geteuid() or shutil.which("mount") is None:
        pytest.skip("a small file system of one's own needs root and mount")
    mounted = subprocess.run(line, capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_on_a_full_disk_the_driver_lives_and_comes_back_to_its_runs(small_disk):
    runs = [planned(f"r{n}") for n in range(2)]
    sweep = small_sweep(small_disk / "s", *runs, retries=9)
    filler, noted = small_disk / "filler", []

    def fill_then_free(states):
        if not noted and not filler.exists():
            with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
                while file.write(b"x" * 512):
                    pass
        seen = [ending.killed for run in runs if (ending := read_ending(sweep, run)) is not None]
        if len(seen) == 2 and min(seen) >= 2 and not noted:
            noted.append([sweep.ending(run).exists() for run in runs])
            filler.unlink()

    states = drive(sweep, watch=fill_then_free)
    assert noted == [[False, False]]  # they were known to the driver alone
    assert [states[run.name].state for run in runs] == ["done"] * 2
    again = open_sweep(sweep.folder)
    assert all(read_ending(again, run).attempts >= 3 for run in runs)
    assert not sweep.unwritten
