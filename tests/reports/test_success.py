"""Success rates in reports: beside the paper's, and nowhere if robots have no goal."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mcat.agents.returns import SUCCESS, Returns
from mcat.agents.runs.record import RunRecord
from mcat.errors import DataError
from mcat.reports.comparison.contrast import Comparison
from mcat.reports.comparison.page import write_comparison
from mcat.reports.comparison.results import ComparedRun, result_rows
from mcat.reports.comparison.sections import paper_section
from mcat.reports.groups import Group
from mcat.reports.learning.page import write_learning
from mcat.reports.learning.sections import (
    success_section,
    summary_numbers,
    summary_rows,
    tasks_section,
    with_goals,
)
from mcat.reports.printed import paper_value
from mcat.reports.runs import LearningRun
from mcat.reports.translation.page import write_page
from mcat.reports.translation.sections import sections
from mcat.transfer.jobs import _matrix
from mcat.transfer.result import TransferResult
from tests.reports.comparison.made_up import made_up
from tests.reports.translation.results import many, pair

OBJECTS = "metaworld-objects"


def objects_run(seed, train, test, returns=(20.0, 4.0), *, delay=1):
    """A run on two objects, evaluated at 1,000 and 2,000 steps; the second one counts.

    Args:
        seed: Its seed.
        train: Success rates on the training tasks at the end.
        test: The rate on the test task at the end.
        returns: On training and on test tasks at the end.
        delay: Steps between payments.
    """
    columns = {
        "step": (1000, 2000),
        "eval/train": (0, returns[0]), "eval/test": (0, returns[1]),
        "eval/train/mug": (0, returns[0]), "eval/train/ball": (0, returns[0]),
        "eval/test/push": (0, returns[1]),
        "eval/success/train": (0, np.mean(train)), "eval/success/test": (0, test),
        "eval/success/train/mug": (0, train[0]), "eval/success/train/ball": (0, train[1]),
        "eval/success/test/push": (0, test),
    }  # fmt: skip
    record = {
        "folder": Path(f"run{seed}"), "kind": "metatrain", "family": OBJECTS, "preset": "fast",
        "seed": seed, "config": {}, "train": ("mug", "ball"), "test": ("push",), "horizon": 500,
        "delay": delay,
    }  # fmt: skip
    return LearningRun(
        record=RunRecord(**record),
        metrics={name: np.array(values, dtype=float) for name, values in columns.items()},
    )


def group(*runs, label="fast"):
    return Group(label=label, runs=runs)


TWO = (objects_run(0, (0.6, 0.2), 0.2), objects_run(1, (0.4, 0.4), 0.0, (30.0, 6.5)))
PAPER = ("204.1 ± 43.1", "10.2 ± 8.3", "53.3 ± 5.4 %", "16.7 ± 13.6 %")


# --- mcat plot ----------------------------------------------------------------------------------


def test_the_papers_table_stands_below_ours():
    section = success_section([group(*TWO)])
    assert section.rows == [
        ("family", "method", "seeds", "steps", "train return", "test return", "train success",
         "test success"),
        (OBJECTS, "fast", "0, 1", "2,000", "25.0 ± 5.0", "5.2 ± 1.2", "40.0 ± 0.0 %",
         "10.0 ± 10.0 %"),
        (OBJECTS, "the paper's MCAT", "3 runs", "2,000,000", *PAPER),
    ]  # fmt: skip
    assert section.finding == (
        "Success on train tasks: fast 40 ± 0 %; on test tasks: fast 10 ± 10 %"
    )
    assert SUCCESS in section.reading
    assert summary_rows([group(*TWO)])[1][-1] == "10.2 (MCAT, 2M) †"


def test_it_is_there_once_for_a_family_and_only_for_its_own_payments():
    others = [group(objects_run(0, (0, 0), 0.0), label=name) for name in "ab"]
    assert [row[1] for row in success_section(others).rows[1:]] == ["a", "b", "the paper's MCAT"]
    late = group(objects_run(0, (0.5, 0.5), 0.1, delay=100))
    assert [row[1] for row in success_section([late]).rows[1:]] == ["fast"]
    assert paper_value(late, "eval/success/train") is None
    assert paper_value(group(*TWO), "eval/success/train").mean == 0.533
    assert paper_value(group(*TWO), "eval/train").mean == 204.1


def test_runs_without_goals_or_from_before_have_no_rates():
    run = objects_run(0, (0.5, 0.5), 0.1)
    old = replace(run, metrics={k: v for k, v in run.metrics.items() if "success" not in k})
    assert with_goals([group(old), group(run)]) == [group(run)]
    (before,), (now,) = summary_numbers([group(old)]), summary_numbers([group(*TWO)])
    assert not [name for name in before if "success" in name]
    assert now["final_train_success"] == [0.4, 0.4]
    assert now["final_test_success"] == [0.2, 0.0]
    assert tasks_section(group(old)).rows[0] == ("task", "split", "final return")
    assert tasks_section(group(*TWO)).rows[1:] == [
        ("mug", "train", "25 ± 5", "50 ± 10 %"),
        ("ball", "train", "25 ± 5", "30 ± 10 %"),
        ("push", "test", "5 ± 1", "10 ± 10 %"),
    ]


def test_a_run_of_one_task_has_a_curve_too(tmp_path):
    metrics = {"step": [5, 9], "eval/train": [1, 2], "eval/success/train": [0, 0.5]}
    alone = {"kind": "train", "family": "push", "train": ("push",), "test": ()}
    run = LearningRun(
        record=replace(TWO[0].record, **alone),
        metrics={name: np.array(values, dtype=float) for name, values in metrics.items()},
    )
    (_, row) = success_section([group(run)]).rows
    assert row == ("push", "fast", "0", "9", "2.0", "–", "50.0 %", "–")
    names = [path.name for path in write_learning([group(run)], tmp_path, detail=False)]
    assert names == ["learning-curves.png", "success.png", "learning.html"]


def test_the_page_has_the_picture(tmp_path):
    names = [path.name for path in write_learning([group(*TWO)], tmp_path, detail=False)]
    assert "success.png" in names
    assert "53.3 ± 5.4 %" in (tmp_path / "learning.html").read_text()


# --- the comparison -----------------------------------------------------------------------------


def test_the_comparison_has_a_column_and_the_papers_row(tmp_path):
    rates = ((0.2, 0.4), (0.3, 0.5), (0.4, 0.6))  # means 0.3, 0.4 and 0.5
    runs = [
        ComparedRun(run=objects_run(seed, train, seed / 10), variant="fast")
        for seed, train in enumerate(rates)
    ]
    rows = paper_section(Comparison(runs=tuple(runs))).rows
    assert rows[0][-2:] == ("test success", "train success")
    assert rows[1][:4] == (OBJECTS, "fast", "3", "2,000")
    assert rows[1][4:] == ("4 [4, 4]", "20 [20, 20]", "10.2 (MCAT, 2M) †", "10 % [0 %, 20 %]",
                           "40 % [30 %, 50 %]")  # fmt: skip
    assert rows[2] == (OBJECTS, "the paper's MCAT", "3", "2,000,000", "10.2 ± 8.3", "204.1 ± 43.1",
                       "–", "16.7 ± 13.6 %", "53.3 ± 5.4 %")  # fmt: skip
    found = {(row.seed, row.task): row.success for row in result_rows(runs, "x")}
    assert (found[0, "mug"], found[0, "ball"], found[2, "push"]) == (0.2, 0.4, 0.2)
    lost = replace(runs[0], state="diverged")
    assert {row.success for row in result_rows([lost], "x")} == {None}
    *_, page = write_comparison(runs, tmp_path, title="objects")
    assert "53.3 ± 5.4 %" in page.read_text()
    assert SUCCESS in page.read_text()


def test_families_without_goals_keep_their_table():
    ants = [made_up("fast", 0, [1, 2])]
    assert paper_section(Comparison(runs=tuple(ants))).rows[0][-1] == "the paper's, test"
    assert {row.success for row in result_rows(ants, "x")} == {None}
    both = [*ants, ComparedRun(run=TWO[0], variant="fast")]
    ant, _, printed = paper_section(Comparison(runs=tuple(both))).rows[1:]
    assert ant[-2:] == ("–", "–")
    assert printed[1] == "the paper's MCAT"


# --- translations -------------------------------------------------------------------------------


def with_successes(result):
    """The first episode of the first policy succeeds, the first two of the second, and so on."""
    return replace(
        result,
        returns=tuple(
            replace(item, successes=tuple(n <= number for n in range(len(item.values))))
            for number, item in enumerate(result.returns)
        ),
    )


def test_a_translation_says_how_often_each_policy_succeeds(tmp_path):
    result = with_successes(pair())
    section = next(sections(result))
    assert [row[-1] for row in section.rows] == ["success", "1 %", "2 %", "3 %"]  # of 100 episodes
    assert SUCCESS in section.reading
    assert SUCCESS in write_page(result, tmp_path).read_text()
    assert TransferResult.from_json(result.to_json()).returns == result.returns
    plain = next(sections(pair()))
    assert plain.rows[0][-1] == "episodes"
    assert SUCCESS not in plain.reading


def test_a_matrix_takes_each_rate_to_its_cell():
    def pair_of(*rates):  # untranslated, then transferred, of four episodes
        counts = (round(4 * rate) for rate in rates)
        return [
            Returns(label="", values=(0.0,) * 4, successes=tuple(n < count for n in range(4)))
            for count in counts
        ]

    cells = [(0, 0), (0, 1)]  # the second task has no policy
    matrix = _matrix(["a", "b"], cells, [*pair_of(1.0, 0.75), *pair_of(0.0, 0.5)])
    assert matrix.untranslated_success == ((1.0, 0.0), (None, None))
    assert matrix.transferred_success == ((0.75, 0.5), (None, None))
    plain = [Returns(label="", values=(1.0,))] * 4
    assert _matrix(["a", "b"], cells, plain).transferred_success is None


def test_a_matrix_of_success_rates_is_read_back_and_shown():
    result = many(2)
    before, after = ((0.0, 0.1), (None, None)), ((0.0, 0.85), (None, None))
    matrix = replace(result.matrix, untranslated_success=before, transferred_success=after)
    section = next(sections(replace(result, matrix=matrix)))
    assert section.rows[3][1:] == ("0 % → 0 %", "10 % → 85 %")
    assert len(next(sections(result)).rows) == 3
    known = replace(result, matrix=matrix)
    assert TransferResult.from_json(known.to_json()).matrix == matrix


def test_results_of_before_are_read():
    for result in (pair(), many(2)):
        data = result.to_json()
        for item in data["returns"]:
            del item["successes"]
        if data["matrix"]:
            del data["matrix"]["untranslated_success"], data["matrix"]["transferred_success"]
        found = TransferResult.from_json(data)
        assert (found.returns, found.matrix) == (result.returns, result.matrix)
    data = with_successes(pair()).to_json()
    data["returns"][0]["successes"] += (True,)
    with pytest.raises(DataError, match="101 successes of 100 episodes"):
        TransferResult.from_json(data)
    assert Returns.from_json({"label": "x", "values": [1.0]}).successes is None
