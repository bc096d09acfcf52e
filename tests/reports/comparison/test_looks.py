"""What runs had earned at equal steps and at equal CPU seconds, and the rows of results."""

import csv
from dataclasses import replace

import numpy as np
import pytest

from mcat.reports.comparison.contrast import Comparison
from mcat.reports.comparison.looks import families_of
from mcat.reports.comparison.results import (
    COLUMNS,
    ComparedRun,
    compared_runs,
    result_rows,
    write_results,
)
from mcat.reports.runs import read_run
from mcat.safe_io import read_json, write_json
from tests.reports.comparison.made_up import NAN, made_up
from tests.reports.learning.run_folders import write_run


def family(*runs):
    (found,) = families_of(runs)
    return found


def test_all_are_looked_at_where_the_slowest_has_got_to():
    found = family(
        made_up("x", 0, [1, 2, 3], steps=(100, 200, 300)),
        made_up("x", 1, [4, 5, NAN], train=[4, 5, NAN], steps=(100, 200, 300)),
        made_up("y", 0, [6, 7], steps=(150, 250)),
    )
    assert found.steps == 200
    assert found.scores("test", 200) == {"x": {0: 2, 1: 5}, "y": {0: 6}}
    assert found.scores("test", 120) == {"x": {0: 1, 1: 4}}  # y was not evaluated before 150


def test_runs_that_still_run_hold_up_nobody_that_is_done():
    done, late = made_up("x", 0, [1, 2]), made_up("x", 1, [9], steps=(100,), state="running")
    assert family(done, late).steps == 200
    assert family(done, late).scores("test", 200) == {"x": {0: 2}}
    ahead = made_up("y", 0, [5, 6], state="running")
    assert family(late, ahead).steps == 100
    failed = made_up("x", 2, [7], steps=(100,), state="failed")
    assert family(done, failed).steps == 200
    assert family(done, failed).scores("test", 100) == {"x": {0: 1, 2: 7}}


def test_a_run_that_diverged_is_the_worst_of_all_on_every_task():
    tasks = ("a",), ("b", "c")
    found = family(
        made_up("x", 0, [[1, 10], [5, 3]], tasks=tasks),
        made_up("y", 0, [[2, 4], [6, 9]], tasks=tasks),
        made_up("y", 1, [[8], [8]], steps=(100,), tasks=tasks, state="diverged"),
        made_up("y", 2, [], steps=(), tasks=tasks, state="diverged"),
    )
    assert found.steps == 200
    # Worst on b is 4, of y's first run, on c 3, of x's.
    assert found.scores("test", 200) == {"x": {0: 6.5}, "y": {0: 6.5, 1: 3.5, 2: 3.5}}
    assert found.scores("test", 100) == {"x": {0: 3}, "y": {0: 4, 1: 8, 2: 3}}
    curve = found.curves("test", "step")["y"]
    assert curve.places.tolist() == [100, 200]
    assert curve.band.value == pytest.approx([(4 + 8 + 3) / 3, (6.5 + 3.5 + 3.5) / 3])
    assert curve.runs.tolist() == [[4, 6.5], [8, 3.5], [3, 3.5]]


def test_equal_cpu_seconds_are_what_the_shortest_used():
    found = family(
        made_up("x", 0, [1, 2], cpu=(10, 20), seconds=(50, 100)),
        made_up("y", 0, [3, 4], cpu=(15, 40), seconds=(50, 100)),
    )
    assert found.reached("cpu") == 20
    assert found.scores("test", 20, "cpu") == {"x": {0: 2}, "y": {0: 3}}
    curve = found.curves("test", "cpu")["y"]
    assert (curve.places[0], curve.places[-1]) == (15, 40)
    assert (curve.band.value[0], curve.band.value[-1]) == (3, 4)
    older = family(made_up("x", 0, [1, 2], seconds=(50, 100)))
    assert older.reached("cpu") == 100
    assert not older.runs[0].cpu_is_measured


def test_curves_end_where_the_runs_of_a_variant_do():
    found = family(
        made_up("x", 0, [0, 10], steps=(100, 200)),
        made_up("x", 1, [6, 26, 46], steps=(100, 200, 300)),
        made_up("x", 2, [3], steps=(100,), state="running"),
        made_up("y", 0, [1, 2, 3], steps=(100, 200, 300)),
    )
    curves = found.curves("test", "step")
    assert curves["x"].places.tolist() == [100, 200]
    assert curves["x"].band.value.tolist() == [3, 18]
    assert curves["x"].band.low is None
    assert curves["y"].places.tolist() == [100, 200, 300]


def test_of_runs_with_one_seed_the_one_that_came_further_counts():
    found = family(made_up("x", 0, [1], steps=(100,)), made_up("x", 0, [2, 3]))
    assert found.scores("test", 200) == {"x": {0: 3}}
    assert [run.run.steps for run in found.repeated] == [100]


def test_scores_are_parts_of_the_references_or_the_papers_number_or_go_from_worst_to_best():
    known = made_up("x", 0, [0, 140.8])
    scale = Comparison(runs=(known,)).scale
    assert scale.kind == "paper"
    assert scale.scores("ant-cripple", np.array([140.8])).tolist() == [0.5]
    runs = [made_up("x", seed, [0, value], family="mine") for seed, value in enumerate((2, 4, 6))]
    scale = Comparison(runs=(known, *runs)).scale
    assert scale.kind == "best"
    assert scale.scores("mine", np.array([2.0, 3, 6])).tolist() == [0, 0.25, 1]
    assert Comparison(runs=(made_up("x", 0, [1, 2], delay=1),)).scale.kind == "best"
    rival = made_up("y", 0, [0, 70.4])
    scale = Comparison(runs=(known, rival)).scale
    assert (scale.kind, scale.words) == ("reference", "1 is what “x” earned on the family")
    assert scale.scores("ant-cripple", np.array([70.4])).tolist() == [0.5]


def test_rows_say_what_each_run_earned_where_and_by_what(tmp_path):
    task_set = write_run(tmp_path / "run", seed=4)
    path = tmp_path / "run" / "run.json"
    made = {"commit": "abc", "host": {"name": "node1", "system": "Linux"}}
    write_json(path, read_json(path) | made, overwrite=True)
    run = ComparedRun(run=read_run(tmp_path / "run"), variant="MCAT", attempts=2)
    lost = made_up("MCAT", 1, [1, 2], seconds=(5, 9), state="diverged")
    rows = list(result_rows([run, lost], "transfer"))
    assert len(rows) == len(task_set.names) + 2
    last = len(task_set.train)  # the only test task comes after them
    steps, earned = 10_000 * last, 200.0 + last
    assert rows[last] == (
        "transfer", "MCAT", "ant-cripple", 4, task_set.test[0], "test", steps, earned, 5, None,
        None, "node1", "abc", 2, "done", None,
    )  # fmt: skip
    assert rows[-1][5:11] == ("test", 200, None, 5, 9, None)
    assert rows[-1].state == "diverged"
    paths = list(write_results(rows, tmp_path))
    assert [path.name for path in paths] == ["results.csv", "results.parquet"]
    with paths[0].open() as file:
        heading, *lines = csv.reader(file)
    assert tuple(heading) == COLUMNS
    assert heading[7] == "return"
    assert lines[last][6:11] == [str(steps), str(earned), "5", "", ""]
    from pyarrow import parquet

    table = parquet.read_table(paths[1]).to_pydict()
    assert list(table) == heading
    assert table["return"] == [row.earned for row in rows]
    assert table["host"][0] == "node1"


def test_folders_are_variants_by_what_was_changed(tmp_path):
    write_run(tmp_path / "a", seed=0)
    write_run(tmp_path / "b", seed=1)
    write_run(tmp_path / "c", seed=0, changes={"mcat.transfer": False})
    runs = compared_runs([read_run(tmp_path / name) for name in "abc"], ["x", "y"])
    assert [run.variant for run in runs] == ["x", "x", "y"]
    assert {run.state for run in runs} == {"done"}
    assert compared_runs([runs[2].run])[0].variant == "fast, no transfer, no mirror"


def test_a_family_is_compared_by_itself_wherever_else_runs_differ():
    runs = [
        replace(made_up(variant, 0, (1.0, value)), where=where)
        for variant, where, value in [("a", "delay 200", 5.0), ("b", "delay 200", 6.0),
                                      ("a", "delay 500", 2.0), ("b", "delay 500", 4.0)]
    ]  # fmt: skip
    few, many = families_of(runs)
    assert (few.name, many.name) == ("ant-cripple, delay 200", "ant-cripple, delay 500")
    assert many.scores("test", 200) == {"a": {0: 2.0}, "b": {0: 4.0}}
    assert not few.repeated
