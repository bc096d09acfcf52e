"""How MQL adapts copies of its networks to a task, from a trial episode and the replay."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mcat.agents.learner import Batch
from mcat.agents.meta.methods.configs import MQLConfig
from mcat.agents.meta.methods.experience import Experience
from mcat.agents.meta.methods.maths import Propensity, proximity
from mcat.agents.meta.methods.recurrent_td3 import RecurrentTD3
from mcat.agents.recurrent import RecurrentMLP, windows_of
from mcat.datasets.views import Episodes

# Adam begins anew, so that its first steps are of full length: CrossQ's rate is too much for them
# (chosen by returns on training tasks, docs/decisions.md); TD3 adapts at the rate it trains with.
CROSSQ_RATE = 1e-4
RECENT = 2  # rounds of each task that stand for what was seen before


class Adaptation:
    """Makes actors for tasks; neither the learner nor what it learns from changes by it."""

    def __init__(
        self,
        config: MQLConfig,
        learner: RecurrentTD3,
        experience: Experience,
        *,
        delay: int,
        horizon: int,
    ) -> None:
        self._config, self._learner, self._experience = config, learner, experience
        self._delay, self._horizon = delay, horizon

    def actor(self, trial: Episodes, seed: np.random.SeedSequence) -> RecurrentMLP:
        """An actor for the task of a trial; the meta-trained one if that is empty."""
        if not len(trial):
            return self._learner.deployed
        torch_seed, numpy_seed = seed.spawn(2)
        number = int(torch_seed.generate_state(1, np.uint64)[0] >> 1)
        rng, config = np.random.default_rng(numpy_seed), self._config.adapt
        generator = torch.Generator().manual_seed(number)
        rate = CROSSQ_RATE if self._config.learner == "crossq" else None
        learner = self._learner.copied(generator, rate)
        replay = self._experience.replay
        new = self._rows(trial, np.arange(len(trial)))
        propensity = self._propensity(new, rng)
        for _ in range(config.new_updates):
            learner.update(new)
        for _ in range(config.old_updates):
            size = config.old_batches * self._config.batch_size
            old = self._rows(replay, rng.integers(len(replay), size=size))
            odds = propensity.odds(self._features(old), config.clip)
            pull = config.proximity
            if config.by_sample_size:
                pull = proximity(odds, otherwise=pull)
            learner.update(old, weights=odds[:, None], pull=pull)
        return learner.actor

    def _propensity(self, new: Batch, rng: np.random.Generator) -> Propensity:
        """Tells rows of the trial from as many recent ones, evenly of all tasks."""
        replay, tasks = self._experience.replay, self._experience.tasks
        owners = np.repeat(replay.tasks, replay.lengths)
        each = -(-len(new.obs) // tasks)
        last = -RECENT * self._horizon
        recent = [np.flatnonzero(owners == task)[last:] for task in range(tasks)]
        chosen = np.concatenate([rng.choice(rows, each) for rows in recent if len(rows)])
        old = self._features(self._rows(replay, chosen))
        return Propensity.fit(self._features(new), old, self._config.adapt.inverse_penalty)

    @torch.no_grad()
    def _features(self, rows: Batch) -> Tensor:
        """[s, context] of rows, or the context alone."""
        actor = self._learner.deployed
        seen = actor.reader.read(rows.obs)
        states = seen.shape[1] - actor.reader.memory
        return seen if self._config.adapt.with_state else seen[:, states:]

    def _rows(self, episodes: Episodes, numbers: NDArray[np.int64]) -> Batch:
        """Transitions with windows, and with rewards as training has them."""
        batch = self._experience.rows_of(episodes, numbers)
        windows = windows_of(episodes, numbers, self._config.history, self._delay)
        return with_windows(batch, *windows)


def with_windows(batch: Batch, before: Tensor, after: Tensor) -> Batch:
    """Rows whose states have what went before behind them."""
    return batch._replace(
        obs=torch.cat((batch.obs, before), 1), next_obs=torch.cat((batch.next_obs, after), 1)
    )
