"""Updates of π(s, z) and its critics from episodes, past and present (the paper's Algorithm 2).

C does not change while the policy learns, so z_t of every stored step is computed once per
iteration: the numbers are those that encoding each batch anew would give, for a fraction of the
cost. No gradient reaches C (docs/decisions.md#contexts-of-the-policy).
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from mcat.agents.credit.credit import Credit
from mcat.agents.learner import Batch, Imitation, Learner
from mcat.agents.meta.multistep import RunningRows, look_ahead
from mcat.agents.policies.context_policy import ContextPolicy
from mcat.agents.sil import SelfImitation
from mcat.datasets.rollout import Taken
from mcat.datasets.views import Episodes
from mcat.translator.windows import past_of

LOSSES = ("critic", "actor", "imitation", "credit")
CREDIT = ("credit/unexplained", "credit/linear")
NOTHING = float("nan")  # logged where nothing was learned
CHUNK = 4096  # histories encoded at once
SCALE_ROWS = 10_000  # rewards enough to tell their mean and spread


class PolicyUpdates:
    """The updates of one round: after it, or step by step while it is collected.

    Args:
        learner: π and its critics, whose observations are states with contexts.
        policy: Encodes the contexts.
        replay: B, what to learn from.
        imitation: D; None for no self-imitation.
        credit: How payments are put down to steps.
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
        rng: np.random.Generator,
        batch_size: int,
        scale_rewards: bool = False,
        td_steps: int = 1,
        discount: float = 1.0,
        room: int = 0,
    ) -> None:
        self._learner, self._imitation = learner, imitation
        self._credit, self._rng, self._batch_size = credit, rng, batch_size
        self._states = replay.observation_size
        self._imitated = encode_all(policy, imitation.episodes) if imitation else torch.zeros(0)
        credit.begin(replay)
        rows = replay.transitions(np.arange(len(replay)))
        obs, action, reward, next_obs, terminal = map(torch.from_numpy, rows[1:])
        # A network's are another one after every step: `_draw` asks for them.
        self._asks = credit.used == "learned"
        reward = reward[:, None] if self._asks else credit.rewards()
        stored = _rows(obs, action, reward, next_obs, terminal, encode_all(policy, replay))
        self._rows = _with_room(room, stored)
        self._count = len(replay)  # rows in use
        self._mean, self._spread = 0.0, 1.0
        if scale_rewards:
            endless = not replay.terminals.any()
            self._mean, self._spread = self._reward_scale(centred=endless)
        self._running: RunningRows | None = None
        if not self._asks:
            self._rows = self._rows._replace(reward=self._scaled(self._rows.reward))
            if td_steps > 1:
                look_ahead(self._rows, replay.lengths, td_steps, discount, self._states)
                self._running = RunningRows(td_steps, discount, self._states)
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
        rows = torch.from_numpy(taken.running.nonzero()[0])
        self.seen += len(rows)
        if not self._credit.at_once:
            return
        obs, action, received, next_obs, terminal = (
            torch.from_numpy(np.asarray(column, np.float32))[rows] for column in taken[:5]
        )
        reward = self._credit.estimate(obs, action, next_obs, received[:, None])
        reward = reward if self._asks else self._scaled(reward)
        new = _rows(obs, action, reward, next_obs, terminal, contexts[rows])
        places = slice(self._count, self._count + len(rows))
        for column, values in zip(self._rows, new, strict=True):
            column[places] = values
        if self._running is not None:
            self._running.extend(self._rows, self._count, rows.tolist())
        self._count += len(rows)

    @property
    def means(self) -> dict[str, float]:
        """The mean losses by name."""
        return dict(zip(LOSSES, (self.sums / max(self.done, 1)).tolist(), strict=True))

    def _scaled(self, reward: Tensor) -> Tensor:
        """Rewards in the learner's units."""
        return (reward - self._mean) / self._spread

    def _draw(self, size: int) -> Batch:
        """Transitions of all tasks, with rewards as credited, in the learner's units."""
        indices = torch.from_numpy(self._rng.integers(self._count, size=size))
        batch = Batch(*(column[indices] for column in self._rows))
        if not self._asks:
            return batch
        obs, next_obs = (x[:, : self._states] for x in (batch.obs, batch.next_obs))
        reward = self._credit.estimate(obs, batch.action, next_obs, batch.reward)
        return batch._replace(reward=self._scaled(reward))

    def _reward_scale(self, *, centred: bool) -> tuple[float, float]:
        """Mean and spread of the rewards; 0 for the mean where subtracting it would mislead."""
        drawn = self._draw(SCALE_ROWS).reward.double()
        mean = float(drawn.mean()) if centred and self._imitation is None else 0.0
        return mean, max(float(drawn.std()), 1e-6)

    def _imitation_rows(self, memory: SelfImitation) -> tuple[np.ndarray, Imitation]:
        """Steps of D drawn by priority, with the returns as they were received."""
        indices, weights = memory.sample(self._rng, memory.config.batch_size)
        rows = memory.episodes.transitions(indices)
        return indices, Imitation(
            obs=torch.cat((torch.from_numpy(rows.observations), self._imitated[indices]), 1),
            action=torch.from_numpy(rows.actions),
            returns=torch.from_numpy(memory.returns[indices])[:, None] / self._spread,
            weights=torch.from_numpy(weights.astype(np.float32))[:, None],
            share=memory.config.weight,
        )


def _rows(
    obs: Tensor,
    action: Tensor,
    reward: Tensor,
    next_obs: Tensor,
    terminal: Tensor,
    contexts: Tensor,
) -> Batch:
    """Transitions, each with its z_t, which also goes with s_{t+1} (Algorithm 2, line 2)."""
    return Batch(
        obs=torch.cat((obs, contexts), 1),
        action=action,
        reward=reward,
        next_obs=torch.cat((next_obs, contexts), 1),
        terminal=terminal[:, None],
    )


def _with_room(room: int, rows: Batch) -> Batch:
    """The same rows, with so many empty ones behind them."""
    return Batch(*(torch.cat((x, x.new_empty(room, x.shape[1]))) for x in rows)) if room else rows


def encode_all(policy: ContextPolicy, episodes: Episodes) -> Tensor:
    """The context of every step `(len, Z)` that the policy would act on under the present C."""
    chunks = np.split(np.arange(len(episodes)), range(CHUNK, len(episodes), CHUNK))
    contexts = torch.cat([policy.encode(past_of(episodes, c, policy.history)) for c in chunks])
    if policy.averaged:
        for own in torch.split(contexts, episodes.lengths.tolist()):
            own.copy_(own.cumsum(0) / torch.arange(1, len(own) + 1)[:, None])
    return contexts
