"""Logs of others: what is left out is said, what was surely meant is refused, time is looked at."""

from __future__ import annotations

import gzip
import io
import os
import subprocess
import sys
import zipfile

import h5py
import numpy as np
import pytest

from mcat.datasets import check, load
from mcat.errors import DataError
from mcat.transfer.logs import load_logs, require_same_rate
from tests.datasets.test_interop import assert_same, make_store

ROWS = 60
EPISODES = 3


def make_log(**changes):
    """A table of three episodes of 20 rows at 50 Hz; None leaves a column out."""
    rng = np.random.default_rng(0)
    table = {
        "time": np.tile(np.arange(20), EPISODES) * 0.02 + 3,
        "episode": np.repeat(np.arange(EPISODES), 20),
        "obs_0": rng.normal(size=ROWS),
        "obs_1": rng.normal(size=ROWS),
        "act_0": rng.uniform(-1, 1, ROWS),
        "reward": rng.normal(size=ROWS),
        "terminal": np.zeros(ROWS),
    }
    return {name: values for name, values in (table | changes).items() if values is not None}


def to_csv(path, table):
    rows = zip(*(list(values) for values in table.values()), strict=True)
    lines = [",".join(table), *(",".join(map(str, row)) for row in rows)]
    text = "\n".join(lines) + "\n"
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def to_parquet(path, table):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.table({name: list(v) for name, v in table.items()}), path)
    return path


def renamed(old, new):
    return {new if name == old else name: values for name, values in make_log().items()}


def refusal(path):
    with pytest.raises(DataError) as caught:
        load(path)
    text = str(caught.value)
    assert str(path) in text
    assert text.isprintable()
    return text


# ---- names


@pytest.mark.parametrize(
    ("old", "new", "meant"),
    [
        ("episode", "episode_id", "episode"),
        ("episode", "Episode", "episode"),
        ("episode", "episode_index", "episode"),
        ("episode", "epsiode", "episode"),
        ("episode", "trajectory", "episode"),
        ("episode", "run", "episode"),
        ("episode", "trial_id", "episode"),
        ("reward", "rewards", "reward"),
        ("reward", "Reward", "reward"),
        ("terminal", "done", "terminal"),
        ("terminal", "terminated", "terminal"),
        ("terminal", "truncated", "timeout"),
        ("obs_1", "obs1", "obs_1"),
        ("obs_1", "obs.1", "obs_1"),
        ("obs_1", "observation_1", "obs_1"),
        ("act_0", "action_0", "act_0"),
        ("obs_0", "obs_" + "1" * 5000, "obs_1"),
    ],
)
def test_a_column_that_was_surely_meant_is_refused(tmp_path, old, new, meant):
    text = refusal(to_csv(tmp_path / "log.csv", renamed(old, new)))
    assert f"{new[:40]}" in text
    assert f"looks like '{meant}" in text


def test_a_column_is_no_mistake_where_the_right_one_is_there_too(tmp_path):
    extra = {
        name: np.zeros(ROWS) for name in ("episode_index", "done", "rewards", "state", "fact_1")
    }
    _, metadata = load(to_csv(tmp_path / "log.csv", make_log(**extra)))
    assert metadata["ignored_columns"] == list(extra)


def test_what_is_left_out_is_a_note(tmp_path):
    path = to_csv(tmp_path / "log.csv", make_log(temperature=np.zeros(ROWS), mode=["a"] * ROWS))
    store, metadata = load(path)
    assert [str(finding) for finding in check(store, metadata)] == [
        "note: 2 columns not read: temperature, mode"
    ]
    assert (
        f"{path}: 2 columns not read: temperature, mode" in load_logs([str(path)], history=10).notes
    )


@pytest.mark.parametrize(
    ("name", "meant"),
    [("dones", "terminals"), ("reward", "rewards"), ("next_obs", "next_observations")],
)
def test_arrays_that_were_surely_meant_are_refused(tmp_path, name, meant):
    arrays = {"observations": np.zeros((9, 2)), "actions": np.zeros((9, 1)), name: np.zeros(9)}
    with h5py.File(tmp_path / "log.h5", "w") as file:
        for key, values in arrays.items():
            file[key] = values
    np.savez(tmp_path / "log.npz", **arrays)
    for path in [tmp_path / "log.npz"] + [tmp_path / "log.h5"] * (name == "dones"):
        assert f"'{name}' is not read, but looks like '{meant}'" in refusal(path)


def test_other_arrays_are_left_out_with_a_word_and_short_floats_are_read(tmp_path):
    store = make_store((5, 7), obs=3, act=2)
    arrays = {
        "observations": store.observations.astype(np.float16),
        "next_observations": store.next_observations.astype(np.float16),
        "actions": store.actions.astype(np.float16),
        "episode_ends": store.episode_ends.astype(np.int32),
        "time": np.arange(12) / 100,
        "timestamp": np.zeros((12, 1)),
        "voltage": np.zeros((12, 4)),
        "notes": np.array([b"text"] * 12),
    }
    with h5py.File(tmp_path / "log.h5", "w") as file:
        for name, values in arrays.items():
            file[name] = values
    np.savez_compressed(tmp_path / "log.npz", **arrays)
    for path in (tmp_path / "log.h5", tmp_path / "log.npz"):
        loaded, metadata = load(path)
        np.testing.assert_array_equal(loaded.actions, arrays["actions"].astype(np.float32))
        assert loaded.episode_ends.tolist() == [5, 12]
        assert sorted(metadata["ignored_columns"]) == ["notes", "timestamp", "voltage"]
        assert metadata["rate_hz"] == 100
        assert metadata["has_rewards"] is False


# ---- times


def times(change):
    table = make_log()
    change(table["time"])
    return table


def swap_rows(time):
    time[[24, 25]] = time[[25, 24]]


def repeat_a_moment(time):
    time[45] = time[44]


def lose_rows(time):
    time[7:20] += 0.04


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda time: None, []),
        (lambda time: time.__imul__(1.0001), []),
        (
            swap_rows,
            [
                "error: time runs backwards: rows in a wrong order, or an episode end not marked?"
                " At episode 1, step 5 (row 25)",
                "warning: time jumps by more than 0.03: rows missing?"
                " At episode 1, step 4 (row 24); episode 1, step 6 (row 26)",
            ],
        ),
        (
            repeat_a_moment,
            [
                "warning: time stands still: rows repeated? At episode 2, step 5 (row 45)",
                "warning: time jumps by more than 0.03: rows missing?"
                " At episode 2, step 6 (row 46)",
            ],
        ),
        (
            lose_rows,
            ["warning: time jumps by more than 0.03: rows missing? At episode 0, step 7 (row 7)"],
        ),
    ],
)
def test_times_are_looked_at(tmp_path, change, found):
    store, metadata = load(to_csv(tmp_path / "log.csv", times(change)))
    assert [str(finding) for finding in check(store, metadata)] == found
    assert metadata["rate_hz"] == pytest.approx(50, rel=1e-3)


def stop_the_clock(time):
    time[:] = 4


def run_backwards(time):
    time *= -1


def jump_to_the_end_of_numbers(time):
    time[30:] = 1e308
    time[31:] = -1e308


@pytest.mark.parametrize("change", [stop_the_clock, run_backwards, jump_to_the_end_of_numbers])
def test_a_clock_that_is_broken_has_no_clean_bill(tmp_path, change):
    store, metadata = load(to_csv(tmp_path / "log.csv", times(change)))
    assert "time" in str(check(store, metadata)[0])
    assert np.isfinite(metadata.get("rate_hz", 0))


def test_an_episode_that_is_a_group_is_no_array_of_ours(tmp_path):
    with h5py.File(tmp_path / "main_data.h5", "w") as file:
        file.create_group("episode_0/observations")
    assert "it has no observations, actions, but episode_0" in refusal(tmp_path / "main_data.h5")


def test_every_sixth_row_missing_is_counted(tmp_path):
    table = make_log(episode=None, time=np.arange(ROWS) * 0.02)
    keep = np.arange(ROWS) % 6 != 3
    path = to_csv(tmp_path / "log.csv", {name: v[keep] for name, v in table.items()})
    (finding,) = check(*load(path))
    assert str(finding).endswith("; and 2 more")


def test_rows_in_a_wrong_order_are_not_learned_from(tmp_path):
    with pytest.raises(DataError, match="time runs backwards"):
        load_logs([str(to_csv(tmp_path / "log.csv", times(swap_rows)))], history=10)


def test_logs_of_different_rates_are_refused(tmp_path):
    slow = to_csv(tmp_path / "slow.csv", make_log())
    fast = to_csv(tmp_path / "fast.csv", make_log(time=make_log()["time"] / 2))
    same = to_csv(tmp_path / "same.csv", make_log(time=make_log()["time"] * 1.02))
    silent = to_csv(tmp_path / "silent.csv", make_log(time=None))
    machines = {
        path.stem: load_logs([str(path)], history=10) for path in (slow, fast, same, silent)
    }
    require_same_rate([machines["slow"], machines["same"], machines["silent"]])
    with pytest.raises(DataError, match=r"slow.csv has 50 rows a second, .*fast.csv 100: bring"):
        require_same_rate([machines["fast"], machines["silent"], machines["slow"]])


@pytest.mark.parametrize("clock", [["noon"] * ROWS, [""] * ROWS, [np.nan] * ROWS])
def test_a_time_that_is_no_number_is_left_out(tmp_path, clock):
    store, metadata = load(to_csv(tmp_path / "log.csv", make_log(time=clock)))
    assert len(store) == ROWS - EPISODES
    assert metadata["ignored_columns"] == ["time"]
    assert "rate_hz" not in metadata


def test_dates_in_parquet_are_times(tmp_path):
    moments = np.datetime64("2026-01-01") + (np.arange(ROWS) * 20).astype("timedelta64[ms]")
    path = to_parquet(tmp_path / "log.parquet", make_log(time=None, timestamp=moments))
    assert load(path)[1]["rate_hz"] == pytest.approx(50)
    path = to_parquet(tmp_path / "text.parquet", make_log(time=["noon"] * ROWS))
    assert load(path)[1]["ignored_columns"] == ["time"]


# ---- rewards, actions


def test_rewards_that_are_not_there_are_not_zeros(tmp_path):
    assert load(to_csv(tmp_path / "a.csv", make_log()))[1]["has_rewards"] is True
    assert load(to_csv(tmp_path / "b.csv", make_log(reward=None)))[1]["has_rewards"] is False


def test_actions_in_newton_metres_are_found(tmp_path):
    torques = make_log()["act_0"] * 8
    store, metadata = load(to_csv(tmp_path / "log.csv", make_log(act_0=torques)))
    (finding,) = check(store, metadata)
    assert "outside [-1, 1], the range of mcat's actions: scale them" in str(finding)
    assert metadata["action_range"][1] == store.actions.max() > 7


# ---- formats


def test_npz_and_compressed_csv_round_trip(tmp_path):
    store = make_store((5, 1, 7), obs=3, act=2)
    names = ("observations", "actions", "rewards", "next_observations", "terminals", "timeouts")
    np.savez(tmp_path / "a.npz", **{name: store.column(name) for name in names})
    assert_same(load(tmp_path / "a.npz")[0], store)
    plain, _ = load(to_csv(tmp_path / "a.csv", make_log()))
    packed, metadata = load(to_csv(tmp_path / "a.csv.gz", make_log()))
    assert_same(packed, plain)
    assert metadata["source"] == "a.csv.gz"


def test_columns_of_text_are_named(tmp_path):
    path = to_parquet(tmp_path / "log.parquet", make_log(episode=["first"] * ROWS))
    assert "column episode holds string, not numbers" in refusal(path)
    path = to_parquet(tmp_path / "gaps.parquet", make_log(terminal=[True, None] * (ROWS // 2)))
    assert "column terminal has empty cells" in refusal(path)
    path = to_csv(tmp_path / "long.csv", make_log(reward=["x" * 200_000] * ROWS))
    assert "line 2: field larger than field limit" in refusal(path)
    path = to_csv(tmp_path / "blank.csv", make_log(episode=[np.nan] * ROWS))
    assert "column episode: row 0 is nan" in refusal(path)


def test_damaged_parquet_is_bad_data_in_one_line(tmp_path):
    path = to_parquet(tmp_path / "log.parquet", make_log())
    content = bytearray(path.read_bytes())
    content[20:200] = bytes(180)  # the header of a page
    path.write_bytes(content)
    assert "not a readable Parquet file" in refusal(path)


def test_a_wide_header_takes_no_quadratic_time(tmp_path):
    names = [f"obs_{i}" for i in range(9_000)]
    (tmp_path / "wide.csv").write_text(",".join([*names, "act_0", "obs_7"]) + "\n1\n")
    assert "there is no column obs_9000" in refusal(tmp_path / "wide.csv")
    (tmp_path / "wide.csv").write_text(",".join(f"rewart{i}" for i in range(50_000)) + "\n1\n")
    assert "50,000 columns, a log has 10,000 at most" in refusal(tmp_path / "wide.csv")


# ---- sizes


def parquet_bomb(path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    zeros = pyarrow.array(np.zeros(10_000_000))
    parquet.write_table(pyarrow.table({f"{n}_0": zeros for n in ("obs", "act")}), path)
    assert path.stat().st_size < 3e6


def npz_bomb(path):
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "<f8", "fortran_order": False, "shape": (2**28, 2)}
    )
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("observations", "actions"):
            archive.writestr(f"{name}.npy", header.getvalue() + bytes(2**26))


def lying_npz_bomb(path):
    """The header is honest about little, the member goes on and on."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "<f8", "fortran_order": False, "shape": (2, 2)}
    )
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("observations.npy", header.getvalue() + bytes(2**27))


def gzip_bomb(path):
    with gzip.open(path, "wb") as file:
        file.write(b"obs_0,obs_1,act_0\n")
        for _ in range(64):
            file.write(b"1,2,3\n" * 400_000)


def test_bombs_are_refused_with_little_memory(tmp_path):
    makers = (parquet_bomb, npz_bomb, lying_npz_bomb, gzip_bomb)
    names = ("a.parquet", "a.npz", "b.npz", "a.csv.gz")
    for name, make in zip(names, makers, strict=True):
        make(tmp_path / name)
    program = """
import json, resource, sys, time
from mcat.datasets import load
from mcat.errors import DataError
import mcat.datasets.interop
def peak():
    return int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0])
before, refused = peak(), 0
for path in sys.argv[1:]:
    try:
        load(path)
    except DataError:
        refused += 1
child = resource.getrusage(resource.RUSAGE_CHILDREN)
print(refused, time.process_time() + child.ru_utime, peak() - before, child.ru_maxrss)
"""
    command = [sys.executable, "-c", program, *(str(tmp_path / name) for name in names)]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    refused, seconds, own, child = map(float, output.split())
    assert refused == len(names)
    assert seconds < 8
    assert own < 200 * 1024
    assert child < 250 * 1024  # of which 100 MB are the libraries


@pytest.mark.parametrize("name", ["a.h5", "a.csv", "a.csv.gz", "a.parquet", "a.npz"])
def test_pipes_and_devices_are_no_files(tmp_path, name):
    os.mkfifo(tmp_path / name)
    assert "a pipe or a device" in refusal(tmp_path / name)
    (tmp_path / name).unlink()
    (tmp_path / name).symlink_to("/dev/zero")
    assert "a pipe or a device" in refusal(tmp_path / name)


def test_objects_in_npz_are_not_unpickled(tmp_path):
    class Payload:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "mark"),)

    observations = np.array([[Payload()]], dtype=object)
    np.savez(tmp_path / "a.npz", observations=observations, actions=np.zeros((1, 1)))
    assert "has type" in refusal(tmp_path / "a.npz")
    assert not (tmp_path / "mark").exists()
