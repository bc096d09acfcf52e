"""What `check` finds in a store."""

from __future__ import annotations

import numpy as np
import pytest

from mcat.datasets import EpisodeStore, check
from tests.datasets.stores import make_episode, rows, store_of

BOX = {"action_low": [-1.0], "action_high": [1.0]}


def clean_log(rng, episodes=3, length=20):
    log = [make_episode(rng, length) for _ in range(episodes)]
    for episode in log:
        episode["actions"] /= 1000
    return log


def test_a_clean_store_has_no_findings():
    store = store_of(clean_log(np.random.default_rng(0)))
    assert check(store, BOX) == []
    assert check(store) == []


@pytest.mark.parametrize(
    ("spoil", "severity", "message"),
    [
        (
            lambda e: e[1]["rewards"].__setitem__(3, 2e6),
            "warning",
            "rewards: 1 value not within",
        ),
        (lambda e: e[1]["rewards"].__setitem__(3, 2e6), "warning", "at episode 1, step 3"),
        (
            lambda e: e[2]["actions"].__setitem__(0, 1.001),
            "warning",
            "actions: 1 value outside the action space: log the action that was executed"
            " (first 1.001 at episode 2, step 0, column 0)",
        ),
        (
            lambda e: [x["actions"].fill(1) for x in e],
            "warning",
            "actions: 1 column never changes: 0",
        ),
        (
            lambda e: e.extend(clean_log(np.random.default_rng(5), 1, 10)),
            "warning",
            "1 of 4 episodes",
        ),
        (lambda e: e.append(e[0]), "warning", "1 episode equal to an earlier one: 3"),
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
    findings = check(store_of(episodes), BOX, history=10)
    assert len(findings) == 1
    assert findings[0].severity == severity
    assert message in str(findings[0])
    assert "\n" not in str(findings[0])


def test_values_spoiled_after_the_fact_are_found():
    log = {name: values.astype(np.float32) for name, values in rows(20).items()}
    store = EpisodeStore.from_arrays(**log)
    log["observations"][4, 1] = np.nan
    assert "error: observations: 1 value not within" in str(check(store)[0])


def test_actions_beyond_one_are_found_unless_bounds_say_what_they_are():
    episodes = clean_log(np.random.default_rng(0))
    episodes[1]["actions"][3] = 1.5
    store = store_of(episodes)
    assert not check(store, {"action_low": [-2.0], "action_high": [2.0]})
    for metadata in (None, {"action_low": "odd"}, {"action_low": [2.0], "action_high": [-2.0]}):
        (finding,) = check(store, metadata)
        assert "1 value outside [-1, 1]" in str(finding)
        assert "first 1.5 at episode 1, step 3, column 0" in str(finding)


def test_every_row_that_is_not_continued_is_named():
    log = rows(30, actions=np.linspace(-1, 1, 30)[:, None], timeouts=np.arange(30) == 14)
    log["observations"][[7, 20]] += 0.5
    (finding,) = check(EpisodeStore.from_arrays(**log))
    assert "2 rows not continued by the next row of the episode" in str(finding)
    assert str(finding).endswith("At episode 0, step 6; episode 1, step 4")
