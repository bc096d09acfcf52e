"""What the policies of `mcat metatrain` share: an actor, and one file that is read with care."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from mcat.agents.networks import MLP, parameter_shapes
from mcat.errors import DataError
from mcat.formats import require_format, stamp
from mcat.safe_io import StrPath
from mcat.tensor_files import Arrays, load_safetensors, save_safetensors

Shapes = dict[str, tuple[int, ...]]


class MetaPolicy(ABC):
    """A policy for many tasks.

    Attributes:
        kind: Names the class in a file.
        format: The number of the file's format.
        actor: Maps states, with what is known of the task, to raw actions.
        metadata: The rest of the file's header.
    """

    kind: ClassVar[str]
    format: ClassVar[int]

    def __init__(self, actor: MLP, metadata: dict[str, Any] | None) -> None:
        self.actor, self.metadata = actor, metadata or {}

    @property
    @abstractmethod
    def observation_size(self) -> int:
        """Numbers in a state."""

    @property
    def action_size(self) -> int:
        """Numbers in an action."""
        return self.actor.sizes[-1]

    @property
    def family(self) -> str:
        """The tasks it was trained on, where its file says so."""
        return str(self.metadata.get("family", "other tasks"))

    @abstractmethod
    def __call__(self, states: NDArray[Any]) -> NDArray[np.float32]:
        """The actions in these states, if they follow from these alone."""

    @abstractmethod
    def arrays(self) -> Arrays:
        """All weights, by the names they have in a file."""

    @abstractmethod
    def header(self) -> dict[str, Any]:
        """What a file says of them beside the sizes of the actor, as JSON."""

    @classmethod
    @abstractmethod
    def shapes(cls, header: dict[str, Any], arrays: Arrays) -> Shapes:
        """What arrays beside the actor's layers a file of such a header must hold.

        Raises:
            ValueError: if the header makes no sense.
        """

    @classmethod
    @abstractmethod
    def built(cls, header: dict[str, Any], arrays: Arrays) -> Self:
        """The policy of a header and of arrays that fit it."""

    def save(self, path: StrPath, metadata: dict[str, Any], *, overwrite: bool = False) -> None:
        """Write it as one file."""
        header = {**stamp(self.format), "kind": self.kind, "actor_sizes": list(self.actor.sizes)}
        metadata = metadata | header | self.header()
        save_safetensors(path, self.arrays(), metadata, overwrite=overwrite)

    @classmethod
    def load(cls, path: StrPath) -> Self:
        """Read one; no code in the file is ever run.

        Raises:
            DataError: if it is damaged or something else.
        """
        arrays, header = load_safetensors(path)
        if header.get("kind") != cls.kind:
            raise DataError(f"{path}: not a policy of mcat metatrain")
        return cls.of_file(arrays, header, path)

    @classmethod
    def of_file(cls, arrays: Arrays, header: dict[str, Any], path: StrPath) -> Self:
        """The policy of a file that was read; nothing is allocated before sizes and arrays fit."""
        require_format(header, cls.format, path)
        try:
            sizes = header["actor_sizes"]
            require_sizes(sizes)
            layers = enumerate(parameter_shapes(sizes, 1))
            wanted: Shapes = {f"actor.layers.{index}": shape for index, shape in layers}
            wanted |= cls.shapes(header, arrays)
            if wanted != {name: array.shape for name, array in arrays.items()}:
                raise ValueError("other arrays")
            if {array.dtype for array in arrays.values()} != {np.dtype(np.float32)}:
                raise ValueError("no float32")
        except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
            raise DataError(f"{path}: its header does not describe its arrays") from error
        return cls.built(header, arrays)


def require_sizes(sizes: Any, *others: Any) -> None:
    """Refuse what are no layer widths of a network, and other numbers that are not positive."""
    if len(sizes) < 2 or not all(type(n) is int and n > 0 for n in (*sizes, *others)):
        raise ValueError("no sizes")
