"""Families of one's own: from a file or a function to tasks, and every mistake in a line."""

import json

import pytest

import tests.count_env  # noqa: F401  (registers Count-v0)
from mcat.envs import FAMILIES, Family, Task, family
from mcat.envs.promises import check_family, check_task
from mcat.errors import DataError, McatError, MissingInputError, UsageError

WALKERS = """
env = "Walker2d-v5"
varies = "mass"
train = [0.7, 1.0]
test = [{torso = 2.0}]
delay = 100
horizon = 300
damping = 2.0

[arguments]
healthy_reward = 0.5
"""


def written(folder, text, name="mine.toml"):
    path = folder / name
    path.write_text(text)
    return str(path)


def test_a_file_describes_tasks(tmp_path):
    found = family(written(tmp_path, WALKERS))
    fixed = {
        "damping": 2.0, "delay": 100, "horizon": 300, "arguments": {"healthy_reward": 0.5}
    }  # fmt: skip
    assert found == Family(
        name="mine",
        title="mine",
        varies=("mass",),
        train=(Task("Walker2d-v5", mass=0.7, **fixed), Task("Walker2d-v5", mass=1.0, **fixed)),
        test=(Task("Walker2d-v5", mass={"torso": 2.0}, **fixed),),
    )
    assert Family.from_dict(json.loads(json.dumps(found.to_dict()))) == found


def test_several_things_and_arguments_vary(tmp_path):
    text = """
name = "counts"
title = "Machines that count"
env = "Count-v0"
varies = ["arguments.ends_at", "arguments.gain"]
train = [[5, 1.0], [9, 2.0]]
"""
    found = family(written(tmp_path, text))
    assert (found.name, found.title) == ("counts", "Machines that count")
    assert [task.arguments for task in found.tasks] == [
        {"ends_at": 5, "gain": 1.0}, {"ends_at": 9, "gain": 2.0}
    ]  # fmt: skip
    text = 'env = "hopper"\nvaries = "size"\ntrain = [0.04, 0.05]\n'
    assert family(written(tmp_path, text)).train == (Task("hopper", size=0.04), Task("hopper"))


MISTAKES = {
    "no TOML": ("env = ", DataError, "not a TOML file"),
    "nothing": ("", DataError, "it lacks env, varies, train"),
    "no list": ('env = "ant"\nvaries = "damping"\ntrain = 3', DataError, "train is a list"),
    "no value": ('env = "ant"\nvaries = "damping"\ntrain = []', UsageError, "no training task"),
    "a pair": ('env = "ant"\nvaries = ["a", "b"]\ntrain = [1]', DataError, "1 is no list of 2"),
    "a key": ('env = "ant"\nvaries = "damping"\ntrain = [1]\nx = 2', UsageError, "of ant 'x'"),
    "a robot": ('env = "Wolker-v5"\nvaries = "mass"\ntrain = [1]', UsageError, "'Wolker-v5'"),
    "twice": ('env = "ant"\nvaries = "damping"\ntrain = [1, 1.0]', UsageError, "twice"),
    "arguments": (
        'env = "Count-v0"\nvaries = "mass"\ntrain = [1]\narguments = 3', DataError, "is a table"
    ),
    "a name of ours": (
        'name = "ant-pair"\nenv = "ant"\nvaries = "damping"\ntrain = [1]',
        UsageError,
        "another name",
    ),
    "a module": ('env = "nowhere:X-v0"\nvaries = "mass"\ntrain = [1]', UsageError, "no module"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_in_a_file_are_told_in_a_line(mistake, tmp_path):
    text, kind, told = MISTAKES[mistake]
    with pytest.raises(kind) as caught:
        family(written(tmp_path, text))
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_function_of_ones_own_returns_a_family(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code = """
from mcat.envs import FAMILIES, Family, Task

def hoppers():
    return Family(name="h", title="h", varies=("size",), train=(Task("hopper", size=0.03),))

def nothing():
    return 3
"""
    written(tmp_path, code, "my_families.py")
    assert family("my_families:hoppers").train == (Task("hopper", size=0.03),)
    with pytest.raises(UsageError, match="must return a Family, not int"):
        family("my_families:nothing")
    with pytest.raises(UsageError, match="could not be made: AttributeError"):
        family("my_families:neither")
    with pytest.raises(MissingInputError, match="nowhere"):
        family("nowhere.toml")
    with pytest.raises(UsageError, match="did you mean ant-cripple"):
        family("ant-crippel")


# --- what training needs ------------------------------------------------------------------------


def problems(**arguments):
    return check_task(Task("Count-v0", arguments=arguments)).problems


def test_a_sound_task_has_no_problem_and_its_ends_are_noted():
    found = check_task(Task("Count-v0", arguments={"ends_at": 7}, delay=10))
    assert found.problems == []
    assert found.notes == [
        "random actions are always paid 1",
        "10 of 10 random episodes end by themselves, after 7 to 7 of 20 steps: nothing is earned"
        " after that",
        "no payment falls due before that (delay 10): each is paid at its end",
    ]
    assert check_task(Task("Count-v0")).notes == ["random actions are always paid 1"]


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("seedless", "two of them with seed 0 and equal actions differ"),
        ("memory", "an episode depends on the one before"),
        ("deaf", "actions change nothing that is observed"),
        ("hasty", "a time limit of its own cuts episodes after 5 of 20 steps: set horizon to 5"),
        ("nan", "NaN or infinite"),
    ],
)
def test_broken_promises_are_found(fault, told):
    found = problems(fault=fault)
    assert any(told in line for line in found), found


def test_a_machine_that_cannot_be_made_is_a_problem():
    assert "TypeError" in problems(nonsense=1)[0]
    assert "needs a MuJoCo environment" in check_task(Task("Count-v0", mass=2)).problems[0]


def counts(*tasks, **options):
    return Family(name="counts", title="counts", varies=("arguments.gain",), train=tasks, **options)


def test_tasks_of_a_family_must_differ_in_what_happens_and_share_the_rest():
    def task(gain, **options):
        return Task("Count-v0", arguments={"gain": gain}, **options)

    found = check_family(counts(task(1.0), task(2.0), test=(task(3.0),)))
    assert list(found) == ["count-gain1.0", "count-gain2.0", "count-gain3.0", "counts"]
    assert not any(item.problems for item in found.values())
    same = check_family(counts(task(1.0), Task("Count-v0", arguments={"fault": ""})))["counts"]
    assert same.problems == [
        "count-gain1.0 and count-fault move and pay alike: arguments.gain changes nothing"
    ]
    assert same.notes == ["it has no test tasks: nothing will be said of machines it never saw"]
    apart = check_family(counts(task(1.0), task(2.0, horizon=9, delay=2)))["counts"].problems
    assert apart == ["its tasks must share one horizon, not [9, 20]",
                     "its tasks must share one delay, not [1, 2]"]  # fmt: skip
    walker = Task("Walker2d-v5", horizon=20)
    spaces = check_family(counts(task(1.0), walker))["counts"].problems
    assert spaces == ["its tasks have other spaces (observations, actions): [(3, 1), (17, 6)]"]


def test_our_own_families_keep_the_promises():
    assert not any(item.problems for item in check_family(FAMILIES["hopper-size"]).values())
    with pytest.raises(McatError, match="unknown family"):
        family("hopper")
