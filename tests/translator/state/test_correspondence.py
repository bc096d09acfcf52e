"""Hand-made guesses of what matches what: those with a name, in files, and damaged ones."""

import dataclasses
import json

import numpy as np
import pytest

from mcat.envs.locomotion import ant_mirror
from mcat.errors import DataError, UsageError
from mcat.translator.state.correspondence import (
    CORRESPONDENCES,
    Correspondence,
    find_correspondence,
)


def test_legs_are_copied_as_the_environments_say():
    """States: height, pitch, leg angles, three velocities of the root, leg velocities."""
    three = np.arange(23)
    found = find_correspondence("two-to-three-legs", (17, 6), (23, 9))
    expected = {
        "state_to_source": [0, 1, 2, 3, 4, 8, 9, 10, 11, 12, 13, 14, 15, 16, 20, 21, 22],
        "state_to_target": [
            *(0, 1, 2, 3, 4, 2, 3, 4, 5, 6, 7),
            *(8, 9, 10, 11, 12, 13, 11, 12, 13, 14, 15, 16),
        ],
        "action_to_target": [0, 1, 2, 0, 1, 2, 3, 4, 5],
        "action_to_source": [0, 1, 2, 6, 7, 8],
    }
    for name, indices in expected.items():
        matrix = getattr(found, name)
        np.testing.assert_array_equal(matrix @ three[: matrix.shape[1]], indices)


@pytest.mark.parametrize(
    ("name", "both", "unknown"),
    [
        ("mirror-x-states", "mirror-x", "action"),
        ("two-to-three-legs-actions", "two-to-three-legs", "state"),
    ],
)
def test_half_a_guess_is_the_whole_one_without_the_other_half(name, both, unknown):
    half, whole = CORRESPONDENCES[name], CORRESPONDENCES[both]
    for field in dataclasses.fields(Correspondence):
        matrix, full = getattr(half, field.name), getattr(whole, field.name)
        expected = 0 * full if field.name.startswith(unknown) else full
        np.testing.assert_array_equal(matrix, expected)
        assert full.any()


def test_mirror_image_of_a_mirror_image():
    guess = CORRESPONDENCES["mirror-x"]
    np.testing.assert_array_equal(guess.state_to_source @ guess.state_to_target, np.eye(14))
    np.testing.assert_array_equal(guess.action_to_target @ [1, 2, 3, 4], [-1, 2, 3, 4])


def test_a_correspondence_from_a_file(tmp_path):
    path = tmp_path / "map.json"
    rows = {
        "state_to_source": [0, [0, 0.5, 0.5]],
        "state_to_target": [0, 1, 1],
        "action_to_target": [[-1]],
        "action_to_source": [[-1]],
    }
    path.write_text(json.dumps(rows))
    found = find_correspondence(path, (2, 1), (3, 1))
    np.testing.assert_array_equal(found.state_to_source, [[1, 0, 0], [0, 0.5, 0.5]])
    np.testing.assert_array_equal(found.state_to_target, [[1, 0], [0, 1], [0, 1]])
    with pytest.raises(UsageError, match="maps 2 states and 1 actions to 3 and 1, but"):
        find_correspondence(path, (3, 1), (2, 1))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"state_to_source": [0, 5]}, "number from 0 to 1 or 2 weights, not 5"),
        ({"state_to_source": [0, [1]]}, "row 1 of state_to_source"),
        ({"state_to_source": [0, ["a", "b"]]}, "row 1 of state_to_source"),
        ({"state_to_source": [0, True]}, "row 1 of state_to_source"),
        ({"state_to_source": 3}, "state_to_source must be a list"),
        ({"state_to_target": 3}, "state_to_target must be a list"),
        ({"action_to_source": None}, "action_to_source must be a list"),
        ({"action_to_target": "01"}, "action_to_target must be a list"),
        ({"state_to_source": [0, "12"]}, "row 1 of state_to_source"),
        ({"state_to_source": [0, {"0": 1, "1": 0}]}, "row 1 of state_to_source"),
        ({"state_to_source": [0, [1e39, 0]]}, "finite"),
        ({"state_to_source": [0, [10**400, 0]]}, "too large"),
        ({"state_to_source": [0] * 5000, "state_to_target": [0] * 5000}, "at most 4096 rows"),
        ({"state_to_source": [0, [1e999, 0]]}, "JSON|finite"),
        ({"colour": []}, "must be a JSON object of state_to_source"),
    ],
)
def test_damaged_correspondences(tmp_path, change, message):
    path = tmp_path / "map.json"
    good = {field.name: [0, 1] for field in dataclasses.fields(Correspondence)}
    path.write_text(json.dumps(good | change).replace("Infinity", "1e999"))
    with pytest.raises(DataError, match=message) as raised:
        Correspondence.read(path)
    assert str(path) in str(raised.value)


def test_an_unknown_correspondence():
    with pytest.raises(UsageError, match="did you mean mirror-ant or mirror-x"):
        find_correspondence("miror-x", (14, 4), (14, 4))


def test_matrices_that_do_not_belong_together():
    with pytest.raises(DataError, match="one must be the other turned"):
        dataclasses.replace(CORRESPONDENCES["mirror-x"], state_to_source=np.ones((2, 3)))
    with pytest.raises(DataError, match="finite"):
        dataclasses.replace(CORRESPONDENCES["mirror-x"], action_to_target=np.full((2, 2), np.nan))


def test_the_mirror_of_ants_is_that_of_their_simulation():
    """So the guess alone moves a policy to the mirrored machine, whatever it does."""
    rng, mirror = np.random.default_rng(0), ant_mirror()
    guess = CORRESPONDENCES["mirror-ant"]
    states, actions = (rng.standard_normal((5, n)).astype(np.float32) for n in (27, 8))
    assert np.array_equal(states @ guess.state_to_source.T, mirror.observations(states))
    assert np.array_equal(states @ guess.state_to_target.T, mirror.observations(states))
    assert np.array_equal(actions @ guess.action_to_target.T, mirror.actions(actions))
    assert np.array_equal(actions @ guess.action_to_source.T, mirror.actions(actions))
    assert find_correspondence("mirror-ant", (27, 8), (27, 8)) is guess
