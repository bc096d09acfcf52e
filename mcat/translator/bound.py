"""How much worse can a transferred policy be? The paper's bounds, exact on tabular MDPs.

For a policy on a source MDP j and one on a target MDP i, the values of corresponding states differ
by at most d/(1 - γ). `theorem_1` and `proposition_1` compare states with themselves (Appendix A);
`theorem_2` and `proposition_2` take a state map G from target to source (Appendix E).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mcat.errors import UsageError

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]


@dataclass(frozen=True)
class TabularMDP:
    """Finitely many states and actions.

    Attributes:
        transitions: p(s' | s, a), of shape (states, actions, states).
        rewards: r(s, a, s'), of the same shape.
        discount: γ < 1.
    """

    transitions: Floats
    rewards: Floats
    discount: float

    def __post_init__(self) -> None:
        p = self.transitions
        if p.ndim != 3 or p.shape[0] != p.shape[2] or self.rewards.shape != p.shape:
            raise UsageError(
                f"transitions and rewards must be (states, actions, states), got {p.shape}"
                f" and {self.rewards.shape}"
            )
        if (p < 0).any() or not np.allclose(p.sum(axis=2), 1.0):
            raise UsageError("transitions must be probabilities that sum to 1 over next states")
        if not 0 <= self.discount < 1:
            raise UsageError(f"discount must be in [0, 1), got {self.discount}")

    def under(self, policy: Indices) -> tuple[Floats, Floats]:
        """p(s' | s) and r(s, s') when acting by a deterministic policy (one action per state)."""
        states = np.arange(len(self.transitions))
        return self.transitions[states, policy], self.rewards[states, policy]

    def values(self, policy: Indices) -> Floats:
        """The value of every state under a policy."""
        p, r = self.under(policy)
        return np.linalg.solve(np.eye(len(p)) - self.discount * p, (p * r).sum(axis=1))


@dataclass(frozen=True)
class Bound:
    """What the theory promises and what is true.

    Attributes:
        d: The largest one-step discrepancy.
        limit: d / (1 - γ), which the difference never exceeds.
        difference: The largest |V_target - V_source| over corresponding states.
    """

    d: float
    limit: float
    difference: float


@dataclass(frozen=True)
class Transfer:
    """A policy on a source MDP j and the one it became on a target MDP i."""

    source: TabularMDP
    target: TabularMDP
    source_policy: Indices
    target_policy: Indices


def theorem_1(transfer: Transfer) -> Bound:
    """Any rewards, equal state spaces; M is the largest |value| of the source policy."""
    return _bound(transfer, _identity(transfer), any_rewards=True, m_of_source=True)


def proposition_1(transfer: Transfer) -> Bound:
    """Rewards r(s, s') that both share: only next-state distributions matter."""
    # docs/decisions.md#the-constant-of-proposition-1
    return _bound(transfer, _identity(transfer), any_rewards=False, m_of_source=True)


def theorem_2(transfer: Transfer, state_map: Indices) -> Bound:
    """Any rewards; state s of the target corresponds to state `state_map[s]` of the source.

    M is the largest |value| of the target policy.
    """
    return _bound(transfer, state_map, any_rewards=True, m_of_source=False)


def proposition_2(transfer: Transfer, state_map: Indices) -> Bound:
    """Rewards r(s, s') that agree on corresponding states."""
    return _bound(transfer, state_map, any_rewards=False, m_of_source=False)


def _identity(transfer: Transfer) -> Indices:
    return np.arange(len(transfer.target.transitions))


def _bound(
    transfer: Transfer, state_map: Indices, *, any_rewards: bool, m_of_source: bool
) -> Bound:
    source, target = transfer.source, transfer.target
    gamma = target.discount
    if source.discount != gamma:
        raise UsageError(f"the discounts differ: {source.discount} and {gamma}")
    if len(np.unique(state_map)) != len(target.transitions):
        raise UsageError("the state map must send every target state to another source state")
    # Everything about the source, in the order of the target states that correspond to it.
    p_target, r_target = target.under(transfer.target_policy)
    p_source, r_source = (
        x[np.ix_(state_map, state_map)] for x in source.under(transfer.source_policy)
    )
    if not np.allclose(p_source.sum(axis=1), 1.0):
        raise UsageError("the source policy leaves the states that correspond to target states")
    v_target = target.values(transfer.target_policy)
    v_source = source.values(transfer.source_policy)[state_map]
    total_variation = 0.5 * np.abs(p_target - p_source).sum(axis=1)
    v, r = (v_source, r_source) if m_of_source else (v_target, r_target)
    if any_rewards:
        gap = np.abs((p_target * r_target).sum(axis=1) - (p_source * r_source).sum(axis=1))
        steps = gap + 2 * gamma * np.abs(v).max() * total_variation
    elif np.allclose(r_target, r_source):
        steps = 2 * np.abs(r + gamma * v).max() * total_variation
    else:
        raise UsageError("rewards r(s, s') of corresponding states differ: use the theorem")
    d = float(steps.max())
    return Bound(d=d, limit=d / (1 - gamma), difference=float(np.abs(v_target - v_source).max()))
