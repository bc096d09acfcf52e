"""What policies are given is what they can act on, or one line says what is wrong with it."""

import numpy as np
import pytest

from mcat.errors import DataError, UsageError
from mcat.types import require_observations


@pytest.mark.parametrize("given", [np.ones(3), [1, 2, 3], np.ones((1, 3)), np.zeros((0, 3))])
def test_observations_become_rows_of_float32(given):
    rows = require_observations(given, 3)
    assert rows.dtype == np.float32
    assert rows.ndim == 2
    assert np.array_equal(rows.ravel(), np.ravel(given))


@pytest.mark.parametrize(
    ("given", "shape"),
    [
        (np.ones(4), r"\(4,\)"),
        (np.ones((2, 4)), r"\(2, 4\)"),
        (np.ones((1, 2, 3)), r"\(1, 2, 3\)"),
        (1.0, r"\(\)"),
    ],
)
def test_another_shape_is_named_beside_the_right_one(given, shape):
    with pytest.raises(UsageError, match=rf"\(n, 3\) or \(3,\), not {shape}$"):
        require_observations(given, 3)


@pytest.mark.parametrize("given", ["abc", None, [[1, 2], [3]], object()])
def test_what_is_no_number_is_refused(given):
    with pytest.raises(UsageError) as caught:
        require_observations(given, 3)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e300])
def test_a_sensor_that_failed_is_named(bad):
    given = np.ones((4, 3))
    given[2, 1] = bad
    with pytest.raises(DataError, match=r"observation \[2, 1\] is (nan|inf)"):
        require_observations(given, 3)
    with pytest.raises(DataError, match=r"observation \[1\] is (nan|inf)"):
        require_observations(given[2], 3)
