"""Credit in closed form: exact on linear rewards, honest about what it cannot explain."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mcat.agents.configs import CreditConfig
from mcat.agents.credit.credit import Credit
from mcat.agents.credit.ridge import PENALTIES, RidgeCredit, features, ridge
from mcat.agents.credit.segments import paid_segments
from mcat.datasets import EpisodeStore
from mcat.errors import UsageError

OBS, ACT = 3, 2


def paid(rewards: np.ndarray, lengths: list[int], delay: int, horizon: int) -> np.ndarray:
    """Rewards as they arrive: every `delay` steps, and at the end of a whole episode."""
    received, start = np.zeros_like(rewards), 0
    for length in lengths:
        for first in range(0, length, delay):
            end = min(first + delay, length)
            if end - first == delay or length == horizon:
                received[start + end - 1] = rewards[start + first : start + end].sum()
        start += length
    return received


def logs(
    lengths: list[int], delay: int, horizon: int, *, seed: int = 0, bend: float = 0.0
) -> tuple[EpisodeStore, np.ndarray]:
    """Random walks with a reward that is linear in φ, but for `bend`; and the reward itself."""
    rng = np.random.default_rng(seed)
    n = sum(lengths)
    obs, change = rng.normal(size=(n, OBS)), 0.3 * rng.normal(size=(n, OBS))
    action = rng.uniform(-1, 1, (n, ACT))
    true = 1 + 2 * change[:, 0] - obs[:, 1] - 0.5 * np.square(action).sum(1)
    true += bend * np.sin(5 * obs[:, 2]) * action[:, 0]
    store = EpisodeStore.from_arrays(
        observations=obs.astype(np.float32),
        actions=action.astype(np.float32),
        next_observations=(obs + change).astype(np.float32),
        rewards=paid(true, lengths, delay, horizon).astype(np.float32),
        episode_ends=np.cumsum(lengths),
    )
    return store, true


def fitted(episodes: EpisodeStore, delay: int, horizon: int) -> RidgeCredit:
    credit = RidgeCredit(OBS, ACT)
    credit.add(episodes, paid_segments(episodes, delay, horizon))
    credit.fit()
    return credit


def test_a_linear_reward_is_recovered_from_its_sums():
    episodes, true = logs([50] * 8, 10, 50)
    credit = fitted(episodes, 10, 50)
    np.testing.assert_allclose(credit.rewards_of(episodes), true, atol=2e-3)
    assert credit.unexplained < 1e-5
    rows = (episodes.observations, episodes.actions, episodes.next_observations)
    single = credit.rewards(*map(torch.from_numpy, map(np.array, rows)))
    np.testing.assert_allclose(single[:, 0].numpy(), credit.rewards_of(episodes), rtol=1e-5)


def test_features_are_states_actions_changes_and_squared_actions():
    found = features(np.array([[1.0, 2]]), np.array([[-3.0]]), np.array([[1.5, 0]]))
    assert found.tolist() == [[1, 2, -3, 0.5, -2, 9]]


def test_the_leave_one_out_error_equals_leaving_each_one_out():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(14, 5)), rng.normal(size=14)
    x, y = x - x.mean(0), y - y.mean()
    weights, penalty, error = ridge(x, y)
    n = len(y)

    def brute_force(each: float) -> float:
        errors = []
        for left_out in range(n):
            kept = np.arange(n) != left_out
            # The mean is learned too, but without a penalty: a column of ones that pays nothing.
            design = np.column_stack((np.ones(n - 1), x[kept]))
            prices = np.diag([0, *[each * n] * 5])
            solution = np.linalg.solve(design.T @ design + prices, design.T @ y[kept])
            errors.append(y[left_out] - solution[0] - x[left_out] @ solution[1:])
        return float(np.mean(np.square(errors)))

    found = {each: brute_force(each) for each in PENALTIES}
    assert penalty == min(found, key=found.__getitem__)
    assert error == pytest.approx(found[penalty], rel=1e-9)
    expected = np.linalg.solve(x.T @ x + n * penalty * np.eye(5), x.T @ y)
    np.testing.assert_allclose(weights, expected, rtol=1e-9)


def test_what_is_not_linear_is_told():
    episodes, _ = logs([50] * 8, 10, 50, bend=3.0)
    assert 0.3 < fitted(episodes, 10, 50).unexplained < 3


def test_adding_in_pieces_is_adding_at_once():
    episodes, _ = logs([50] * 8, 10, 50)
    whole, pieces = fitted(episodes, 10, 50), RidgeCredit(OBS, ACT)
    for number in range(8):
        part = episodes.select([number])
        pieces.add(part, paid_segments(part, 10, 50))
    pieces.fit()
    np.testing.assert_allclose(pieces.rewards_of(episodes), whole.rewards_of(episodes), rtol=1e-5)


def test_constant_columns_and_equal_payments_are_no_trouble():
    n = 40
    episodes = EpisodeStore.from_arrays(
        observations=np.full((n, OBS), 3.0, np.float32),
        actions=np.zeros((n, ACT), np.float32),
        next_observations=np.full((n, OBS), 3.0, np.float32),
        rewards=paid(np.full(n, 0.5), [n], 10, n).astype(np.float32),
        episode_ends=[n],
    )
    np.testing.assert_allclose(fitted(episodes, 10, n).rewards_of(episodes), 0.5, rtol=1e-5)


def test_too_few_payments_are_refused():
    episodes, _ = logs([20], 10, 20)
    with pytest.raises(UsageError, match="2 payments"):
        fitted(episodes, 10, 20)


# --- episodes that were cut -------------------------------------------------------------------


def test_a_cut_segment_is_not_paid_and_a_whole_episodes_remainder_is():
    episodes, _ = logs([25, 17, 20, 10], 10, 25)
    segments = paid_segments(episodes, 10, 25)
    assert segments.starts.tolist() == [0, 10, 20, 25, 42, 52, 62]
    assert segments.lengths.tolist() == [10, 10, 5, 10, 10, 10, 10]
    assert len(paid_segments(episodes, 10).starts) == 8  # if nobody cut anything


def test_an_episode_that_ended_by_itself_was_paid():
    episodes = EpisodeStore(OBS, ACT)
    for terminal in (True, False):
        episodes.append_episode(
            observations=np.zeros((7, OBS)),
            actions=np.zeros((7, ACT)),
            next_observations=np.zeros((7, OBS)),
            rewards=np.zeros(7),
            terminal=terminal,
        )
    assert paid_segments(episodes, 5, 100).lengths.tolist() == [5, 2, 5]


@pytest.mark.parametrize("kind", ["ridge", "learned", "auto"])
def test_unpaid_steps_never_enter_a_fit(kind):
    """Rewards nobody received are poison; the credit must not notice, and still judge the steps."""
    lengths = [25, 17, 20, 13, 25, 25, 18, 25]
    clean, true = logs(lengths, 10, 25)
    poisoned = np.array(clean.rewards)
    for start, length in zip(np.cumsum([0, *lengths[:-1]]), lengths, strict=True):
        if length < 25 and length % 10:
            poisoned[start + length - length % 10 : start + length] = np.nan
    rows = (clean.observations, clean.actions, clean.next_observations)

    def learned(rewards: np.ndarray) -> tuple[Credit, np.ndarray]:
        episodes = EpisodeStore.from_arrays(
            observations=rows[0],
            actions=rows[1],
            next_observations=rows[2],
            rewards=clean.rewards,
            episode_ends=np.cumsum(lengths),
        )
        episodes._rows.columns["rewards"] = rewards  # behind its back: no store takes NaN
        config = CreditConfig(kind=kind, hidden=(16,))
        credit = Credit(
            OBS, ACT, config, delay=10, horizon=25, generator=torch.Generator().manual_seed(0)
        )
        credit.add(episodes)
        credit.begin(episodes)
        rng = np.random.default_rng(0)
        for _ in range(20):
            credit.step(rng)
        return credit, credit.rewards().numpy()

    (_, expected), (credit, found) = learned(np.array(clean.rewards)), learned(poisoned)
    assert np.isfinite(found).all()
    np.testing.assert_array_equal(found, expected)
    if kind != "learned":
        assert credit.used == "ridge"
        np.testing.assert_allclose(found[:, 0], true, atol=0.05)


# --- which kind -------------------------------------------------------------------------------


def credit_of(kind: str, bend: float, *, delay: int = 10, threshold: float = 0.1) -> Credit:
    episodes, _ = logs([50] * 8, delay, 50, bend=bend)
    config = CreditConfig(kind=kind, hidden=(16,), unexplained=threshold)
    credit = Credit(OBS, ACT, config, delay=delay, horizon=50, generator=torch.Generator())
    credit.add(episodes)
    credit.begin(episodes)
    return credit


def test_auto_takes_the_linear_model_only_where_it_foretells_payments():
    assert credit_of("auto", 0.0).used == "ridge"
    bent = credit_of("auto", 3.0)
    assert bent.used == "learned"
    assert bent.unexplained > 0.1
    assert credit_of("auto", 3.0, threshold=10).used == "ridge"
    assert credit_of("ridge", 3.0).used == "ridge"
    assert credit_of("none", 0.0).used == "none"


def test_while_payments_are_few_auto_does_not_judge_the_linear_model():
    few = 2 * (2 * (OBS + ACT)) - 1
    for payments, used in ((few, "ridge"), (few + 1, "learned")):
        episodes, _ = logs([10] * payments, 10, 10, bend=3.0)
        config = CreditConfig(kind="auto", hidden=(16,), unexplained=0.0)
        credit = Credit(OBS, ACT, config, delay=10, horizon=10, generator=torch.Generator())
        credit.add(episodes)
        credit.begin(episodes)
        assert credit.used == used


def test_rewards_that_were_paid_at_once_stay_as_they_are():
    credit = credit_of("auto", 0.0, delay=1)
    assert credit.used == "none"
    assert len(credit.ridge) == 0


def test_before_three_payments_rewards_are_as_received():
    episodes, _ = logs([20], 10, 20)
    credit = Credit(
        OBS, ACT, CreditConfig(kind="ridge"), delay=10, horizon=20, generator=torch.Generator()
    )
    credit.add(episodes)
    credit.begin(episodes)
    assert credit.used == "none"
    assert np.array_equal(credit.rewards()[:, 0].numpy(), episodes.rewards)
