"""Every task family of the paper, with its split (Appendices C.2 to C.4, D.3 and E)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from mcat.envs.tasks import Family, Task
from mcat.errors import UsageError, unknown
from mcat.own_code import names_code


def _vary(robot: str, parameter: str, values: Sequence[Any], **fixed: Any) -> tuple[Task, ...]:
    return tuple(Task(robot, **{parameter: value}, **fixed) for value in values)


def _family(
    name: str,
    title: str,
    robot: str,
    parameter: str,
    train: Sequence[Any],
    test: Sequence[Any] = (),
    *,
    note: str = "",
    **fixed: Any,
) -> Family:
    return Family(
        name=name,
        title=title,
        varies=(parameter,),
        train=_vary(robot, parameter, train, **fixed),
        test=_vary(robot, parameter, test, **fixed),
        note=note,
    )


def _pair(
    name: str, title: str, varies: tuple[str, ...], source: Task, target: Task, note: str
) -> Family:
    return Family(name=name, title=title, varies=varies, train=(source,), test=(target,), note=note)


PAPER_TEST = "for 0.05 and 0.1 Appendix D.3 prints 0.2, which is in training, and 0.3"

_ALL = (
    # Meta-training with delayed rewards.
    _family("hopper-size", "Hopper size", "hopper", "size",
            (0.02, 0.03, 0.04, 0.05, 0.06), (0.01, 0.07), delay=100),
    _family("halfcheetah-armature", "HalfCheetah armature", "halfcheetah", "armature",
            (0.2, 0.3, 0.4, 0.5, 0.6), (0.05, 0.1, 0.7, 0.75), delay=500),
    _family("halfcheetah-mass", "HalfCheetah mass", "halfcheetah", "mass",
            (0.5, 1.0, 1.5, 2.0, 2.5), (0.2, 0.3, 2.7, 2.8), delay=500),
    _family("ant-damping", "Ant damping", "ant", "damping",
            (1, 10, 20, 30), (0.5, 35), delay=500),
    _family("ant-cripple", "Ant crippled leg", "ant", "cripple",
            (None, 0, 1, 2), (3,), delay=500),
    _family("ant-damping-released", "Ant damping as released", "ant", "damping",
            (1, 10, 20, 30), (0.5, 35), delay=500, semantics="released", control_cost=0.005,
            note="the authors' code: one leg × d, three ÷ d, and a control cost"),
    # Appendix D.3: other distances between the training tasks (set 2 is the main family).
    _family("halfcheetah-armature-set1", "HalfCheetah armature, narrow", "halfcheetah", "armature",
            (0.2, 0.25, 0.3, 0.35, 0.4), (0.05, 0.1, 0.5, 0.55), delay=500),
    _family("halfcheetah-armature-set3", "HalfCheetah armature, wide", "halfcheetah", "armature",
            (0.2, 0.35, 0.5, 0.65, 0.8), (0.05, 0.1, 0.9, 0.95), delay=500, note=PAPER_TEST),
    _family("halfcheetah-mass-set1", "HalfCheetah mass, narrow", "halfcheetah", "mass",
            (0.5, 0.75, 1.0, 1.25, 1.5), (0.2, 0.3, 1.7, 1.8), delay=500),
    _family("halfcheetah-mass-set3", "HalfCheetah mass, wide", "halfcheetah", "mass",
            (0.5, 1.25, 2.0, 2.75, 3.5), (0.2, 0.3, 3.7, 3.8), delay=500),
    # Transfer between all pairs (heat maps) and between two machines (Table 1), dense rewards.
    _family("halfcheetah-heatmap", "HalfCheetah armature heat map", "halfcheetah", "armature",
            (0.1, 0.2, 0.3, 0.4, 0.5), note="evaluated on the same tasks"),
    _family("ant-heatmap", "Ant cripple heat map", "ant", "cripple",
            (0, 1, 2, 3), note="evaluated on the same tasks"),
    _pair("halfcheetah-pair", "HalfCheetah armature 0.1 → 0.5", ("armature",),
          Task("halfcheetah", armature=0.1), Task("halfcheetah", armature=0.5), "Table 1"),
    _pair("ant-pair", "Ant dead leg 0 → 3", ("cripple",),
          Task("ant", cripple=0), Task("ant", cripple=3), "Table 1"),
    _pair("cylinder-mug", "Meta-World cylinder → mug", ("robot", "gripper"),
          Task("push"), Task("coffee-push", gripper=0.1),
          "Table 1; source policy: scripted:sweep-high (docs/metaworld.md says why)"),
    _pair("cylinder-cube", "Meta-World cylinder → cube", ("robot", "gripper"),
          Task("push"), Task("sweep-into", gripper=0.1),
          "Table 1; source policy: scripted:push"),
    Family(
        name="ant-control-cost",
        title="Ant dead leg 0 → 3 with control cost",
        varies=("control_cost",),
        train=_vary("ant", "control_cost", (0.001, 0.002, 0.005), cripple=0),
        test=_vary("ant", "control_cost", (0.001, 0.002, 0.005), cripple=3),
        note="Appendix C.3: source and target share the cost",
    ),
    _family("reach-goals", "Reach, three other goals", "reach", "goal",
            ((-0.1, 0.8, 0.2),), ((0.1, 0.8, 0.2), (0.05, 0.8, 0.2), (0.1, 0.8, 0.05)),
            note="Appendix E: source goal, then three target goals"),
    _pair("three-legs", "HalfCheetah two legs → three legs", ("robot",),
          Task("halfcheetah"), Task("halfcheetah3leg"), "Appendix E: other spaces"),
    Family(
        name="metaworld-objects",
        title="Meta-World, many objects",
        varies=("robot",),
        train=tuple(map(Task, ("drawer-close", "coffee-push", "soccer", "sweep-into",
                               "plate-slide"))),
        test=(Task("push"),),
        note="drawer, mug, soccer ball, cube, plate; tested on the cylinder",
    ),
)  # fmt: skip

FAMILIES: dict[str, Family] = {family.name: family for family in _ALL}
"""Every family by its name (docs/decisions.md#test-tasks-of-appendix-d3). One of your own is known
by name once it is added here."""

PACKAGED = frozenset(FAMILIES)
"""The names of those that come with mcat."""


def family(name: str) -> Family:
    """The family of that name, in a TOML file, or of a `module:function` (see `own_families`).

    Raises:
        MissingInputError: if it is a file that is not there.
        DataError: if a file does not describe one.
        UsageError: if there is no such family, or a task of it makes no sense.
    """
    if name in FAMILIES:
        return FAMILIES[name]
    from mcat.envs.own_families import own_family

    found = own_family(name)
    if found is None:
        raise unknown("family", name, FAMILIES)
    return found


def names_family(name: str) -> bool:
    """Whether it is the name of a family, or has the form of one of one's own."""
    return name in FAMILIES or name.endswith(".toml") or names_code(name)


def has_mirror_images(chosen: Family) -> bool:
    """Whether it is a family of ours in which legs are crippled."""
    return "cripple" in chosen.varies and all("view" in task.params for task in chosen.train)


def with_mirror_images(chosen: Family) -> Family:
    """The family with mirror images of its training tasks, where these are machines of their own.

    An ant whose leg 0 is dead, seen in a mirror, is one whose leg 3 is: nobody has to build it.

    Raises:
        UsageError: if its robot has no left and right.
    """
    if any("view" not in task.params for task in chosen.train):
        raise UsageError(f"{chosen.train[0].robot} has no mirror image: leave out mirror")
    twins = [task.replace(view="mirror") for task in chosen.train]
    new = [twin for twin in twins if _same_machine(twin) not in chosen.train]
    return replace(chosen, train=(*chosen.train, *new))


def mirror_twins(tasks: Sequence[Task]) -> tuple[int | None, ...]:
    """The number of the task that each is in a mirror; None where it is not among them."""
    numbers = {_same_machine(task): number for number, task in enumerate(tasks)}
    images = [
        task.replace(view="plain" if task.params["view"] == "mirror" else "mirror")
        for task in tasks
    ]
    return tuple(numbers.get(_same_machine(image)) for image in images)


def _same_machine(task: Task) -> Task:
    """The ant that acts by itself as this one does, in a mirror or not.

    Legs 0 and 3 are front legs, 1 and 2 back.
    """
    ant: dict[str, Any] = task.params
    if ant["view"] == "plain":
        return task
    if ant["damping"] != 1 and ant["semantics"] == "released":
        return task  # one leg multiplied, three divided: in the mirror there is no such ant
    leg = None if ant["cripple"] is None else 3 - ant["cripple"]
    return task.replace(view="plain", cripple=leg, damping=1 / ant["damping"])
