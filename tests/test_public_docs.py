"""What a user can import from our packages, and every setting, is explained where it is defined."""

import ast
import dataclasses
import inspect
import itertools
import re
import sys
from importlib import import_module
from pathlib import Path

import pytest

import mcat
from mcat.agents.meta.methods.registry import METHODS
from mcat.datasets.collect import CollectConfig
from mcat.translator.recipes import Recipe

PACKAGES = ("envs", "datasets", "translator", "agents", "robot", "transfer", "paper")
PUBLIC = {
    f"{package}.{name}": getattr(module, name)
    for package, module in ((name, import_module(f"mcat.{name}")) for name in PACKAGES)
    for name in module.__all__
}
CODE = {name: item for name, item in PUBLIC.items() if callable(item)}
DATA = PUBLIC.keys() - CODE.keys()
METHOD_RUNS = [method.config for method in METHODS.values()]
MANY = 3  # parameters from which on each has a line


def with_nested(config):
    """A dataclass, those among the types of its fields, and so on."""
    yield config
    known = vars(sys.modules[config.__module__])
    for field in dataclasses.fields(config):
        for word in re.findall(r"\w+", str(field.type)):
            if dataclasses.is_dataclass(known.get(word)):
                yield from with_nested(known[word])


CONFIGS = sorted(
    {
        config
        for item in (*CODE.values(), CollectConfig, Recipe, *METHOD_RUNS)
        if dataclasses.is_dataclass(item)
        for config in with_nested(item)
    },
    key=lambda config: config.__qualname__,
)


def explained(item):
    """The names that the sections of a Google docstring have a line for."""
    text = inspect.cleandoc(item.__doc__ or "")
    sections = re.findall(r"^(?:Args|Attributes):\n((?: .*\n?)+)", text, flags=re.MULTILINE)
    return set(re.findall(r"^ {4}\*{0,2}(\w+): \S", "\n".join(sections), flags=re.MULTILINE))


def members(item):
    """The public methods and properties that a class itself defines."""
    own = vars(item).items() if inspect.isclass(item) else ()
    return {name: value for name, value in own if not name.startswith("_") and is_code(value)}


def is_code(value):
    return isinstance(value, property | classmethod | staticmethod) or inspect.isfunction(value)


def functions(item):
    """(function, whose docstring explains its parameters)."""
    if inspect.isfunction(item):
        yield item, item
    elif not dataclasses.is_dataclass(item) and "__init__" in vars(item):
        yield item.__init__, item
    for method in members(item).values():
        function = getattr(method, "__func__", method)
        if inspect.isfunction(function):
            yield function, function


@pytest.mark.parametrize("name", CODE)
def test_every_public_name_and_method_has_a_docstring(name):
    item = CODE[name]
    assert item.__doc__, name
    assert not item.__doc__.startswith(f"{item.__name__}("), "that is what dataclass writes"
    for member in members(item):
        assert inspect.getdoc(getattr(item, member)), f"{name}.{member}"


@pytest.mark.parametrize("name", sorted(DATA))
def test_public_data_have_a_docstring_below_them(name):
    package, _, own = name.partition(".")
    sources = (Path(mcat.__file__).parent / package).rglob("*.py")
    assert any(own in described_data(path) for path in sources)


def described_data(path):
    """Names that get a value in the statement before a string."""
    for statement, text in itertools.pairwise(ast.parse(path.read_text()).body):
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
            for target in getattr(statement, "targets", [getattr(statement, "target", None)]):
                yield getattr(target, "id", None)


@pytest.mark.parametrize("name", CODE)
def test_where_there_are_many_parameters_each_is_explained(name):
    for function, home in functions(CODE[name]):
        parameters = inspect.signature(function).parameters.keys() - {"self", "cls"}
        if len(parameters) >= MANY:
            assert not parameters - explained(home), function.__qualname__


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.__qualname__)
def test_every_field_is_explained(config):
    fields = {field.name for field in dataclasses.fields(config)}
    homes = [kind for kind in config.__mro__ if dataclasses.is_dataclass(kind)]
    known = set().union(*map(explained, homes))
    assert not {name for name in fields if not name.startswith("_")} - known


def test_the_settings_are_among_them():
    names = {config.__name__ for config in CONFIGS}
    assert {"TD3Config", "ContextConfig", "MCATConfig", "TransferConfig", "Family"} <= names
    assert {"Recipe", "PEARLConfig", "CycleConfig", "PCGradRun"} <= names
    assert len(CODE) > 60
    assert len(DATA) == 4
    assert len(CONFIGS) > 20
