"""Finding, on a changed machine, the action with the same effect as on the old one.

Works from arrays alone: nothing here imports a simulator.

    from mcat.datasets import EpisodeStore
    from mcat.translator import TransferredPolicy, fit_pair
"""

from __future__ import annotations

from mcat.translator.action import ActionConfig
from mcat.translator.context import ContextConfig
from mcat.translator.policy import TransferredPolicy, Translator, fit_pair

__all__ = [
    "ActionConfig",
    "ContextConfig",
    "TransferredPolicy",
    "Translator",
    "fit_pair",
]
