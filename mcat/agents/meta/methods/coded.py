"""Methods that tell SAC by a code, beside the state, which task it acts on."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mcat.agents.learner import Batch, Imitation, Losses
from mcat.agents.meta.methods.multitask import MultiTask
from mcat.agents.policies.coded_policy import ActingCodedPolicy, CodedPolicy
from mcat.agents.policies.inference import Inference
from mcat.agents.sac import SAC
from mcat.datasets.views import Episodes
from mcat.types import PolicyFunction


class Coded(MultiTask):
    """A method with one code for each training task and one for all others."""

    learner: SAC
    # Finds codes in trial episodes, in place of those; None if nothing does.
    inference: Inference | None = None

    @abstractmethod
    def codes(self) -> Tensor:
        """`(tasks, k)`, of the training tasks."""

    def unseen(self) -> Tensor:
        """`(k,)`, of any other: their mean, as 0 everywhere may be like none of them."""
        return self.codes().mean(0)

    def update(self, batch: Batch, imitation: Imitation | None) -> tuple[Losses, Sequence[Tensor]]:
        """SAC's, on states with codes."""
        return self.learner.update(*coded(batch, imitation, self.codes())), ()

    def explore(self, drivers: Sequence[str]) -> PolicyFunction:
        """The stochastic policy, row i with the code of task i."""
        return self.exploring(self.codes())

    def exploring(self, codes: Tensor) -> PolicyFunction:
        """The stochastic policy with these codes, one for each row."""
        known, rng = codes.numpy(), self.rngs["acting"]

        def act(states: NDArray[Any]) -> NDArray[np.float32]:
            rows = np.concatenate((states, known), 1, dtype=np.float32, casting="same_kind")
            shape = len(rows), self.task_set.action_size
            return self.learner.explore(rows, rng.standard_normal(shape, dtype=np.float32))

        return act

    def acting_policy(self, tasks: Sequence[int], trials: Episodes | None) -> ActingCodedPolicy:
        """The means of SAC's policy, with the codes of the rows' tasks."""
        return self.policy.begin(tasks, self.task_set.names, trials)

    @property
    def policy(self) -> CodedPolicy:
        """What a user gets, as it is now."""
        return CodedPolicy(
            self.learner.deployed,
            self.codes(),
            self.unseen(),
            self.task_set.train,
            inference=self.inference,
        )


def coded(
    batch: Batch, imitation: Imitation | None, codes: Tensor
) -> tuple[Batch, Imitation | None]:
    """Rows by task, each with the code of its task behind its states."""
    batch = batch._replace(
        obs=with_codes(batch.obs, codes), next_obs=with_codes(batch.next_obs, codes)
    )
    if imitation is not None:
        imitation = imitation._replace(obs=with_codes(imitation.obs, codes))
    return batch, imitation


def with_codes(states: Tensor, codes: Tensor) -> Tensor:
    """States by task `(tasks, n, S)`, each with the code `(tasks, k)` of its task."""
    return torch.cat((states, codes[:, None].expand(*states.shape[:2], -1)), -1)
