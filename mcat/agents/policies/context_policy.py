"""π(s, z_t): a policy that finds out while acting which machine it is on.

Its file holds the actor, the context encoder C and the scale of C's inputs: it acts without the
data, the forward model and the translator it was trained with.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mcat.agents.networks import MLP, parameter_shapes
from mcat.errors import DataError, DivergedError, UsageError
from mcat.formats import require_format, stamp
from mcat.safe_io import StrPath
from mcat.tensor_files import Arrays, load_safetensors, save_safetensors
from mcat.translator.configs import Activation
from mcat.translator.context import ContextModel
from mcat.translator.networks import mlp
from mcat.types import require_observations

FORMAT, KIND = 3, "context policy"
ACTIVATIONS = get_args(Activation)


class Window:
    """The last K steps of episodes in lockstep, as C reads them: state changes and actions (C.2).

    Call `see` with the states before a step, then `acted` with the actions that were taken.
    """

    def __init__(self, history: int, action_size: int) -> None:
        self._history, self._action_size = history, action_size
        self._states: NDArray[np.float32] | None = None

    def see(self, states: NDArray[Any]) -> tuple[Tensor, Tensor]:
        """Take in where the last step led, and return what went before `(n, K, S)`, `(n, K, A)`."""
        new = np.asarray(states, np.float32)
        if self._states is None:
            self._changes = np.zeros((len(new), self._history, new.shape[1]), np.float32)
            self._actions = np.zeros((len(new), self._history, self._action_size), np.float32)
        else:
            self._changes[:, :-1] = self._changes[:, 1:]
            self._changes[:, -1] = new - self._states
        self._states = new
        return torch.from_numpy(self._changes), torch.from_numpy(self._actions)

    def acted(self, actions: NDArray[np.float32]) -> None:
        """Take in what was done in the states last seen."""
        self._actions[:, :-1] = self._actions[:, 1:]
        self._actions[:, -1] = actions


class ContextPolicy:
    """An actor and the encoder of its context.

    Attributes:
        actor: Maps states with contexts to raw actions.
        encoder: C, from the last K steps to a context.
        spread: `(S,)`, in units of which C sees state changes.
        history: K, the steps that C reads.
        activation: The activation of C's layers.
        averaged: Whether it acts on the mean of z over the episode so far, not on z_t alone.
        metadata: The rest of the file's header.
    """

    def __init__(
        self,
        actor: MLP,
        encoder: nn.Sequential,
        spread: Tensor,
        *,
        history: int,
        activation: Activation,
        averaged: bool = False,
        metadata: dict[str, Any] | None = None,
    ) -> None:
        self.actor, self.encoder, self.spread = actor, encoder, spread
        self.history, self.activation, self.averaged = history, activation, averaged
        self.metadata = metadata or {}

    @classmethod
    def of(cls, actor: MLP, model: ContextModel, *, averaged: bool = False) -> ContextPolicy:
        """The policy of networks in training; it goes on changing with them.

        Args:
            actor: Maps states with contexts to raw actions.
            model: The one that C is taken from.
            averaged: Act on the mean of z over the episode so far, not on z_t alone.
        """
        return cls(
            actor,
            model.encoder,
            model.change_scale.std,
            history=model.config.history,
            activation=model.config.encoder_activation,
            averaged=averaged,
        )

    @property
    def observation_size(self) -> int:
        """Numbers in a state."""
        return len(self.spread)

    @property
    def action_size(self) -> int:
        """Numbers in an action."""
        return self.actor.sizes[-1]

    @property
    def family(self) -> str:
        """The tasks it was trained on, where its file says so."""
        return str(self.metadata.get("family", "other tasks"))

    def __call__(self, states: NDArray[Any]) -> NDArray[np.float32]:
        """Refuse: what this policy does depends on the episode so far.

        Raises:
            UsageError: always.
        """
        raise UsageError(
            "this policy remembers: act with policy.start_episode(), anew for every episode"
        )

    def start_episode(self) -> ActingContextPolicy:
        """The policy at the start of episodes, with an empty memory."""
        return ActingContextPolicy(self)

    @torch.no_grad()
    def encode(self, past: tuple[Tensor, Tensor]) -> Tensor:
        """C: the contexts `(n, Z)` of what went before."""
        changes, actions = past
        context: Tensor = self.encoder(torch.cat((changes / self.spread, actions), 2).flatten(1))
        return context

    @torch.no_grad()
    def act(self, states: Tensor, contexts: Tensor) -> Tensor:
        """π(s, z), without noise."""
        actions = torch.tanh(self.actor(torch.cat((states, contexts), 1))[0])
        if not actions.isfinite().all():
            raise DivergedError("the actor's actions became NaN: try a lower learning rate")
        return actions

    def save(self, path: StrPath, metadata: dict[str, Any], *, overwrite: bool = False) -> None:
        """Write it as one file.

        Args:
            path: The file.
            metadata: JSON types that go with it, such as `family`.
            overwrite: Replace a file that is there already.
        """
        header = {
            **stamp(FORMAT),
            "kind": KIND,
            "actor_sizes": list(self.actor.sizes),
            "encoder_sizes": _sizes(self.encoder),
            "history": self.history,
            "activation": self.activation,
            "averaged": self.averaged,
        }
        save_safetensors(path, self.arrays(), metadata | header, overwrite=overwrite)

    def arrays(self) -> Arrays:
        """All weights, by the names they have in a file."""
        return {
            **{f"actor.{k}": v.numpy() for k, v in self.actor.state_dict().items()},
            "spread": self.spread.numpy(),
            **{f"encoder.{k}": v.numpy() for k, v in self.encoder.state_dict().items()},
        }

    @classmethod
    def load(cls, path: StrPath) -> ContextPolicy:
        """Read one; no code in the file is ever run.

        Raises:
            DataError: if it is damaged or something else.
        """
        arrays, header = load_safetensors(path)
        if header.get("kind") != KIND:
            raise DataError(f"{path}: not a policy of mcat metatrain")
        return cls.of_file(arrays, header, path)

    @classmethod
    def of_file(cls, arrays: Arrays, header: dict[str, Any], path: StrPath) -> ContextPolicy:
        """The policy of a file that was read; nothing is allocated before sizes and arrays fit.

        Args:
            arrays: What the file holds, by name.
            header: What it says of them.
            path: Named in errors.
        """
        require_format(header, FORMAT, path)
        try:
            history, activation = header["history"], header["activation"]
            sizes, encoder_sizes = header["actor_sizes"], header["encoder_sizes"]
            averaged = header["averaged"]
            if min(len(sizes), len(encoder_sizes)) < 2 or not all(
                type(number) is int and number > 0 for number in (*sizes, *encoder_sizes, history)
            ):
                raise ValueError("no sizes")
            states = len(arrays["spread"])
            shapes = enumerate(parameter_shapes(sizes, 1))
            wanted = {
                "spread": (states,),
                **{f"actor.layers.{index}": shape for index, shape in shapes},
                **{f"encoder.{k}": shape for k, shape in _shapes(encoder_sizes).items()},
            }
            if wanted != {name: array.shape for name, array in arrays.items()}:
                raise ValueError("other arrays")
            if {array.dtype for array in arrays.values()} != {np.dtype(np.float32)}:
                raise ValueError("no float32")
            if activation not in ACTIVATIONS or type(averaged) is not bool:
                raise ValueError("no such network")
            if [sizes[0], encoder_sizes[0]] != [
                states + encoder_sizes[-1],
                history * (states + sizes[-1]),
            ]:
                raise ValueError("networks that do not fit each other")
        except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
            raise DataError(f"{path}: its header does not describe its arrays") from error
        actor = MLP(sizes, 1)
        actor.load_state_dict(_part("actor", arrays))
        first, *hidden, last = encoder_sizes
        encoder = mlp(first, hidden, last, activation)
        encoder.load_state_dict(_part("encoder", arrays))
        return cls(
            actor.requires_grad_(False),
            encoder.requires_grad_(False),
            torch.from_numpy(arrays["spread"]),
            history=history,
            activation=activation,
            averaged=averaged,
            metadata=header,
        )


class Recognition:
    """The contexts of episodes in lockstep, as their steps come in."""

    def __init__(self, policy: ContextPolicy) -> None:
        self._policy = policy
        self._window = Window(policy.history, policy.action_size)
        self._sum, self._steps = torch.zeros(()), 0

    def see(self, states: NDArray[Any]) -> Tensor:
        """The contexts `(n, Z)` to act on in these states."""
        contexts = self._policy.encode(self._window.see(states))
        if not self._policy.averaged:
            return contexts
        self._sum, self._steps = self._sum + contexts, self._steps + 1
        return self._sum / self._steps

    def acted(self, actions: NDArray[np.float32]) -> None:
        """Take in what was done in the states last seen."""
        self._window.acted(actions)


class ActingContextPolicy:
    """A `PolicyFunction` for any number of episodes in lockstep, called once per step.

    Attributes:
        contexts: The contexts `(n, Z)` that the last actions were chosen in.
    """

    def __init__(self, policy: ContextPolicy) -> None:
        self._policy = policy
        self._recognition = Recognition(policy)
        self._taken: NDArray[np.float32] | None = None
        self.contexts = torch.zeros(0)

    def __call__(self, states: NDArray[Any]) -> NDArray[np.float32]:
        """The actions for the states that the last ones led to; one state gives one action.

        Raises:
            UsageError: if the states have another shape, or another number than before.
            DataError: if one is NaN or infinite.
        """
        rows = require_observations(states, self._policy.observation_size)
        if self._taken is not None:
            if len(rows) != len(self._taken):
                raise UsageError(
                    f"{len(rows)} observations of {len(self._taken)} episodes: start_episode() anew"
                )
            self._recognition.acted(self._taken)
        self.contexts = self._recognition.see(rows)
        actions: NDArray[np.float32] = self._policy.act(
            torch.from_numpy(rows), self.contexts
        ).numpy()
        self._taken = actions.copy()
        return actions if np.ndim(states) == 2 else actions[0]

    def took(self, actions: NDArray[Any]) -> None:
        """Say what was done in place of the last actions, where noise or a limit changed them."""
        self._taken = np.array(actions, np.float32).reshape(-1, self._policy.action_size)


def _part(name: str, arrays: Arrays) -> dict[str, Tensor]:
    """The weights of one network of a file."""
    return {
        key.removeprefix(f"{name}."): torch.from_numpy(array)
        for key, array in arrays.items()
        if key.startswith(f"{name}.")
    }


def _sizes(network: nn.Sequential) -> list[int]:
    layers = [layer for layer in network if isinstance(layer, nn.Linear)]
    return [layers[0].in_features, *(layer.out_features for layer in layers)]


def _shapes(sizes: Sequence[int]) -> dict[str, tuple[int, ...]]:
    """The shapes of the weights of `mlp`, by name: every second module is an activation."""
    found: dict[str, tuple[int, ...]] = {}
    for layer, (inputs, outputs) in enumerate(itertools.pairwise(sizes)):
        found[f"{2 * layer}.weight"] = (outputs, inputs)
        found[f"{2 * layer}.bias"] = (outputs,)
    return found
