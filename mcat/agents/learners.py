"""The learner that a configuration asks for."""

from __future__ import annotations

from typing import Protocol

import torch

from mcat.agents.configs import CrossQConfig, LearnerKind, TD3Config
from mcat.agents.crossq import CrossQ
from mcat.agents.learner import Learner
from mcat.agents.td3 import TD3


class LearnerChoice(Protocol):
    """The settings of `mcat train` and `mcat metatrain` that concern the learner."""

    @property
    def learner(self) -> LearnerKind:
        """The name of the learner."""
        ...

    @property
    def td3(self) -> TD3Config:
        """The numbers of TD3, if it is that."""
        ...

    @property
    def crossq(self) -> CrossQConfig:
        """The numbers of CrossQ, if it is that."""
        ...


def make_learner(
    choice: LearnerChoice,
    obs_size: int,
    act_size: int,
    generator: torch.Generator,
    context_size: int = 0,
) -> Learner:
    """A new learner, its weights drawn by `generator`; observations may end with a context."""
    if choice.learner == "td3":
        return TD3(obs_size, act_size, choice.td3, generator)
    return CrossQ(obs_size, act_size, choice.crossq, generator, context_size)
