"""Heat maps over seeds, by hand."""

import numpy as np
import pytest

from mcat.paper.summary import RowSummary, Summary, gain_errors, mean_matrix
from mcat.reports.reproduction.page import markdown, write_reproduction
from mcat.reports.sections import gains
from mcat.transfer.result import ReturnMatrix

NO_ERROR = ((0.0, 0.0), (None, None))


def matrix(before, after):
    """From a to a and b; b has no policy."""
    return ReturnMatrix(
        names=("a", "b"), untranslated=(before, (None, None)), transferred=(after, (None, None)),
        untranslated_error=NO_ERROR, transferred_error=NO_ERROR,
    )  # fmt: skip


# Gains of +20 and +40 on a mean of 100, and of −10 twice on a mean of 50.
TWO = matrix((90.0, 50.0), (110.0, 40.0)), matrix((110.0, 50.0), (150.0, 40.0))


def row(*matrices):
    return RowSummary(name="map", printed={}, cells={}, matrices=matrices, seconds={}, commits=())


def summary(*rows):
    return Summary(table="heatmaps", title="Maps", preset="cpu", seeds=(0, 1), episodes=30,
                   rows=rows, provenance={})  # fmt: skip


def test_means_and_errors_over_seeds():
    mean = mean_matrix(TWO)
    assert mean.untranslated == ((100.0, 50.0), (None, None))
    assert mean.transferred == ((130.0, 40.0), (None, None))
    # The spread of 90 and 110 is 14.1; over the root of 2 seeds it is 10.
    assert mean.untranslated_error[0] == pytest.approx((10.0, 0.0))
    assert mean.transferred_error[0] == pytest.approx((20.0, 0.0))
    percent, clear = gains(mean)
    assert percent[0].tolist() == [30.0, -20.0]
    assert clear.tolist() == [[False, True], [False, False]]
    # Gains of 20 and 40 have the error 10, which is 10 % of 100; those of −10 and −10 none.
    np.testing.assert_allclose(gain_errors(TWO), [[10, 0], [np.nan, np.nan]])


def test_one_seed_stays_as_it_is():
    assert mean_matrix(TWO[:1]) is TWO[0]
    assert gain_errors(TWO[:1]) is None


def test_the_page_has_the_mean_before_the_seeds(tmp_path):
    page = markdown(summary(row(*TWO)))
    assert "| a | +30 ± 10 % (100 → 130) | -20 ± 0 % (50 → 40) |" in page
    assert page.index("standard error over 2 seeds") < page.index("map, seed 0")
    assert "| a | +22 % (90 → 110) | -20 % (50 → 40) |" in page
    alone = markdown(summary(row(TWO[0])))
    assert "standard error over" not in alone.partition("brackets.")[2]
    paths = write_reproduction(summary(row(*TWO)), tmp_path)
    assert [path.name for path in paths] == ["heatmaps.json", "heatmaps.md", "heatmaps.png"]


def test_paths_of_the_hand_have_a_picture(tmp_path):
    from dataclasses import replace

    from mcat.paper.summary import Cell

    hand = [[[0.0, 0.6, 0.2], [0.1, 0.7, 0.1]]]
    labels = ("source policy on source", "source policy on target", "transferred policy on target")
    pushed = replace(row(), cells={"ours": Cell((1.0,))}, paths=dict.fromkeys(labels, hand))
    paths = write_reproduction(replace(summary(pushed), table="table1"), tmp_path)
    assert paths[-1].name == "table1-paths-map.png"
    assert "(table1-paths-map.png)" in paths[1].read_text()
    assert "paths" not in paths[0].read_text()
