"""Finding, on a changed machine, the action with the same effect as on the old one.

Works from arrays alone: nothing here imports a simulator. Names are imported on first use, because
configurations need no torch.

    from mcat.datasets import EpisodeStore
    from mcat.translator import TransferredPolicy, fit_pair

The paper's letters, as comments use them (docs/symbols.md has all of them):

    C, z        context encoder, and the context it finds        context.ContextModel.encode
    F           forward model                                    context.ContextModel.predict
    K, M        steps that C reads, steps that share a context   configs.ContextConfig
    H           action translator                                action.ActionTranslator
    R, λ        reward model, weight of the state beside it      reward.RewardModel
    G, D        state translator, its discriminator              state.training.Maps, adversarial
    F1, Φ, Ψ    the baseline of Zhang et al.                     cycle.pair.CycleNetworks
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcat.lazy import on_first_use

if TYPE_CHECKING:
    from mcat.translator.configs import (
        ActionConfig,
        ContextConfig,
        CycleConfig,
        SpacesCycleConfig,
        StateConfig,
    )
    from mcat.translator.cycle.pair import fit_cycle
    from mcat.translator.cycle.spaces import fit_cycle_spaces
    from mcat.translator.fit import LearnedTranslator, fit_many, fit_pair
    from mcat.translator.grade import Trust
    from mcat.translator.policy import TransferredPolicy, Translator
    from mcat.translator.state.correspondence import Correspondence
    from mcat.translator.state.translator import fit_state
    from mcat.translator.trust import estimate_trust

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

__getattr__ = on_first_use(__name__)
