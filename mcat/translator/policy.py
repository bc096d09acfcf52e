"""What a user holds in the end: a translator of actions, and a policy made of it."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from mcat.datasets.cards import Card
from mcat.errors import DataError, MissingInputError, UsageError
from mcat.safe_io import StrPath
from mcat.tensor_files import Arrays, load_safetensors, part, save_safetensors
from mcat.translator.configs import TRANSLATOR_FILE
from mcat.translator.limits import require_actions
from mcat.translator.report import FitReport
from mcat.types import PolicyFunction, require_observations

FORMAT = 2
FORMAT_OF_UNITS = 3  # with actions in units of their own, which earlier versions would not know
_KINDS: dict[str, type[Translator]] = {}


class Translator(ABC):
    """Turns actions of one machine into actions of another that do the same there.

    Args:
        target: How many numbers a state and an action of the target have.
        report: How it was trained.
        source: The numbers of the source, if they are others.

    Attributes:
        kind: Names the class in a file.
        observation_size: Numbers in a state of the target.
        action_size: Numbers in an action of the target.
        source_observation_size: Numbers in a state of the source.
        source_action_size: Numbers in an action of the source.
        cards: What the numbers of source and target are (of all machines, if there are several);
            empty if nobody said. Actions are given and taken in their units.
        report: How it was trained; empty in one that was loaded.
    """

    kind: ClassVar[str]

    def __init_subclass__(cls) -> None:
        if not inspect.isabstract(cls) and "kind" in cls.__dict__:
            _KINDS[cls.kind] = cls

    def __init__(
        self,
        target: tuple[int, int],
        report: FitReport | None = None,
        source: tuple[int, int] | None = None,
    ) -> None:
        self.observation_size, self.action_size = target
        self.source_observation_size, self.source_action_size = source or target
        self.report = report or FitReport()
        self.cards: tuple[Card, ...] = ()

    def with_cards(self, *cards: Card) -> Self:
        """This translator, told what the numbers of its machines are, in their order.

        From then on actions go in and come out in the machines' own units and bounds.

        Raises:
            UsageError: if they are other machines.
        """
        if cards:
            found = len(cards[0].actions), len(cards[-1].actions), len(cards[-1].observations)
            sizes = self.source_action_size, self.action_size, self.observation_size
            if len(cards) < 2 or found != sizes:
                raise UsageError("these cards are of other machines than the translator's")
        self.cards = cards
        return self

    @property
    def source_card(self) -> Card | None:
        """What the numbers of the source are, if that was said."""
        return self.cards[0] if len(self.cards) == 2 else None

    @property
    def target_card(self) -> Card | None:
        """What the numbers of the target are, if that was said."""
        return self.cards[1] if len(self.cards) == 2 else None

    def view(self, observations: ArrayLike) -> NDArray[np.float32]:
        """States of the target as the source policy shall see them `(n, obs)`."""
        seen: NDArray[np.float32] = self._view(observations).numpy()
        return seen

    def translate(self, observations: ArrayLike, actions: ArrayLike) -> NDArray[np.float32]:
        """Target actions `(n, act)` for the target's states and the source's actions in them.

        For one state `(obs,)` and action `(act,)` the answer is one action `(act,)`. It is never
        outside the target's bounds.

        Args:
            observations: States of the target `(n, obs)`.
            actions: What the source policy does in them `(n, act)`, in [-1, 1], or in the source's
                units if `cards` tell them.

        Raises:
            UsageError: for other shapes or actions beyond the bounds; none is ever clipped unsaid.
            DataError: if an observation is NaN or infinite.
        """
        return self.act(lambda _: actions, observations)

    def act(
        self, policy: Callable[[NDArray[np.float32]], ArrayLike], observations: ArrayLike
    ) -> NDArray[np.float32]:
        """What `translate` makes of the actions of a source policy in states of the target.

        Args:
            policy: Is shown them as in `view`.
            observations: As in `translate`.
        """
        seen = self._view(observations)
        actions = policy(seen.numpy())
        act = require_actions(actions, len(seen), self.source_action_size, self.source_card)
        with torch.no_grad():
            new = self.translate_tensors(seen, torch.tensor(act))
        translated: NDArray[np.float32] = new.numpy()
        if self.target_card is not None:
            translated = self.target_card.from_unit(translated)
        return translated[0] if np.ndim(observations) == 1 else translated

    @torch.no_grad()
    def _view(self, observations: ArrayLike) -> Tensor:
        # Copied: columns of a data set are read-only, which torch dislikes.
        return self.view_tensors(
            torch.tensor(require_observations(observations, self.observation_size))
        )

    def view_tensors(self, obs: Tensor) -> Tensor:
        """`view` on tensors of the right shape."""
        return obs

    def require_usable(self) -> None:
        """Refuse one that does not know yet between which machines it goes."""
        return

    @abstractmethod
    def translate_tensors(self, obs: Tensor, action: Tensor) -> Tensor:
        """`translate` on tensors of the right shapes, with states as in `view`."""

    @abstractmethod
    def header(self) -> dict[str, Any]:
        """What `build` needs to make an untrained translator of the same shape, as JSON."""

    @classmethod
    @abstractmethod
    def build(cls, header: dict[str, Any]) -> Self:
        """An untrained translator of the sizes that `header` names."""

    def modules(self) -> dict[str, nn.Module]:
        """The networks, by name."""
        return {name: value for name, value in vars(self).items() if isinstance(value, nn.Module)}

    def save(self, path: StrPath, *, overwrite: bool = False) -> None:
        """Write the translator as one safetensors file, from which `load` needs no data."""
        arrays = {
            f"{whose}.{name}": tensor.numpy()
            for whose, module in self.modules().items()
            for name, tensor in module.state_dict().items()
        }
        header = {"format": FORMAT, **self.header(), "kind": f"translator/{self.kind}"}
        if self.cards:
            header["cards"] = [card.to_metadata() for card in self.cards]
        if any(card.scaled for card in self.cards):
            header["format"] = FORMAT_OF_UNITS
        save_safetensors(path, arrays, header, overwrite=overwrite)

    @staticmethod
    def load(path: StrPath) -> Translator:
        """Read what `save` wrote, or the translator in a folder that `mcat translate` wrote.

        Nothing in a file is run, and nothing is allocated on its word alone.

        Raises:
            MissingInputError: if there is none.
            DataError: if it is damaged or something else.
        """
        # Each of these registers its kind.
        for name in ("cycle.pair", "cycle.spaces", "fit", "state.translator"):
            import_module(f"mcat.translator.{name}")
        path = translator_file(path)
        arrays, header = load_safetensors(path)
        kind = _KINDS.get(str(header.get("kind")).removeprefix("translator/"))
        if kind is None or header.get("format") not in (FORMAT, FORMAT_OF_UNITS):
            raise DataError(f"{path}: not a translator of this mcat (format {FORMAT_OF_UNITS})")
        try:
            with torch.device("meta"):  # shapes without memory
                translator = kind.build(header)
            for whose, module in translator.modules().items():
                _fill(module, arrays, f"{whose}.")
            translator.with_cards(*map(_card, header.get("cards", ())))
        except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError,
                ValueError) as error:  # fmt: skip
            raise DataError(f"{path}: damaged ({' '.join(str(error).split())[:200]})") from error
        return translator


def _card(described: dict[str, Any]) -> Card:
    """What `Card.to_metadata` described, no more and no less: a lost bound would do harm."""
    sizes = len(described["observation_names"]), len(described["action_names"])
    card = Card.of_metadata(described, sizes)
    if card.to_metadata() != described:
        raise ValueError("a card of other numbers")
    return card


EpochHook = Callable[[int, Translator], None]
"""Called with the epoch and the translator as it is then. It goes on changing: save it to keep it.

The paper evaluates every epoch on the target and reports the best; that takes an environment, so it
is for callers to do.
"""


def translator_file(path: StrPath) -> Path:
    """The path of a translator's file, given it or its folder."""
    path = Path(path)
    if path.is_dir() and not (path / TRANSLATOR_FILE).is_file():
        raise MissingInputError(f"{path} is no folder that mcat translate wrote")
    return path / TRANSLATOR_FILE if path.is_dir() else path


def _fill(module: nn.Module, arrays: Arrays, prefix: str) -> None:
    """Give a module without memory the arrays that start with `prefix`, which must fit."""
    state = {name: torch.from_numpy(array) for name, array in part(prefix, arrays).items()}
    for name, expected in module.state_dict().items():
        if name in state and state[name].dtype != expected.dtype:
            raise ValueError(f"{prefix}{name} is {state[name].dtype}")
    module.load_state_dict(state, assign=True)
    module.requires_grad_(False).eval()


class TransferredPolicy:
    """A source policy, its actions translated: `(n, obs)` to `(n, act)` on the target.

    It has no memory, and one observation `(obs,)` gives one action `(act,)`.

    Args:
        policy: Maps observations of the source `(n, obs)` to actions `(n, act)` in [-1, 1], or in
            the source's units if the translator knows them.
        translator: A translator, or where one was saved.

    Raises:
        UsageError: if they cannot act together.
    """

    def __init__(self, policy: PolicyFunction, translator: Translator | StrPath) -> None:
        if not callable(policy):
            raise UsageError(f"a policy is called with observations, and {policy!r} cannot be")
        if not isinstance(translator, Translator):
            if not isinstance(translator, str | Path):
                raise UsageError(f"{translator!r} is no translator and no path of one")
            translator = Translator.load(translator)
        translator.require_usable()
        if translator.source_card is not None:
            translator.source_card.require_units_of(policy, "the policy")
        self.policy, self.translator = policy, translator

    def __call__(self, observations: ArrayLike) -> NDArray[np.float32]:
        """Ask the source policy, translate its answer.

        Raises:
            UsageError: if the policy leaves [-1, 1], or shapes do not fit.
            DataError: if an observation is NaN or infinite.
        """
        return self.translator.act(self.policy, observations)
