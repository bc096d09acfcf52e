"""Multilayer perceptrons kept in one flat buffer, and the Adam that steps it.

All weights of a network, or of an ensemble of them, lie in one contiguous tensor, so that Adam,
the soft target update and a checkpoint are a few vector operations instead of a loop over layers.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim.adam import adam


def keep_freed_memory() -> None:
    """Make glibc keep the memory of activations from one update to the next.

    It hands freed memory back to the system above a threshold, and each page then costs a fault to
    get again: about 5 % of an update. The threshold follows the largest block freed so far.
    """
    torch.empty(31 << 20, dtype=torch.uint8)


class _Layers(torch.autograd.Function):
    """Linear layers with ReLU between them, for all members of an ensemble at once.

    The same numbers as a chain of torch operations would give, in fewer and faster ones: ReLU
    works in place, its gradient is a product, and weight gradients are computed in the orientation
    that BLAS is fast in (the wide side last).
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, *parameters: Tensor) -> Tensor:
        weights, biases = parameters[::2], parameters[1::2]
        inputs = [x]
        for weight, bias in zip(weights[:-1], biases[:-1], strict=True):
            inputs.append(torch.baddbmm(bias, inputs[-1], weight.mT).clamp_(min=0))
        ctx.save_for_backward(*weights, *inputs)
        return torch.baddbmm(biases[-1], inputs[-1], weights[-1].mT)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors
        depth = len(saved) // 2
        weights, inputs = saved[:depth], saved[depth:]
        wants_input, wants_weights = ctx.needs_input_grad[:2]
        found: list[Tensor | None] = []
        for layer in reversed(range(depth)):
            x, weight = inputs[layer], weights[layer]
            if wants_weights:
                wide_input = weight.shape[2] >= weight.shape[1]
                product = gradient.mT.bmm(x) if wide_input else x.mT.bmm(gradient).mT
                found[:0] = [product, gradient.sum(1, keepdim=True)]
            else:
                found[:0] = [None, None]
            if layer > 0:
                gradient = gradient.bmm(weight).mul_(x.sign())
            elif wants_input:
                return gradient.bmm(weight), *found
        return None, *found


def parameter_shapes(sizes: Sequence[int], members: int) -> list[tuple[int, int, int]]:
    """Of weight (as in `torch.nn.Linear`) and bias, layer by layer."""
    return [
        shape
        for inputs, outputs in itertools.pairwise(sizes)
        for shape in ((members, outputs, inputs), (members, 1, outputs))
    ]


class MLP:
    """`members` networks of one shape, applied together, with ReLU between the layers.

    Args:
        sizes: Layer widths, input first and output last.
        members: How many networks the ensemble has.
        generator: Draws the initial weights as `torch.nn.Linear` does; None leaves zeros.
    """

    def __init__(
        self, sizes: Sequence[int], members: int, generator: torch.Generator | None = None
    ) -> None:
        self.sizes, self.members = tuple(sizes), members
        shapes = parameter_shapes(sizes, members)
        lengths = [math.prod(shape) for shape in shapes]
        self.flat = torch.zeros(sum(lengths))
        parts = torch.split(self.flat, lengths)
        self.parameters = [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]
        if generator is not None:
            for index, parameter in enumerate(self.parameters):
                bound = self.sizes[index // 2] ** -0.5
                parameter.uniform_(-bound, bound, generator=generator)

    def __call__(self, x: Tensor) -> Tensor:
        """Map `(n, in)` to `(members, n, out)`."""
        out: Tensor = _Layers.apply(x.expand(self.members, *x.shape), *self.parameters)  # type: ignore[no-untyped-call]
        return out

    def copy(self) -> MLP:
        """An independent copy that asks for no gradients."""
        twin = MLP(self.sizes, self.members)
        twin.flat.copy_(self.flat)
        return twin

    def constant(self, member: int) -> MLP:
        """One network of the ensemble: it shares the weights but never gets gradients."""
        view = MLP.__new__(MLP)
        view.sizes, view.members, view.flat = self.sizes, 1, self.flat
        view.parameters = [p.detach()[member : member + 1] for p in self.parameters]
        return view

    def track(self, other: MLP, rate: float) -> None:
        """Move the weights a fraction `rate` of the way to `other`'s (the soft target update)."""
        self.flat.lerp_(other.flat, rate)


class Adam:
    """Adam (Kingma and Ba 2015, torch's defaults) on the flat weights of one network."""

    def __init__(self, network: MLP, learning_rate: float) -> None:
        self.network = network
        self.learning_rate = learning_rate
        self.steps = torch.zeros(())
        self.mean = torch.zeros_like(network.flat)
        self.square = torch.zeros_like(network.flat)
        for parameter in network.parameters:
            parameter.requires_grad_()

    def minimise(self, loss: Tensor) -> None:
        """Descend along the gradient of `loss`; no other network's gradients are computed."""
        gradients = torch.autograd.grad(loss, self.network.parameters)
        with torch.no_grad():
            adam(
                [self.network.flat],
                [torch.cat([gradient.flatten() for gradient in gradients])],
                [self.mean],
                [self.square],
                [],
                [self.steps],
                fused=True,
                amsgrad=False,
                beta1=0.9,
                beta2=0.999,
                lr=self.learning_rate,
                weight_decay=0.0,
                eps=1e-8,
                maximize=False,
            )
