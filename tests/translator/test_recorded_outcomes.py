"""What the verdict quotes of recorded transfers is what the documentation records."""

import re
from pathlib import Path

import pytest

from mcat.reports.calibration.cases import rank_correlation
from mcat.safe_io import read_json
from mcat.translator.grade import _VERDICTS, RECORDED

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "translator.md").read_text()
OTHERS = [("limited", 0.202, 0.301), ("fair", 0.135, 0.136)]  # beside the table: elbow, shoulder
OUTCOMES = ("helped", "no clear difference", "hurt")


def table(pattern):
    """The rows of the page that fit, cell by cell."""
    lines = (line.strip("| \n").split(" | ") for line in PAGE.splitlines() if line[:1] == "|")
    return [cells for cells in lines if re.fullmatch(pattern, "|".join(cells))]


ARM = table(r"\w+\|(clean|noisy), (long|short)\|.*")


def grade_in(verdict):
    """The grade that a verdict begins with, as the page has it."""
    return verdict.partition(":")[0].removesuffix(" trust").lower()


def outcome(as_is, translated):
    """Gained, hardly changed or lost, of errors."""
    change = translated / as_is - 1
    return 1 if abs(change) <= 0.03 else 0 if change < 0 else 2


def test_the_verdict_quotes_what_is_recorded():
    assert len(ARM) == 20
    cases = [(row[5], float(row[3]), float(row[4])) for row in ARM] + OTHERS
    counted = {}
    for grade, as_is, translated in cases:
        counted.setdefault(grade, [0, 0, 0])[outcome(as_is, translated)] += 1
    for case in read_json(ROOT / "results" / "calibration.json")["cases"]:
        grade = grade_in(_VERDICTS[case["grade"]])
        counted.setdefault(grade, [0, 0, 0])[OUTCOMES.index(case["outcome"])] += 1
    found = {grade_in(words): numbers for words, numbers in RECORDED.items()}
    assert found == {grade: tuple(counted[grade]) for grade in found}
    written = {row[0]: tuple(map(int, row[1:])) for row in table(r"[a-z ]+(\|\d+){3}")}
    assert written == found


@pytest.mark.parametrize(("rows", "words"), [(ARM, "is 0.72"), (ARM[4:], "0.79 of")])
def test_the_rank_correlation_of_the_arm_is_as_written(rows, words):
    numbers = [list(map(float, (*row[3:5], *row[6:8]))) for row in rows]
    removed = [1 - after / before for *_, before, after in numbers]
    gains = [1 - translated / as_is for as_is, translated, *_ in numbers]
    found = rank_correlation(removed, gains)
    assert f"{found:.2f}" in words
    assert words in PAGE
