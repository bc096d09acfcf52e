"""Tasks and families are plain data that cannot describe nonsense."""

import itertools
import json
import math
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcat.envs import FAMILIES, ROBOTS, Family, Task, family
from mcat.envs.robots import Parameter
from mcat.errors import UsageError

ALL_TASKS = sorted({task for item in FAMILIES.values() for task in item.tasks}, key=repr)


def values_of(parameter: Parameter) -> st.SearchStrategy:
    if parameter.choices:
        return st.sampled_from(parameter.choices)
    numbers = st.floats(*parameter.bounds)
    if parameter.length == 1:
        return numbers
    vectors = st.tuples(*[numbers] * parameter.length)
    return st.none() | vectors if parameter.default is None else vectors


@st.composite
def tasks(draw):
    robot = draw(st.sampled_from(sorted(ROBOTS)))
    params = {p.name: draw(values_of(p)) for p in ROBOTS[robot].parameters if draw(st.booleans())}
    return Task(
        robot, delay=draw(st.integers(1, 700)), horizon=draw(st.integers(1, 2000)), **params
    )


@given(tasks())
def test_json_round_trip(task):
    again = Task.from_json(task.to_json())
    assert again == task
    assert hash(again) == hash(task)
    assert again.params == task.params
    assert json.loads(task.to_json())["robot"] == task.robot


@given(tasks(), tasks())
def test_equal_exactly_when_the_machine_is_the_same(one, two):
    same = (one.robot, one.params, one.delay, one.horizon) == (
        two.robot, two.params, two.delay, two.horizon,
    )  # fmt: skip
    assert (one == two) is same


def test_defaults_can_be_written_out_or_left_away():
    assert Task("ant") == Task("ant", cripple=None, damping=1) == Task("mcat/Ant-v0")
    assert Task("halfcheetah", armature=0.1).label() == "halfcheetah"
    assert Task("halfcheetah", armature=0.1).label("armature") == "halfcheetah-armature0.1"
    assert Task("ant", cripple=3, delay=500).label() == "ant-cripple3-delay500"
    assert Task("reach", goal=[-0.1, 0.8, 0.2]).label() == "reach-goal-0.1_0.8_0.2"


def test_text_values_as_a_command_line_gives_them():
    assert Task("ant", cripple="3") == Task("ant", cripple=3)
    assert Task("ant", cripple="none") == Task("ant")
    assert Task("halfcheetah", armature="0.3") == Task("halfcheetah", armature=0.3)
    assert Task("reach", goal="-.1,.8,.2") == Task("reach", goal=(-0.1, 0.8, 0.2))


def test_tasks_cannot_be_changed():
    with pytest.raises(AttributeError):
        Task("ant").delay = 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"robot": "aunt"}, "unknown robot 'aunt': did you mean ant?"),
        ({"robot": "ant", "armature": 0.3}, "ant has no parameter 'armature' (halfcheetah"),
        (
            {"robot": "ant", "crippel": 3},
            "unknown parameter of ant 'crippel': did you mean cripple",
        ),
        ({"robot": "ant", "cripple": 4}, "unknown cripple '4': choose from 0, 1, 2, 3, none"),
        ({"robot": "ant", "cripple": True}, "unknown cripple 'True'"),
        ({"robot": "halfcheetah", "armature": -1}, "armature must be from 0.001 to 5, got -1"),
        ({"robot": "halfcheetah", "armature": math.nan}, "armature must be a number"),
        ({"robot": "halfcheetah", "armature": math.inf}, "armature must be from"),
        ({"robot": "halfcheetah", "armature": "heavy"}, "armature must be a number"),
        ({"robot": "halfcheetah", "armature": True}, "armature must be a number"),
        ({"robot": "reach", "goal": (1, 2)}, "goal takes 3 numbers"),
        ({"robot": "reach", "goal": (0.1, 9, 0.2)}, "goal must be from -1 to 1, got 9"),
        ({"robot": "ant", "delay": 0}, "delay must be a whole number from 1"),
        ({"robot": "ant", "delay": 2.5}, "delay must be a whole number from 1"),
        ({"robot": "ant", "delay": "soon"}, "delay must be a whole number from 1"),
        ({"robot": "ant", "horizon": -5}, "horizon must be a whole number from 1"),
        ({"robot": "ant", "horizon": math.inf}, "horizon must be a whole number from 1"),
    ],
)
def test_nonsense_is_one_clear_line(arguments, message):
    with pytest.raises(UsageError) as caught:
        Task(**arguments)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_every_one_edit_typo_of_a_robot_is_mended():
    for name, swap in itertools.product(ROBOTS, range(5)):
        if swap + 1 >= len(name):
            continue
        typo = name[:swap] + name[swap + 1] + name[swap] + name[swap + 2 :]
        if typo in ROBOTS:
            continue
        with pytest.raises(UsageError, match="did you mean") as caught:
            Task(typo)
        assert name in str(caught.value)


@pytest.mark.parametrize("item", FAMILIES.values(), ids=lambda item: item.name)
def test_families_have_disjoint_splits_and_survive_json(item):
    assert item.train
    assert not set(item.train) & set(item.test)
    assert Family.from_json(item.to_json()) == item


def test_a_family_with_overlapping_splits_is_refused():
    with pytest.raises(UsageError, match="disjoint"):
        Family(name="f", title="f", varies="", train=(Task("ant"),), test=(Task("ant"),))


def test_families_hold_the_papers_values():
    def column(name, parameter):
        item = family(name)
        return [
            [task.params[parameter] for task in item.split(split)] for split in ("train", "test")
        ] + [{task.delay for task in item.tasks}]

    assert column("hopper-size", "size") == [[0.02, 0.03, 0.04, 0.05, 0.06], [0.01, 0.07], {100}]
    assert column("halfcheetah-armature", "armature") == [
        [0.2, 0.3, 0.4, 0.5, 0.6], [0.05, 0.1, 0.7, 0.75], {500},
    ]  # fmt: skip
    assert column("halfcheetah-mass", "mass") == [
        [0.5, 1, 1.5, 2, 2.5], [0.2, 0.3, 2.7, 2.8], {500},
    ]  # fmt: skip
    assert column("ant-damping", "damping") == [[1, 10, 20, 30], [0.5, 35], {500}]
    assert column("ant-cripple", "cripple") == [[None, 0, 1, 2], [3], {500}]
    assert column("halfcheetah-armature-set1", "armature")[1] == [0.05, 0.1, 0.5, 0.55]
    assert column("halfcheetah-armature-set3", "armature")[1] == [0.05, 0.1, 0.9, 0.95]
    assert column("halfcheetah-mass-set1", "mass")[0] == [0.5, 0.75, 1, 1.25, 1.5]
    assert column("halfcheetah-mass-set3", "mass")[0] == [0.5, 1.25, 2, 2.75, 3.5]
    assert column("reach-goals", "goal")[0] == [(-0.1, 0.8, 0.2)]
    assert family("cylinder-mug").test == (Task("coffee-push", gripper=0.1),)
    assert family("cylinder-cube").test == (Task("sweep-into", gripper=0.1),)
    assert [task.robot for task in family("metaworld-objects").train] == [
        "drawer-close", "coffee-push", "soccer", "sweep-into", "plate-slide",
    ]  # fmt: skip


def test_a_family_can_be_made_dense():
    dense = family("ant-cripple").replace(delay=1)
    assert {task.delay for task in dense.tasks} == {1}
    assert [task.params["cripple"] for task in dense.train] == [None, 0, 1, 2]


def test_declarations_import_nothing_heavy():
    code = (
        "import sys, mcat, mcat.envs.families, mcat.cli\n"
        "heavy = {'torch', 'mujoco', 'metaworld', 'gymnasium', 'h5py'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
