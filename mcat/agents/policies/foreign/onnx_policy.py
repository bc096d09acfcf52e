"""Policies in ONNX files, ours or anybody's, run by onnxruntime.

The first input is the observation. Any other is a memory: it is called `NAME_in`, starts as zeros,
and is what the output `NAME_out` was at the step before. The only other output is the action; if
there are several it is the one called so.
"""

from __future__ import annotations

import hashlib
import json
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mcat.agents.policies.foreign.bounds import Bounds
from mcat.datasets.cards import Card
from mcat.errors import DataError, MissingInputError, install, printable
from mcat.safe_io import StrPath, open_input
from mcat.types import ActsInEpisodes, require_observations

IN, OUT = "_in", "_out"
ACTIONS = ("action", "actions")
MAX_BYTES = 2**27  # of a file; a policy of a few layers has less than one per cent
Rows = NDArray[np.float32]


class _Model:
    """A session of onnxruntime with the sizes of what goes in and out.

    A file with rows of any number is run on all of them at once, one with a single row on one after
    the other.
    """

    def __init__(self, content: bytes, path: StrPath) -> None:
        try:
            import onnxruntime

            from mcat.agents.policies.foreign.untrusted import parse
        except ImportError as error:
            raise MissingInputError(
                f"{path}: ONNX needs onnx and onnxruntime: {install('onnx')}"
            ) from error
        checked = parse(content, path)
        options = onnxruntime.SessionOptions()
        # One is the fastest for small networks.
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4  # errors come as exceptions
        # Else bytes that look like another format are read as such, which nobody checked.
        options.add_session_config_entry("session.load_model_format", "ONNX")
        try:
            self.session: Any = onnxruntime.InferenceSession(
                checked.SerializeToString(),
                options,
                providers=["CPUExecutionProvider"],
                enable_fallback=0,  # else it prints what failed, and tries the same again
            )
        except Exception as error:  # its exceptions have no common class
            reason = printable(" ".join(str(error).split()), 150)
            raise DataError(f"{path}: onnxruntime does not take it ({reason})") from error
        self.path = path
        self.sha256 = hashlib.sha256(content).hexdigest()
        try:
            self.metadata = {item.key: _value(item.value) for item in checked.metadata_props[:100]}
            self._sort_values()
        except UnicodeDecodeError as error:
            raise DataError(f"{path}: damaged, a name in it is no text") from error

    def _sort_values(self) -> None:
        """Find out which inputs and outputs are what.

        Raises:
            DataError: if they are not those of a policy.
        """
        inputs = {item.name: _shape(item, self.path) for item in self.session.get_inputs()}
        outputs = {item.name: _shape(item, self.path) for item in self.session.get_outputs()}
        self.observation, *memories = inputs
        pairs = {name: f"{name.removesuffix(IN)}{OUT}" for name in memories if name.endswith(IN)}
        if len(pairs) != len(memories) or not set(pairs.values()) <= outputs.keys():
            raise DataError(
                f"{self.path}: {len(inputs)} inputs ({_listed(inputs)}): one observation, and"
                f" memories as NAME{IN} and NAME{OUT}"
            )
        rest = [name for name in outputs if name not in pairs.values()]
        named = [name for name in rest if name.lower() in ACTIONS]
        if len(rest) != 1 and len(named) != 1:
            raise DataError(
                f"{self.path}: {len(rest)} outputs ({_listed(rest)}): call one of them 'action'"
            )
        self.action = rest[0] if len(rest) == 1 else named[0]
        self.pairs = pairs
        shapes = {name: inputs[name] for name in pairs}
        for name, other in pairs.items():
            if len(outputs[other]) != len(shapes[name]) or outputs[other][1:] != shapes[name][1:]:
                raise DataError(f"{self.path}: '{name}' and '{other}' have different shapes")
        (rows, observations), (_, actions) = (
            _row(shape, name, self.path)
            for shape, name in (
                (inputs[self.observation], self.observation),
                (outputs[self.action], self.action),
            )
        )
        self.observation_size, self.action_size = observations, actions
        self.one_by_one = rows == 1
        self.memory: dict[str, tuple[int, ...]] = {}
        for name, shape in shapes.items():
            fixed = tuple(1 if size is None else size for size in shape)
            if None in shape[1:] or (shape[:1] == (None,)) == self.one_by_one:
                raise DataError(f"{self.path}: '{name}' has other rows than the observation")
            self.memory[name] = fixed

    def empty(self, rows: int) -> list[dict[str, Rows]]:
        """The memories of episodes that start now: one for all rows, or one for each."""
        if self.one_by_one:
            return [_zeros(self.memory) for _ in range(rows)]
        return [_zeros({name: (rows, *shape[1:]) for name, shape in self.memory.items()})]

    def step(self, rows: Rows, memories: list[dict[str, Rows]]) -> Rows:
        """Actions for these observations; the memories are brought up to date.

        Raises:
            DataError: if it fails, or gives something else than finite numbers.
        """
        parts = [rows[n : n + 1] for n in range(len(rows))] if self.one_by_one else [rows]
        wanted = [self.action, *self.pairs.values()]
        actions = []
        for part, memory in zip(parts, memories, strict=True):
            try:
                action, *kept = self.session.run(wanted, {self.observation: part, **memory})
            except Exception as error:  # as above
                reason = printable(" ".join(str(error).split()), 150)
                raise DataError(f"{self.path}: onnxruntime failed ({reason})") from error
            memory.update(zip(self.pairs, kept, strict=True))
            actions.append(np.asarray(action, np.float32).reshape(len(part), -1))
        found = np.concatenate(actions) if len(actions) > 1 else actions[0]
        if found.shape != (len(rows), self.action_size) or not np.isfinite(found).all():
            raise DataError(f"{self.path}: its actions are no {self.action_size} finite numbers")
        return found


class OnnxPolicy:
    """A policy without memory: `(n, obs)` gives `(n, act)`, `(obs,)` gives `(act,)`."""

    def __init__(self, model: _Model) -> None:
        self._model = model
        self.metadata, self.sha256 = model.metadata, model.sha256
        self.observation_size, self.action_size = model.observation_size, model.action_size

    @property
    def bounds(self) -> Bounds | None:
        """The bounds of its actions, where it says so."""
        return _bounds(self.metadata, self.action_size)

    @property
    def card(self) -> Card:
        """Names, units, bounds and rate, as far as it says them: what a `Guard` asks for."""
        told = {**self.metadata, "rate_hz": self.metadata.get("control_rate_hz")}
        return Card.of_metadata(told, (self.observation_size, self.action_size))

    def __call__(self, obs: NDArray[Any]) -> Rows:
        """The actions.

        Raises:
            UsageError: if the observations have another shape.
            DataError: if one is NaN or infinite, or an action is.
        """
        rows = require_observations(obs, self.observation_size)
        actions = self._model.step(rows, self._model.empty(len(rows)))
        return actions if np.ndim(obs) == 2 else actions[0]


class RememberingOnnxPolicy(ActsInEpisodes, OnnxPolicy):
    """A policy that remembers: each `start_episode` has a memory of its own."""

    def start_episode(self) -> ActingOnnxPolicy:
        """The policy at the start of episodes, with an empty memory."""
        return ActingOnnxPolicy(self._model)


class ActingOnnxPolicy:
    """A `PolicyFunction` for any number of episodes in lockstep, called once per step."""

    def __init__(self, model: _Model) -> None:
        self._model = model
        self._memory: list[dict[str, Rows]] = []
        self._count: int | None = None  # of episodes, once they have begun

    def __call__(self, obs: NDArray[Any]) -> Rows:
        """The actions for the observations that the last ones led to.

        Raises:
            UsageError: if the observations have another shape, or another number than before.
            DataError: if one is NaN or infinite, or an action is.
        """
        rows = require_observations(obs, self._model.observation_size, self._count)
        if self._count is None:
            self._memory, self._count = self._model.empty(len(rows)), len(rows)
        actions = self._model.step(rows, self._memory)
        return actions if np.ndim(obs) == 2 else actions[0]


def load_onnx(path: StrPath) -> OnnxPolicy:
    """The policy in an ONNX file, a `RememberingOnnxPolicy` if it has a memory; no other is opened.

    Raises:
        MissingInputError: if it is not there, or onnxruntime is not installed.
        DataError: if it is damaged, not a policy, or asks for more than one needs.
    """
    with open_input(path) as file:
        content = file.read(MAX_BYTES + 1)
    return of_bytes(content, path)


def of_bytes(content: bytes, path: StrPath) -> OnnxPolicy:
    """`load_onnx` of bytes that were read; errors name `path`."""
    model = _Model(content, path)
    return RememberingOnnxPolicy(model) if model.memory else OnnxPolicy(model)


def _shape(value: Any, path: StrPath) -> tuple[int | None, ...]:
    """Sizes, None where any number will do."""
    if value.type != "tensor(float)":
        raise DataError(f"{path}: '{printable(value.name, 40)}' is {value.type}, not float32")
    return tuple(size if isinstance(size, int) else None for size in value.shape)


def _row(shape: tuple[int | None, ...], name: str, path: StrPath) -> tuple[int | None, int]:
    if len(shape) != 2 or shape[0] not in (None, 1) or not shape[1]:
        raise DataError(
            f"{path}: '{printable(name, 40)}' has shape {list(shape)}, not rows of a fixed size"
        )
    return shape[0], shape[1]


def _zeros(shapes: dict[str, tuple[int, ...]]) -> dict[str, Rows]:
    return {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}


def _listed(names: Any) -> str:
    return printable(", ".join(names), 100)


def _value(text: str) -> Any:
    """A note of the file: JSON where it is some, else the text."""
    try:
        return json.loads(text[:1_000_000], parse_constant=str)
    except (ValueError, RecursionError):
        return text[:10_000]


def _bounds(metadata: dict[str, Any], size: int) -> Bounds | None:
    sides = metadata.get("action_low"), metadata.get("action_high")
    if not all(isinstance(side, list) and len(side) == size for side in sides):
        return None
    if not all(type(n) in (int, float) and math.isfinite(n) for side in sides for n in side or ()):
        return None
    return Bounds(*(np.array(side, np.float32) for side in sides))
