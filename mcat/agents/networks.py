"""Multilayer perceptrons, several of one shape at a time, and one step of an optimiser."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn


def keep_freed_memory() -> None:
    """Make glibc keep the memory of activations from one update to the next.

    It hands freed memory back to the system above a threshold, and each page then costs a fault to
    get again: about 5 % of an update. The threshold follows the largest block freed so far.
    """
    torch.empty(31 << 20, dtype=torch.uint8)


def parameter_shapes(sizes: Sequence[int], members: int) -> list[tuple[int, int, int]]:
    """The shapes of weight (as in `torch.nn.Linear`) and bias, layer by layer."""
    return [
        shape
        for inputs, outputs in itertools.pairwise(sizes)
        for shape in ((members, outputs, inputs), (members, 1, outputs))
    ]


def linear_sizes(network: nn.Sequential) -> list[int]:
    """The widths of linear layers in a row, input first and output last."""
    layers = [layer for layer in network if isinstance(layer, nn.Linear)]
    return [layers[0].in_features, *(layer.out_features for layer in layers)]


def linear_shapes(sizes: Sequence[int]) -> dict[str, tuple[int, ...]]:
    """The shapes of their weights by name, if every second module is an activation."""
    found: dict[str, tuple[int, ...]] = {}
    for layer, (inputs, outputs) in enumerate(itertools.pairwise(sizes)):
        found[f"{2 * layer}.weight"] = (outputs, inputs)
        found[f"{2 * layer}.bias"] = (outputs,)
    return found


def in_pairs(parameters: nn.ParameterList) -> list[tuple[Tensor, Tensor]]:
    """Weight and bias of each layer; to slice the list instead costs a tenth of an update."""
    flat = list(parameters.parameters())
    return list(zip(flat[::2], flat[1::2], strict=True))


class Tracking(nn.Module):
    """A network whose weights can follow those of another one of its shape."""

    @torch.no_grad()
    def track(self, other: nn.Module, rate: float) -> None:
        """Move the weights a fraction `rate` of the way to `other`'s (the soft target update)."""
        torch._foreach_lerp_(list(self.parameters()), list(other.parameters()), rate)


class MLP(Tracking):
    """`members` networks of one shape, applied together, with ReLU between the layers.

    Args:
        sizes: Layer widths, input first and output last.
        members: How many networks the ensemble has.
        generator: Draws the initial weights as `torch.nn.Linear` does; None leaves zeros.
    """

    def __init__(
        self, sizes: Sequence[int], members: int, generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        self.sizes, self.members = tuple(sizes), members
        # Weight, bias, weight, bias ... of the layers.
        shapes = parameter_shapes(sizes, members)
        self.layers = nn.ParameterList(nn.Parameter(torch.zeros(shape)) for shape in shapes)
        if generator is not None:
            draw_weights(self.layers, self.sizes, generator)

    def forward(self, x: Tensor, member: int | None = None) -> Tensor:
        """Map `(n, in)` to `(members, n, out)`, or to `(1, n, out)` by one member alone.

        Of `(sets, n, in)` members see different rows: member i those of set i modulo `sets`.
        """
        layers = in_pairs(self.layers)
        if member is not None:
            one = slice(member, member + 1)
            layers = [(weight[one], bias[one]) for weight, bias in layers]
        members = len(layers[0][0])
        if x.dim() == 3:
            out = x.expand(members // len(x), *x.shape).flatten(0, 1)
        else:
            out = x.expand(members, *x.shape)
        *hidden, (weight, bias) = layers
        for inner, shift in hidden:
            out = torch.baddbmm(shift, out, inner.mT).relu_()
        return torch.baddbmm(bias, out, weight.mT)

    def narrowed(self, outputs: int) -> MLP:
        """The same networks with their first `outputs` only; they share their weights."""
        narrow = MLP((*self.sizes[:-1], 0), self.members)
        narrow.sizes = (*self.sizes[:-1], outputs)
        weight, bias = self.layers[-2].data[:, :outputs], self.layers[-1].data[..., :outputs]
        shared = [*(layer.data for layer in self.layers[:-2]), weight, bias]
        narrow.layers = nn.ParameterList(nn.Parameter(layer) for layer in shared)
        return narrow.requires_grad_(False)


class Table(nn.Module):
    """Numbers that are learned as they are, such as a temperature."""

    def __init__(self, values: Tensor) -> None:
        super().__init__()
        self.values = nn.Parameter(values)

    def forward(self) -> Tensor:
        """The numbers."""
        return self.values


@torch.no_grad()
def draw_weights(
    layers: Iterable[Tensor], sizes: Sequence[int], generator: torch.Generator
) -> None:
    """Draw weights and biases of layers with so many inputs, as `torch.nn.Linear` does."""
    for index, parameter in enumerate(layers):
        bound = sizes[index // 2] ** -0.5
        parameter.uniform_(-bound, bound, generator=generator)


def minimise(adam: torch.optim.Adam, loss: Tensor) -> None:
    """Descend along the gradient of `loss`; no other network's gradients are computed."""
    descend(adam, torch.autograd.grad(loss, adam.param_groups[0]["params"]))


def descend(adam: torch.optim.Adam, gradients: Iterable[Tensor]) -> None:
    """Take a step along gradients of the optimiser's parameters, in their order."""
    for parameter, gradient in zip(adam.param_groups[0]["params"], gradients, strict=True):
        parameter.grad = gradient.contiguous()  # the fused step reads memory as if it were so
    adam.step()
