"""What the paper printed of the methods that it compares MCAT with, after 2M steps."""

from __future__ import annotations

Numbers = tuple[float, float]
"""A mean over 3 runs, and what is behind its ±: the standard error."""

_FAMILIES = (
    "hopper-size", "halfcheetah-armature", "halfcheetah-mass", "ant-damping", "ant-cripple",
)  # fmt: skip


def _row(*numbers: Numbers) -> dict[str, Numbers]:
    return dict(zip(_FAMILIES, numbers, strict=True))


# Table 2, unseen tasks, without self-imitation. Of HiP-BMDP on halfcheetah-mass appendix D.4 prints
# -101.8 ± 29.6.
_TEST: dict[str, dict[str, Numbers]] = {
    "mql": _row((1607.5, 327.5), (-77.9, 214.2), (-413.9, 11.0), (103.1, 35.7), (38.2, 4.0)),
    "pearl": _row((1755.8, 115.3), (-18.8, 69.3), (25.9, 69.2), (73.2, 13.3), (3.5, 2.4)),
    "distral": _row((1319.8, 162.2), (566.9, 246.7), (-29.5, 3.0), (90.5, 28.4), (-0.1, 0.7)),
    "hipbmdp": _row((1368.3, 150.7), (-102.4, 24.9), (-74.8, 35.4), (33.1, 6.0), (7.3, 2.6)),
}
# Appendix D.4, training tasks.
_TRAIN: dict[str, dict[str, Numbers]] = {
    "mql": _row((1586.1, 321.4), (-31.4, 243.5), (-243.1, 69.8), (93.8, 24.5), (17.4, 4.3)),
    "distral": _row((1364.0, 216.3), (774.7, 405.9), (-54.3, 14.8), (123.0, 20.0), (-2.5, 1.7)),
    "hipbmdp": _row((1590.3, 238.7), (-212.4, 52.2), (-81.3, 8.31), (15.0, 5.7), (12.7, 5.3)),
}
# The same with self-imitation; there are none of PEARL and PCGrad.
_TRAIN_SIL: dict[str, dict[str, Numbers]] = {
    "mql": _row((1395.5, 60.8), (1399.7, 350.2), (617.8, 133.1), (153.0, 28.3), (13.9, 19.8)),
    "distral": _row((1090.2, 18.7), (1014.1, 121.4), (809.7, 294.2), (174.3, 66.1), (107.7, 57.7)),
    "hipbmdp": _row((1573.3, 32.4), (954.8, 192.3), (953.5, 61.2), (653.9, 262.6), (170.9, 68.7)),
}
_TEST_SIL: dict[str, dict[str, Numbers]] = {
    "mql": _row((1398.9, 85.9), (743.5, 246.1), (-63.3, 158.3), (144.3, 28.1), (10.2, 2.3)),
    "distral": _row((1090.9, 7.8), (970.3, 164.2), (746.7, 120.5), (122.2, 44.5), (9.1, 5.0)),
    "hipbmdp": _row((1589.5, 110.3), (713.3, 85.4), (506.6, 99.0), (523.6, 300.8), (215.4, 130.3)),
}
# Appendix C, Meta-World.
_TABLE = "metaworld-objects"
_TRAIN["mql"][_TABLE], _TEST["mql"][_TABLE] = (164.8, 23.6), (0.0, 0.0)
_TRAIN["pearl"], _TEST["pearl"][_TABLE] = {_TABLE: (161.2, 25.3)}, (0.0, 0.0)
_TRAIN["pcgrad"], _TEST["pcgrad"] = {_TABLE: (44.8, 31.7)}, {_TABLE: (0.0, 0.0)}

_PRINTED = {
    ("train", False): _TRAIN,
    ("test", False): _TEST,
    ("train", True): _TRAIN_SIL,
    ("test", True): _TEST_SIL,
}


def printed_return(method: str, family: str, split: str, *, imitate: bool) -> Numbers | None:
    """The mean return after 2M steps of a method other than MCAT; None if there is none.

    Args:
        method: By its name in `mcat metatrain`.
        family: Of tasks.
        split: "train" or "test".
        imitate: With self-imitation.
    """
    return _PRINTED[split, imitate].get(method, {}).get(family)
