"""What `check` finds in a store."""

from __future__ import annotations

import numpy as np
import pytest

from mcat.datasets import EpisodeStore, check
from tests.datasets.stores import make_episode, rows, store_of


def clean_log(rng, episodes=3, length=20):
    return [make_episode(rng, length) for _ in range(episodes)]


def test_a_clean_store_has_no_findings():
    store = store_of(clean_log(np.random.default_rng(0)))
    assert check(store, action_low=[-1000], action_high=[1000]) == []


@pytest.mark.parametrize(
    ("spoil", "severity", "message"),
    [
        (
            lambda e: e[1]["rewards"].__setitem__(3, 2e6),
            "warning",
            "rewards: 1 values are not within",
        ),
        (lambda e: e[1]["rewards"].__setitem__(3, 2e6), "warning", "at episode 1, step 3"),
        (
            lambda e: e[2]["actions"].__setitem__(0, 1001),
            "warning",
            "at episode 2, step 0, column 0",
        ),
        (
            lambda e: [x["actions"].fill(1) for x in e],
            "warning",
            "actions: 1 columns never change: 0",
        ),
        (
            lambda e: e.append(make_episode(np.random.default_rng(5), 10)),
            "warning",
            "1 of 4 episodes",
        ),
        (lambda e: e.append(e[0]), "warning", "1 episodes repeat an earlier one exactly: 3"),
        (lambda e: e.clear(), "error", "no transitions"),
        (
            lambda e: e.__setitem__(slice(None), clean_log(np.random.default_rng(1), 3, 9)),
            "error",
            "3 of 3",
        ),
    ],
)
def test_each_finding(spoil, severity, message):
    episodes = clean_log(np.random.default_rng(0))
    spoil(episodes)
    findings = check(store_of(episodes), history=10, action_low=[-1000], action_high=[1000])
    assert len(findings) == 1
    assert findings[0].severity == severity
    assert message in str(findings[0])
    assert "\n" not in str(findings[0])


def test_values_spoiled_after_the_fact_are_found():
    log = {name: values.astype(np.float32) for name, values in rows(20).items()}
    store = EpisodeStore.from_arrays(**log)
    log["observations"][4, 1] = np.nan
    assert "error: observations: 1 values" in str(check(store)[0])
