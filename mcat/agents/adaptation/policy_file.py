"""The policy that an adaptation makes: an actor that needs neither translator nor units."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from mcat.agents.adaptation.config import AdaptConfig
from mcat.agents.networks import MLP
from mcat.agents.policies.foreign.bounds import Bounds
from mcat.agents.policies.foreign.imported import ImportedPolicy, layered
from mcat.agents.policies.policy import save_policy
from mcat.datasets.cards import Card
from mcat.provenance import provenance


def save_adapted(
    path: Path, actor: MLP, config: AdaptConfig, facts: dict[str, Any], card: Card | None = None
) -> None:
    """Write an actor: as a policy of its task, or as one of a machine that mcat cannot simulate.

    The latter acts in the machine's own units, as far as a card tells them.
    """
    metadata = {**facts, "seed": config.seed, **provenance()}
    if config.task is not None:
        save_policy(path, actor, config.task, metadata, overwrite=True)
        return
    arrays = [parameter.detach().numpy()[0] for parameter in actor.layers]
    layers = [(weight, bias[0]) for weight, bias in zip(arrays[::2], arrays[1::2], strict=True)]
    edge = np.ones(actor.sizes[-1], np.float32)
    limits = None if card is None else card.limits
    policy = ImportedPolicy(
        layered(layers, "relu"),
        Bounds(-edge, edge) if limits is None else Bounds(*limits.inner()),
        activation="relu",
        squashed=True,
        metadata=metadata | ({} if card is None else card.to_metadata()),
    )
    policy.save(path, overwrite=True)
