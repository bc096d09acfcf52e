"""Finding, on a changed machine, the action with the same effect as on the old one.

Works from arrays alone: nothing here imports a simulator.

    from mcat.datasets import EpisodeStore
    from mcat.translator import TransferredPolicy, fit_pair
"""

from __future__ import annotations

from mcat.translator.action import ActionConfig
from mcat.translator.context import ContextConfig
from mcat.translator.correspondence import Correspondence
from mcat.translator.cycle import CycleConfig, fit_cycle
from mcat.translator.cycle_spaces import SpacesCycleConfig, fit_cycle_spaces
from mcat.translator.fit import LearnedTranslator, fit_many, fit_pair
from mcat.translator.policy import TransferredPolicy, Translator
from mcat.translator.state import StateConfig, fit_state
from mcat.translator.trust import Trust, estimate_trust

__all__ = [
    "ActionConfig",
    "ContextConfig",
    "Correspondence",
    "CycleConfig",
    "LearnedTranslator",
    "SpacesCycleConfig",
    "StateConfig",
    "TransferredPolicy",
    "Translator",
    "Trust",
    "estimate_trust",
    "fit_cycle",
    "fit_cycle_spaces",
    "fit_many",
    "fit_pair",
    "fit_state",
]
