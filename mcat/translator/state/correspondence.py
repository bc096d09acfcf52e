"""A first guess of what matches what between two machines: four matrices written by hand.

Dynamics alone cannot tell a machine from its mirror image, nor a rear leg from a front one; who
knows the machines can. The guess need not be right, only nearer to the truth than to the other
answers: the state translator starts from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from mcat.errors import DataError, UsageError, printable, unknown
from mcat.safe_io import StrPath, read_json
from mcat.types import PolicyFunction

Row = int | Sequence[float]
"""One number of the result: which number is copied, or the weight of each."""

MAX_SIZE = 4096  # numbers in a state or an action: a file must not make us allocate more


@dataclass(frozen=True, kw_only=True, eq=False)
class Correspondence:
    """Linear maps of states and actions between a source and a target, applied as `x @ M.T`.

    A matrix of zeros is no guess: that map is learned from nothing.

    Attributes:
        state_to_source: `(S_src, S_tgt)`.
        state_to_target: `(S_tgt, S_src)`.
        action_to_target: `(A_tgt, A_src)`.
        action_to_source: `(A_src, A_tgt)`.
    """

    state_to_source: NDArray[np.float32]
    state_to_target: NDArray[np.float32]
    action_to_target: NDArray[np.float32]
    action_to_source: NDArray[np.float32]

    def __post_init__(self) -> None:
        for field in fields(self):
            matrix = np.array(getattr(self, field.name), np.float32)
            if matrix.ndim != 2 or not np.isfinite(matrix).all():
                raise DataError(f"{field.name} must be a matrix of finite numbers")
            object.__setattr__(self, field.name, matrix)
        for there, back in (
            ("state_to_source", "state_to_target"),
            ("action_to_target", "action_to_source"),
        ):
            shapes = getattr(self, there).shape, getattr(self, back).shape
            if shapes[0] != shapes[1][::-1]:
                raise DataError(
                    f"{there} is {shapes[0]} and {back} {shapes[1]}: one must be the other turned"
                )

    @property
    def source_sizes(self) -> tuple[int, int]:
        """Numbers in a state and in an action of the source."""
        return len(self.state_to_source), len(self.action_to_source)

    @property
    def target_sizes(self) -> tuple[int, int]:
        """Numbers in a state and in an action of the target."""
        return len(self.state_to_target), len(self.action_to_target)

    def states_only(self) -> Self:
        """The same guess of the states, and none of the actions."""
        return self._without("action_to_target", "action_to_source")

    def actions_only(self) -> Self:
        """The same guess of the actions, and none of the states."""
        return self._without("state_to_source", "state_to_target")

    def _without(self, *names: str) -> Self:
        return replace(self, **{name: 0 * getattr(self, name) for name in names})

    def guess(self, policy: PolicyFunction) -> PolicyFunction:
        """The source policy on the target by these maps alone."""

        def act(observations: NDArray[Any]) -> NDArray[np.float32]:
            actions = policy(observations @ self.state_to_source.T) @ self.action_to_target.T
            clipped: NDArray[np.float32] = np.clip(actions, -1, 1)
            return clipped

        return act

    @classmethod
    def mirror(
        cls, states: int, actions: int, *, state_axes: Iterable[int], action_axes: Iterable[int]
    ) -> Self:
        """A correspondence in which some numbers are negated, the others the same.

        Args:
            states: Numbers in a state.
            actions: Numbers in an action.
            state_axes: Which numbers of a state are negated.
            action_axes: Which numbers of an action are negated.
        """

        def image(size: int, axes: Iterable[int]) -> tuple[Sequence[int], Sequence[float]]:
            return range(size), [-1 if i in axes else 1 for i in range(size)]

        return cls.mirror_image(
            states=image(states, set(state_axes)), actions=image(actions, set(action_axes))
        )

    @classmethod
    def mirror_image(
        cls,
        *,
        states: tuple[Sequence[int], Sequence[float]],
        actions: tuple[Sequence[int], Sequence[float]],
    ) -> Self:
        """A correspondence of machines that look alike in a mirror.

        Args:
            states: Which number of the other's state each number is, and its sign; looked at twice
                in the mirror everything is as it was.
            actions: The same of actions.
        """
        state, action = (
            np.diag(np.array(signs, np.float32)) @ np.eye(len(order), dtype=np.float32)[list(order)]
            for order, signs in (states, actions)
        )
        return cls(
            state_to_source=state,
            state_to_target=state,
            action_to_target=action,
            action_to_source=action,
        )

    @classmethod
    def from_indices(
        cls,
        *,
        state_to_source: Sequence[Row],
        state_to_target: Sequence[Row],
        action_to_target: Sequence[Row],
        action_to_source: Sequence[Row],
    ) -> Self:
        """Each number of a result is a copy of the number listed, or a sum with the weights listed.

        `action_to_target=[0, 1, 2, 0, 1, 2]` gives two legs the actions of one.

        Args:
            state_to_source: A row for each number in a state of the source.
            state_to_target: A row for each number in a state of the target.
            action_to_target: A row for each number in an action of the target.
            action_to_source: A row for each number in an action of the source.
        """
        maps = {
            "state_to_source": (state_to_source, state_to_target),
            "state_to_target": (state_to_target, state_to_source),
            "action_to_target": (action_to_target, action_to_source),
            "action_to_source": (action_to_source, action_to_target),
        }
        for name, (rows, _) in maps.items():
            if not isinstance(rows, Sequence) or isinstance(rows, str) or len(rows) > MAX_SIZE:
                raise DataError(f"{name} must be a list of at most {MAX_SIZE} rows")
        return cls(**{name: _matrix(name, rows, len(back)) for name, (rows, back) in maps.items()})

    @classmethod
    def read(cls, path: StrPath) -> Self:
        """Read a JSON object with the arguments of `from_indices`."""
        content = read_json(path)
        names = [field.name for field in fields(cls)]
        if not isinstance(content, dict) or sorted(content) != sorted(names):
            raise DataError(f"{path}: must be a JSON object of {', '.join(names)}")
        try:
            return cls.from_indices(**content)
        except DataError as error:
            raise DataError(f"{path}: {error}") from error


def _matrix(name: str, rows: Sequence[Row], columns: int) -> NDArray[np.float32]:
    """The matrix of these rows, from a file or a program."""
    matrix = np.zeros((len(rows), columns), np.float32)
    for number, row in enumerate(rows):
        try:
            if type(row) is int and 0 <= row < columns:
                matrix[number, row] = 1
            elif isinstance(row, Sequence) and not isinstance(row, str) and len(row) == columns:
                with np.errstate(over="ignore"):  # infinite then, and refused as such
                    matrix[number] = row
            else:
                raise ValueError
        except (TypeError, ValueError, OverflowError) as error:
            raise DataError(
                f"row {number} of {name} must be a number from 0 to {columns - 1} or {columns}"
                f" weights, not {printable(repr(row), 60)}"
            ) from error
    return matrix


def _cheetah_states(legs: Sequence[int], of: int) -> list[int]:
    """States of a cheetah made of these legs of one with `of` legs.

    They are height and pitch, three angles a leg, three velocities of the root, three a leg.
    """
    velocities = 2 + 3 * of
    return [0, 1, *_cheetah_actions(legs, 2), *range(velocities, velocities + 3),
            *_cheetah_actions(legs, velocities + 3)]  # fmt: skip


def _cheetah_actions(legs: Sequence[int], first: int = 0) -> list[int]:
    return [first + 3 * leg + joint for leg in legs for joint in range(3)]


# Meta-World's 14 numbers: x of hand, object and goal; the object's rotation about y and z.
_MIRROR = Correspondence.mirror(14, 4, state_axes=(0, 4, 8, 9, 11), action_axes=(0,))
_MIRRORED_HAND = Correspondence.mirror(3, 3, state_axes=(0,), action_axes=(0,))
# The target's legs are rear, second rear, front: both rear ones do what the source's does.
_LEGS = Correspondence.from_indices(
    state_to_source=_cheetah_states((0, 2), of=3),
    state_to_target=_cheetah_states((0, 0, 1), of=2),
    action_to_target=_cheetah_actions((0, 0, 1)),
    action_to_source=_cheetah_actions((0, 2)),
)

# Seen in a mirror along x an ant's legs 0 and 3 change places, and 1 and 2. State: z and rotation
# w, x, y, z of the torso, hip and ankle of each leg, speeds in the same order, of the torso six.
_LEG_OF = [6, 7, 4, 5, 2, 3, 0, 1]
_LEG_SIGNS = [-1, 1] * 4
_MIRRORED_ANT = Correspondence.mirror_image(
    states=(
        [*range(5), *(5 + i for i in _LEG_OF), *range(13, 19), *(19 + i for i in _LEG_OF)],
        [1, 1, -1, 1, -1, *_LEG_SIGNS, 1, -1, 1, -1, 1, -1, *_LEG_SIGNS],
    ),
    actions=([2, 3, 0, 1, 6, 7, 4, 5], _LEG_SIGNS),  # motors are of legs 3, 0, 1, 2
)

# docs/decisions.md#what-is-given-by-hand-in-appendix-e
CORRESPONDENCES: dict[str, Correspondence] = {
    "mirror-ant": _MIRRORED_ANT,
    "mirror-x": _MIRROR,
    "mirror-x-states": _MIRROR.states_only(),
    "mirror-x-hand-states": _MIRRORED_HAND.states_only(),
    "two-to-three-legs": _LEGS,
    "two-to-three-legs-actions": _LEGS.actions_only(),
}
"""First guesses: ants of which one is the other's mirror image; the machines of the paper's
Appendix E, of both maps, or of one as printed."""


def find_correspondence(
    name_or_path: StrPath, source_sizes: tuple[int, int], target_sizes: tuple[int, int]
) -> Correspondence:
    """One of `CORRESPONDENCES` or the one in a JSON file, if it fits the machines."""
    named = CORRESPONDENCES.get(str(name_or_path))
    if named is None and not Path(name_or_path).is_file():
        raise unknown("correspondence or file", str(name_or_path), CORRESPONDENCES)
    correspondence = named or Correspondence.read(name_or_path)
    require_fit(correspondence, source_sizes, target_sizes, str(name_or_path))
    return correspondence


def require_fit(
    correspondence: Correspondence,
    source_sizes: tuple[int, int],
    target_sizes: tuple[int, int],
    name: str = "the correspondence",
) -> None:
    """Refuse a correspondence of other machines."""
    made_for = correspondence.source_sizes, correspondence.target_sizes
    if made_for != (source_sizes, target_sizes):
        text = "{} states and {} actions to {} and {}"
        raise UsageError(
            f"{name} maps {text.format(*made_for[0], *made_for[1])}, but the machines have"
            f" {text.format(*source_sizes, *target_sizes)}"
        )
