"""The formulas of the methods, apart from what learns by them.

PEARL       `kl_to_prior`; the rest is in `policies.inference`
PCGrad      `project`, and its parts
Distral     `distral_cost`
HiP-BMDP    `metric_loss`
MQL         `Propensity`, `normalised_ess`, `proximity`
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

LEAST_ODDS = 0.1  # below that a row does not count
NEWTON_STEPS = 50


# --- PEARL: what a task is, given rows of it ----------------------------------------------------


def kl_to_prior(mean: Tensor, variance: Tensor) -> Tensor:
    """KL(N(mean, variance) ‖ N(0, I)) of each row of `(..., d)`."""
    return ((variance + mean.square() - 1 - variance.log()) / 2).sum(-1)


# --- PCGrad: gradients that disagree ------------------------------------------------------------


def project(gradients: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """The mean of the tasks' gradients `(tasks, n)`, each without what is against another.

    Args:
        gradients: One row per task.
        generator: Draws the orders in which the others are looked at.

    Returns:
        The mean `(n,)`, and whether any two disagreed.
    """
    gram = gradients @ gradients.T
    shares = projections(gram, random_orders(len(gradients), generator))
    return shares.mean(0).to(gradients.dtype) @ gradients, (gram < 0).any()


def random_orders(tasks: int, generator: torch.Generator) -> Tensor:
    """`(tasks, tasks - 1)`: for each task all others, in an order of its own."""
    keys = torch.rand(tasks, tasks, generator=generator).fill_diagonal_(2)  # itself last
    return keys.argsort(1)[:, : tasks - 1]


def projections(gram: Tensor, orders: Tensor) -> Tensor:
    """What projected gradients are made of: row i has the share of each task's gradient in g_i.

    g ← g - (g·g_j / |g_j|²) g_j wherever g·g_j < 0, for the others j in turn, as they were. All
    products follow from those of the gradients themselves, so that none of their length is made.

    Args:
        gram: `(tasks, tasks)`, the products g_i·g_j.
        orders: `(tasks, tasks - 1)`, in which order the others are looked at.
    """
    gram = gram.double()
    tasks = torch.arange(len(gram))
    shares = torch.eye(len(gram), dtype=gram.dtype)
    for other in orders.T:  # one for each task
        product = (shares * gram[other]).sum(1)
        square = gram[other, other]
        against = (product < 0) & (square > 0)
        shares[tasks, other] -= torch.where(against, product / square, 0.0)
    return shares


# --- Distral: policies that are drawn to one ----------------------------------------------------


def distral_cost(own: Tensor, distilled: Tensor, *, alpha: float, beta: float) -> Tensor:
    """(1/β) log π_i - (α/β) log π0, what an action costs beside what it earns.

    A value is min Q' minus it. It is a share α of relative and 1 - α of plain entropy.
    """
    return (own - alpha * distilled) / beta


# --- HiP-BMDP: tasks as far apart as their effects ----------------------------------------------


def metric_loss(own: Tensor, other: Tensor, effect: Tensor, otherwise: Tensor) -> Tensor:
    """The mean over rows of (|θ_i - θ_j| - |m(θ_i) - m(θ_j)|)², with a gradient for θ alone.

    Args:
        own: `(n, k)`, θ of each row's task.
        other: `(n, k)`, θ of another task.
        effect: `(n, d)`, what the model says will happen.
        otherwise: `(n, d)`, what it would say of the other task.
    """
    return (_norm(own - other) - _norm(effect - otherwise).detach()).square().mean()


def _norm(x: Tensor) -> Tensor:
    """Euclidean, of each row; its gradient at 0 is 0."""
    return (x.square().sum(-1) + 1e-12).sqrt()


# --- MQL: how much old rows tell of a new task --------------------------------------------------


class Propensity(NamedTuple):
    """A logistic regression that tells old rows from new ones."""

    mean: Tensor  # of the old rows' features
    spread: Tensor  # of the same; 1 where all are equal
    weight: Tensor  # of features in these units
    bias: Tensor  # the logit of "old" of a row with the mean features

    @classmethod
    def fit(cls, new: Tensor, old: Tensor, inverse_penalty: float) -> Propensity:
        """Tell rows `old` of features `(n, d)` from rows `new`.

        Args:
            new: Of the new task.
            old: Of what was seen before.
            inverse_penalty: C; the larger, the less weights are kept small.
        """
        new, old = new.detach().double(), old.detach().double()
        mean, spread = old.mean(0), old.std(0, correction=0)
        spread = torch.where(spread > 0, spread, 1.0)
        rows = (torch.cat((old, new)) - mean) / spread
        signs = torch.ones(len(rows), dtype=rows.dtype)
        signs[len(old) :] = -1
        return cls(mean, spread, *logistic_regression(rows, signs, inverse_penalty))

    def logits(self, rows: Tensor) -> Tensor:
        """f(x) `(n,)`, how much rows look like old ones."""
        return (rows.detach().double() - self.mean) / self.spread @ self.weight + self.bias

    def odds(self, rows: Tensor, clip: float) -> Tensor:
        """The odds β `(n,)` that rows are of the new task, at most e^`clip`."""
        return odds_of_new(self.logits(rows), clip).to(rows.dtype)


def odds_of_new(logits: Tensor, clip: float) -> Tensor:
    """β = exp(-max(f, -clip)), and 0 where that is less than `LEAST_ODDS`."""
    odds = (-logits.clamp(min=-clip)).exp()
    return torch.where(odds < LEAST_ODDS, 0.0, odds)


def logistic_regression(
    rows: Tensor, signs: Tensor, inverse_penalty: float
) -> tuple[Tensor, Tensor]:
    """Weights w and bias b that minimise ½|w|² + C Σ log(1 + exp(-y (w·x + b))), by Newton steps.

    Args:
        rows: `(n, d)`, the x.
        signs: `(n,)`, the y: 1 or -1.
        inverse_penalty: C.
    """
    rows = torch.cat((rows, rows.new_ones(len(rows), 1)), 1)
    penalty = rows.new_ones(rows.shape[1])
    penalty[-1] = 0  # the bias is free
    found = torch.zeros_like(penalty)

    def loss(at: Tensor) -> Tensor:
        misses = functional.softplus(-signs * (rows @ at)).sum()
        return (penalty * at.square()).sum() / 2 + inverse_penalty * misses

    for _ in range(NEWTON_STEPS):
        wrong = torch.sigmoid(-signs * (rows @ found))  # the chance given to the other class
        slope = penalty * found - inverse_penalty * rows.T @ (signs * wrong)
        curve = inverse_penalty * (rows.T * (wrong * (1 - wrong))) @ rows
        curve += torch.diag(penalty + 1e-10)  # the bias has none where all rows are sure
        step = torch.linalg.solve(curve, slope)
        size = 1.0
        while loss(found - size * step) > loss(found) and size > 1e-6:
            size /= 2  # far from the minimum a whole step may lead beyond it
        found = found - size * step
        if step.abs().max() < 1e-12:
            break
    return found[:-1], found[-1]


def normalised_ess(weights: Tensor) -> Tensor:
    """(Σβ)² / (n Σβ²): which share of rows counts as much as these weights of all; NaN if none."""
    return weights.sum().square() / (len(weights) * weights.square().sum())


def proximity(weights: Tensor, otherwise: float) -> float:
    """λ = 1 - ESS: the less old rows tell of a task, the closer to where one started.

    Args:
        weights: β of the rows of a batch.
        otherwise: λ where all weights are equal, or all are 0.
    """
    strength = 1 - float(normalised_ess(weights))
    return strength if strength > 1e-7 else otherwise  # NaN is not more either
