"""Policies that others' programs trained, as files of ours."""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from mcat.agents.networks import linear_shapes, linear_sizes
from mcat.agents.policies.foreign.bounds import Bounds
from mcat.agents.policies.meta_policy import require_sizes
from mcat.datasets.cards import Card
from mcat.errors import DataError, UsageError
from mcat.formats import require_format, stamp
from mcat.safe_io import StrPath
from mcat.tensor_files import Arrays, digest, load_safetensors, save_safetensors
from mcat.types import require_observations

FORMAT, KIND = 1, "imported policy"
ACTIVATIONS: dict[str, type[nn.Module]] = {
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
    "elu": nn.ELU,
    "silu": nn.SiLU,
    "leakyrelu": nn.LeakyReLU,
}


class Scaling(NamedTuple):
    """How observations are scaled before the network sees them: `(obs - mean) / std`, clipped."""

    mean: NDArray[np.float64]  # `(obs,)`
    std: NDArray[np.float64]  # `(obs,)`, with what keeps it from zero
    clip: float  # scaled observations lie between -clip and clip

    def __call__(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        """Observations as the network knows them."""
        scaled = (rows.astype(np.float64) - self.mean) / self.std
        return np.clip(scaled, -self.clip, self.clip).astype(np.float32)


class ImportedPolicy:
    """A network that gives actions in the units of its own machine.

    Args:
        network: Linear layers with one kind of activation between them.
        bounds: Of its actions.
        activation: One of `ACTIVATIONS`.
        squashed: Whether tanh of the last layer is stretched to the bounds; if not it is cut there.
        scaling: Of observations, if there is any.
        metadata: Where it comes from, as JSON types.

    Attributes:
        sha256: Tells it from others.
    """

    def __init__(
        self,
        network: nn.Sequential,
        bounds: Bounds,
        *,
        activation: str,
        squashed: bool,
        scaling: Scaling | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> None:
        self.network, self.bounds = network.requires_grad_(False), bounds
        self.activation, self.squashed, self.scaling = activation, squashed, scaling
        self.metadata = metadata or {}
        self.sha256 = digest(self.arrays(), f"{activation} {squashed}")

    @property
    def sizes(self) -> tuple[int, ...]:
        """The widths of its layers, observations first and actions last."""
        return tuple(linear_sizes(self.network))

    @property
    def observation_size(self) -> int:
        """Numbers in an observation."""
        return self.sizes[0]

    @property
    def action_size(self) -> int:
        """Numbers in an action."""
        return self.sizes[-1]

    @property
    def card(self) -> Card | None:
        """What its numbers are, if it was told."""
        sizes = self.observation_size, self.action_size
        return Card.of_metadata(self.metadata, sizes) if "action_names" in self.metadata else None

    def on(self, card: Card) -> ImportedPolicy:
        """This policy, told what the numbers of its machine are.

        One that gives actions in [-1, 1] gives them in the machine's own units from then on: 1 is
        the largest that there is.

        Raises:
            UsageError: if the machine is another one.
        """
        sizes = len(card.observations), len(card.actions)
        if sizes != (self.observation_size, self.action_size):
            raise UsageError(
                f"the policy has {self.observation_size} observations and {self.action_size}"
                f" actions, the machine {sizes[0]} and {sizes[1]}"
            )
        network, bounds = self.network, self.bounds
        if card.limits is not None and not card.limits.unit and bounds.unit:
            bounds = Bounds(*card.limits.inner())
            if not self.squashed:  # such ones are cut at the bounds: its last layer is stretched
                low, high = bounds
                network = _stretched(network, (high - low) / 2, (high + low) / 2)
        elif card.limits is not None and not np.allclose(bounds, card.limits, rtol=1e-6, atol=0):
            raise UsageError(
                f"the policy gives actions in {bounds}, its machine has"
                f" {', '.join(map(str, card.actions))}"
            )
        return ImportedPolicy(
            network,
            bounds,
            activation=self.activation,
            squashed=self.squashed,
            scaling=self.scaling,
            metadata=self.metadata | card.to_metadata(),
        )

    @torch.no_grad()
    def __call__(self, obs: NDArray[np.floating]) -> NDArray[np.float32]:
        """The deterministic actions; one observation `(obs,)` gives one action `(act,)`.

        Raises:
            UsageError: if the observations have another shape.
            DataError: if one is NaN or infinite.
        """
        rows = require_observations(obs, self.observation_size)
        if self.scaling is not None:
            rows = self.scaling(rows)
        out = self.network(torch.from_numpy(rows))
        low, high = self.bounds
        actions: NDArray[np.float32] = out.numpy()
        if self.squashed:
            actions = low + np.float32(0.5) * (torch.tanh(out).numpy() + 1) * (high - low)
        actions = np.clip(actions, low, high)
        return actions if np.ndim(obs) == 2 else actions[0]

    def arrays(self) -> Arrays:
        """All numbers, by the names they have in a file."""
        found: Arrays = {
            f"network.{name}": tensor.numpy() for name, tensor in self.network.state_dict().items()
        }
        found |= {"low": self.bounds.low, "high": self.bounds.high}
        if self.scaling is not None:
            clip = np.array([self.scaling.clip])
            found |= {"mean": self.scaling.mean, "std": self.scaling.std, "clip": clip}
        return found

    def save(self, path: StrPath, *, overwrite: bool = False) -> None:
        """Write it as one safetensors file."""
        header = {
            **stamp(FORMAT),
            "kind": KIND,
            "sizes": list(self.sizes),
            "activation": self.activation,
            "squashed": self.squashed,
        }
        save_safetensors(path, self.arrays(), self.metadata | header, overwrite=overwrite)

    @classmethod
    def load(cls, path: StrPath) -> ImportedPolicy:
        """Read one; nothing is allocated before sizes and arrays fit.

        Raises:
            MissingInputError: if it is not there.
            DataError: if it is damaged or something else.
        """
        arrays, header = load_safetensors(path)
        if header.get("kind") != KIND:
            raise DataError(f"{path}: not a policy of mcat policies import")
        require_format(header, FORMAT, path)
        try:
            sizes, activation, squashed = (
                header[key] for key in ("sizes", "activation", "squashed")
            )
            if activation not in ACTIVATIONS or type(squashed) is not bool:
                raise ValueError("no such network")
            wanted = _shapes(sizes, scaled="mean" in arrays)
            found = {name: (array.shape, array.dtype.str) for name, array in arrays.items()}
            if wanted != found:
                raise ValueError("other arrays")
            low, high = arrays["low"], arrays["high"]
            if not (low < high).all() or not (arrays.get("std", np.ones(1)) > 0).all():
                raise ValueError("no bounds or scale")
        except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
            raise DataError(f"{path}: its header does not describe its arrays") from error
        scaling = None
        if "mean" in arrays:
            scaling = Scaling(arrays["mean"], arrays["std"], float(arrays["clip"][0]))
        weights = [arrays[f"network.{2 * n}.weight"] for n in range(len(sizes) - 1)]
        biases = [arrays[f"network.{2 * n}.bias"] for n in range(len(sizes) - 1)]
        return cls(
            layered(list(zip(weights, biases, strict=True)), activation),
            Bounds(low, high),
            activation=activation,
            squashed=squashed,
            scaling=scaling,
            metadata=header,
        )


def layered(
    layers: list[tuple[NDArray[np.float32], NDArray[np.float32]]], activation: str
) -> nn.Sequential:
    """Linear layers of these weights and biases, with an activation after each but the last."""
    modules: list[nn.Module] = []
    for weight, bias in layers:
        layer = nn.Linear(weight.shape[1], weight.shape[0])
        layer.load_state_dict({"weight": torch.from_numpy(weight), "bias": torch.from_numpy(bias)})
        modules += [layer, ACTIVATIONS[activation]()]
    return nn.Sequential(*modules[:-1])


def _stretched(
    network: nn.Sequential, factor: NDArray[np.floating], shift: NDArray[np.floating]
) -> nn.Sequential:
    """The same layers, with `factor * out + shift` in place of what comes out."""
    made = copy.deepcopy(network)
    last = made[-1]
    assert isinstance(last, nn.Linear)
    by, more = (torch.from_numpy(values.astype(np.float32)) for values in (factor, shift))
    last.weight.data.mul_(by[:, None])
    last.bias.data.mul_(by).add_(more)
    return made


def _shapes(sizes: list[int], *, scaled: bool) -> dict[str, tuple[tuple[int, ...], str]]:
    """The shapes and types that the arrays of a file must have."""
    require_sizes(sizes)
    found: dict[str, tuple[tuple[int, ...], str]] = {
        f"network.{name}": (shape, "<f4") for name, shape in linear_shapes(sizes).items()
    }
    found |= dict.fromkeys(("low", "high"), ((sizes[-1],), "<f4"))
    if scaled:
        found |= dict.fromkeys(("mean", "std"), ((sizes[0],), "<f8"))
        found["clip"] = (1,), "<f8"
    return found
