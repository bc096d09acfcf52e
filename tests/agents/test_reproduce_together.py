"""Several `mcat reproduce` at once in one work folder; bad places for it."""

from __future__ import annotations

import os
import shutil
import time

import pytest

from mcat.agents import reproduce as module
from mcat.agents.paper_tables import TABLES
from mcat.agents.reproduce import ReproduceConfig, reproduce
from mcat.cli import run
from mcat.datasets.shards import claim_shards
from mcat.errors import McatError
from mcat.safe_io import read_json
from mcat.workplaces import new_folder
from tests.agents.test_reproduce import SMALL, SOURCE, TARGET, random_log

CELL = "small/smoke/many-ours-seed0"


@pytest.fixture(autouse=True)
def small_table(monkeypatch):
    monkeypatch.setitem(TABLES, "small", SMALL)


def config(work, **changes):
    given = {"rows": ("many",), "seeds": (0,), "episodes": 1} | changes
    return ReproduceConfig(table="small", preset="smoke", work=work, quiet=True, **given)


def spawn(given, said, gate=None):
    """Starts a call in a fork; what it says, and that it trained, goes to the file `said`.

    A fork shares the locks that are held at the time, so it waits at a `gate` for ours.
    """
    child = os.fork()
    if child == 0:
        code, real = 99, module.translate
        try:
            if gate:
                os.read(gate[0], 1)
            with open(said, "a", buffering=1) as file:

                def counted(*args, **options):
                    result = real(*args, **options)
                    file.write("trained\n")
                    return result

                module.translate = counted
                reproduce(given, say=lambda text: file.write(f"{text}\n"))
                code = 0
        except McatError as error:
            code = error.exit_code
        finally:
            os._exit(code)
    return child


def code_of(child):
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def wait_for(text, path):
    end = time.monotonic() + 120
    while not (path.exists() and text in path.read_text()):
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """What a call without company makes."""
    work = tmp_path_factory.mktemp("alone")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(TABLES, "small", SMALL)
        reproduce(config(work))
    return work


def everything(work):
    return sorted(str(path.relative_to(work)) for path in work.rglob("*"))


def matrix(work):
    return read_json(work / CELL / "result.json")["matrix"]


def test_what_another_process_makes_is_waited_for_and_used(tmp_path, alone):
    work, said = tmp_path / "work", tmp_path / "said"
    shutil.copytree(alone / "logs", work / "logs")
    gate = os.pipe()
    child = spawn(config(work), said, gate)
    with new_folder(work / CELL) as folder:  # the other process
        os.write(gate[1], b".")
        wait_for("waiting", said)
        shutil.copytree(alone / CELL, folder, dirs_exist_ok=True)
    assert code_of(child) == 0
    told = said.read_text()
    assert f"{work / CELL} is being made by process {os.getpid()} on" in told
    assert ": left to it\n" in told  # first it looks for something else to do
    assert "trained" not in told
    assert everything(work) == everything(alone)


def test_what_another_process_gives_up_is_done_by_the_one_that_waited(tmp_path, alone):
    work, said = tmp_path / "work", tmp_path / "said"
    (work / "logs").mkdir(parents=True)
    log = work / "logs" / f"{random_log(SOURCE).name}.h5"
    gate = os.pipe()
    child = spawn(config(work), said, gate)
    with claim_shards(log, {}, lambda shard: True):
        os.write(gate[1], b".")
        wait_for("waiting", said)
    assert code_of(child) == 0
    assert f"{log} is being made by process {os.getpid()} on" in said.read_text()
    assert said.read_text().count("trained") == 1
    assert everything(work) == everything(alone)
    assert matrix(work) == matrix(alone)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("processes", [2, 3])
def test_several_calls_share_the_work_and_end_alike(tmp_path, processes):
    for number in range(3):
        work = tmp_path / str(number)
        said = [tmp_path / f"{number}-{i}" for i in range(processes)]
        all_cells = config(work, rows=(), seeds=(0, 1))
        children = [spawn(all_cells, file) for file in said]
        assert [code_of(child) for child in children] == [0] * processes
        told = "".join(file.read_text() for file in said)
        assert told.count("trained") == 6  # every cell once
        assert not list(work.rglob("*.part")) + list(work.rglob("*.shards"))
        assert len(list(work.rglob("result.json"))) == 6


# ---- bad places


@pytest.mark.parametrize("option", ["--work", "--out"])
def test_a_file_is_no_place_to_work(tmp_path, capsys, option, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("precious")
    call = ["reproduce", "small", "--preset", "smoke", "--seeds", "0", "--row", "many"]
    assert run([*call, option, "file"]) == 73
    err = capsys.readouterr().err
    assert err.splitlines()[-1].startswith("error: cannot ")
    assert sum(line.startswith("error") for line in err.splitlines()) == 1
    assert (tmp_path / "file").read_text() == "precious"
    assert sorted(os.listdir(tmp_path)) in (["file"], ["file", "results"])


def test_logs_of_both_machines_are_needed():
    """What the tests above rely on: the row shares its logs with the other one."""
    assert {log.task for log in SMALL.rows[1].tasks("smoke")} == {SOURCE, TARGET}
