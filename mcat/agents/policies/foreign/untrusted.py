"""What an ONNX file may hold before a runtime sees it; whoever made it, nothing else is loaded.

A file can name others to read numbers from, operators whose code lies elsewhere, loops, and tensors
of terabytes in a few bytes. A policy needs none of these: everything is on a list here, and every
size is added up before memory is taken.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import onnx
from google.protobuf.message import DecodeError

from mcat.agents.policies.foreign.onnx_policy import MAX_BYTES
from mcat.errors import DataError, printable
from mcat.safe_io import StrPath

MAX_NODES = 10_000
MAX_NUMBERS = 2**25  # in all values that one observation takes on its way
# Of the standard operators those that make no more of their inputs than shapes tell.
_KNOWN = """
    Abs Acosh Add And ArgMax Asinh Atan Atanh BatchNormalization Cast Ceil Celu Clip Concat
    Constant Cos Div Elu Equal Erf Exp Flatten Floor GRU Gather Gelu Gemm Greater GreaterOrEqual
    HardSigmoid HardSwish Identity IsNaN LSTM LayerNormalization LeakyRelu Less LessOrEqual Log
    LogSoftmax MatMul Max Mean Min Mish Mod Mul Neg Not Or PRelu Pow RNN Reciprocal ReduceL2
    ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum Relu Reshape Round Selu Shape Sigmoid Sign
    Sin Slice Softmax Softplus Softsign Split Sqrt Squeeze Sub Sum Swish Tan Tanh ThresholdedRelu
    Transpose Unsqueeze Where
"""
OPERATORS = frozenset(_KNOWN.split())
_STANDARD = ("", "ai.onnx")


def parse(content: bytes, path: StrPath) -> onnx.ModelProto:
    """The model in some bytes, if it is one that can do no harm.

    Raises:
        DataError: if it is damaged, or holds anything that a policy does not need.
    """
    if len(content) > MAX_BYTES:
        raise DataError(f"{path}: larger than {MAX_BYTES:,} bytes, no policy")
    model = onnx.ModelProto()
    try:
        model.ParseFromString(content)
        reason = _objection(model, len(content))
        if reason is None:
            reason = _too_large(model)
    except (DecodeError, onnx.shape_inference.InferenceError, onnx.checker.ValidationError,
            ValueError, TypeError, RuntimeError, RecursionError) as error:  # fmt: skip
        first = printable(error, 120).strip()
        raise DataError(f"{path}: not a readable ONNX file ({first})") from error
    if reason is not None:
        raise DataError(f"{path}: {printable(reason, 200)}: refused")
    return model


def _objection(model: onnx.ModelProto, size: int) -> str | None:
    """What a policy does not need, if it is in there; nothing is computed here."""
    graph = model.graph
    if not graph.node:
        return "no ONNX file, or one without a graph"
    if len(graph.node) > MAX_NODES:
        return f"{len(graph.node):,} operators, more than {MAX_NODES:,}"
    if model.functions or model.training_info:
        return "it defines functions of its own"
    if graph.sparse_initializer:
        return "it has sparse tensors"
    tensors = list(graph.initializer)
    for node in graph.node:
        if node.domain not in _STANDARD:
            return f"operator {node.op_type} of domain '{node.domain}', not of standard ONNX"
        if node.op_type not in OPERATORS:
            return f"operator {node.op_type}, which no policy needs"
        for attribute in node.attribute:
            if attribute.HasField("g") or attribute.graphs:
                return f"operator {node.op_type} with a graph of its own"
            if attribute.HasField("sparse_tensor") or attribute.sparse_tensors:
                return "it has sparse tensors"
            tensors += [attribute.t] if attribute.HasField("t") else []
            tensors += attribute.tensors
    return _bad_tensor(tensors, size)


def _bad_tensor(tensors: Iterable[onnx.TensorProto], size: int) -> str | None:
    for tensor in tensors:
        if tensor.external_data or tensor.data_location != onnx.TensorProto.DEFAULT:
            return f"tensor '{tensor.name}' is in another file (torch: external_data=False)"
        if any(number < 0 for number in tensor.dims):
            return f"tensor '{tensor.name}' has a negative size"
        if math.prod(tensor.dims) > 8 * size:  # the least that a number takes is a bit
            return f"tensor '{tensor.name}' of shape {list(tensor.dims)} is larger than the file"
    return None


def _too_large(model: onnx.ModelProto) -> str | None:
    """Whether a value on the way of one observation is huge, or of unknown size."""
    alone = onnx.ModelProto()
    alone.CopyFrom(model)
    for value in (*alone.graph.input, *alone.graph.output):
        for dimension in value.type.tensor_type.shape.dim:
            if not dimension.HasField("dim_value"):  # the number of rows, whatever it is called
                dimension.dim_value = 1
    del alone.graph.value_info[:]  # what the file claims of its values
    shaped = onnx.shape_inference.infer_shapes(
        alone, check_type=True, strict_mode=True, data_prop=True
    )
    values = (*shaped.graph.input, *shaped.graph.value_info, *shaped.graph.output)
    shapes = {value.name: value.type.tensor_type for value in values}
    made = [(name, node.op_type) for node in shaped.graph.node for name in node.output if name]
    total = 0
    for name, maker in [(value.name, "an input") for value in shaped.graph.input] + made:
        dimensions = shapes[name].shape.dim if name in shapes else []
        known = name in shapes and shapes[name].HasField("shape")
        if not known or not all(d.HasField("dim_value") and d.dim_value >= 0 for d in dimensions):
            return f"the shape of what {maker} gives cannot be told"
        total += math.prod(dimension.dim_value for dimension in dimensions)
        if total > MAX_NUMBERS:
            return f"values of more than {MAX_NUMBERS:,} numbers"
    return None
