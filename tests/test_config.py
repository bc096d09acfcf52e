"""Layers of settings: each value arrives as its type, or one line says what is wrong with it."""

import json
import subprocess
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Literal, Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcat.config import (
    as_type,
    defaults_of,
    differences,
    flatten,
    from_json,
    overlay,
    read_toml,
    to_json,
    to_toml,
)
from mcat.errors import DataError, MissingInputError, UsageError
from mcat.ranges import require_ranges


@dataclass(frozen=True, kw_only=True)
class Learner:
    learning_rate: float = 3e-4
    hidden: tuple[int, ...] = (256, 256)
    betas: tuple[float, ...] = (0.9, 0.999)
    loss: Literal["l1", "nll"] = "l1"

    def __post_init__(self):
        if not self.learning_rate > 0:
            raise UsageError(f"learning_rate must be positive, not {self.learning_rate}")


@dataclass(frozen=True, kw_only=True)
class Method:
    transfer: bool = True
    td3: Learner = field(default_factory=Learner)
    model: Learner = field(default_factory=lambda: Learner(hidden=(32,)))


@dataclass(frozen=True, kw_only=True)
class Run:
    steps: int
    family: str = "ant"
    delay: int | None = None
    margin: Optional[float] = None  # noqa: UP045  both spellings are in use
    note: str | None = None
    folders: tuple[str, ...] = ()
    out: Path = Path("runs/a")
    level: Literal[1, 2] | None = None
    mcat: Method = field(default_factory=Method)


START = Run(steps=1000)

GOOD = [
    ("steps", "20_000", 20_000),
    ("steps", "1e6", 1_000_000),
    ("steps", " 7 ", 7),
    ("steps", 2e5, 200_000),
    ("family", "halfcheetah", "halfcheetah"),
    ("delay", "500", 500),
    ("delay", "none", None),
    ("delay", None, None),
    ("margin", "-0.5", -0.5),
    ("note", "none", None),
    ("note", "some", "some"),
    ("folders", "a,b", ("a", "b")),
    ("out", "b/c", Path("b/c")),
    ("level", "2", 2),
    ("level", 1, 1),
    ("mcat.transfer", "false", False),
    ("mcat.transfer", "True", True),
    ("mcat.transfer", False, False),
    ("mcat.td3.learning_rate", "1e-3", 1e-3),
    ("mcat.td3.learning_rate", 1, 1.0),
    ("mcat.td3.hidden", "64, 32", (64, 32)),
    ("mcat.td3.hidden", "[64, 32]", (64, 32)),
    ("mcat.td3.hidden", "(64,)", (64,)),
    ("mcat.td3.hidden", [64, 32], (64, 32)),
    ("mcat.td3.hidden", "", ()),
    ("mcat.td3.betas", [0, "0.5"], (0.0, 0.5)),
    ("mcat.model.loss", "nll", "nll"),
]


@pytest.mark.parametrize(("key", "value", "expected"), GOOD, ids=[f"{g[0]}={g[1]}" for g in GOOD])
def test_a_value_becomes_what_its_field_is(key, value, expected):
    *groups, name = key.split(".")
    nested = {name: value}
    for group in reversed(groups):
        nested = {group: nested}
    for changes in ({key: value}, nested):
        config = overlay(START, changes)
        found = config
        for part in key.split("."):
            found = getattr(found, part)
        assert found == expected
        assert type(found) is type(expected)
        changed = {k for k, v in flatten(to_json(config)).items() if v != LEAVES[k]}
        assert changed <= {key}  # and nothing else


LEAVES = flatten(to_json(START))

BAD = [
    ({"stepz": 1}, "unknown key 'stepz': did you mean steps?"),
    ({"td3.learning_rate": 1}, "'td3.learning_rate': did you mean mcat.td3.learning_rate?"),
    ({"loss": "l1"}, "unknown key 'loss': choose from mcat.model.loss, mcat.td3.loss"),
    ({"mcat": {"td3": {"learnin_rate": 1}}}, "'mcat.td3.learnin_rate': did you mean mcat."),
    ({"steps.x": 1}, "unknown key 'steps.x': did you mean steps"),
    ({"": 1}, "unknown key ''"),
    ({"mcat": 3}, "mcat is a group, not 3: set its keys, such as mcat.transfer"),
    ({"mcat.td3": "fast"}, "mcat.td3 is a group, not 'fast'"),
    ({"steps": "many"}, "steps takes a whole number, not 'many'"),
    ({"steps": "1.5"}, "steps takes a whole number, not '1.5'"),
    ({"steps": 1.5}, "steps takes a whole number, not 1.5"),
    ({"steps": True}, "steps takes a whole number, not True"),
    ({"steps": None}, "steps takes a whole number, not None"),
    ({"steps": [1]}, "steps takes a whole number, not [1]"),
    ({"steps": "inf"}, "steps takes a whole number, not 'inf'"),
    ({"family": 3}, "family takes text, not 3"),
    ({"delay": "soon"}, "delay takes a whole number or none, not 'soon'"),
    ({"delay": [1]}, "delay takes a whole number or none, not [1]"),
    ({"margin": "nan"}, "margin takes a number or none, not 'nan'"),
    ({"out": 5}, "out takes a path, not 5"),
    ({"level": 3}, "level takes 1 or 2 or none, not 3"),
    ({"level": True}, "level takes 1 or 2 or none, not True"),
    ({"mcat.transfer": "maybe"}, "mcat.transfer takes true or false, not 'maybe'"),
    ({"mcat.transfer": 1}, "mcat.transfer takes true or false, not 1"),
    ({"mcat.td3.learning_rate": "inf"}, "mcat.td3.learning_rate takes a number, not 'inf'"),
    ({"mcat.td3.learning_rate": True}, "takes a number, not True"),
    ({"mcat.td3.learning_rate": 10**400}, "mcat.td3.learning_rate takes a number"),
    ({"mcat.td3.hidden": 256}, "takes a list, each item a whole number, not 256"),
    ({"mcat.td3.hidden": "wide"}, "takes a list, each item a whole number, not 'wide'"),
    ({"mcat.td3.loss": "l2"}, "mcat.td3.loss takes l1 or nll, not 'l2'"),
    ({"mcat.td3.learning_rate": -1}, "learning_rate must be positive, not -1.0"),  # the class's
]


@pytest.mark.parametrize(("changes", "message"), BAD, ids=[str(b[0])[:50] for b in BAD])
def test_what_is_wrong_is_one_line_with_the_key(changes, message):
    with pytest.raises(UsageError) as error:
        overlay(START, changes)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_change_leaves_the_rest_as_it_was():
    config = overlay(START, {"mcat.td3.loss": "nll", "mcat": {"td3": {"hidden": [8]}}})
    td3 = Learner(loss="nll", hidden=(8,))
    assert config == replace(START, mcat=replace(START.mcat, td3=td3))
    assert config.mcat.model.hidden == (32,)  # not the Learner's own default
    assert overlay(START, {}) == START


def test_changes_that_only_make_sense_together_come_together():
    @dataclass(frozen=True)
    class Range:
        low: int = 1
        high: int = 2

        def __post_init__(self):
            if self.low > self.high:
                raise UsageError("low is above high")

    assert overlay(Range(), {"low": 5, "high": 6}) == Range(5, 6)


numbers = st.floats(allow_nan=False, allow_infinity=False)
learners = st.builds(
    Learner,
    learning_rate=st.floats(min_value=1e-300, allow_infinity=False),
    hidden=st.lists(st.integers(1, 10**6), max_size=4).map(tuple),
    betas=st.lists(numbers, max_size=3).map(tuple),
    loss=st.sampled_from(["l1", "nll"]),
)
words = st.text(max_size=8)  # no surrogates
runs = st.builds(
    Run,
    steps=st.integers(),
    family=words,
    delay=st.none() | st.integers(),
    margin=st.none() | numbers,
    note=st.none() | words.filter(lambda word: word != "none"),
    folders=st.lists(words, max_size=3).map(tuple),
    out=st.sampled_from([Path("a"), Path("/b/c"), Path()]),
    level=st.sampled_from([None, 1, 2]),
    mcat=st.builds(Method, transfer=st.booleans(), td3=learners, model=learners),
)


@given(runs)
def test_json_goes_both_ways(config):
    text = json.dumps(to_json(config), allow_nan=False)
    assert from_json(Run, json.loads(text)) == config
    assert differences(json.loads(text), to_json(config)) == []


@given(runs, runs)
def test_laying_every_value_of_one_over_another_gives_the_one(config, other):
    assert overlay(other, to_json(config)) == config
    assert overlay(other, flatten(to_json(config))) == config


@given(runs, runs)
def test_toml_goes_both_ways(tmp_path_factory, config, other):
    path = tmp_path_factory.getbasetemp() / "config.toml"
    path.write_bytes(to_toml(to_json(config)).encode())
    assert overlay(other, read_toml(path)) == config


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)


@given(st.sampled_from(sorted(LEAVES)), scalars | st.lists(scalars, max_size=3))
def test_no_value_escapes_as_another_error(key, value):
    with suppress(UsageError):
        config = overlay(START, {key: value})
        assert from_json(Run, to_json(config)) == config


def test_json_of_other_code_names_the_key():
    data = to_json(START)
    with pytest.raises(DataError, match=r"unknown key 'mcat.gone'"):
        from_json(Run, {**data, "mcat": {**data["mcat"], "gone": 1}})
    del data["mcat"]["td3"]["loss"]
    with pytest.raises(DataError, match=r"the key mcat.td3.loss is missing"):
        from_json(Run, data)


@dataclass(frozen=True)
class Line:
    name: str
    cells: tuple[tuple[float | None, ...], ...] = ()


@dataclass(frozen=True)
class Sheet:
    lines: tuple[Line, ...]
    by_name: dict[str, Line]
    curve: list[tuple[int, float]]
    best: Line | None = None


def test_objects_and_lists_of_json_become_what_they_were():
    first, second = Line("a", ((1.0, None), (float("inf"), 2.0))), Line("b")
    sheet = Sheet((first, second), {"x.y": first}, [(1, 0.5)], second)
    data = json.loads(json.dumps(asdict(sheet)))
    assert as_type(Sheet, data) == sheet
    del data["best"], data["lines"][1]["cells"]  # a file of before there were these
    assert as_type(Sheet, data) == replace(sheet, best=None)
    for bad in (data | {"lines": "ab"}, data | {"lines": ["a"]}, data | {"new": 1}, {}, []):
        with pytest.raises((TypeError, AttributeError)):
            as_type(Sheet, bad)


def test_differences_say_what_was_and_what_is():
    old = {"steps": 5, "gone": 1, "td3": {"learning_rate": 0.0003, "hidden": [8]}}
    new = {"steps": 5, "td3": {"learning_rate": 0.001, "hidden": [8], "new": None}}
    assert differences(old, new) == [
        "gone: 1 there, unknown here",
        "td3.learning_rate: 0.0003 there, 0.001 here",
        "td3.new: unknown there, None here",
    ]
    defaults = {"td3.new": None, "td3.learning_rate": 7.0, "td3.unknown": 1}
    assert differences(old, new, defaults) == [
        "td3.learning_rate: 0.0003 there, 0.001 here",
        "gone: 1 there, unknown here",
    ]
    assert len(differences(old, new, {"td3.new": 0})) == 3  # it is not at its default


def test_defaults_are_what_need_not_be_given():
    @dataclass(frozen=True)
    class Inner:
        width: tuple[int, ...] = (8, 8)
        rate: float = 0.1

    @dataclass(frozen=True)
    class Outer:
        seed: int
        bare: Inner
        own: Inner = Inner(rate=0.2)
        made: Inner = field(default_factory=Inner)
        limit: int | None = None

    # What a group is where it stands goes before what its class says.
    assert defaults_of(Outer) == {
        "bare.width": [8, 8], "bare.rate": 0.1, "own.width": [8, 8], "own.rate": 0.2,
        "made.width": [8, 8], "made.rate": 0.1, "limit": None,
    }  # fmt: skip


def test_toml_files_that_cannot_be_read(tmp_path):
    path = tmp_path / "a.toml"
    with pytest.raises(MissingInputError, match=r"a\.toml"):
        read_toml(path)
    with pytest.raises(MissingInputError):
        read_toml(tmp_path)
    path.write_text("steps = 3\nseed = = 4\n")
    with pytest.raises(DataError, match=r"a\.toml: not a TOML file: .*line 2"):
        read_toml(path)
    path.write_bytes(b"family = '\xff'")
    with pytest.raises(DataError, match=r"a\.toml: not a TOML file"):
        read_toml(path)
    path.write_text("a = " + "[" * 100_000)
    with pytest.raises(DataError, match=r"a\.toml: not a TOML file"):
        read_toml(path)


def test_settings_need_no_torch():
    code = "import sys, mcat.config; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("kind", "good", "bad", "words"),
    [
        ("at_least_1", [1, 2.5], [0, 0.9, float("nan")], "must be at least 1"),
        ("positive", [1e-9], [0, -1, float("nan")], "must be positive"),
        ("not_negative", [0, 1], [-1e-9, float("nan")], "must not be negative"),
        ("share", [0, 1], [-0.1, 1.1], "must be in [0, 1]"),
        ("part", [0.1, 1], [0, 1.1], "must be in (0, 1]"),
        ("decay", [0, 0.9], [1, -0.1], "must be in [0, 1)"),
        ("rates", [(1e-3, 1)], [(), (1, 0)], "must be positive rates"),
        ("layers", [(1, 2), ()], [(1, 0)], "must be layer widths of at least 1"),
        ("widths", [(1, 2)], [(), (1, 0)], "must be positive layer widths"),
    ],
)
def test_ranges_are_told_in_the_same_words(kind, good, bad, words):
    for value in (*good, None):
        require_ranges(SimpleNamespace(x=value), **{kind: ["x"]})
    for value in bad:
        with pytest.raises(UsageError) as caught:
            require_ranges(SimpleNamespace(x=value), **{kind: ["x"]})
        assert str(caught.value) == f"x {words}, not {value}"
