"""Tensors in files of `torch.save`, without running what such a file may hold.

It is a zip with a pickle that says which tensors there are, and their numbers beside it. A pickle
is a program; this reads the few instructions that a dictionary of tensors takes, and knows no
others.
"""

from __future__ import annotations

import io
import math
import pickletools
import zipfile
import zlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mcat.errors import DataError, printable
from mcat.safe_io import StrPath

MAX_BYTES = 2**28  # of a part of the zip; policies of a few layers have less than one per cent
_TYPES = {
    "torch FloatStorage": "<f4",
    "torch DoubleStorage": "<f8",
    "torch HalfStorage": "<f2",
    "torch LongStorage": "<i8",
    "torch IntStorage": "<i4",
    "torch BoolStorage": "?",
}
_VALUES = {"BINUNICODE", "SHORT_BINUNICODE", "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT"}
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
_NOTHING = {"PROTO", "FRAME", "STOP"}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_PARSE_ERRORS = (ValueError, KeyError, IndexError, TypeError, AttributeError, OverflowError)


class _Name(NamedTuple):
    """A function or class that the pickle names; it is never looked up."""

    text: str


class _Storage(NamedTuple):
    numbers: NDArray[Any]


class ZipMembers:
    """The members of a zip that may be damaged or made to harm.

    Raises:
        DataError: if it is none.
    """

    def __init__(self, content: bytes, path: StrPath) -> None:
        self._path = path
        try:
            self._zip = zipfile.ZipFile(io.BytesIO(content))
        except (zipfile.BadZipFile, ValueError, OSError, NotImplementedError) as error:
            raise DataError(
                f"{path}: no zip, as stable-baselines3 and torch.save write them"
            ) from error
        self.names = self._zip.namelist()

    def read(self, name: str) -> bytes:
        """One member.

        Raises:
            DataError: if it is missing, damaged or too large.
        """
        try:
            if self._zip.getinfo(name).file_size > MAX_BYTES:
                raise ValueError(f"more than {MAX_BYTES:,} bytes")
            return self._zip.read(name)
        except (*_PARSE_ERRORS, zipfile.BadZipFile, zlib.error, OSError, RuntimeError,
                NotImplementedError) as error:  # fmt: skip
            raise DataError(
                f"{self._path}: cannot read '{printable(name, 60)}' in it ({printable(error, 80)})"
            ) from error


def read_saved(content: bytes, path: StrPath) -> Any:
    """What `torch.save` was given: arrays in dictionaries and lists.

    Raises:
        DataError: if it is damaged, or holds anything else.
    """
    parts = ZipMembers(content, path)
    pickles = [name for name in parts.names if name.count("/") == 1 and name.endswith("/data.pkl")]
    if len(pickles) != 1:
        raise DataError(f"{path}: not a file of torch.save (1.6 or later)")
    folder = pickles[0].removesuffix("data.pkl")
    if f"{folder}byteorder" in parts.names and parts.read(f"{folder}byteorder") != b"little":
        raise DataError(f"{path}: written on a machine with another order of bytes")
    instructions = parts.read(pickles[0])
    try:
        return _understand(instructions, lambda key: parts.read(f"{folder}data/{key}"))
    except DataError:
        raise
    except _PARSE_ERRORS as error:
        raise DataError(
            f"{path}: not tensors alone ({printable(error, 100)}); no other pickle is ever loaded"
        ) from error


def _understand(instructions: bytes, read: Callable[[str], bytes]) -> Any:
    """The value that a pickle describes, if it is made of tensors, dictionaries and lists."""
    stack: list[Any] = []
    marks: list[int] = []
    memo: dict[int, Any] = {}

    def since_mark() -> list[Any]:
        start = marks.pop()
        items = stack[start:]
        del stack[start:]
        return items

    steps: Iterator[tuple[Any, Any, Any]] = pickletools.genops(instructions)
    for op, argument, _ in steps:
        name = op.name
        if name in _VALUES:
            stack.append(argument)
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name in ("EMPTY_DICT", "EMPTY_LIST"):
            stack.append({} if name == "EMPTY_DICT" else [])
        elif name in ("BINPUT", "LONG_BINPUT", "MEMOIZE"):
            memo[len(memo) if name == "MEMOIZE" else argument] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            stack.append(memo[argument])
        elif name == "MARK":
            marks.append(len(stack))
        elif name == "TUPLE":
            stack.append(tuple(since_mark()))
        elif name in _TUPLES:
            items = [stack.pop() for _ in range(_TUPLES[name])]
            stack.append(tuple(reversed(items)))
        elif name in ("APPEND", "APPENDS"):
            items = [stack.pop()] if name == "APPEND" else since_mark()
            stack[-1].extend(items)
        elif name in ("SETITEM", "SETITEMS"):
            items = [stack.pop(), stack.pop()][::-1] if name == "SETITEM" else since_mark()
            stack[-1].update(zip(items[::2], items[1::2], strict=True))
        elif name == "GLOBAL":
            stack.append(_Name(argument))
        elif name == "STACK_GLOBAL":
            last = stack.pop()
            stack.append(_Name(f"{stack.pop()} {last}"))
        elif name == "BINPERSID":
            stack.append(_storage(stack.pop(), read))
        elif name == "REDUCE":
            arguments = stack.pop()
            stack.append(_made(stack.pop(), arguments))
        elif name == "BUILD":
            stack.pop()  # the version of each module, which changes no number
        elif name not in _NOTHING:
            raise ValueError(f"it has the instruction {name}")
    (value,) = stack
    return value


def _storage(identity: Any, read: Callable[[str], bytes]) -> _Storage:
    kind, type_name, key, _, count = identity
    if kind != "storage" or not isinstance(type_name, _Name) or type_name.text not in _TYPES:
        raise ValueError(f"it has numbers of {type_name}")
    dtype = np.dtype(_TYPES[type_name.text])
    content = read(str(key))
    if len(content) != count * dtype.itemsize:
        raise ValueError(f"it has {len(content)} bytes where {count} numbers should be")
    return _Storage(np.frombuffer(content, dtype))


def _made(function: Any, arguments: Any) -> Any:
    """What the only functions that a dictionary of tensors needs would return."""
    name = function.text if isinstance(function, _Name) else str(function)
    if name == "collections OrderedDict" and arguments == ():
        return {}
    if name == "torch._utils _rebuild_parameter":
        return arguments[0]
    if name != "torch._utils _rebuild_tensor_v2":
        raise ValueError(f"it calls {name}")
    storage, offset, shape, strides = arguments[:4]
    whole = (offset, *shape, *strides)
    if not isinstance(storage, _Storage) or not all(type(n) is int and n >= 0 for n in whole):
        raise ValueError("a tensor without sizes")
    count = math.prod(shape)
    last = offset + sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
    if count > len(storage.numbers) or (count and last >= len(storage.numbers)):
        raise ValueError("a tensor larger than its numbers")
    # One that is read twice by a stride of 0 is as large as its numbers at most, as just checked.
    steps = [step * storage.numbers.itemsize for step in strides]
    view = np.lib.stride_tricks.as_strided(storage.numbers[offset:], shape, steps)
    return np.array(view)
