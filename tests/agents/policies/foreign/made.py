"""Policies and translators with random weights, and graphs written by hand."""

import itertools

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper

from mcat.agents.networks import MLP
from mcat.agents.policies.context_policy import ContextPolicy
from mcat.agents.policies.foreign.bounds import Bounds
from mcat.agents.policies.foreign.imported import ImportedPolicy, Scaling, layered
from mcat.agents.policies.policy import Policy
from mcat.envs.tasks import Task
from mcat.translator.action import ActionTranslator
from mcat.translator.configs import ActionConfig, ContextConfig, CycleConfig, SpacesCycleConfig
from mcat.translator.context import ContextModel
from mcat.translator.cycle.pair import CycleNetworks, CycleTranslator
from mcat.translator.cycle.spaces import SpacesCycleTranslator, SpacesNetworks
from mcat.translator.fit import LearnedTranslator
from mcat.translator.networks import Normaliser, mlp
from mcat.translator.state.training import Maps
from mcat.translator.state.translator import StateTranslator

OBS, ACT = 3, 2
SMALL = {"embedding": 6, "hidden": (8,)}


def shaken(module, seed=0):
    """A module whose weights, features and scales are all other than they were."""
    generator = torch.Generator().manual_seed(seed)
    for tensor in (*module.parameters(), *module.buffers()):
        if tensor.dtype.is_floating_point:
            tensor.data.normal_(0, 0.4, generator=generator)
    for part in module.modules():
        if isinstance(part, Normaliser):
            part.std.abs_().add_(0.5)
            part.moves[0] = False
    return module.requires_grad_(False).eval()


def policy(seed=0, sizes=(17, 8, 8, 6), task=None):
    task = task or Task("halfcheetah", armature=0.1)
    return Policy(shaken(MLP(sizes, 1), seed), task, {})


def context_policy(*, averaged=False, activation="relu", history=3, size=4, obs=OBS, act=ACT):
    actor = shaken(MLP((obs + size, 8, act), 1))
    encoder = shaken(mlp(history * (obs + act), (6,), size, activation), 1)
    return ContextPolicy(
        actor,
        encoder,
        torch.linspace(0.1, 0.9, obs),
        history=history,
        activation=activation,
        averaged=averaged,
    )


def imported(
    *, activation="tanh", squashed=True, scaled=False, low=-1.0, high=1.0, sizes=(OBS, 8, ACT)
):
    rng = np.random.default_rng(0)
    layers = [
        (rng.normal(0, 0.5, (o, i)).astype(np.float32), rng.normal(0, 0.5, o).astype(np.float32))
        for i, o in itertools.pairwise(sizes)
    ]
    scaling = Scaling(np.arange(1.0, 1 + sizes[0]), np.full(sizes[0], 0.5), 2.0) if scaled else None
    sides = [np.full(sizes[-1], side, np.float32) for side in (low, high)]
    return ImportedPolicy(
        layered(layers, activation),
        Bounds(*sides),
        activation=activation,
        squashed=squashed,
        scaling=scaling,
    )


def translators():
    """One of every kind, of machines with states of 3 and actions of 2 numbers."""
    config = ContextConfig(context_size=5, history=3, encoder_hidden=(6,), forward_hidden=(6,))
    found = {}
    for name, options, tasks, size in (
        ("pair", {}, 1, 0),
        ("squashed", {"residual": False}, 1, 0),
        ("raw", {"raw_states": True}, 1, 0),
        ("several", {}, 3, 5),
    ):
        model = shaken(ContextModel(OBS, ACT, tasks, config), 1)
        model.shared[:] = torch.tensor([1.0, 0.0, 1.0])
        network = shaken(ActionTranslator(OBS, ACT, ActionConfig(**SMALL, **options), size), 2)
        translator = LearnedTranslator(model, network)
        found[name] = translator.between(2, 0) if size else translator
    cycle = CycleNetworks((OBS, ACT), CycleConfig(embedding=(6, 6), hidden=(8,)))
    found["cycle"] = CycleTranslator(shaken(cycle))
    found["state"] = StateTranslator(shaken(Maps((OBS, ACT), (4, 1), (6,))))
    config = SpacesCycleConfig(embedding=(6, 6), hidden=(8,), state_hidden=(6,), action_hidden=(6,))
    found["cycle-spaces"] = SpacesCycleTranslator(
        shaken(SpacesNetworks((OBS, ACT), (4, 1), config))
    )
    return found


def node(kind, inputs, outputs, **options):
    return helper.make_node(kind, inputs, outputs, **options)


def model(nodes, inputs, outputs, constants=(), *, domain=None):
    """A model of float32 values; `inputs` and `outputs` are names with shapes."""
    sides = [
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in side.items()]
        for side in (inputs, outputs)
    ]
    tensors = [numpy_helper.from_array(np.asarray(v), n) for n, v in dict(constants).items()]
    opsets = [helper.make_opsetid("", 17)] + ([helper.make_opsetid(domain, 1)] if domain else [])
    graph = helper.make_graph(nodes, "g", *sides, tensors)
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def doubling(rows="n", obs=3, act=2):
    """Actions are twice the sum of the first two observations, and half of it plus one."""
    weight = np.zeros((obs, act), np.float32)
    weight[:2, 0], weight[:2, 1] = 2, 0.5
    return model(
        [node("Gemm", ["x", "w", "b"], ["y"])],
        {"x": [rows, obs]},
        {"y": [rows, act]},
        {"w": weight, "b": np.array([0, 1], np.float32)[:act]},
    )


def write(path, proto):
    path.write_bytes(proto.SerializeToString() if isinstance(proto, onnx.ModelProto) else proto)
    return path
