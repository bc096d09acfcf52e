"""Logs as they come off a robot: names, units, bounds, rates, and what is left of damaged ones."""

from __future__ import annotations

import gzip
import io
import zipfile

import h5py
import numpy as np
import pytest

from mcat.cli import run
from mcat.datasets import (
    Card,
    Channel,
    LogColumns,
    check,
    export_lerobot,
    import_logs,
    load,
    read_card,
)
from mcat.datasets.columns import with_options
from mcat.errors import DataError, UsageError
from tests.datasets.test_interop import make_store

HEADER = "run,t,q1,q2,dq1,tau1,tau2,r,temp"
COLUMNS = with_options(
    LogColumns(),
    obs="q*,dq1", act="tau1,tau2", episode="run", time="t", reward="r",
    units="q*=rad,dq1=rad/s,tau*=N·m,t=ms", bounds="tau1=8,tau2=-4:6",
)  # fmt: skip


def line(run, ms, value, torque=1.0):
    return f"{run},{ms},{value},{2 * value},0.5,{torque},-1,1,30"


def write(path, rows, header=HEADER, end="\n"):
    path.write_text("\n".join([header, *rows]) + end)
    return path


@pytest.fixture
def log(tmp_path):
    """Two runs of four rows, every 20 ms."""
    rows = [line(run, 20 * k, k, torque=k) for run in ("up", "down") for k in range(4)]
    return write(tmp_path / "log.csv", rows)


def test_names_units_bounds_and_rate_are_kept(log, tmp_path):
    store, metadata, said = import_logs([log], COLUMNS)
    assert store.num_episodes == 2
    assert store.lengths.tolist() == [3, 3]  # the last row of each only says what followed
    assert store.observations[:3].tolist() == [[0, 0, 0.5], [1, 2, 0.5], [2, 4, 0.5]]
    assert store.actions[:3].tolist() == [[0, -1], [1, -1], [2, -1]]
    assert store.episode_returns().tolist() == [3, 3]
    assert not said
    assert metadata["observation_names"] == ["q1", "q2", "dq1"]
    assert metadata["observation_units"] == ["rad", "rad", "rad/s"]
    assert metadata["action_units"] == ["N·m", "N·m"]
    assert (metadata["action_low"], metadata["action_high"]) == ([-8, -4], [8, 6])
    assert metadata["rate_hz"] == 50
    assert metadata["ignored_columns"] == ["temp"]


def test_it_survives_the_file_and_info_tells_it(log, tmp_path, capsys):
    out = tmp_path / "arm.h5"
    options = (
        "--obs q*,dq1 --act tau1,tau2 --episode run --time t --reward r --bounds tau1=8,tau2=6"
    )
    units = "--units t=ms,tau*=N·m"
    assert run(f"dataset import {log} {options} {units} --out {out}".split()) == 0
    _, metadata = load(out)
    card = Card.of_metadata(metadata, (3, 2))
    assert card.actions == (Channel("tau1", "N·m", -8, 8), Channel("tau2", "N·m", -6, 6))
    capsys.readouterr()
    assert run(["dataset", "info", str(out)]) == 0
    assert "tau1 in N·m from -8 to 8" in capsys.readouterr().out
    before = out.read_bytes()
    assert run(f"dataset import {log} {options} --out {out}".split()) == 73
    assert out.read_bytes() == before


def test_a_card_says_the_same_as_options(log, tmp_path):
    card = tmp_path / "arm.toml"
    card.write_text(
        'episode = "run"\ntime = "t"\ntime_unit = "ms"\nreward = "r"\n'
        '[observations]\n"q*" = "rad"\ndq1 = {unit = "rad/s"}\n'
        '[actions]\ntau1 = {unit = "N·m", limit = 8}\ntau2 = {unit = "N·m", low = -4, high = 6}\n'
    )
    by_card, by_options = (import_logs([log], c) for c in (read_card(card), COLUMNS))
    assert by_card.metadata == by_options.metadata
    assert (by_card.store.actions == by_options.store.actions).all()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rates = 5", "rates"),
        ("rate = -1", "rate"),
        ('[actions]\ntau1 = {limit = "8"}', "number"),
        ("[actions]\ntau1 = {limit = 8, low = 2}", "leave out low"),
        ("[actions]\ntau1 = {bounds = 8}", "bounds"),
        ("actions = 3", "table"),
        ("time = 3", "name of a column"),
    ],
)
def test_a_wrong_card_is_named(text, message, tmp_path):
    path = tmp_path / "arm.toml"
    path.write_text(text)
    with pytest.raises(DataError, match=message) as caught:
        read_card(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"obs": "q1,q9"}, "q9"),
        ({"obs": "q1,q1"}, "twice"),
        ({"obs": "q1,tau1"}, "among the observations and among the actions"),
        ({"episode": None}, "--episode run"),
        ({"time": "tt"}, "tt"),
        ({"units": "t=hours"}, "hours"),
        ({"bounds": "tau1=8"}, "tau2 has no bounds"),
        ({"bounds": "tau1=8,tau2=6:-4"}, "smaller bound"),
        ({"bounds": "tau9=8"}, "tau9"),
    ],
)
def test_what_does_not_fit_the_log_is_named(options, message, log):
    given = {"obs": "q*,dq1", "act": "tau1,tau2", "episode": "run", "time": "t", "reward": "r"}
    columns = with_options(LogColumns(), **(given | options))
    with pytest.raises(UsageError, match=message):
        import_logs([log], columns)


def test_a_column_that_only_looks_like_an_episode_can_be_left_out(log):
    store, _, _ = import_logs(
        [log], with_options(COLUMNS, episode="none", time="none", units="q1=x")
    )
    assert store.num_episodes == 1


def test_terminal_rows_end_episodes_that_nothing_else_tells_apart(tmp_path):
    rows = [f"{k},{k / 10},{'True' if k == 3 else 'False'}" for k in range(8)]
    path = write(tmp_path / "log.csv", rows, header="q,tau,done")
    columns = with_options(LogColumns(), obs="q", act="tau", terminal="done")
    store, _, _ = import_logs([path], columns)
    assert store.lengths.tolist() == [3, 3]
    assert store.observations[:, 0].tolist() == [0, 1, 2, 4, 5, 6]


def test_actions_beyond_their_bounds_are_refused_or_cut(tmp_path):
    log = write(tmp_path / "log.csv", [line("a", 20 * k, k, torque=9.5 - k) for k in range(4)])
    with pytest.raises(DataError, match=r"row 0 has 9\.5 for tau1 in N·m from -8 to 8.*--clip"):
        import_logs([log], COLUMNS)
    store, metadata, said = import_logs([log], COLUMNS, clip=True)
    assert store.actions[:, 0].tolist() == [8, 8, 7.5]
    assert "2 actions cut" in said[0]
    assert not [p for p in check(store, metadata, history=1) if "outside" in str(p)]


def test_observations_beyond_their_bounds_are_found(log):
    store, metadata, _ = import_logs([log], with_options(COLUMNS, bounds="q1=0:1"))
    found = [str(problem) for problem in check(store, metadata, history=1)]
    assert any("2 values beyond q1 in rad from 0 to 1 (first 2 at episode 0" in f for f in found)


def test_several_files_are_one_machine(log, tmp_path):
    again = write(tmp_path / "again.csv", [line("up", 20 * k, k) for k in range(5)])
    store, metadata, _ = import_logs([log, again], COLUMNS)
    assert store.lengths.tolist() == [3, 3, 4]
    assert metadata["source"] == ["log.csv", "again.csv"]
    slow = write(tmp_path / "slow.csv", [line("up", 40 * k, k) for k in range(5)])
    with pytest.raises(DataError, match=r"50 rows a second.*25.*--rate"):
        import_logs([log, slow], COLUMNS)


@pytest.mark.parametrize("kind", ["npz", "parquet", "csv.gz"])
def test_other_formats_hold_the_same(kind, log, tmp_path):
    names = HEADER.split(",")
    rows = [text.split(",") for text in log.read_text().splitlines()[1:]]
    columns = {n: [r[k] for r in rows] for k, n in enumerate(names)}
    numbers = {n: np.array(v, float) for n, v in columns.items() if n != "run"}
    path = tmp_path / f"log.{kind}"
    if kind == "csv.gz":
        path.write_bytes(gzip.compress(log.read_bytes()))
    elif kind == "npz":
        np.savez(path, run=np.repeat([3, 9], 4), **numbers)
    else:
        pyarrow = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        parquet.write_table(pyarrow.table({**numbers, "run": columns["run"]}), path)
    wanted, found = (import_logs([file], COLUMNS) for file in (log, path))
    for name in ("observations", "actions", "next_observations", "rewards", "episode_ends"):
        assert (getattr(wanted.store, name) == getattr(found.store, name)).all()
    assert found.metadata["rate_hz"] == 50


def test_arrays_of_vectors_become_columns(tmp_path):
    rows = np.arange(12.0).reshape(6, 2)
    np.savez(tmp_path / "log.npz", q=rows, tau=rows / 12, t=np.arange(6) / 10)
    columns = with_options(LogColumns(), obs="q", act="tau_1", time="t", units="q=rad")
    store, metadata, _ = import_logs([tmp_path / "log.npz"], columns)
    assert metadata["observation_names"] == ["q_0", "q_1"]
    assert metadata["observation_units"] == ["rad", "rad"]
    assert metadata["action_names"] == ["tau_1"]
    assert metadata["ignored_columns"] == ["tau_0"]
    assert store.actions[:, 0].tolist() == pytest.approx([1 / 12, 3 / 12, 5 / 12, 7 / 12, 9 / 12])


def test_hdf5_by_name_and_with_holes(tmp_path):
    rows = np.arange(24.0).reshape(12, 2)
    rows[5, 1] = np.nan
    with h5py.File(tmp_path / "log.h5", "w") as file:
        file["q"], file["tau"], file["t"] = rows, rows[:, 0] / 24, np.arange(12) / 10
        file["camera"] = np.zeros((12, 4, 4))
        file["elsewhere"] = h5py.SoftLink("/q")
    columns = with_options(LogColumns(), obs="q", act="tau", time="t")
    with pytest.raises(DataError, match="nan"):
        import_logs([tmp_path / "log.h5"], columns)
    store, metadata, said = import_logs([tmp_path / "log.h5"], columns, mend=True)
    assert store.lengths.tolist() == [4, 5]
    assert metadata["observation_names"] == ["q_0", "q_1"]
    assert metadata["ignored_columns"] == ["camera", "elsewhere"]
    assert "1 row NaN" in said[0]
    with pytest.raises(DataError, match="link"):
        import_logs([tmp_path / "log.h5"], with_options(columns, obs="elsewhere"))


def test_objects_in_archives_are_refused(tmp_path):
    np.savez(tmp_path / "log.npz", obs_0=np.array([{}, {}], object), act_0=np.zeros(2))
    with pytest.raises(DataError, match="obs_0"):
        import_logs([tmp_path / "log.npz"])


def test_other_data_sets_get_units_bounds_and_rates_too(tmp_path):
    store = make_store((5, 7), obs=2, act=1)
    pytest.importorskip("pyarrow")
    names = {"observation_names": ["q", "dq"], "action_names": ["angle"]}
    export_lerobot(store, {"rate_hz": 10, **names}, tmp_path / "set")
    columns = with_options(LogColumns(), units="q=deg,angle=deg", bounds="angle=90")
    found, metadata, _ = import_logs([tmp_path / "set"], columns)
    for name in ("observations", "actions", "next_observations", "rewards", "lengths"):
        assert (getattr(found, name) == getattr(store, name)).all()
    assert metadata["observation_units"] == ["deg", ""]
    assert (metadata["action_low"], metadata["action_high"]) == ([-90], [90])
    twice, metadata, _ = import_logs([tmp_path / "set"], with_options(columns, rate=20.0))
    assert twice.lengths.tolist() == [10, 14]
    assert twice.observations[:10:2] == pytest.approx(store.observations[:5], rel=1e-5)
    assert metadata["rate_hz"] == 20
    for wrong, message in (({"time": "t"}, "--time"), ({"obs": "speed"}, "speed")):
        with pytest.raises(UsageError, match=message):
            import_logs([tmp_path / "set"], with_options(columns, **wrong))


# ---- rates


def test_resampling_by_hand(tmp_path):
    """A line is interpolated exactly, an action is its mean over a tick, returns are kept."""
    moments = [0, 30, 40, 100]  # ms
    torques = [2.0, 4.0, 1.0, 0.0]
    rows = [line("a", t, t / 10, torque=k) for t, k in zip(moments, torques, strict=True)]
    log = write(tmp_path / "log.csv", rows)
    store, metadata, said = import_logs([log], with_options(COLUMNS, rate=50.0))
    assert store.observations[:, 0].tolist() == pytest.approx([0, 2, 4, 6, 8])
    assert store.next_observations[:, 0].tolist() == pytest.approx([2, 4, 6, 8, 10])
    assert store.actions[:, 0].tolist() == pytest.approx([2, (2 * 10 + 4 * 10) / 20, 1, 1, 1])
    assert store.episode_returns()[0] == pytest.approx(3)
    assert metadata["rate_hz"] == 50
    assert "4 rows to 5" in said[0]
    assert "unevenly" in said[0]


def test_a_log_at_that_rate_stays_as_it_is(log):
    plain, again = (import_logs([log], with_options(COLUMNS, rate=r)) for r in (None, 50.0))
    for name in ("observations", "actions", "rewards", "next_observations"):
        found = np.asarray(getattr(again.store, name))
        assert found == pytest.approx(np.asarray(getattr(plain.store, name)), abs=1e-6)


def test_pauses_end_episodes(tmp_path):
    moments = [*range(0, 100, 20), *range(500, 600, 20)]
    log = write(tmp_path / "log.csv", [line("a", t, t) for t in moments])
    store, _, said = import_logs([log], with_options(COLUMNS, rate=50.0))
    assert store.lengths.tolist() == [4, 4]
    assert any("1 pause of more than 0.1 s" in text for text in said)


def test_uneven_rates_are_said_and_found(tmp_path):
    rng = np.random.default_rng(0)
    moments = np.cumsum(rng.integers(10, 31, 200))
    log = write(tmp_path / "log.csv", [line("a", t, t) for t in moments])
    store, metadata, said = import_logs([log], COLUMNS)
    assert "unevenly" in said[0]
    assert "--rate 48 makes it even" in said[0]
    assert any("unevenly" in str(problem) for problem in check(store, metadata))


def test_dates_are_times(tmp_path):
    rows = [line("a", f"2026-01-01T00:00:00.{k}00", k) for k in range(4)]
    log = write(tmp_path / "log.csv", rows)
    _, metadata, _ = import_logs([log], with_options(COLUMNS, units="t=s"))
    assert metadata["rate_hz"] == 10


# ---- files that lie


def npz_of(path, shape, content=b""):
    """An archive with one array that says it has a shape, whatever it holds."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"shape": shape, "fortran_order": False, "descr": "<f8"}
    )
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("obs_0.npy", header.getvalue() + content)
    return path


@pytest.mark.parametrize(
    ("shape", "content", "message"),
    [
        ((10**9, 10), b"", "declares"),
        ((1, 20_000), bytes(160_000), "columns"),
        ((2, 2, 2), bytes(64), "dimensions"),
        ((5,), bytes(8), "bytes"),
    ],
)
def test_archives_that_lie_are_refused(shape, content, message, tmp_path):
    with pytest.raises(DataError, match=message):
        import_logs([npz_of(tmp_path / "log.npz", shape, content)])
