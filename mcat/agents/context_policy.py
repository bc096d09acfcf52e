"""π(s, z_t): a policy that finds out while acting which machine it is on.

Its file holds the actor, the context encoder C and the scale of C's inputs: it acts without the
data, the forward model and the translator it was trained with.
"""

from __future__ import annotations

from typing import Any, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mcat.agents.networks import MLP
from mcat.errors import DataError, DivergedError
from mcat.safe_io import Arrays, StrPath, load_safetensors, save_safetensors
from mcat.translator.configs import Activation
from mcat.translator.context import ContextModel
from mcat.translator.networks import mlp

FORMAT, KIND = 2, "context policy"
ACTIVATIONS = get_args(Activation)


class Window:
    """The last K steps of episodes in lockstep, as C reads them: state changes and actions (§1.4).

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
        encoder: C.
        spread: `(S,)`, in units of which C sees state changes.
        history: K.
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
        metadata: dict[str, Any] | None = None,
    ) -> None:
        self.actor, self.encoder, self.spread = actor, encoder, spread
        self.history, self.activation = history, activation
        self.metadata = metadata or {}

    @classmethod
    def of(cls, actor: MLP, model: ContextModel) -> ContextPolicy:
        """The policy of networks in training; it goes on changing with them."""
        return cls(
            actor,
            model.encoder,
            model.change_scale.std,
            history=model.config.history,
            activation=model.config.encoder_activation,
        )

    @property
    def observation_size(self) -> int:
        """Numbers in a state."""
        return len(self.spread)

    @property
    def action_size(self) -> int:
        """Numbers in an action."""
        return self.actor.sizes[-1]

    def begin(self) -> Deployment:
        """The policy at the start of episodes, with an empty memory."""
        return Deployment(self)

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
        """Write it as one file."""
        header = {
            "format": FORMAT,
            "kind": KIND,
            "actor_sizes": list(self.actor.sizes),
            "encoder_sizes": _sizes(self.encoder),
            "history": self.history,
            "activation": self.activation,
        }
        arrays = {
            **{f"actor.{k}": v.numpy() for k, v in self.actor.state_dict().items()},
            "spread": self.spread.numpy(),
            **{f"encoder.{k}": v.numpy() for k, v in self.encoder.state_dict().items()},
        }
        save_safetensors(path, arrays, metadata | header, overwrite=overwrite)

    @classmethod
    def load(cls, path: StrPath) -> ContextPolicy:
        """Read one; no code in the file is ever run.

        Raises:
            DataError: if it is damaged or something else.
        """
        arrays, header = load_safetensors(path)
        if header.get("kind") != KIND or header.get("format") != FORMAT:
            raise DataError(f"{path}: not a policy of mcat metatrain that this mcat can read")
        try:
            if header["activation"] not in ACTIVATIONS:
                raise ValueError("its networks are of another kind")
            actor = MLP(header["actor_sizes"], 1)
            actor.load_state_dict(_part("actor", arrays))
            spread = torch.from_numpy(arrays.pop("spread"))
            first, *hidden, last = header["encoder_sizes"]
            encoder = mlp(first, hidden, last, header["activation"])
            encoder.load_state_dict(_part("encoder", arrays))
            step = len(spread) + actor.sizes[-1]
            if first != header["history"] * step or actor.sizes[0] != len(spread) + last:
                raise ValueError("its networks do not fit each other")
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise DataError(f"{path}: its header does not describe its arrays") from error
        return cls(
            actor.requires_grad_(False),
            encoder.requires_grad_(False),
            spread,
            history=header["history"],
            activation=header["activation"],
            metadata=header,
        )


class Deployment:
    """A `PolicyFunction` for any number of episodes in lockstep, called once per step.

    Attributes:
        contexts: The contexts `(n, Z)` that the last actions were chosen in.
    """

    def __init__(self, policy: ContextPolicy) -> None:
        self._policy = policy
        self._window = Window(policy.history, policy.action_size)
        self.contexts = torch.zeros(0)

    def __call__(self, states: NDArray[Any]) -> NDArray[np.float32]:
        """The actions for the states that the last ones led to."""
        self.contexts = self._policy.encode(self._window.see(states))
        inputs = torch.from_numpy(np.asarray(states, np.float32))
        actions: NDArray[np.float32] = self._policy.act(inputs, self.contexts).numpy()
        self._window.acted(actions)
        return actions


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
