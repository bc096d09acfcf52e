"""`Task` and `Family`: plain frozen data that everything else is made from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from mcat.envs.gym_robots import (
    PHYSICS,
    file_safe,
    frozen_arguments,
    inspected,
    is_gym_id,
    make_env,
    short_name,
    stock_horizon,
    trust_arguments,
)
from mcat.envs.robots import ROBOTS, Parameter, Robot, Value, as_text, robot
from mcat.errors import UsageError, short, unknown

if TYPE_CHECKING:
    import gymnasium as gym

MAX_HORIZON = 1_000_000


@dataclass(frozen=True, init=False, repr=False)
class Task:
    """One variant of a robot: `Task(robot="ant", cripple=3, delay=500)`.

    Tasks are equal when they describe the same machine: `Task("ant") == Task("ant", cripple=None)`.

    Args:
        robot: A name from `mcat envs list`, or any gymnasium id with Box spaces.
        delay: Rewards are paid every `delay` steps (1: at once), the rest at the episode's end.
        horizon: Steps per episode at most; the robot's own by default.
        arguments: Keyword arguments of `gymnasium.make`, for an id that is not mcat's.
        **parameters: Physical parameters the robot declares, such as `cripple=3`; for an id that
            is not mcat's what `mcat.envs.gym_robots.PHYSICS` lists.
    """

    robot: str
    delay: int
    horizon: int
    _values: tuple[Value, ...] = field(compare=True)
    _arguments: tuple[tuple[str, str], ...] = ()  # each in JSON

    def __init__(
        self,
        /,
        robot: str,
        *,
        delay: int = 1,
        horizon: int | None = None,
        arguments: Mapping[str, Any] | None = None,
        **parameters: Any,
    ) -> None:
        self._fill(robot, delay=delay, horizon=horizon, arguments=arguments, **parameters)
        trust_arguments(self._arguments)

    def _fill(
        self,
        /,
        robot: str,
        *,
        delay: Any = 1,
        horizon: Any = None,
        arguments: Any = None,
        **parameters: Any,
    ) -> None:
        name, declared = _declared(robot)
        own = name in ROBOTS
        if own and arguments:
            raise UsageError(
                f"{name} takes parameters, no arguments of gymnasium.make: {short(arguments)}"
            )
        for parameter in parameters:
            if own:
                _robot(name).parameter(parameter)  # raises if the robot does not have it
            elif parameter not in {p.name for p in PHYSICS}:
                told = unknown(f"parameter of {name}", parameter, [p.name for p in PHYSICS])
                raise UsageError(f"{told} (those of gymnasium.make go by --env-arg or arguments)")
        values = (p.check(parameters.get(p.name, p.default)) for p in declared)
        if horizon is not None:
            horizon = _count("horizon", horizon)
        else:
            horizon = ROBOTS[name].horizon if own else stock_horizon(name)
        object.__setattr__(self, "robot", name)
        object.__setattr__(self, "delay", _count("delay", delay))
        object.__setattr__(self, "horizon", horizon)
        object.__setattr__(self, "_values", tuple(values))
        object.__setattr__(self, "_arguments", frozen_arguments(arguments))

    @property
    def own(self) -> bool:
        """Whether the robot is mcat's: such ones never end an episode before its time is over."""
        return self.robot in ROBOTS

    @property
    def spec(self) -> Robot:
        """The declaration of this task's robot; one that is not mcat's is made to find it out."""
        return ROBOTS[self.robot] if self.own else inspected(self.robot, self._arguments)

    @property
    def on_table(self) -> bool:
        """Whether it is a task of Meta-World, where a hand works on a table."""
        return self.own and self.spec.suite == "metaworld"

    @property
    def arguments(self) -> dict[str, Any]:
        """Keyword arguments of `gymnasium.make`, besides the parameters of mcat."""
        return {name: json.loads(value) for name, value in self._arguments}

    @property
    def params(self) -> dict[str, Value]:
        """Every declared parameter with its value, defaults included."""
        return {p.name: value for p, value in zip(self._parameters, self._values, strict=True)}

    @property
    def changes(self) -> dict[str, Value]:
        """The parameters that differ from the stock robot."""
        stock = {p.name: p.default for p in self._parameters}
        return {name: value for name, value in self.params.items() if value != stock[name]}

    @property
    def _parameters(self) -> tuple[Parameter, ...]:
        return _declared(self.robot)[1]

    @property
    def context(self) -> dict[str, float]:
        """The hidden parameters as numbers, for `info["context"]`; "none" and text as codes."""
        context: dict[str, float] = {}
        for parameter, value in zip(self._parameters, self._values, strict=True):
            if isinstance(value, tuple) and not self.own:
                pairs = (v if isinstance(v, tuple) else (v, 0.0) for v in value)
                context |= {f"{parameter.name}.{part}": float(v) for part, v in pairs}
            elif isinstance(value, tuple):
                context |= {f"{parameter.name}_{i}": v for i, v in enumerate(value)}
            elif isinstance(value, str):
                context[parameter.name] = float(parameter.choices.index(value))
            elif parameter.length == 1:
                context[parameter.name] = -1.0 if value is None else float(value)
        return context

    def replace(self, **changes: Any) -> Task:
        """A copy with some of `delay`, `horizon` and the parameters changed."""
        return Task.from_dict({**self.to_dict(), **changes})

    def stock(self) -> Task:
        """The same machine, paid at once and, if it is mcat's, for its usual time."""
        return self.replace(delay=1, horizon=self.spec.horizon if self.own else self.horizon)

    def label(self, *always: str) -> str:
        """A short file-name-safe name: "ant-cripple3", stock values left out.

        Args:
            always: Parameters to name even at their stock value.
        """
        parts = [self.robot if self.own else short_name(self.robot)]
        for name, value in self.params.items():
            if name in self.changes or name in always:
                text = as_text(value).replace(",", "_")
                parts.append(name + (text if self.own else file_safe(text.replace("=", ""))))
        parts += [f"{name}{file_safe(value)}" for name, value in self._arguments]
        if self.delay > 1:
            parts.append(f"delay{self.delay}")
        if self.own and self.horizon != self.spec.horizon:  # else nobody here may know its own
            parts.append(f"horizon{self.horizon}")
        return "-".join(parts).lower()

    def kwargs(self) -> dict[str, Any]:
        """JSON-able keyword arguments, besides the robot, that this task is made from."""
        return {key: value for key, value in self.to_dict().items() if key != "robot"}

    def make(self, **kwargs: Any) -> gym.Env[Any, Any]:
        """The gymnasium environment of this task; `kwargs` such as `render_mode` are passed on."""
        import gymnasium as gym

        if not self.own:
            return make_env(self, **kwargs)
        return gym.make(self.spec.env_id, **self.kwargs(), **kwargs)

    def to_dict(self) -> dict[str, Any]:
        """What differs from the stock task, as JSON types; `from_dict` is the inverse."""
        data: dict[str, Any] = {"robot": self.robot}
        for name, value in self.changes.items():
            data[name] = _plain(value)
        if self.delay > 1:
            data["delay"] = self.delay
        if self._arguments:
            data["arguments"] = self.arguments
        if not self.own or self.horizon != self.spec.horizon:
            data["horizon"] = self.horizon
        return data

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Task:
        """The task that `to_dict` described."""
        if not isinstance(data, dict) or "robot" not in data:
            raise UsageError(f"a task needs a 'robot', got {short(data)}")
        task = cls.__new__(cls)  # a file may say so, and be trusted less than who calls `Task`
        task._fill(**data)
        return task

    def __repr__(self) -> str:
        given = ", ".join(f"{key}={value!r}" for key, value in self.to_dict().items())
        return f"Task({given})"


@dataclass(frozen=True, kw_only=True)
class Family:
    """Tasks that belong together, split into those to learn on and those to be tested on.

    In a pair, `train` is the source task and `test` the target.

    Attributes:
        name: What commands call it.
        title: What tables and pages call it.
        varies: The parameters in which its tasks differ.
        train: Tasks to learn on, at least one.
        test: Tasks to be tested on, none of them in `train`.
        note: What else a reader of the list should know.
    """

    name: str
    title: str
    varies: tuple[str, ...]  # parameters, or "robot"
    train: tuple[Task, ...]
    test: tuple[Task, ...] = ()
    note: str = ""

    def __post_init__(self) -> None:
        tasks = self.train + self.test
        if not self.train:
            raise UsageError(f"family {self.name} has no training task")
        if len(set(tasks)) != len(tasks):
            raise UsageError(f"family {self.name} lists a task twice: its splits must be disjoint")

    @property
    def tasks(self) -> tuple[Task, ...]:
        """Train and test tasks together."""
        return self.train + self.test

    def split(self, name: str) -> tuple[Task, ...]:
        """The tasks of "train", "test" or "all"."""
        if name not in ("train", "test", "all"):
            raise UsageError(f"unknown split '{name}': choose train, test or all")
        return self.tasks if name == "all" else self.train if name == "train" else self.test

    def replace(self, **changes: Any) -> Family:
        """The same family with every task changed, as in `family.replace(delay=1)`."""
        train, test = (
            tuple(task.replace(**changes) for task in tasks) for tasks in (self.train, self.test)
        )
        return replace(self, train=train, test=test)

    def to_dict(self) -> dict[str, Any]:
        """JSON types; `from_dict` is the inverse."""
        return {
            "name": self.name,
            "title": self.title,
            "varies": ", ".join(self.varies),
            "train": [task.to_dict() for task in self.train],
            "test": [task.to_dict() for task in self.test],
            "note": self.note,
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Family:
        """The family that `to_dict` described."""
        if (
            not isinstance(data, dict)
            or not {"name", "title", "varies", "train"} <= data.keys()
            or not isinstance(data["varies"], str)
        ):
            raise UsageError(
                f"a family needs 'name', 'title', 'varies' and 'train', got {short(data)}"
            )
        splits = {key: tuple(map(Task.from_dict, data.get(key, ()))) for key in ("train", "test")}
        return cls(**{**data, **splits, "varies": tuple(data["varies"].split(", "))})


# `Task` has a field `robot`, which hides the function of that name inside the class.
_robot = robot


def _declared(name: str) -> tuple[str, tuple[Parameter, ...]]:
    """A robot's name and its parameters; nothing of one that is not mcat's is looked up."""
    if not is_gym_id(name) or name.lower().startswith("mcat/"):
        found = _robot(name)
        return found.name, found.parameters
    return name, PHYSICS


def _plain(value: Value) -> Any:
    """A value in JSON types."""
    if not isinstance(value, tuple):
        return value
    return dict(value) if isinstance(value[0], tuple) else list(value)


def _count(name: str, value: Any) -> int:
    """A whole number of steps, at least 1."""
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        number = 0
    if isinstance(value, bool) or number < 1 or number > MAX_HORIZON or number != float(value):
        raise UsageError(
            f"{name} must be a whole number from 1 to {MAX_HORIZON}, got {short(value)}"
        )
    return number
