"""Updates of π(s, z) and its critics from episodes, past and present (the paper's Algorithm 2).

C does not change while the policy learns, so z_t of every stored step is computed once per
iteration: the numbers are those that encoding each batch anew would give, for a fraction of the
cost. No gradient reaches C (docs/decisions.md#contexts-of-the-policy).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from mcat.agents.credit.credit import Credit
from mcat.agents.learner import Batch, Imitation, Learner
from mcat.agents.meta.multistep import RunningRows, look_ahead
from mcat.agents.meta.novelty import Novelty
from mcat.agents.meta.rows import SCALE_ROWS, LearningRows, imitation_rows
from mcat.agents.policies.context_policy import ContextPolicy
from mcat.agents.sil import SelfImitation
from mcat.datasets.rollout import Taken
from mcat.datasets.views import Episodes
from mcat.errors import DivergedError
from mcat.translator.windows import past_of

LOSSES = ("critic", "actor", "imitation", "credit")
CREDIT = ("credit/unexplained", "credit/linear")
NOTHING = float("nan")  # logged where nothing was learned
CHUNK = 4096  # histories encoded at once


class PolicyUpdates:
    """The updates of one round: after it, or step by step while it is collected.

    Args:
        learner: π and its critics, whose observations are states with contexts.
        policy: Encodes the contexts.
        replay: B, what to learn from.
        imitation: D; None for no self-imitation.
        credit: How payments are put down to steps.
        novelty: What new places of an object are worth besides; None for nothing.
        rng: Draws the batches.
        batch_size: How many TD rows a batch has.
        scale_rewards: Give the learner rewards in units of their spread and, where no episode ends
            by itself and nothing is imitated, without their mean. That changes no policy's rank.
        td_steps: How many steps a row has, if rewards are known at once.
        discount: γ, for rows of several steps.
        room: How many transitions `see` may add.

    Attributes:
        done: Updates so far.
        sums: The sums of their losses, in the order of `LOSSES`.
        seen: Transitions that happened meanwhile.
    """

    def __init__(
        self,
        learner: Learner,
        policy: ContextPolicy,
        replay: Episodes,
        *,
        imitation: SelfImitation | None,
        credit: Credit,
        novelty: Novelty | None = None,
        rng: np.random.Generator,
        batch_size: int,
        scale_rewards: bool = False,
        td_steps: int = 1,
        discount: float = 1.0,
        room: int = 0,
    ) -> None:
        self._learner, self._imitation = learner, imitation
        self._credit, self._rng, self._batch_size = credit, rng, batch_size
        self._imitated = encode_all(policy, imitation.episodes) if imitation else torch.zeros(0)
        contexts = encode_all(policy, replay)
        self._rows = LearningRows(replay, credit, contexts=contexts, novelty=novelty, room=room)
        if scale_rewards:
            endless = not replay.terminals.any()
            drawn = rng.integers(len(replay), size=SCALE_ROWS)
            self._rows.scale_rewards(drawn, centred=endless and imitation is None)
        self._running: RunningRows | None = None
        if td_steps > 1 and not self._rows.asks:
            states = replay.observation_size
            look_ahead(self._rows.columns, replay.lengths, td_steps, discount, states)
            self._running = RunningRows(td_steps, discount, states)
        self.sums, self.done, self.seen = torch.zeros(len(LOSSES)), 0, 0

    def __call__(self) -> Tensor:
        """One update; returns the losses named in `LOSSES`."""
        credit_loss = self._credit.step(self._rng)
        indices, imitated = np.empty(0, np.int64), None
        if self._imitation is not None and len(self._imitation):
            indices, imitated = self._imitation_rows(self._imitation)
        losses = self._learner.update(self._draw(self._batch_size), imitated)
        if self._imitation is not None and imitated is not None:
            self._imitation.update(indices, losses.gains.numpy())
        found = torch.stack((losses.critic, losses.actor, losses.imitation, credit_loss))
        self.sums += found
        self.done += 1
        return found

    def see(self, taken: Taken, contexts: Tensor) -> None:
        """Take in a step at once, with the contexts it was taken in, if its rewards are known."""
        self.seen += int(taken.running.sum())
        first = self._rows.count
        tasks = self._rows.add(taken, contexts)
        if self._running is not None:
            self._running.extend(self._rows.columns, first, tasks.tolist())

    @property
    def means(self) -> dict[str, float]:
        """The mean losses by name."""
        return dict(zip(LOSSES, (self.sums / max(self.done, 1)).tolist(), strict=True))

    def _draw(self, size: int) -> Batch:
        """Transitions of all tasks, with rewards as credited, in the learner's units."""
        return self._rows.batch(self._rng.integers(self._rows.count, size=size))

    def _imitation_rows(self, memory: SelfImitation) -> tuple[np.ndarray, Imitation]:
        """Steps of D drawn by priority."""
        indices, weights = memory.sample(self._rng, memory.config.batch_size)
        rows = imitation_rows(memory, indices, weights, self._rows.spread)
        return indices, rows._replace(obs=torch.cat((rows.obs, self._imitated[indices]), 1))


def encode_all(policy: ContextPolicy, episodes: Episodes) -> Tensor:
    """The context of every step `(len, Z)` that the policy would act on under the present C."""
    chunks = np.split(np.arange(len(episodes)), range(CHUNK, len(episodes), CHUNK))
    contexts = torch.cat([policy.encode(past_of(episodes, c, policy.history)) for c in chunks])
    if policy.averaged:
        for own in torch.split(contexts, episodes.lengths.tolist()):
            own.copy_(own.cumsum(0) / torch.arange(1, len(own) + 1)[:, None])
    return contexts


def require_finite(names: Sequence[str], sums: Tensor) -> None:
    """Refuse sums of losses that are not; ask at once: the first to go takes the others with it."""
    values = dict(zip(names, sums.tolist(), strict=True))
    for name in ("credit", *names):  # its rewards are in the others
        if not math.isfinite(values[name]):
            raise DivergedError(
                f"the {name.rpartition('/')[2]} loss became {values[name]}: try a lower learning"
                " rate"
            )
