"""What learns by acting: one task (`single`), all tasks of a family (`meta`), a changed machine.

The learners (`td3`, `crossq`, `sac`) and what they learn from (`replay`, `sil`, `credit`) serve
both. Names are imported on first use, because configurations need no torch.

    from mcat.agents import TrainConfig, load_policy, train
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcat.lazy import on_first_use

if TYPE_CHECKING:
    from mcat.agents.adaptation.config import AdaptConfig, AnchoredConfig
    from mcat.agents.adaptation.run import adapt
    from mcat.agents.configs import (
        CreditConfig,
        CrossQConfig,
        ImitationConfig,
        SACConfig,
        SelectionConfig,
        TD3Config,
    )
    from mcat.agents.credit.credit import Credit
    from mcat.agents.crossq import CrossQ
    from mcat.agents.evaluation import Evaluator, episode_outcomes, run_episodes
    from mcat.agents.meta.config import PRESETS, MCATConfig, MetaTrainConfig
    from mcat.agents.meta.mcat import MCAT
    from mcat.agents.meta.methods.registry import find_method
    from mcat.agents.meta.run import metatrain
    from mcat.agents.policies.context_policy import ContextPolicy
    from mcat.agents.policies.foreign.export import export_onnx
    from mcat.agents.policies.foreign.others import import_policy
    from mcat.agents.policies.names import (
        find_policy,
        open_policy,
        packaged_path,
        packaged_policies,
    )
    from mcat.agents.policies.policy import Policy, load_policy
    from mcat.agents.returns import Returns
    from mcat.agents.sac import SAC
    from mcat.agents.sil import SelfImitation
    from mcat.agents.single.config import TrainConfig
    from mcat.agents.single.run import train
    from mcat.agents.td3 import TD3
    from mcat.agents.trained_run import evaluate_run, open_run

__all__ = [
    "MCAT",
    "PRESETS",
    "SAC",
    "TD3",
    "AdaptConfig",
    "AnchoredConfig",
    "ContextPolicy",
    "Credit",
    "CreditConfig",
    "CrossQ",
    "CrossQConfig",
    "Evaluator",
    "ImitationConfig",
    "MCATConfig",
    "MetaTrainConfig",
    "Policy",
    "Returns",
    "SACConfig",
    "SelectionConfig",
    "SelfImitation",
    "TD3Config",
    "TrainConfig",
    "adapt",
    "episode_outcomes",
    "evaluate_run",
    "export_onnx",
    "find_method",
    "find_policy",
    "import_policy",
    "load_policy",
    "metatrain",
    "open_policy",
    "open_run",
    "packaged_path",
    "packaged_policies",
    "run_episodes",
    "train",
]

__getattr__ = on_first_use(__name__)
