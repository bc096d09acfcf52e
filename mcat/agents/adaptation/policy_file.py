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
from mcat.provenance import provenance


def save_adapted(path: Path, actor: MLP, config: AdaptConfig, facts: dict[str, Any]) -> None:
    """Write an actor: as a policy of its task, or as one of a machine that mcat cannot simulate.

    Args:
        path: The file; an earlier one is replaced.
        actor: It takes observations as they come.
        config: The settings of the run.
        facts: What else the file says.
    """
    metadata = {**facts, "seed": config.seed, **provenance()}
    if config.task is not None:
        save_policy(path, actor, config.task, metadata, overwrite=True)
        return
    arrays = [parameter.detach().numpy()[0] for parameter in actor.layers]
    layers = [(weight, bias[0]) for weight, bias in zip(arrays[::2], arrays[1::2], strict=True)]
    edge = np.ones(actor.sizes[-1], np.float32)
    network = layered(layers, "relu")
    policy = ImportedPolicy(
        network, Bounds(-edge, edge), activation="relu", squashed=True, metadata=metadata
    )
    policy.save(path, overwrite=True)
