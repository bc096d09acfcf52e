"""`--policy module:function`: a user's own code, run only if it is asked for by that form."""

import sys

import numpy as np
import pytest

from mcat.agents.policies.names import find_policy, find_source_policy, require_policy_name
from mcat.envs.tasks import Task
from mcat.errors import DataError, MissingInputError, UsageError
from mcat.types import Remembering, started

HOPPER, RNG = Task("hopper"), np.random.default_rng(0)  # 11 observations, 3 actions
CODE = """
from pathlib import Path
import numpy as np

Path("ran").touch()

def plain():
    return lambda states: 2 * states[:, :3]

class Counting:
    def start_episode(self):
        self.steps = 0
        def act(states):
            self.steps += 1
            return np.full((len(states), 3), self.steps)
        return act

counting = Counting
wrong_size = lambda: lambda states: states
nan = lambda: lambda states: np.full((len(states), 3), np.nan)
text = lambda: lambda states: "left"
nothing = lambda: None
number = 3
itself = lambda states: states

def broken():
    raise RuntimeError("no\\nmotor")
"""


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """A folder with a module that no other test has."""
    name = f"robot_{abs(hash(str(tmp_path)))}"
    (tmp_path / f"{name}.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield name
    sys.modules.pop(name, None)


def test_a_function_is_a_policy(here, tmp_path):
    require_policy_name(f"{here}:plain")
    assert not (tmp_path / "ran").exists()  # asking whether there is one runs nothing
    policy = find_policy(f"{here}:plain", HOPPER, RNG)
    assert (tmp_path / "ran").exists()
    assert policy(np.arange(22.0).reshape(2, 11)).tolist() == [[0, 2, 4], [22, 24, 26]]
    assert not isinstance(policy, Remembering)
    assert find_source_policy(f"{here}:plain", HOPPER, RNG)(np.ones((1, 11))).tolist() == [[2] * 3]


def test_one_that_remembers_starts_anew(here):
    policy = find_policy(f"{here}:counting", HOPPER, RNG)
    for _ in range(2):
        acting = started(policy)
        assert [acting(np.zeros((1, 11)))[0, 0] for _ in range(3)] == [1, 2, 3]
    with pytest.raises(UsageError, match="nothing to translate"):
        find_source_policy(f"{here}:counting", HOPPER, RNG)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("missing", "could not be made: AttributeError"),
        ("number", "could not be made: TypeError"),
        ("itself", "could not be made: TypeError"),
        ("broken", "could not be made: RuntimeError: no motor"),
        ("nothing", "must return a policy, not NoneType"),
    ],
)
def test_what_makes_no_policy_is_told_in_one_line(here, function, message):
    with pytest.raises(UsageError) as caught:
        find_policy(f"{here}:{function}", HOPPER, RNG)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        ("wrong_size", UsageError, r"actions of shape \(2, 11\), not \(2, 3\)"),
        ("nan", DataError, "NaN or infinite"),
        ("text", UsageError, "cannot act: ValueError"),
    ],
)
def test_actions_that_are_none_are_told_at_the_step(here, function, error, message):
    policy = find_policy(f"{here}:{function}", HOPPER, RNG)
    with pytest.raises(error, match=message):
        policy(np.zeros((2, 11)))


def test_only_that_form_is_code(here, tmp_path):
    with pytest.raises(UsageError, match="no module 'no_such_robot'"):
        require_policy_name("no_such_robot:plain")
    for name in (f"{here}.py:plain", f"./{here}:plain"):  # the first names a module `py` of it
        with pytest.raises((UsageError, MissingInputError)):
            find_policy(name, HOPPER, RNG)
    with pytest.raises(MissingInputError, match="not there"):
        require_policy_name(f"../{here}:plain")
    with pytest.raises(UsageError, match="unknown policy or file"):
        require_policy_name("unicorn")
    (tmp_path / f"{here}:plain").write_text("a file of that name is a file")
    with pytest.raises(DataError):
        find_policy(f"{here}:plain", HOPPER, RNG)
    assert not (tmp_path / "ran").exists() or here in sys.modules


def test_modules_of_the_folder_hide_no_others(here, tmp_path):
    (tmp_path / "json.py").write_text("raise SystemExit('hidden')")
    require_policy_name(f"{here}:plain")
    assert sys.path[-1] == str(tmp_path)
    sys.modules.pop("json.tool", None)
    import json.tool

    assert "json.py" not in (json.tool.__file__ or "")
