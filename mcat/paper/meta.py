"""What the paper printed of meta-training: Sections 5.2 and 5.3, Appendices C.4 and D.

A number stands beside a run only if it was earned in the same setting: that method or ablation, on
those tasks, paid as often, after a number of steps that is named with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from mcat.agents.meta.methods.registry import METHODS
from mcat.agents.runs.record import RunRecord
from mcat.config import flatten, to_json
from mcat.envs.families import FAMILIES
from mcat.paper.experiments import TEST, TEST_SUCCESS, TRAIN, TRAIN_SUCCESS

MCAT, NO_TRANSFER, NO_SIL = "MCAT", "MCAT w/o PT", "MCAT w/o SIL"
NO_CONTRAST, CYCLE = "MCAT w/o L_cont", "MCAT with Zhang et al.'s translator"
OTHER_LEARNER = "†"
LEARNER_NOTE = (
    f"{OTHER_LEARNER} Of another learner on the same tasks: these runs give credit for delayed"
    " rewards or learn by CrossQ, where the paper's MCAT has TD3 with self-imitation."
)


Number = float | tuple[float, float]  # a mean, with what is behind its ± where that is printed


class Printed(NamedTuple):
    """A number of the paper, and the setting that it is of."""

    where: str  # the table
    method: str  # as the paper calls it
    family: str  # the tasks, by our name
    delay: int | None  # steps between two payments; None for the family's own
    steps: int  # after how many
    column: str  # `TRAIN`, `TEST`, `TRAIN_SUCCESS` or `TEST_SUCCESS`
    mean: float  # over three runs; of a success rate a part of 1
    error: float | None  # its standard error, None where none is printed


_FIVE = ("hopper-size", "halfcheetah-armature", "halfcheetah-mass", "ant-damping", "ant-cripple")
_CHEETAHS = ("halfcheetah-armature", "halfcheetah-mass")
_SETS = tuple(f"{name}{end}" for name in _CHEETAHS for end in ("-set1", "", "-set3"))
_OBJECTS = ("metaworld-objects",)
_1M, _2M = 1_000_000, 2_000_000


def _row(
    where: str, method: str, steps: int, column: str, families: Sequence[str],
    numbers: Iterable[Number], delay: int | None = None,
) -> Iterator[Printed]:  # fmt: skip
    for family, found in zip(families, numbers, strict=True):
        mean, error = found if isinstance(found, tuple) else (found, None)
        yield Printed(where, method, family, delay, steps, column, mean, error)


def _objects(method: str, *numbers: tuple[float, float]) -> Iterator[Printed]:
    """A column of the table of Meta-World: rewards, then success rates."""
    columns = (TRAIN, TEST, TRAIN_SUCCESS, TEST_SUCCESS)
    for column, cell in zip(columns, numbers, strict=True):
        yield from _row("C.4, Meta-World", method, _2M, column, _OBJECTS, [cell])


PRINTED: tuple[Printed, ...] = (
    # Table 2, with the errors of its repetition in C.4
    *_row("Table 2", MCAT, _2M, TEST, _FIVE,
          [(1914.8, 373.2), (2071.5, 447.4), (1771.1, 617.7), (624.6, 218.8), (281.6, 65.6)]),
    *_row("Table 2", "MQL", _2M, TEST, _FIVE,
          [(1607.5, 327.5), (-77.9, 214.2), (-413.9, 11.0), (103.1, 35.7), (38.2, 4.0)]),
    *_row("Table 2", "PEARL", _2M, TEST, _FIVE,
          [(1755.8, 115.3), (-18.8, 69.3), (25.9, 69.2), (73.2, 13.3), (3.5, 2.4)]),
    *_row("Table 2", "Distral", _2M, TEST, _FIVE,
          [(1319.8, 162.2), (566.9, 246.7), (-29.5, 3.0), (90.5, 28.4), (-0.1, 0.7)]),
    *_row("Table 2", "HiP-BMDP", _2M, TEST, _FIVE,
          [(1368.3, 150.7), (-102.4, 24.9), (-74.8, 35.4), (33.1, 6.0), (7.3, 2.6)]),
    # Table 3; those of the cheetahs are in D.3 too, with errors
    *_row("Table 3", NO_TRANSFER, _1M, TEST, ("hopper-size", "ant-damping", "ant-cripple"),
          [1497.5, 187.7, 92.4]),
    *_row("Table 3", MCAT, _1M, TEST, ("hopper-size", "ant-damping", "ant-cripple"),
          [1982.1, 211.8, 155.7]),
    # Table 4; a delay of 500 is the family's own
    *_row("Table 4", NO_TRANSFER, _1M, TEST, _CHEETAHS, [2583.2, 709.6], delay=200),
    *_row("Table 4", NO_TRANSFER, _1M, TEST, _CHEETAHS, [1771.7, 156.6], delay=350),
    *_row("Table 4", MCAT, _1M, TEST, _CHEETAHS, [2251.8, 666.7], delay=200),
    *_row("Table 4", MCAT, _1M, TEST, _CHEETAHS, [2004.5, 247.8], delay=350),
    # D.3; set 2 is the family itself
    *_row("D.3", NO_TRANSFER, _1M, TRAIN, _SETS,
          [(837.6, 646.5), (924.0, 690.1), (452.8, 386.6),
           (-60.5, 313.4), (62.5, 411.0), (-328.1, 55.8)]),
    *_row("D.3", NO_TRANSFER, _1M, TEST, _SETS,
          [(785.3, 733.1), (579.1, 527.1), (616.5, 305.0),
           (-258.2, 151.1), (-364.3, 198.5), (-412.4, 7.7)]),
    *_row("D.3", MCAT, _1M, TRAIN, _SETS,
          [(3372.1, 186.4), (2207.3, 697.7), (1622.2, 402.2),
           (1222.2, 754.9), (763.4, 377.7), (705.7, 503.4)]),
    *_row("D.3", MCAT, _1M, TEST, _SETS,
          [(2821.9, 137.7), (1776.8, 680.8), (918.3, 142.5),
           (482.4, 624.2), (67.1, 152.9), (-86.2, 111.8)]),
    *_row("D.3", "MQL", _1M, TRAIN, _SETS,
          [(-129.3, 46.7), (-277.2, 25.2), (-85.0, 33.5),
           (-100.8, 37.8), (-403.7, 16.1), (-175.3, 6.2)]),
    *_row("D.3", "MQL", _1M, TEST, _SETS,
          [(-248.0, 32.0), (-335.0, 20.8), (-214.7, 28.9),
           (-291.3, 25.8), (-467.8, 6.5), (-287.9, 11.7)]),
    # D.4; its test returns of MCAT are those of Table 2 but for ant-damping
    # (docs/decisions.md#numbers-that-are-printed-twice)
    *_row("D.4", MCAT, _2M, TRAIN, _FIVE,
          [(2278.8, 426.2), (2267.2, 579.2), (2226.3, 762.6), (1322.7, 57.4), (110.4, 30.5)]),
    *_row("D.4", NO_SIL, _2M, TRAIN, _FIVE,
          [(1261.6, 55.2), (1548.8, 418.4), (610.6, 482.3), (123.3, 25.8), (97.3, 3.6)]),
    *_row("D.4", NO_SIL, _2M, TEST, _FIVE,
          [(1165.1, 8.6), (883.8, 267.2), (119.0, 210.0), (123.8, 26.9), (163.1, 26.1)]),
    # The same of the others; MQL's row has one number twice, after which all are a column late
    *_row("D.4", "MQL", _2M, TRAIN, _FIVE,
          [(1586.1, 321.4), (-31.4, 243.5), (-243.1, 69.8), (93.8, 24.5), (17.4, 4.3)]),
    *_row("D.4", "Distral", _2M, TRAIN, _FIVE,
          [(1364.0, 216.3), (774.7, 405.9), (-54.3, 14.8), (123.0, 20.0), (-2.5, 1.7)]),
    *_row("D.4", "HiP-BMDP", _2M, TRAIN, _FIVE,
          [(1590.3, 238.7), (-212.4, 52.2), (-81.3, 8.31), (15.0, 5.7), (12.7, 5.3)]),
    *_row("D.4", "MQL+SIL", _2M, TRAIN, _FIVE,
          [(1395.5, 60.8), (1399.7, 350.2), (617.8, 133.1), (153.0, 28.3), (13.9, 19.8)]),
    *_row("D.4", "MQL+SIL", _2M, TEST, _FIVE,
          [(1398.9, 85.9), (743.5, 246.1), (-63.3, 158.3), (144.3, 28.1), (10.2, 2.3)]),
    *_row("D.4", "Distral+SIL", _2M, TRAIN, _FIVE,
          [(1090.2, 18.7), (1014.1, 121.4), (809.7, 294.2), (174.3, 66.1), (107.7, 57.7)]),
    *_row("D.4", "Distral+SIL", _2M, TEST, _FIVE,
          [(1090.9, 7.8), (970.3, 164.2), (746.7, 120.5), (122.2, 44.5), (9.1, 5.0)]),
    *_row("D.4", "HiP-BMDP+SIL", _2M, TRAIN, _FIVE,
          [(1573.3, 32.4), (954.8, 192.3), (953.5, 61.2), (653.9, 262.6), (170.9, 68.7)]),
    *_row("D.4", "HiP-BMDP+SIL", _2M, TEST, _FIVE,
          [(1589.5, 110.3), (713.3, 85.4), (506.6, 99.0), (523.6, 300.8), (215.4, 130.3)]),
    # D.6
    *_row("D.6", CYCLE, _2M, TRAIN, _CHEETAHS, [(2255.2, 644.4), (1185.8, 798.0)]),
    *_row("D.6", CYCLE, _2M, TEST, _CHEETAHS, [(1664.8, 660.8), (684.7, 759.0)]),
    *_objects(MCAT, (204.1, 43.1), (10.2, 8.3), (0.533, 0.054), (0.167, 0.136)),
    *_objects("MQL", (164.8, 23.6), (0, 0), (0.4, 0), (0, 0)),
    *_objects("PEARL", (161.2, 25.3), (0, 0), (0.333, 0.054), (0, 0)),
    *_objects("PCGrad", (44.8, 31.7), (0, 0), (0.1, 0.071), (0, 0)),
)  # fmt: skip
"""Every number of those tables."""


class PrintedMethod(NamedTuple):
    """Which of the paper's methods a run is."""

    name: str  # as in `Printed`
    # Whether it learns as the paper does, without credit and, if it is MCAT, by TD3 with
    # self-imitation (or, in that ablation, without).
    same_learner: bool


def method_of(record: RunRecord) -> PrintedMethod | None:
    """The paper's method that a run of `mcat metatrain` is; None if the paper has no such one."""
    method = METHODS.get(record.method) if record.kind == "metatrain" else None
    if method is None or record.preset not in method.presets:
        return None
    settings = flatten(to_json(method.presets[record.preset])) | flatten(record.config)
    credit = settings[f"{record.method}.credit.kind"] != "none"
    if record.method != "mcat":
        name = method.label + "+SIL" * settings[f"{record.method}.imitate"]
        same = not credit and not settings[f"{record.method}.learn_while_acting"]
        return PrintedMethod(name, same)
    off = {
        NO_TRANSFER: not settings["mcat.transfer"],
        NO_CONTRAST: settings["mcat.context.contrastive_weight"] == 0,
        CYCLE: settings["mcat.translator"] == "cycle",
        # Credit is in its place where the paper has self-imitation.
        NO_SIL: not settings["mcat.imitate"] and not credit,
    }
    ablations = [name for name, is_off in off.items() if is_off]
    if len(ablations) > 1:
        return None
    same = settings["mcat.learner"] == "td3" and not credit
    return PrintedMethod(ablations[0] if ablations else MCAT, same)


def printed_for(record: RunRecord, column: str, steps: int) -> Printed | None:
    """The paper's number for the setting of a run, None if it has none.

    Which one: docs/decisions.md#which-number-stands-beside-a-run.

    Args:
        record: Of the run.
        column: Of its metrics.
        steps: How far it has come. Of several numbers it is the one after as many steps or, if
            there is none, the next later one.
    """
    method = method_of(record)
    if method is None or has_other_tasks(record):
        return None
    return lookup(method.name, record.family, column, steps, record.delay)


def lookup(method: str, family: str, column: str, steps: int, delay: int) -> Printed | None:
    """The same by names."""
    own = FAMILIES[family].train[0].delay if family in FAMILIES else None
    wanted = (method, family, column, delay)
    found = [
        one for one in PRINTED if (one.method, one.family, one.column, one.delay or own) == wanted
    ]
    return min(found, key=lambda one: (one.steps < steps, abs(one.steps - steps)), default=None)


def yardstick(record: RunRecord) -> float | None:
    """What the paper's MCAT earned on the test tasks of a run after 2M steps: a unit, no rival."""
    found = lookup(MCAT, record.family, TEST, _2M, record.delay)
    return None if found is None else found.mean


def has_other_tasks(record: RunRecord) -> bool:
    """Whether it also learned on mirror images, of which the test task may be one."""
    return any("viewmirror" in task for task in record.train)
