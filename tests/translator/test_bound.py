"""Theorems 1 and 2 and Propositions 1 and 2 hold, and are not idle (Appendices A and E)."""

import numpy as np
import pytest

from mcat.errors import UsageError
from mcat.translator.bound import (
    TabularMDP,
    Transfer,
    proposition_1,
    proposition_2,
    theorem_1,
    theorem_2,
)

TRIALS = 1000
EPSILON = 1e-9


def random_pair(rng, *, shared_rewards, spare=0):
    """Two random MDPs, a policy on each, and a state map; the source has `spare` more states.

    Corresponding states are never left. With shared rewards, r(s, s') agrees on them.
    """
    states, actions = rng.integers(2, 7), rng.integers(1, 5)
    gamma = rng.uniform(0, 0.99)
    size = states + spare
    state_map = rng.permutation(size)[:states] if spare else np.arange(states)
    p_target = rng.dirichlet(np.full(states, 0.3), (states, actions))
    r_target = rng.normal(size=(states, actions, states))
    p_source = rng.dirichlet(np.full(size, 0.3), (size, actions))
    inside = rng.dirichlet(np.full(states, 0.3), (states, actions))
    if rng.random() < 0.3:
        inside = p_target.copy()  # the ideal translator
    p_source[state_map] = 0
    p_source[state_map[:, None, None], np.arange(actions)[:, None], state_map] = inside
    r_source = rng.normal(size=(size, actions, size))
    if shared_rewards:
        r_target = np.broadcast_to(r_target[:, :1], r_target.shape).copy()
        r_source[state_map[:, None, None], np.arange(actions)[:, None], state_map] = r_target
    transfer = Transfer(
        TabularMDP(p_source, r_source, gamma),
        TabularMDP(p_target, r_target, gamma),
        rng.integers(actions, size=size),
        rng.integers(actions, size=states),
    )
    return transfer, state_map


CASES = {
    "theorem 1": (False, 0, lambda transfer, state_map: theorem_1(transfer)),
    "proposition 1": (True, 0, lambda transfer, state_map: proposition_1(transfer)),
    "theorem 2": (False, 3, theorem_2),
    "proposition 2": (True, 3, proposition_2),
}


@pytest.mark.parametrize("name", CASES)
def test_the_bound_holds_on_random_mdps_and_half_of_it_does_not(name):
    shared_rewards, spare, bound_of = CASES[name]
    rng = np.random.default_rng(0)
    bounds = []
    for _ in range(TRIALS):
        bounds.append(bound_of(*random_pair(rng, shared_rewards=shared_rewards, spare=spare)))
    assert all(bound.difference <= bound.limit + EPSILON for bound in bounds)
    assert any(bound.difference > bound.limit / 2 + EPSILON for bound in bounds)


def test_values_equal_a_long_simulation():
    rng = np.random.default_rng(1)
    transfer, _ = random_pair(rng, shared_rewards=False)
    mdp, policy = transfer.target, transfer.target_policy
    p, r = mdp.under(policy)
    values = np.zeros(len(p))
    for _ in range(5000):
        values = (p * (r + mdp.discount * values)).sum(axis=1)
    assert mdp.values(policy) == pytest.approx(values)


def test_a_perfect_translation_loses_nothing():
    """The target's actions are the source's in another order; the translator knows which."""
    rng = np.random.default_rng(2)
    p = rng.dirichlet(np.ones(5), (5, 3))
    r = np.broadcast_to(rng.normal(size=(5, 1, 5)), (5, 3, 5))
    order = np.array([2, 0, 1])
    source = TabularMDP(p, r, 0.9)
    target = TabularMDP(p[:, order], r[:, order], 0.9)
    policy = rng.integers(3, size=5)
    translated = np.argsort(order)[policy]
    for bound in (proposition_1, theorem_1):
        found = bound(Transfer(source, target, policy, translated))
        assert found.limit == pytest.approx(0, abs=1e-12)
        assert found.difference == pytest.approx(0, abs=1e-9)
    assert proposition_1(Transfer(source, target, policy, policy)).limit > 0.1  # untranslated


def test_the_extreme_case_by_hand():
    """Source always reaches the good state, target the bad one: 2/(1-γ) of at most 2/(1-γ)²."""
    gamma = 0.25
    good, bad = np.zeros((2, 1, 2)), np.zeros((2, 1, 2))
    good[:, 0, 0] = bad[:, 0, 1] = 1
    rewards = np.broadcast_to([1.0, -1.0], (2, 1, 2))
    stay = np.zeros(2, dtype=int)
    transfer = Transfer(
        TabularMDP(good, rewards, gamma), TabularMDP(bad, rewards, gamma), stay, stay
    )
    found = proposition_1(transfer)
    assert found.difference == pytest.approx(2 / (1 - gamma))
    assert found.d == pytest.approx(2 / (1 - gamma))
    assert found.limit == pytest.approx(2 / (1 - gamma) ** 2)


def test_with_the_identity_as_map_theorem_2_is_theorem_1_with_the_roles_exchanged():
    rng = np.random.default_rng(3)
    transfer, identity = random_pair(rng, shared_rewards=True)
    exchanged = Transfer(
        transfer.target, transfer.source, transfer.target_policy, transfer.source_policy
    )
    assert theorem_2(transfer, identity).limit == pytest.approx(theorem_1(exchanged).limit)
    assert proposition_2(transfer, identity).d == pytest.approx(proposition_1(exchanged).d)


def test_what_the_theorems_do_not_cover_is_refused():
    rng = np.random.default_rng(4)
    transfer, identity = random_pair(rng, shared_rewards=False)
    with pytest.raises(UsageError, match="use the theorem"):
        proposition_1(transfer)
    with pytest.raises(UsageError, match="another source state"):
        theorem_2(transfer, np.zeros_like(identity))
    with pytest.raises(UsageError, match="sum to 1"):
        TabularMDP(np.ones((2, 1, 2)), np.ones((2, 1, 2)), 0.9)
    with pytest.raises(UsageError, match="discount"):
        TabularMDP(np.full((2, 1, 2), 0.5), np.ones((2, 1, 2)), 1.0)
    other = TabularMDP(transfer.source.transitions, transfer.source.rewards, 0.123)
    with pytest.raises(UsageError, match="discounts differ"):
        theorem_1(Transfer(other, transfer.target, transfer.source_policy, transfer.target_policy))
