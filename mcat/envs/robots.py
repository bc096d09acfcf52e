"""What each robot is and which physical parameters it has, declared once.

gymnasium keyword arguments, command-line options, bounds checks, docs tables and the metadata in
data sets all come from the declarations here. Nothing in this module imports mujoco.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from mcat.errors import UsageError, short, unknown

Value = float | int | str | None | tuple[Any, ...]
Bounds = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """One physical parameter of a robot.

    Exactly one of `bounds`, `box` and `choices` is set. A parameter with bounds is a number, one
    with a box is a vector with bounds for each of its numbers, and one with choices is one of them,
    `None` being spelled "none" in text.

    Attributes:
        name: Keyword argument and command-line option.
        default: The value of the stock robot.
        help: What it does, in a few words.
        unit: Unit of its numbers, such as "kg m²".
        bounds: Smallest and largest value of a number.
        box: The bounds of each number of a vector.
        choices: All values it may have.
    """

    name: str
    default: Value
    help: str
    unit: str = ""
    bounds: Bounds | None = None
    box: tuple[Bounds, ...] = ()
    choices: tuple[Value, ...] = ()

    @property
    def length(self) -> int:
        """How many numbers a value of this parameter has."""
        return len(self.box) or 1

    def check(self, value: Any) -> Value:
        """The value in canonical form; raises `UsageError` if it is not allowed."""
        if hasattr(value, "tolist"):  # numpy's and torch's numbers and arrays
            value = value.tolist()
        if isinstance(value, str):
            value = self._parse(value)
        if value is None and self.default is None:
            return None
        if self.choices:
            # `True == 1`, so booleans must not pass for legs.
            if isinstance(value, bool) or value not in self.choices:
                raise unknown(self.name, value, map(as_text, self.choices))
            return self.choices[self.choices.index(value)]
        if self.box:
            if not isinstance(value, list | tuple) or len(value) != self.length:
                raise UsageError(f"{self.name} takes {self.length} numbers, got {short(value)}")
            return tuple(
                as_number(f"{self.name}[{i}]", number, sides)
                for i, (number, sides) in enumerate(zip(value, self.box, strict=True))
            )
        assert self.bounds is not None
        return as_number(self.name, value, self.bounds)

    def _parse(self, text: str) -> Any:
        """Read what a command line gives."""
        if text.lower() == "none":
            return None
        if self.choices:
            return next((c for c in self.choices if as_text(c) == text.lower()), text)
        return text.split(",") if self.length > 1 else text

    def describe(self) -> str:
        """The allowed values in words: "0.001 to 2 kg m²" or "none, 0, 1, 2, 3"."""
        if self.choices:
            return ", ".join(map(as_text, self.choices))
        sides = self.box or ((self.bounds,) if self.bounds else ())
        ranges = ", ".join(f"{low:g} to {high:g}" for low, high in sides)
        several = f"{self.length} numbers " if self.box else ""
        return f"{several}{ranges} {self.unit}".strip()


def as_number(name: str, value: Any, bounds: Bounds) -> float:
    """A number within bounds; raises `UsageError` if it is none."""
    low, high = bounds
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if math.isnan(number):
        raise UsageError(f"{name} must be a number from {low:g} to {high:g}, got {short(value)}")
    if not low <= number <= high:
        raise UsageError(f"{name} must be from {low:g} to {high:g}, got {number:g}")
    return number


def as_text(value: Value) -> str:
    """A value as a user would type it."""
    if isinstance(value, tuple):
        return ",".join("=".join(map(_word, v if isinstance(v, tuple) else (v,))) for v in value)
    return f"{value:g}" if isinstance(value, float) else str(value).lower()


def _word(value: Any) -> str:
    """A number, or a name as it is spelled."""
    return value if isinstance(value, str) else f"{value:g}"


class Places(NamedTuple):
    """Which numbers of an observation say where something is, as `slice` takes them."""

    hand: tuple[int, int]
    object: tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class Robot:
    """A robot that tasks vary.

    Attributes:
        name: What commands call it.
        env_id: What gymnasium calls it.
        summary: What it is, in a few words.
        horizon: Steps per episode, unless a task says otherwise.
        observation_size: Numbers in an observation.
        action_size: Numbers in an action.
        parameters: What can be changed in it.
        info: Keys of what `info` holds after each step, besides the context.
        suite: Where it comes from; Meta-World's stand at a table, and gymnasium's may end an
            episode before its time is over.
        places: Which numbers of an observation say where its hand is and the object that it
            moves; None if it moves none.
    """

    name: str
    env_id: str
    summary: str
    horizon: int
    observation_size: int
    action_size: int
    parameters: tuple[Parameter, ...]
    info: tuple[str, ...] = ("x_position", "x_velocity")
    suite: Literal["locomotion", "metaworld", "gymnasium"] = "locomotion"
    places: Places | None = None

    @property
    def can_succeed(self) -> bool:
        """Whether `info["success"]` says after each step if it is at its goal."""
        return "success" in self.info

    def parameter(self, name: str) -> Parameter:
        """The declared parameter of that name."""
        for parameter in self.parameters:
            if parameter.name == name:
                return parameter
        owners = [r.name for r in ROBOTS.values() if any(p.name == name for p in r.parameters)]
        mine = ", ".join(p.name for p in self.parameters)
        if owners:
            elsewhere = ", ".join(owners)
            raise UsageError(
                f"{self.name} has no parameter '{name}' ({elsewhere} has): choose from {mine}"
            )
        raise unknown(f"parameter of {self.name}", name, [p.name for p in self.parameters])


def _factor(name: str, low: float, high: float, help_text: str) -> Parameter:
    """What the stock robot is multiplied by."""
    return Parameter(name=name, default=1.0, bounds=(low, high), unit="× stock", help=help_text)


def _armature(legs: str) -> Parameter:
    return Parameter(
        name="armature",
        default=0.1,
        bounds=(0.001, 5.0),
        unit="kg m²",
        help=f"rotor inertia of the {legs} leg joints (absolute, not a factor)",
    )


def _metaworld(
    name: str,
    env_id: str,
    summary: str,
    *extra: Parameter,
    reward: str = "sparse",
    sizes: tuple[int, int] = (14, 4),
    moves: bool = True,
) -> Robot:
    return Robot(
        name=name,
        env_id=env_id,
        summary=summary,
        horizon=500,
        observation_size=sizes[0],
        action_size=sizes[1],
        parameters=(
            _factor(
                "gripper", 0.01, 10.0, "multiplies armature and damping of both gripper joints"
            ),
            *extra,
            Parameter(
                name="reward",
                default=reward,
                choices=("sparse", "dense"),
                help="sparse pays 1 per step within 5 cm of the goal; dense is Meta-World's shaped"
                " reward",
            ),
        ),
        info=("success", "distance"),
        suite="metaworld",
        places=Places(hand=(0, 3), object=(4, 7)) if moves else None,
    )


GOAL = Parameter(
    name="goal",
    default=None,
    box=((-0.5, 0.5), (0.4, 1.0), (0.05, 0.5)),  # where the hand can go
    unit="m",
    help="x,y,z of a fixed goal; none draws one per episode",
)

_ALL = (
    Robot(
        name="hopper",
        env_id="mcat/Hopper-v0",
        summary="one-legged hopper whose limbs get thicker or thinner",
        horizon=1000,
        observation_size=11,
        action_size=3,
        parameters=(
            Parameter(
                name="size",
                default=0.05,
                bounds=(0.005, 0.08),  # from 0.083 on the foot would start in the floor
                unit="m",
                help="torso radius; all limb radii scale with it, mass and inertia follow",
            ),
        ),
    ),
    Robot(
        name="halfcheetah",
        env_id="mcat/HalfCheetah-v0",
        summary="two-legged planar cheetah with heavier links or more sluggish joints",
        horizon=1000,
        observation_size=17,
        action_size=6,
        parameters=(
            _armature("six"),
            _factor(
                "mass",
                0.05,
                20.0,
                "multiplies the mass of every link; rotational inertia stays, as released",
            ),
            _factor("inertia", 0.05, 20.0, "multiplies the rotational inertia of every link"),
        ),
    ),
    Robot(
        name="ant",
        env_id="mcat/Ant-v0",
        summary="four-legged ant with a dead leg or stiffer and looser joints",
        horizon=1000,
        observation_size=27,
        action_size=8,
        parameters=(
            Parameter(
                name="cripple",
                default=None,
                choices=(None, 0, 1, 2, 3),
                help="leg whose motors are dead: 0 front left, 1 front right, 2 back, 3 right back",
            ),
            _factor(
                "damping",
                0.01,
                100.0,
                "multiplies joint damping of legs 0 and 1, divides that of legs 2 and 3",
            ),
            Parameter(
                name="control_cost",
                default=0.0,
                bounds=(0.0, 10.0),
                help="reward lost per squared torque, summed over the working motors",
            ),
            Parameter(
                name="semantics",
                default="paper",
                choices=("paper", "released"),
                help="released: damping multiplies leg 0 and divides the other three",
            ),
            Parameter(
                name="view",
                default="plain",
                choices=("plain", "mirror"),
                help="mirror: left and right change places in observations and actions",
            ),
        ),
    ),
    Robot(
        name="halfcheetah3leg",
        env_id="mcat/HalfCheetah3Leg-v0",
        summary="cheetah with a second rear leg: 9 motors, 23 observations",
        horizon=1000,
        observation_size=23,
        action_size=9,
        parameters=(_armature("nine"),),
    ),
    _metaworld("push", "mcat/Push-v0", "push a cylinder to the goal"),
    _metaworld("coffee-push", "mcat/CoffeePush-v0", "push a mug to the goal"),
    _metaworld("sweep-into", "mcat/SweepInto-v0", "sweep a cube into a hole"),
    _metaworld(
        "reach",
        "mcat/Reach-v0",
        "move the hand to the goal",
        GOAL,
        reward="dense",
        moves=False,
    ),
    _metaworld(
        "reach-hand",
        "mcat/ReachHand-v0",
        "the same, of which only the hand is seen and moved",
        GOAL,
        reward="dense",
        sizes=(3, 3),
        moves=False,
    ),
    _metaworld("drawer-close", "mcat/DrawerClose-v0", "push a drawer shut"),
    _metaworld("soccer", "mcat/Soccer-v0", "push a ball into a goal"),
    _metaworld("plate-slide", "mcat/PlateSlide-v0", "slide a plate into a cabinet"),
)

ROBOTS: dict[str, Robot] = {robot.name: robot for robot in _ALL}
"""Every robot by its name."""


def robot(name: str) -> Robot:
    """The robot of that name (case and gymnasium ids accepted)."""
    for candidate in ROBOTS.values():
        if isinstance(name, str) and name.lower() in (candidate.name, candidate.env_id.lower()):
            return candidate
    raise unknown("robot", name, ROBOTS)
