"""Estimates against outcomes: correlations known by hand, and cases read from folders."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from mcat.agents.returns import Returns
from mcat.cli import run
from mcat.errors import DataError
from mcat.reports.calibration.cases import (
    FEWEST,
    Case,
    agreement,
    counts,
    rank_correlation,
    read_cases,
)
from mcat.reports.calibration.page import headline, write_calibration
from mcat.safe_io import read_json, write_json
from mcat.transfer.result import ON_SOURCE, TRANSFERRED, UNTRANSLATED
from tests.reports.translation.results import many, pair

CASE = Case(
    pair="a → b", preset="cpu", seed=0, grade="fair", removed=0.5, model_error=0.1, gain=0.1,
    error=0.01, commit="abc",
)  # fmt: skip


def cases(estimates, gains):
    return [
        replace(CASE, pair=f"a → {number}", removed=estimate, gain=gain)
        for number, (estimate, gain) in enumerate(zip(estimates, gains, strict=True))
    ]


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ([1, 2, 3, 4], [10, 20, 30, 1000], 1.0),
        ([1, 2, 3, 4], [4, 3, 2, 1], -1.0),
        ([1, 2, 3], [1, 3, 2], 0.5),  # 1 - 6·2 / (3·8)
        ([1, 1, 2], [1, 2, 3], 0.75**0.5),  # ranks 1.5, 1.5, 3
        ([1, 1, 1], [1, 2, 3], None),
    ],
)
def test_the_rank_correlation_is_spearman_s(first, second, expected):
    found = rank_correlation(first, second)
    assert found == (None if expected is None else pytest.approx(expected))


def test_few_pairs_say_nothing_and_seeds_are_no_pairs():
    few = cases([0.1, 0.2, 0.3, 0.4], [1, 2, 3, 4])
    assert agreement(few).correlation is None
    assert headline(agreement(few)) == "Too few transfers to say (4 pairs)"
    seeds = [replace(case, seed=seed) for case in few for seed in range(3)]
    assert (agreement(seeds).correlation, agreement(seeds).pairs) == (None, 4)


def test_the_headline_says_what_the_numbers_support():
    rising = [number / 10 for number in range(10)]
    found = agreement(cases(rising, rising))
    assert found.correlation == pytest.approx(1.0)
    assert found.interval == pytest.approx((1.0, 1.0))
    assert "orders transfers well" in headline(found)
    mixed = agreement(cases(rising, [5, 1, 8, 2, 7, 3, 9, 0, 6, 4]))
    low, high = mixed.interval
    assert low < 0 < high
    assert headline(mixed).endswith("whether the estimate says anything about the gain is open")


def test_a_difference_counts_from_twice_its_error_on():
    outcomes = {0.03: "helped", 0.02: "no clear difference", -0.03: "hurt"}
    for gain, outcome in outcomes.items():
        assert replace(CASE, gain=gain).outcome == outcome
    found = counts([replace(CASE, gain=gain) for gain in outcomes] + [replace(CASE, grade="good")])
    assert found == {
        "fair": {"helped": 1, "no clear difference": 1, "hurt": 1},
        "good": {"helped": 1, "no clear difference": 0, "hurt": 0},
    }


def result(home, before, after, **changes):
    values = {ON_SOURCE: home, UNTRANSLATED: before, TRANSFERRED: after}
    returns = tuple(Returns(label=label, values=tuple(v)) for label, v in values.items())
    return replace(pair(), returns=returns, **changes)


def test_a_case_is_in_units_of_what_the_policy_earns_at_home():
    found = Case.of(result([200.0] * 5, [10.0] * 5, [20.0, 30.0, 40.0, 50.0, 60.0]))
    assert found.gain == pytest.approx(30 / 200)
    assert found.error == pytest.approx((250**0.5 / 5**0.5) / 200)
    assert found.removed == pytest.approx(1 - 0.352 / 0.471)
    assert found.grade == pair().trust.grade
    assert Case.of(result([0.0] * 5, [0.0] * 5, [1.0] * 5)) is None  # no unit
    assert Case.of(result([9.0] * 4, [0.0] * 4, [1.0] * 4)) is None  # no error
    assert Case.of(replace(pair(), trust=None)) is None
    assert Case.of(replace(pair(), returns=())) is None
    assert Case.of(many()) is None


@pytest.fixture
def work(tmp_path):
    """Six pairs of which more mismatch removed is more gain, one result that is no case."""
    for number in range(FEWEST + 1):
        machines = tuple(replace(item, name=f"{item.name}-{number}") for item in pair().machines)
        trust = replace(pair().trust, translated=0.4 - 0.02 * number)
        after = [10.0 + number] * 5
        found = result([100.0] * 5, [10.0] * 5, after, machines=machines, trust=trust)
        write_json(_folder(tmp_path / "work" / f"row{number}"), found.to_json())
    write_json(_folder(tmp_path / "work" / "heat"), many().to_json())
    write_json(_folder(tmp_path / "work" / "other"), {"anything": 1})
    return tmp_path / "work"


def _folder(path):
    path.mkdir(parents=True)
    return path / "result.json"


def test_a_page_is_written_of_all_results_in_a_folder(work, tmp_path, capsys):
    out = tmp_path / "out"
    assert run(["calibrate", str(work), str(work / "row0"), "--out", str(out), "--json"]) == 0
    told = capsys.readouterr()
    assert "2 other results" in told.err
    found = json.loads(told.out)
    assert found["correlation"] == pytest.approx(1.0)
    assert (found["pairs"], len(found["cases"])) == (6, 6)  # row0 was given twice
    names = sorted(path.name for path in out.iterdir())
    assert names == [f"calibration.{end}" for end in ("json", "md", "png")]
    assert read_json(out / "calibration.json")["outcomes"] == found["outcomes"]
    page = (out / names[1]).read_text()
    assert "Rank correlation 1.00" in page
    assert "| +36 | +5.0 ± 0.0 |" in page
    assert write_calibration(read_cases([work])[0], out)  # again, over the old ones


def test_an_earlier_page_counts_where_no_folder_has_the_transfer(work, tmp_path):
    page = tmp_path / "page" / "calibration.json"
    first, *_ = measured = read_cases([work])[0]
    old = [replace(first, gain=9.0), replace(CASE, pair="only → here")]
    write_calibration(old, page.parent)
    found, others = read_cases([page, work])
    assert found == [old[1], *measured]
    assert others == 2
    assert read_cases([page])[0] == old
    page.write_text('{"cases": [{"pair": "a"}]}')
    with pytest.raises(DataError, match=r"calibration\.json is no calibration\.json of mcat"):
        read_cases([page, work])


def test_what_cannot_be_calibrated_is_told(tmp_path, capsys):
    assert run(["calibrate", str(tmp_path / "nowhere")]) == 66
    assert "nowhere is no folder" in capsys.readouterr().err
    assert run(["calibrate", str(tmp_path)]) == 65
    assert "no transfer with an estimate of trust" in capsys.readouterr().err
    assert not Path("calibration").exists()
