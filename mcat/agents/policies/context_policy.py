"""π(s, z_t): a policy that finds out while acting which machine it is on.

Its file holds the actor, the context encoder C and the scale of C's inputs: it acts without the
data, the forward model and the translator it was trained with.
"""

from __future__ import annotations

from typing import Any, Self, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mcat.agents.networks import MLP, linear_shapes, linear_sizes
from mcat.agents.policies.meta_policy import MetaPolicy, Shapes, require_sizes
from mcat.errors import DivergedError
from mcat.tensor_files import Arrays, part
from mcat.translator.configs import Activation
from mcat.translator.context import ContextModel
from mcat.translator.networks import mlp
from mcat.types import ActsInEpisodes, require_observations

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


class ContextPolicy(ActsInEpisodes, MetaPolicy):
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

    kind, format = "context policy", 3

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
        super().__init__(actor, metadata)
        self.encoder, self.spread, self.history = encoder, spread, history
        self.activation, self.averaged = activation, averaged

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

    def arrays(self) -> Arrays:
        """All weights, by the names they have in a file."""
        return {
            **{f"actor.{k}": v.numpy() for k, v in self.actor.state_dict().items()},
            "spread": self.spread.numpy(),
            **{f"encoder.{k}": v.numpy() for k, v in self.encoder.state_dict().items()},
        }

    def header(self) -> dict[str, Any]:
        """The sizes of C and how to act, as JSON."""
        return {
            "encoder_sizes": linear_sizes(self.encoder),
            "history": self.history,
            "activation": self.activation,
            "averaged": self.averaged,
        }

    @classmethod
    def shapes(cls, header: dict[str, Any], arrays: Arrays) -> Shapes:
        """Those of C and of its scale."""
        sizes, own, history = header["actor_sizes"], header["encoder_sizes"], header["history"]
        require_sizes(own, history)
        if header["activation"] not in ACTIVATIONS or type(header["averaged"]) is not bool:
            raise ValueError("no such network")
        states = len(arrays["spread"])
        if [sizes[0], own[0]] != [states + own[-1], history * (states + sizes[-1])]:
            raise ValueError("networks that do not fit each other")
        return {"spread": (states,), **{f"encoder.{k}": v for k, v in linear_shapes(own).items()}}

    @classmethod
    def built(cls, header: dict[str, Any], arrays: Arrays) -> Self:
        """The policy of a header and of arrays that fit it."""
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
        actor = MLP(header["actor_sizes"], 1)
        actor.load_state_dict(part("actor.", tensors))
        first, *hidden, last = header["encoder_sizes"]
        encoder = mlp(first, hidden, last, header["activation"])
        encoder.load_state_dict(part("encoder.", tensors))
        return cls(
            actor.requires_grad_(False),
            encoder.requires_grad_(False),
            tensors["spread"],
            history=header["history"],
            activation=header["activation"],
            averaged=header["averaged"],
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
        begun = None if self._taken is None else len(self._taken)
        rows = require_observations(states, self._policy.observation_size, begun)
        if self._taken is not None:
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
