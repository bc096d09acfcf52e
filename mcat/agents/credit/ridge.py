"""Credit in closed form: the rewards of single steps from sums, by ridge regression.

The rewards of most robots are nearly linear in φ = (s, a, s' - s, a²). If r̂ = w·φ + b, then the
mean of φ over a paid segment explains the payment per step, so w follows from as many equations as
there were payments. All steps count, nothing is sampled, and a few dozen payments are enough where
a network would learn them by heart.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mcat.agents.credit.segments import Segments
from mcat.datasets.checks import CONSTANT
from mcat.datasets.views import Episodes
from mcat.errors import UsageError

PENALTIES = np.logspace(-6, 1, 22)  # candidates for λ, per payment
LEAST_PAYMENTS = 3  # to leave one out
CHUNK = 20_000  # transitions turned into φ at once

Doubles = NDArray[np.float64]


class RidgeCredit:
    """The payments of all segments so far, and the r̂(s, a, s') that fits them best.

    Attributes:
        features: Numbers in φ.
        unexplained: Leave-one-out error of the payments per step, as a fraction of their variance:
            0 if r̂ foretells each payment from the others, 1 if it tells nothing.
    """

    def __init__(self, observation_size: int, action_size: int) -> None:
        self.features = 2 * (observation_size + action_size)
        self._means: list[Doubles] = []  # of φ over each paid segment
        self._step_rewards: list[float] = []  # payment per step
        # Of φ over single steps, paid or not: their number, sum and sum of squares.
        self._steps, self._sum = 0, np.zeros(self.features)
        self._squares = np.zeros(self.features)
        self._weights, self._bias = np.zeros(self.features), 0.0
        self.unexplained = float("nan")

    def __len__(self) -> int:
        return len(self._step_rewards)

    def add(self, episodes: Episodes, segments: Segments) -> None:
        """Take in new episodes and those of their segments that were paid."""
        for phi in _chunks(episodes):
            self._steps += len(phi)
            self._sum += phi.sum(axis=0)
            self._squares += np.square(phi).sum(axis=0)
        for start, length, reward in zip(
            segments.starts, segments.lengths, segments.step_rewards, strict=True
        ):
            rows = np.arange(start, start + length)
            self._means.append(_phi(episodes, rows).mean(axis=0))
            self._step_rewards.append(float(reward))

    def arrays(self) -> dict[str, NDArray[np.float64]]:
        """All that was taken in and found, by name: for a checkpoint."""
        return {
            "means": np.array(self._means).reshape(len(self), self.features),
            "wages": np.array(self._step_rewards, dtype=np.float64),
            "steps": np.array([float(self._steps)]),
            "sum": self._sum,
            "squares": self._squares,
            "weights": self._weights,
            "bias": np.array([self._bias]),
        }

    def load_arrays(self, arrays: Mapping[str, NDArray[np.float64]]) -> None:
        """Take over what `arrays` gave."""
        self._means, self._step_rewards = list(arrays["means"]), arrays["wages"].tolist()
        self._steps, self._bias = int(arrays["steps"][0]), float(arrays["bias"][0])
        self._sum, self._squares = arrays["sum"].copy(), arrays["squares"].copy()
        self._weights = arrays["weights"].copy()

    def fit(self) -> None:
        """Find the r̂ whose leave-one-out error is smallest.

        Raises:
            UsageError: if there are too few payments to leave one out.
        """
        if len(self) < LEAST_PAYMENTS:
            raise UsageError(f"cannot learn credit from {len(self)} payments: at least 3 it takes")
        mean = self._sum / self._steps
        spread = np.sqrt(np.maximum(self._squares / self._steps - mean**2, 0))
        spread[spread < CONSTANT] = 1.0
        x, y = (np.array(self._means) - mean) / spread, np.array(self._step_rewards)
        x_mean, y_mean = x.mean(axis=0), y.mean()
        weights, _, error = ridge(x - x_mean, y - y_mean)
        self.unexplained = error / max(float(y.var()), 1e-12)
        self._weights = weights / spread
        self._bias = float(y_mean - weights @ x_mean - self._weights @ mean)

    def rewards(self, obs: Tensor, action: Tensor, next_obs: Tensor) -> Tensor:
        """r̂ `(n, 1)` of transitions, observations without context."""
        phi = features(obs.numpy(), action.numpy(), next_obs.numpy())
        return torch.from_numpy((phi @ self._weights + self._bias).astype(np.float32))[:, None]

    def rewards_of(self, episodes: Episodes) -> NDArray[np.float32]:
        """r̂ of every transition."""
        parts = [phi @ self._weights + self._bias for phi in _chunks(episodes)]
        return np.concatenate(parts).astype(np.float32)


def ridge(x: Doubles, y: Doubles) -> tuple[Doubles, float, float]:
    """The weights of centred inputs `(n, p)` for centred outputs, with the λ that foretells best.

    For each λ the error of foretelling every output from the others is had from one decomposition:
    a residual divided by 1 - h, where h is the row's own leverage; centring took 1/n of it.

    Returns:
        Weights `(p,)`, λ per row, and the mean squared leave-one-out error.
    """
    n = len(y)
    u, s, vt = np.linalg.svd(x, full_matrices=False)
    explained = u.T @ y
    best = float("inf"), PENALTIES[-1]
    for penalty in PENALTIES:
        kept = s**2 / (s**2 + n * penalty)
        leverage = np.square(u) @ kept + 1 / n
        error = float(np.square((y - u @ (kept * explained)) / (1 - leverage)).mean())
        best = min(best, (error, penalty))
    error, penalty = best
    weights: Doubles = vt.T @ (s / (s**2 + n * penalty) * explained)
    return weights, float(penalty), error


def features(
    obs: NDArray[np.floating], action: NDArray[np.floating], next_obs: NDArray[np.floating]
) -> Doubles:
    """φ = (s, a, s' - s, a²) `(n, 2 obs + 2 act)`."""
    columns = (obs, action, next_obs - obs, np.square(action))
    return np.concatenate(columns, axis=1).astype(np.float64)


def _phi(episodes: Episodes, indices: NDArray[np.int64]) -> Doubles:
    batch = episodes.transitions(indices)
    return features(batch.observations, batch.actions, batch.next_observations)


def _chunks(episodes: Episodes) -> list[Doubles]:
    rows = np.arange(len(episodes))
    return [_phi(episodes, part) for part in np.split(rows, range(CHUNK, len(rows), CHUNK))]
