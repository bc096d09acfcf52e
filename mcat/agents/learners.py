"""The learner to which given numbers belong."""

from __future__ import annotations

import torch

from mcat.agents.configs import CrossQConfig, SACConfig, TD3Config
from mcat.agents.crossq import CrossQ
from mcat.agents.learner import Learner
from mcat.agents.sac import SAC
from mcat.agents.td3 import TD3


def make_learner(
    numbers: CrossQConfig | SACConfig | TD3Config,
    obs_size: int,
    act_size: int,
    generator: torch.Generator,
    context_size: int = 0,
) -> Learner:
    """A new learner, its weights drawn by `generator`; observations may end with a context."""
    if isinstance(numbers, TD3Config):
        return TD3(obs_size, act_size, numbers, generator)
    if isinstance(numbers, SACConfig):
        return SAC(obs_size, act_size, numbers, generator, context_size)
    return CrossQ(obs_size, act_size, numbers, generator, context_size)
