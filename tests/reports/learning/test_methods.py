"""Runs of several methods side by side: their names, the paper's numbers, and who drove."""

import pytest

from mcat.reports import figures
from mcat.reports.comparison.equal import equal_section
from mcat.reports.comparison.looks import families_of
from mcat.reports.comparison.results import ComparedRun
from mcat.reports.groups import Group, group_runs
from mcat.reports.learning import page
from mcat.reports.learning.sections import (
    curves_section,
    drivers_section,
    summary_rows,
)
from mcat.reports.printed import paper_value
from mcat.reports.runs import read_run
from tests.reports.learning.run_folders import write_run


def written(folder, method, preset="fast", **more):
    drivers = {"pearl": "prior", "distral": "own"}
    write_run(
        folder, method=method, preset=preset, transfers=(), driver=drivers.get(method, "shared"),
        **more,
    )  # fmt: skip
    return read_run(folder)


def test_curves_are_named_after_their_methods(tmp_path):
    hopper = {"family": "hopper-size"}
    runs = [
        written(tmp_path / "a", "mcat", **hopper),
        written(tmp_path / "b", "pearl", **hopper),
        written(tmp_path / "c", "pearl", seed=1, **hopper),
        written(tmp_path / "d", "distral", "cpu", changes={"distral.imitate": True}, **hopper),
        written(tmp_path / "e", "mql", changes={"mql.credit.kind": "none"}, **hopper),
    ]
    groups = group_runs(runs)
    assert [group.label for group in groups] == [
        "MCAT fast", "PEARL fast", "Distral cpu, SIL", "MQL fast, no credit"
    ]  # fmt: skip
    assert [len(group.runs) for group in groups] == [1, 2, 1, 1]
    (alone,) = group_runs(runs[:1])
    assert alone.label == "fast"
    heading, *rows = summary_rows(groups)
    assert heading[-1] == "the paper's, test"
    assert [row[-1] for row in rows] == [
        "1,982 (MCAT, 1M) †", "1,756 (PEARL, 2M) †", "1,091 (Distral+SIL, 2M)", "1,608 (MQL, 2M) †"
    ]  # fmt: skip
    assert "reimplementations with corrections, not replications" in curves_section(groups).reading
    assert "replications" not in curves_section([alone]).reading


PRINTED = [
    ("pearl", "halfcheetah-mass", {}, 25.9),
    ("mql", "halfcheetah-armature", {}, -335.0),  # D.3, after 1M
    ("mql", "halfcheetah-armature", {"mql.imitate": True}, 743.5),
    ("hipbmdp", "ant-cripple", {"hipbmdp.imitate": True}, 215.4),
    ("distral", "ant-cripple", {"delay": 100}, None),  # not the paper's
    ("pearl", "ant-cripple", {"pearl.imitate": True}, None),
    ("pcgrad", "ant-cripple", {}, None),
]


@pytest.mark.parametrize(("method", "family", "changes", "value"), PRINTED)
def test_the_papers_number_is_that_of_the_method(tmp_path, method, family, changes, value):
    run = written(tmp_path / "run", method, family=family, changes=changes)
    group = Group(label="", runs=(run,))
    printed = paper_value(group, "eval/test")
    assert (printed and printed.mean) == value
    assert paper_value(group, "eval/success/test") is None


def test_scores_are_of_the_papers_mcat_whatever_is_compared(tmp_path):
    run = written(tmp_path / "run", "pearl")
    (family,) = families_of([ComparedRun(run, "PEARL")])
    assert family.paper == 281.6


def test_drivers_are_those_that_there_were(tmp_path):
    section = drivers_section(written(tmp_path / "run", "pearl"), "drivers")
    assert section.rows[0] == ("on ↓ by →", "random", "prior")
    assert section.rows[1][1:] == ("1", "9")
    assert section.finding == "Episodes by driver: random 4, prior 36"


def test_a_page_of_several_methods_is_drawn(tmp_path, monkeypatch):
    runs = [written(tmp_path / m, m) for m in ("mcat", "pearl", "distral")]
    found = list(page.write_learning(group_runs(runs), tmp_path / "page", detail=True))
    assert {path.name for path in found} >= {"drivers-pearl.png", "drivers-distral.png"}
    text = (tmp_path / "page" / "learning.html").read_text()
    assert "PEARL fast" in text
    monkeypatch.setattr(figures, "png", lambda figure: figure)
    _, test = figures.draw_curves(group_runs(runs), "title").axes
    told = [text.get_text() for text in test.texts]
    assert [line for line in told if "PEARL" in line or "Distral" in line] == []


def test_methods_are_compared_at_equal_steps_and_at_equal_cpu_seconds(tmp_path):
    """A round takes MCAT 1 CPU second and PEARL 2: after MCAT's ten PEARL has made five."""
    mcat = [_timed(tmp_path / f"mcat{seed}", "mcat", 1.0, seed) for seed in range(2)]
    pearl = [_timed(tmp_path / f"pearl{seed}", "pearl", 2.0, seed) for seed in range(2)]
    alone = _timed(tmp_path / "hopper", "mcat", 1.0, 0, family="hopper-size")
    groups = group_runs([*mcat, *pearl, alone])
    section = equal_section(groups)
    heading, *rows = section.rows
    assert heading[2:8] == ("steps", "test", "train", "CPU seconds", "test", "train")
    assert [row[:2] for row in rows] == [
        ("ant-cripple", "MCAT fast, no mirror"), ("ant-cripple", "PEARL fast, no mirror")
    ]  # fmt: skip
    few = "{0} and {0} (too few seeds)".format
    # The single test task of the family is number 4 of what the columns count up from 0.
    assert rows[0][2:8] == ("40,000", few(204), few(302), "10", few(204), few(302))
    assert rows[0][8] == "156 (MCAT, 1M) †"
    assert rows[1][2:8] == ("40,000", few(204), few(302), "10", few(54), few(102))
    assert "corrections" in section.reading
    assert equal_section(group_runs([*mcat, alone])) is None


def _timed(folder, method, seconds, seed, family="ant-cripple"):
    """A run whose rounds took so many CPU seconds."""
    written(folder, method, seed=seed, family=family)
    path = folder / "metrics.csv"
    heading, *lines = path.read_text().splitlines()
    timed = [f"{line},{seconds * number}" for number, line in enumerate(lines, 1)]
    path.write_text("\n".join([f"{heading},time/cpu", *timed]) + "\n")
    return read_run(folder)
