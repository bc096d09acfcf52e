"""Which graph does what a policy does: of ours, imported ones, and those behind a translator."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from torch import Tensor, nn

from mcat.agents.networks import MLP
from mcat.agents.policies.context_policy import ContextPolicy
from mcat.agents.policies.foreign.bounds import Bounds
from mcat.agents.policies.foreign.graph import ACTION, OBSERVATION, Graph
from mcat.agents.policies.foreign.imported import ImportedPolicy, Scaling
from mcat.agents.policies.policy import Policy
from mcat.datasets.cards import Card, Limits
from mcat.errors import UsageError
from mcat.translator.cycle.pair import CycleTranslator
from mcat.translator.cycle.spaces import SpacesCycleTranslator
from mcat.translator.fit import LearnedTranslator
from mcat.translator.networks import Normaliser
from mcat.translator.policy import TransferredPolicy, Translator
from mcat.translator.state.hand_maps import INSIDE
from mcat.translator.state.translator import StateTranslator

Exportable = Policy | ImportedPolicy | ContextPolicy | TransferredPolicy


def draw(policy: Exportable) -> Graph:
    """The graph that does what `policy` does.

    Raises:
        UsageError: if it is made of something that has no graph, such as code.
    """
    graph = Graph()
    if isinstance(policy, ContextPolicy):
        _context(graph, policy)
        return graph
    if isinstance(policy, TransferredPolicy):
        translator = policy.translator
        obs = graph.take(OBSERVATION, translator.observation_size)
        action = _translated(graph, translator, policy.policy, obs)
        action = _from_unit(graph, translator.target_card, action)
        graph.give(ACTION, action, translator.action_size)
        return graph
    obs = graph.take(OBSERVATION, policy.observation_size)
    graph.give(ACTION, _memoryless(graph, policy, obs), policy.action_size)
    return graph


def _memoryless(graph: Graph, policy: object, obs: str) -> str:
    if isinstance(policy, Policy):
        return graph.op("Tanh", _actor(graph, policy.actor, obs))
    if isinstance(policy, ImportedPolicy):
        return _imported(graph, policy, obs)
    raise UsageError(f"a policy of mcat or an imported one can be exported, not {policy!r:.80}")


def _actor(graph: Graph, actor: MLP, x: str) -> str:
    """The layers of an ensemble's first member."""
    layers = [parameter[0] for parameter in actor.layers]
    *hidden, last = zip(layers[::2], layers[1::2], strict=True)
    for weight, bias in hidden:
        x = graph.op("Relu", graph.linear(x, weight, bias[0]))
    return graph.linear(x, last[0], last[1][0])


def _imported(graph: Graph, policy: ImportedPolicy, obs: str) -> str:
    if policy.scaling is not None:
        clip = policy.scaling.clip
        obs = graph.clip(_normal(graph, policy.scaling, obs), -clip, clip)
    action = graph.network(policy.network, obs)
    low, high = policy.bounds
    if policy.squashed:
        action = _stretched(graph, graph.op("Tanh", action), policy.bounds)
    return graph.clip(action, low, high)


def _context(graph: Graph, policy: ContextPolicy) -> None:
    """π(s, z_t) with its window: first what the last step led to, then z, then the action."""
    states, actions, history = policy.observation_size, policy.action_size, policy.history
    obs = graph.take(OBSERVATION, states)
    last = graph.recall("last_observation", states, holds="the observation of the step before")
    done = graph.recall(
        "last_action",
        actions,
        holds="the action of the step before: put in what was really done if it was another",
    )
    changes = graph.recall("changes", history, states, holds="the changes of the last steps")
    acted = graph.recall("actions", history, actions, holds="the actions of the last steps")
    steps = graph.recall("steps", 1, holds="the steps of this episode so far")

    # At an episode's start nothing has changed yet, whatever the first observation is.
    started = graph.op("Min", steps, graph.constant([1.0]))
    change = graph.op("Mul", graph.op("Sub", obs, last), started)
    changes, acted = _shifted(graph, changes, change), _shifted(graph, acted, done)
    spread = graph.op("Div", changes, graph.constant(policy.spread))
    seen = graph.op("Flatten", graph.concat(spread, acted, axis=2), axis=1)
    context = graph.network(policy.encoder, seen)
    counted = graph.op("Add", steps, graph.constant([1.0]))
    if policy.averaged:
        size = policy.actor.sizes[0] - states
        total = graph.recall("context_sum", size, holds="the sum of contexts of this episode")
        total = graph.op("Add", total, context)
        context = graph.op("Div", total, counted)
    action = graph.op("Tanh", _actor(graph, policy.actor, graph.concat(obs, context)))
    graph.give(ACTION, action, actions)
    kept = {"last_observation": obs, "last_action": action, "changes": changes, "actions": acted}
    kept["steps"] = counted
    if policy.averaged:
        kept["context_sum"] = total
    for name, value in kept.items():
        graph.keep(name, value)


def _shifted(graph: Graph, window: str, newest: str) -> str:
    """A window without its oldest row, with a new one at its end."""
    ends = (graph.constant([number], np.int64) for number in (1, np.iinfo(np.int64).max, 1))
    rest = graph.op("Slice", window, *ends, graph.constant([1], np.int64))
    row = graph.op("Unsqueeze", newest, graph.constant([1], np.int64))
    return graph.concat(rest, row, axis=1)


def _translated(graph: Graph, translator: Translator, policy: object, obs: str) -> str:
    """What a translator makes of a policy's actions, in [-1, 1]."""
    card = translator.source_card
    _require_bounds(policy, card)

    def acted(seen: str) -> str:
        return _to_unit(graph, card, _memoryless(graph, policy, seen))

    if isinstance(translator, LearnedTranslator):
        action = acted(obs)
        return _learned(graph, translator, obs, action)
    if isinstance(translator, CycleTranslator):
        psi, action = translator.networks.psi, acted(obs)
        parts = graph.network(psi.embed_obs, obs), graph.network(psi.embed_action, action)
        return graph.op("Tanh", graph.network(psi.trunk, graph.concat(*parts)))
    if isinstance(translator, StateTranslator):
        maps = translator.maps
        learned = graph.network(maps.state_to_source, _normal(graph, maps.target_scale, obs))
        scale = maps.source_scale
        stretched = graph.op("Mul", learned, graph.constant(scale.std))
        moved = graph.op("Add", graph.linear(obs, maps.guess_state_to_source), stretched)
        moves, still = graph.constant(scale.moves, np.bool_), graph.constant(scale.mean)
        seen = graph.op("Where", moves, moved, still)
        action = acted(seen)
        inputs = graph.concat(_normal(graph, scale, seen), action)
        guess = graph.linear(action, maps.guess_action)
        return graph.clip(graph.op("Add", guess, graph.network(maps.action, inputs)), -1.0, 1.0)
    if isinstance(translator, SpacesCycleTranslator):
        return _cycle_spaces(graph, translator, acted, obs)
    raise UsageError(f"no way to export translators of kind {translator.kind}")


def _learned(graph: Graph, translator: LearnedTranslator, obs: str, action: str) -> str:
    """H. The contexts of both machines are constants, so their part of a sum is a bias."""
    translator.require_usable()
    model, network = translator.model, translator.network
    if not network.config.raw_states:
        scaled = _normal(graph, model.obs_scale, obs)
        obs = graph.op("Mul", scaled, graph.constant(model.shared))
    embedded = [
        graph.network(embed, x) for embed, x in zip(network.embed, (obs, action), strict=False)
    ]
    first, *rest = network.trunk
    assert isinstance(first, nn.Linear)
    width = len(embedded) * network.config.embedding
    bias = first.bias.detach()
    for number, machine in enumerate(translator.contexts):
        known: Tensor = network.embed[2 + number](model.features[machine]).detach()
        start = width + number * network.config.embedding
        bias = bias + first.weight[:, start : start + len(known)].detach() @ known
    out = graph.linear(graph.concat(*embedded), first.weight[:, :width], bias)
    out = graph.network(nn.Sequential(*rest), out)
    if network.config.residual:
        return graph.clip(graph.op("Add", action, out), -1.0, 1.0)
    return graph.op("Tanh", out)


def _require_bounds(policy: object, card: Card | None) -> None:
    """Refuse a policy whose actions may leave the bounds of the translator's source."""
    if not isinstance(policy, ImportedPolicy):
        return
    known = card.limits if card is not None else None
    low, high = (-1.0, 1.0) if known is None else known
    if (policy.bounds.low < low).any() or (policy.bounds.high > high).any():
        told = "[-1, 1]" if known is None else f"{known.low.tolist()} to {known.high.tolist()}"
        raise UsageError(f"a translator takes actions in {told}, and those of this policy are not")


def _to_unit(graph: Graph, card: Card | None, action: str) -> str:
    limits = None if card is None else card.limits
    if limits is None or limits.unit:
        return action
    half = (limits.high - limits.low) / 2
    shifted = graph.op("Sub", action, graph.constant((limits.high + limits.low) / 2))
    return graph.clip(graph.op("Div", shifted, graph.constant(half)), -1.0, 1.0)


def _from_unit(graph: Graph, card: Card | None, action: str) -> str:
    """Actions in the machine's own units, never outside its bounds."""
    limits = None if card is None else card.limits
    if limits is None or limits.unit:
        return action
    return graph.clip(_stretched(graph, action, limits), *limits.inner())


def _stretched(graph: Graph, x: str, limits: Bounds | Limits) -> str:
    """Numbers in [-1, 1], stretched to what lies between the limits."""
    half = graph.op("Mul", x, graph.constant((limits.high - limits.low) / 2))
    return graph.op("Add", half, graph.constant((limits.high + limits.low) / 2))


def _cycle_spaces(
    graph: Graph, translator: SpacesCycleTranslator, acted: Callable[[str], str], obs: str
) -> str:
    states, actions = translator.networks.state_map, translator.networks.to_target
    scale = states.source_scale
    by_hand = _normal(graph, scale, graph.linear(obs, states.hand))
    correction = graph.network(states.correction, _normal(graph, states.target_scale, obs))
    mapped = graph.op("Mul", graph.op("Add", by_hand, correction), graph.constant(scale.moves))
    stretched = graph.op("Mul", mapped, graph.constant(scale.std))
    seen = graph.op("Add", stretched, graph.constant(scale.mean))
    action = acted(seen)
    hand = graph.clip(graph.linear(action, actions.hand), -INSIDE, INSIDE)
    correction = graph.network(actions.correction, action)
    return graph.op("Tanh", graph.op("Add", graph.op("Atanh", hand), correction))


def _normal(graph: Graph, scale: Normaliser | Scaling, x: str) -> str:
    return graph.op(
        "Div", graph.op("Sub", x, graph.constant(scale.mean)), graph.constant(scale.std)
    )
