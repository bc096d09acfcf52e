"""What is left of damaged logs, and that it is said."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest

from mcat.cli import run
from mcat.datasets import import_logs
from mcat.errors import DataError
from tests.datasets.test_imports import COLUMNS, HEADER, line, write


def test_what_can_be_saved_is_saved_and_the_rest_named(tmp_path, capsys):
    rows = [line("a", 20 * k, k) for k in range(12)]
    rows[3] = rows[3].replace(",3,", ",nan,", 1)
    rows[6] = "a,120,6"
    rows.insert(9, rows[8])
    path = write(tmp_path / "log.csv", [*rows, "a,240,12,24,0."], end="")
    before = path.read_bytes()
    with pytest.raises(DataError, match="line 8 has 3 fields"):
        import_logs([path], COLUMNS)
    store, _, said = import_logs([path], COLUMNS, mend=True)
    assert store.observations[:, 0].tolist() == [0, 1, 4, 7, 8, 9, 10]
    assert store.lengths.tolist() == [2, 1, 4]
    text = "\n".join(said)
    for told in ("last line, which is not ended", "1 line with too few", "8", "1 field empty",
                 "2 rows NaN", "1 row at the time of the row before"):  # fmt: skip
        assert told in text
    card = tmp_path / "arm.toml"
    card.write_text('episode="run"\ntime="t"\ntime_unit="ms"\nreward="r"\n[observations]\n'
                    '"q*"="rad"\ndq1=""\n[actions]\n"tau*"="N·m"\n')  # fmt: skip
    out = tmp_path / "saved.h5"
    assert run(f"dataset repair {path} --robot {card} --out {out} --json".split()) == 0
    assert json.loads(capsys.readouterr().out)["transitions"] == 7
    assert path.read_bytes() == before
    hidden = tmp_path / "log.h5"
    hidden.symlink_to(path)
    code = run(f"dataset repair {path} --robot {card} --out {hidden} --overwrite".split())
    assert code == 73
    assert path.read_bytes() == before


def test_missing_rows_and_time_that_runs_backwards_cut_an_episode(tmp_path):
    moments = [0, 20, 40, 100, 120, 140, 10, 30, 50]
    path = write(tmp_path / "log.csv", [line("a", t, t) for t in moments])
    store, _, said = import_logs([path], COLUMNS, mend=True)
    assert store.lengths.tolist() == [2, 2, 2]
    assert any("1 place where time runs backwards" in text for text in said)
    assert any("1 place where nothing was logged" in text for text in said)


def test_a_gzip_file_that_was_cut_off_gives_its_beginning(tmp_path):
    rng = np.random.default_rng(0)
    rows = [line("a", 20 * k, rng.normal()) for k in range(500)]
    content = gzip.compress(("\n".join([HEADER, *rows]) + "\n").encode())
    path = tmp_path / "log.csv.gz"
    path.write_bytes(content[: len(content) // 2])
    store, _, said = import_logs([path], COLUMNS, mend=True)
    assert 100 < len(store) < 400
    assert "ends in its middle" in said[0]


def test_a_gzip_file_of_several_parts_is_read_to_its_end(tmp_path):
    """As `cat a.gz b.gz` makes it, with zeros after it as on a tape."""
    lines = [f"{text}\n" for text in (HEADER, *(line("a", 20 * k, k) for k in range(40)))]
    parts = [gzip.compress("".join(half).encode()) for half in (lines[:20], lines[20:])]
    path = tmp_path / "log.csv.gz"
    path.write_bytes(b"".join(parts) + b"\0" * 8)
    for mend in (False, True):
        assert len(import_logs([path], COLUMNS, mend=mend)[0]) == 39
    path.write_bytes(b"".join(parts)[:-9])
    with pytest.raises(DataError, match="not a readable gzip file: it ends in its middle"):
        import_logs([path], COLUMNS)


def test_a_log_of_holes_is_refused(tmp_path):
    path = write(tmp_path / "log.csv", [line("a", 20 * k, "nan") for k in range(4)])
    with pytest.raises(DataError, match="nothing can be saved"):
        import_logs([path], COLUMNS, mend=True)
