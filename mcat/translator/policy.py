"""What a user holds in the end: a translator of actions, and a policy made of it."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from importlib import import_module
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from mcat.errors import DataError, UsageError
from mcat.safe_io import StrPath, load_safetensors, save_safetensors
from mcat.translator.report import FitReport
from mcat.types import PolicyFunction

FORMAT = 2
_KINDS: dict[str, type[Translator]] = {}


class Translator(ABC):
    """Turns actions of one machine into actions of another that do the same there.

    Attributes:
        kind: Names the class in a file.
        report: How it was trained; empty in one that was loaded.
    """

    kind: ClassVar[str]

    def __init_subclass__(cls) -> None:
        if not inspect.isabstract(cls) and "kind" in cls.__dict__:
            _KINDS[cls.kind] = cls

    def __init__(self, report: FitReport | None = None) -> None:
        self.report = report or FitReport()

    @property
    @abstractmethod
    def observation_size(self) -> int:
        """Numbers in a state of the target."""

    @property
    @abstractmethod
    def action_size(self) -> int:
        """Numbers in an action of the target."""

    @property
    def source_action_size(self) -> int:
        """Numbers in an action of the source."""
        return self.action_size

    def view(self, observations: ArrayLike) -> NDArray[np.float32]:
        """States of the target as the source policy shall see them."""
        return np.asarray(observations, np.float32)

    def translate(self, observations: ArrayLike, actions: ArrayLike) -> NDArray[np.float32]:
        """Target actions `(n, act)` for the target's states and the source's actions in them.

        Args:
            observations: States of the target `(n, obs)`.
            actions: What the source policy does in them `(n, act)`, in [-1, 1].
        """
        # Copied: columns of a data set are read-only, which torch dislikes.
        obs, act = (torch.tensor(np.asarray(x, np.float32)) for x in (observations, actions))
        sizes = self.observation_size, self.source_action_size
        if obs.ndim != 2 or (obs.shape[1], *act.shape) != (sizes[0], len(obs), sizes[1]):
            raise UsageError(
                f"expected observations (n, {sizes[0]}) and actions (n, {sizes[1]}),"
                f" got {tuple(obs.shape)} and {tuple(act.shape)}"
            )
        with torch.no_grad():
            translated: NDArray[np.float32] = self.act(obs, act).numpy()
        return translated

    @abstractmethod
    def act(self, obs: Tensor, action: Tensor) -> Tensor:
        """`translate` on tensors of the right shapes."""

    @abstractmethod
    def header(self) -> dict[str, Any]:
        """What `build` needs to make an untrained one of the same shape; JSON."""

    @classmethod
    @abstractmethod
    def build(cls, header: dict[str, Any]) -> Self:
        """An untrained one."""

    @abstractmethod
    def modules(self) -> dict[str, nn.Module]:
        """Everything that has weights, by name."""

    def save(self, path: StrPath, *, overwrite: bool = False) -> None:
        """Write it as one safetensors file, from which `load` needs no data."""
        arrays = {
            f"{part}.{name}": tensor.numpy()
            for part, module in self.modules().items()
            for name, tensor in module.state_dict().items()
        }
        header = {"format": FORMAT, **self.header(), "kind": f"translator/{self.kind}"}
        save_safetensors(path, arrays, header, overwrite=overwrite)

    @staticmethod
    def load(path: StrPath) -> Translator:
        """Read what `save` wrote; nothing in the file is run."""
        for name in ("cycle", "cycle_spaces", "fit", "state"):  # each registers its kind
            import_module(f"mcat.translator.{name}")
        arrays, header = load_safetensors(path)
        kind = _KINDS.get(str(header.get("kind")).removeprefix("translator/"))
        if kind is None or header.get("format") != FORMAT:
            raise DataError(f"{path}: not a translator of this mcat (format {FORMAT})")
        try:
            translator = kind.build(header)
            for part, module in translator.modules().items():
                prefix = f"{part}."
                state = {
                    name.removeprefix(prefix): torch.from_numpy(array)
                    for name, array in arrays.items()
                    if name.startswith(prefix)
                }
                module.load_state_dict(state)
                module.requires_grad_(False).eval()
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise DataError(f"{path}: damaged ({' '.join(str(error).split())[:200]})") from error
        return translator


def from_json(values: dict[str, Any]) -> dict[str, Any]:
    """Arguments of a config as JSON has them: it knows no tuples."""
    return {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}


class TransferredPolicy:
    """A source policy, its actions translated: `(n, obs)` to `(n, act)` on the target."""

    def __init__(self, policy: PolicyFunction, translator: Translator) -> None:
        self.policy, self.translator = policy, translator

    def __call__(self, observations: NDArray[Any]) -> NDArray[np.float32]:
        """Ask the source policy, translate its answer."""
        actions = self.policy(self.translator.view(observations))
        return self.translator.translate(observations, actions)
