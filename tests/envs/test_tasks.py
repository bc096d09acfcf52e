"""Tasks and families are plain data that cannot describe nonsense."""

import itertools
import json
import math
import random
import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from hypothesis import given
from hypothesis import strategies as st

from mcat.cli import cli
from mcat.envs import FAMILIES, ROBOTS, Family, Task, family, robot
from mcat.envs.check import check_env_id
from mcat.envs.env import simulate
from mcat.envs.robots import Parameter
from mcat.errors import UsageError

ALL_TASKS = sorted({task for item in FAMILIES.values() for task in item.tasks}, key=repr)


def values_of(parameter: Parameter) -> st.SearchStrategy:
    if parameter.choices:
        return st.sampled_from(parameter.choices)
    if parameter.length == 1:
        return st.floats(*parameter.bounds)
    vectors = st.tuples(*(st.floats(*sides) for sides in parameter.box))
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
    again = Task.from_dict(json.loads(json.dumps(task.to_dict())))
    assert again == task
    assert hash(again) == hash(task)
    assert again.params == task.params


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
        ({"robot": "reach", "goal": (0.1, 9, 0.2)}, "goal[1] must be from 0.4 to 1, got 9"),
        ({"robot": "reach", "goal": (0.1, "up", 0.2)}, "goal[1] must be a number from 0.4 to 1"),
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


HUGE = {
    "400 digits": 10**400,
    "-400 digits": -(10**400),
    "5000 digits": 10**5000,  # more than Python agrees to print
    "1e999": float("1e999"),
    "400 digits of text": "1" * 400,
    "5000 digits of text": "1" * 5000,
    "1e999 as text": "1e999",
}


@pytest.mark.parametrize("value", HUGE.values(), ids=HUGE)
@pytest.mark.parametrize("name", ["armature", "delay", "horizon", "cripple", "goal", "robot"])
def test_huge_numbers_are_one_clear_line(name, value):
    robot = {"cripple": "ant", "goal": "reach"}.get(name, "halfcheetah")
    given = {"goal": [0.1, value, 0.2]}.get(name, value)
    described = {"robot": robot, name: given}
    arguments = {key: item for key, item in described.items() if key != "robot"}
    attempts = [
        lambda: Task.from_dict(described),
        lambda: Family.from_dict({"name": "f", "title": "f", "varies": "", "train": [described]}),
    ]
    if name != "robot":
        attempts += [
            lambda: Task(robot, **arguments),
            lambda: Task(robot).replace(**arguments),
            lambda: gym.make(ROBOTS[robot].env_id, **arguments),
            lambda: gym.make_vec(ROBOTS[robot].env_id, num_envs=2, **arguments),
        ]
    if isinstance(value, str):
        word = "0.1," + value + ",0.2" if name == "goal" else value
        options = ["--env", value] if name == "robot" else ["--env", robot, f"--{name}", word]
        attempts += [lambda: cli.main(["render", *options, "--out", "x.png"], "mcat", None, False)]
    for attempt in attempts:
        with pytest.raises(UsageError, match=r"must be|unknown|takes 3 numbers") as caught:
            attempt()
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    "data",
    [
        {"robot": "ant", "delay": 10**5000},
        {"robot": "ant", "delay": float("inf")},
        {"robot": None},
        [[]],
        5,
        None,
        "ant",
    ],
    ids=["digits", "infinity", "no name", "list", "number", "null", "text"],
)
def test_what_describes_no_task_is_one_clear_line(data):
    for kind in (Task, Family):
        with pytest.raises(UsageError) as caught:
            kind.from_dict(data)
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 300


def test_numbers_may_come_from_numpy():
    numbers = [0.1, 0.8, 0.2]
    expected = Task("reach", goal=numbers)
    for array in (tuple(numbers), np.array(numbers), list(np.array(numbers))):
        assert Task("reach", goal=array) == expected
    vector = gym.make_vec("mcat/Reach-v0", num_envs=1, goal=np.array([numbers]))
    assert vector.tasks == (expected,)
    halves = np.array([0.25, 0.5], np.float32)
    assert Task("halfcheetah", armature=halves[0]) == Task("halfcheetah", armature=0.25)
    vector = gym.make_vec("mcat/HalfCheetah-v0", num_envs=2, armature=halves)
    assert [task.params["armature"] for task in vector.tasks] == [0.25, 0.5]
    assert Task("ant", cripple=np.int64(3), delay=np.int64(5)) == Task("ant", cripple=3, delay=5)


@pytest.mark.parametrize("goal", [(0.1, 0.8, 0.2), np.array([0.1, 0.8, 0.2])])
def test_a_spec_is_the_same_after_json(goal):
    spec = gym.make("mcat/Reach-v0", goal=goal).spec
    again = EnvSpec.from_json(spec.to_json())
    assert again == spec
    env = gym.make(again)
    assert env.spec == spec
    assert env.unwrapped.task == Task("reach", goal=(0.1, 0.8, 0.2))


def test_every_declared_goal_is_within_the_hands_reach():
    simulation = simulate(Task("reach"))
    low, high = simulation._env.hand_low.tolist(), simulation._env.hand_high.tolist()
    box = ROBOTS["reach"].parameter("goal").box
    assert box == tuple(zip(low, high, strict=True))
    for corner in itertools.product(*box):
        assert simulation._check_goal(corner) == pytest.approx(corner)


def one_edit(name, rng):
    """A slip of the finger: a letter too many, too few, another, or two in the wrong order."""
    at, letter = rng.randrange(len(name)), rng.choice("abcdefghijklmnopqrstuvwxyz-")
    return rng.choice(
        [
            name[:at] + letter + name[at:],
            name[:at] + name[at + 1 :],
            name[:at] + letter + name[at + 1 :],
            name[:at] + name[at : at + 2][::-1] + name[at + 2 :],
        ]
    )


LOOK_UPS = {
    "robots": (list(ROBOTS), robot),
    "gymnasium ids": ([r.env_id for r in ROBOTS.values()], check_env_id),
    "families": (list(FAMILIES), family),
}


@pytest.mark.parametrize("kind", LOOK_UPS)
def test_the_right_name_is_suggested_for_50_typos(kind):
    names, look_up = LOOK_UPS[kind]
    rng = random.Random(0)
    tried, right = 0, 0
    while tried < 50:
        name = rng.choice(names)
        typo = one_edit(name, rng)
        if typo.lower() in map(str.lower, names):
            continue
        tried += 1
        with pytest.raises(UsageError) as caught:
            look_up(typo)
        suggestions = str(caught.value).split("did you mean ")[-1].rstrip("?").split(" or ")
        right += name in suggestions
    assert right >= 48


@pytest.mark.parametrize("item", FAMILIES.values(), ids=lambda item: item.name)
def test_families_have_disjoint_splits_and_survive_json(item):
    assert item.train
    assert not set(item.train) & set(item.test)
    assert Family.from_dict(json.loads(json.dumps(item.to_dict()))) == item


def test_a_family_with_overlapping_splits_is_refused():
    with pytest.raises(UsageError, match="disjoint"):
        Family(name="f", title="f", varies=(), train=(Task("ant"),), test=(Task("ant"),))


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
        "heavy = {'torch', 'mujoco', 'metaworld', 'h5py'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
