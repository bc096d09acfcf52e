"""ONNX graphs, written node by node: policies are small networks, and so it takes no time.

Every graph takes `observation` and gives `action`, rows of float32. What a policy remembers comes
in as `NAME_in` and goes out as `NAME_out`, to be handed in at the next step; at an episode's start
all of it is zero.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import onnx
from numpy.typing import ArrayLike
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn

OPSET, IR_VERSION = 17, 8  # of 2022: runtimes on robots are rarely newer
OBSERVATION, ACTION = "observation", "action"
IN, OUT = "_in", "_out"
ROWS = "n"  # how many episodes are in lockstep: any number
_ACTIVATIONS = {nn.ReLU: "Relu", nn.Tanh: "Tanh", nn.ELU: "Elu", nn.LeakyReLU: "LeakyRelu"}


class Memory(NamedTuple):
    """Something that a graph remembers from step to step."""

    name: str  # what it is called, without `_in` and `_out`
    shape: tuple[int, ...]  # of one episode
    holds: str  # what it is, in words


class Graph:
    """A graph in the making; values are known by their names."""

    def __init__(self) -> None:
        self.memory: list[Memory] = []
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[onnx.TensorProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []

    def take(self, name: str, *shape: int) -> str:
        """An input of the graph."""
        self._inputs.append(_rows(name, shape))
        return name

    def give(self, name: str, value: str, *shape: int) -> None:
        """An output of the graph."""
        self._nodes.append(helper.make_node("Identity", [value], [name]))
        self._outputs.append(_rows(name, shape))

    def recall(self, name: str, *shape: int, holds: str) -> str:
        """What was kept at the last step."""
        self.memory.append(Memory(name, shape, holds))
        return self.take(name + IN, *shape)

    def keep(self, name: str, value: str) -> None:
        """Hand something on to the next step."""
        (shape,) = (memory.shape for memory in self.memory if memory.name == name)
        self.give(name + OUT, value, *shape)

    def constant(self, value: Tensor | ArrayLike, dtype: type[Any] = np.float32) -> str:
        """Numbers that do not change."""
        name = f"c{len(self._constants)}"
        array = value.detach().numpy() if isinstance(value, Tensor) else value
        self._constants.append(numpy_helper.from_array(np.array(array, dtype, order="C"), name))
        return name

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """What an operator makes of some values."""
        name = f"v{len(self._nodes)}"
        self._nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def linear(self, x: str, weight: Tensor, bias: Tensor | None = None) -> str:
        """`x @ weight.T`, with the bias added if there is one."""
        constants = [self.constant(part) for part in (weight, bias) if part is not None]
        return self.op("Gemm", x, *constants, transB=1)

    def clip(self, x: str, low: ArrayLike, high: ArrayLike) -> str:
        """`x` between numbers, or between rows of them."""
        return self.op("Min", self.op("Max", x, self.constant(low)), self.constant(high))

    def concat(self, *parts: str, axis: int = 1) -> str:
        """Values side by side."""
        return self.op("Concat", *parts, axis=axis)

    def network(self, module: nn.Module, x: str) -> str:
        """What layers in a row make of `x`."""
        if isinstance(module, nn.Sequential):
            for layer in module:
                x = self.network(layer, x)
            return x
        if isinstance(module, nn.Linear):
            return self.linear(x, module.weight, module.bias)
        if isinstance(module, nn.SiLU):  # ONNX has none
            return self.op("Mul", x, self.op("Sigmoid", x))
        return self.op(_ACTIVATIONS[type(module)], x)

    def model(self, metadata: dict[str, str]) -> onnx.ModelProto:
        """The whole as a file holds it, checked by ONNX's own rules."""
        graph = helper.make_graph(
            self._nodes, "policy", self._inputs, self._outputs, self._constants
        )
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=IR_VERSION,
            producer_name="mcat",
        )
        helper.set_model_props(model, metadata)
        onnx.checker.check_model(model, full_check=True)
        return model


def _rows(name: str, shape: tuple[int, ...]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, [ROWS, *shape])
