"""`mcat dataset` and what `mcat collect` may be asked to write."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from hashlib import sha256

import h5py
import numpy as np
import pytest

from mcat.cli import run
from mcat.datasets import EpisodeStore, load, write_dataset
from tests.datasets.foreign_files import reseal
from tests.datasets.test_foreign import make_log, to_csv
from tests.datasets.test_interop import assert_same
from tests.transfer.transfer_logs import own_robot


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def mcat(command, capsys):
    code = run(command.split())
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    return code, out, err


def test_info_in_numbers(here, capsys):
    to_csv(here / "log.csv", make_log(voltage=np.ones(60)))
    code, out, _ = mcat("dataset info log.csv --json", capsys)
    facts = json.loads(out)
    assert code == 0
    assert facts["episode_length"] == {"min": 19, "max": 19}
    assert facts["returns"]["min"] < facts["returns"]["mean"] < facts["returns"]["max"]
    assert facts["rate_hz"] == 50
    assert facts["memory_bytes"] > 1000
    low, high = facts["action_range"]
    assert -1 <= low < high <= 1
    assert facts["metadata"]["ignored_columns"] == ["voltage"]


def test_info_for_people(here, capsys):
    to_csv(
        here / "log.csv", make_log(reward=None, act_0=make_log()["act_0"] * 8, voltage=np.ones(60))
    )
    _, out, _ = mcat("dataset info log.csv", capsys)
    lines = {line[:18].strip(): line[18:].strip() for line in out.splitlines()}
    assert lines["return"] == "no rewards"
    assert "outside [-1, 1]: scale them to it" in lines["actions"]
    assert lines["rate"] == "50 Hz"
    assert lines["not read"] == "voltage"
    _, out, _ = mcat("dataset info log.csv --json", capsys)
    assert json.loads(out)["returns"] is None
    write_dataset("mine.h5", own_robot(0), {"gripper": "soft", "hz": 50})
    _, out, _ = mcat("dataset info mine.h5", capsys)
    lines = {line[:18].strip(): line[18:].strip() for line in out.splitlines()}
    assert (lines["gripper"], lines["hz"]) == ("soft", "50")
    assert lines["return"] == "0 in every episode"


def test_metadata_steer_no_terminal(here, capsys):
    hostile = "\x1b]0;owned\x07\x1b[2J[/red][bold]\r\n\u202eend"
    found = {"ignored_columns": [hostile], "time_findings": [["warning", hostile]]}
    write_dataset("a.h5", own_robot(0), {"policy": hostile, hostile: 1, **found})
    for command in ("dataset info a.h5", "dataset check a.h5"):
        code, out, _ = mcat(command, capsys)
        assert code == 0
        assert "end" in out
        assert all(c.isprintable() for c in out.replace("\n", ""))
    write_dataset("b.h5", own_robot(0), {"task": {"robot": hostile}})
    code, _, err = mcat("dataset export-minari b.h5 --id mcat/x-v0 --root here", capsys)
    assert code == 65
    assert err.count("\n") == 1
    assert err.strip().isprintable()


def test_check_says_everything(here, capsys):
    to_csv(here / "log.csv", make_log(reward=None, voltage=np.ones(60), act_0=[9.0] * 60))
    code, out, _ = mcat("dataset check log.csv", capsys)
    assert code == 0
    assert out.splitlines() == [
        "log.csv: 57 transitions in 3 episodes, no rewards, 2 findings",
        "  warning: actions: 57 values outside [-1, 1], the range of mcat's actions: scale them to"
        " it, or give bounds (first 9 at episode 0, step 0, column 0)",
        "  warning: actions: 1 column never changes: 0",
        "  note: 1 column not read: voltage",
    ]
    code, out, _ = mcat("dataset check log.csv --json", capsys)
    told = json.loads(out)
    assert (told["file"], told["transitions"], told["has_rewards"]) == ("log.csv", 57, False)
    assert [finding["severity"] for finding in told["findings"]] == ["warning", "warning", "note"]


def test_check_goes_on_after_a_file_that_cannot_be_read(here, capsys):
    for name in ("a.csv", "b.csv"):
        to_csv(here / name, make_log())
    (here / "bad.csv").write_text("")
    code, out, err = mcat("dataset check a.csv missing.csv b.csv bad.csv", capsys)
    assert code == 66
    assert [line.split(":")[0] for line in out.splitlines()] == ["a.csv", "b.csv"]
    assert sorted(err.splitlines()) == [
        "error: bad.csv: the file is empty",
        "error: missing.csv does not exist: name a file, a Minari folder or id",
    ]
    to_csv(here / "short.csv", {name: values[:5] for name, values in make_log().items()})
    code, out, err = mcat("dataset check short.csv b.csv", capsys)
    assert code == 65
    assert "short.csv: 4 transitions in 1 episode, 1 finding\n" in out
    assert err == "error: short.csv: 1 finding would spoil training\n"


def test_translate_refuses_logs_of_different_rates(here, capsys):
    to_csv(here / "slow.csv", make_log())
    other = make_log(time=make_log()["time"] / 2, act_0=make_log()["act_0"] / 2)
    to_csv(here / "fast.csv", other)
    code, _, err = mcat("translate --src slow.csv --tgt fast.csv --out out", capsys)
    assert code == 65
    assert err == (
        "error: slow.csv has 50 rows a second, fast.csv 100: bring all logs to one rate\n"
    )
    assert not (here / "out").exists()


@pytest.mark.parametrize("name", ["x.csv", "x.parquet", "x.npz", "x"])
def test_collect_writes_no_hdf5_under_another_name(here, capsys, name):
    code, _, err = mcat(f"collect --env hopper --policy random --steps 10 --out {name}", capsys)
    assert code == 2
    assert (
        err == f"error: --out {name}: collect writes HDF5, name it x.h5 or a folder that exists\n"
    )
    assert list(here.iterdir()) == []


def test_collect_into_a_file_as_if_it_were_a_folder(here, capsys):
    (here / "file").write_text("precious")
    code, _, err = mcat("collect --family halfcheetah-pair --steps 10 --out file", capsys)
    assert code == 73
    assert "choose another path" in err
    assert (here / "file").read_text() == "precious"


def test_export_of_what_is_not_its_task(here, capsys):
    write_dataset("a.h5", own_robot(0), {"task": {"robot": "ant"}})
    code, _, err = mcat("dataset export-minari a.h5 --id mcat/x-v0 --root out", capsys)
    assert code == 65
    assert "3 observations and 2 actions, their task ant has 27 and 8" in err
    assert not (here / "out").exists()
    code, _, err = mcat("dataset export-minari a.h5 --id a/b-v0 --root out", capsys)
    assert code == 2
    assert "two letters at least" in err


def test_export_through_every_format_and_back(here, capsys):
    pytest.importorskip("pyarrow")
    write_dataset("a.h5", own_robot(0), {"rate_hz": 25})
    before = "a.h5"
    for after in ("b.csv", "c.parquet", "d", "e.h5"):
        code, out, err = mcat(f"dataset export {before} --out {after}", capsys)
        assert (code, out) == (0, f"{after}\n")
        assert err.startswith("exporting: ") == (after != "e.h5")
        store, metadata = load(after)
        assert_same(store, own_robot(0))
        assert metadata["rate_hz"] == 25
        before = after
    assert mcat("dataset export a.h5 --out f.csv --quiet --rate 10", capsys) == (0, "f.csv\n", "")
    assert load("f.csv")[1]["rate_hz"] == 10
    assert sorted(path.name for path in here.iterdir()) == [
        "a.h5", "b.csv", "c.parquet", "d", "e.h5", "f.csv",
    ]  # fmt: skip


def test_export_replaces_only_when_asked(here, capsys):
    pytest.importorskip("pyarrow")
    for name in ("b.csv", "b.parquet", "b.h5"):
        (here / name).write_text("precious")
    (here / "b").mkdir()
    for name in ("b.csv", "b.parquet", "b.h5", "b"):  # before the input is looked at
        code, _, err = mcat(f"dataset export missing.h5 --out {name}", capsys)
        assert code == 73
        assert err.startswith(f"error: {name} exists already: pass --overwrite")
    write_dataset("a.h5", own_robot(0), {"rate_hz": 25})
    code, _, err = mcat("dataset export a.h5 --out b --overwrite", capsys)
    assert (code, err) == (73, "error: b is no LeRobot data set and will not be replaced\n")
    assert (here / "b.csv").read_text() == "precious"
    assert mcat("dataset export a.h5 --out b.csv --overwrite", capsys)[0] == 0
    assert_same(load("b.csv")[0], own_robot(0))


def test_export_of_what_makes_no_sense(here, capsys):
    write_dataset("a.h5", own_robot(0), {})
    code, _, err = mcat("dataset export a.h5 --out b.xlsx", capsys)
    assert code == 2
    assert err == "error: --out b.xlsx: name it b.csv, .parquet or .h5, or b for a LeRobot folder\n"
    code, _, err = mcat("dataset export a.h5 --out b", capsys)
    assert code == 2
    assert "LeRobot needs the steps a second, which this data set lacks: pass --rate" in err
    assert mcat("dataset export a.h5 --out b --rate 0", capsys)[0] == 2
    assert mcat("dataset export missing.h5 --out b.csv", capsys)[0] == 66
    assert mcat("dataset export a.h5 --out nowhere/b.csv", capsys)[0] == 73
    assert [path.name for path in here.iterdir()] == ["a.h5"]


@pytest.mark.parametrize("out", ["b.csv", "b.parquet", "b"])
def test_export_on_a_full_disk_leaves_nothing(here, out):
    pytest.importorskip("pyarrow")
    write_dataset("a.h5", own_robot(0), {"rate_hz": 25})
    command = [sys.executable, "-m", "mcat", "dataset", "export", "a.h5", "--out", out]
    limit = (3000, 3000)
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit),
    )
    assert done.returncode == 74
    assert "error: cannot write " in done.stderr
    assert "File too large" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
    assert [path.name for path in here.iterdir()] == ["a.h5"]


@pytest.mark.parametrize(
    "metadata",
    [
        '"action_high": "abc"',
        '"action_low": [1e999], "action_high": [1]',
        '"action_low": 1' + "0" * 400,
    ],
)
def test_hostile_bounds_are_one_line(here, capsys, metadata):
    write_dataset("a.h5", own_robot(0), {"seed": 1})
    with h5py.File("a.h5", "r+") as file:
        text = file.attrs["mcat"].replace(b'"seed": 1', metadata.encode())
        del file.attrs["mcat"]
        file.attrs.create("mcat", text, dtype=h5py.string_dtype("utf-8", len(text)))
    reseal(here / "a.h5")
    for command in ("dataset check a.h5", "dataset info a.h5"):
        code, _, err = mcat(command, capsys)
        assert code == 65
        assert err.count("\n") == 1


def test_an_existing_file_is_named_for_both_kinds_of_caller(here):
    store = EpisodeStore.concatenate([own_robot(0)])
    write_dataset("a.h5", store, {})
    with pytest.raises(Exception, match=r"--overwrite \(in Python overwrite=True\) or"):
        write_dataset("a.h5", store, {})
    assert repr(store.select([0])).startswith("Episodes(30 transitions, 1 episode, ")


def test_plain_h5py_reads_all_arrays(here):
    """In a process that has never heard of us."""
    store = own_robot(0)
    write_dataset("a.h5", store, {"seed": 1})
    program = """
import h5py, hashlib, sys
with h5py.File("a.h5", "r") as file:
    for name, array in file.items():
        assert array.chunks is None and array.compression is None
        print(name, array.dtype, *array.shape, hashlib.sha256(array[()].tobytes()).hexdigest())
assert "mcat" not in sys.modules
"""
    lines = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True,
                           check=True).stdout.splitlines()  # fmt: skip
    names = ("observations", "actions", "rewards", "next_observations", "terminals", "timeouts")
    arrays = {name: store.column(name) for name in names} | {"episode_ends": store.episode_ends}
    assert sorted(lines) == sorted(
        " ".join(map(str, (name, a.dtype, *a.shape, sha256(a.tobytes()).hexdigest())))
        for name, a in arrays.items()
    )
