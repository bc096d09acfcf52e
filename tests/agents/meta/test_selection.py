"""The rule of Algorithm 1 : its whole truth table, margin, ties, expiry."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcat.agents.configs import SelectionConfig
from mcat.agents.meta.selection import Selection
from mcat.errors import DataError, UsageError


def selection(shared, pairs=(), *, tasks=3, step=0, **config):
    """Lists by task, and by (source, task); a number stands for a list of one."""
    made = Selection(tasks, SelectionConfig(**config))
    for task, values in dict(shared).items():
        for value in [values] if isinstance(values, (int, float)) else values:
            made.add(step, task, None, value)
    for (source, task), values in dict(pairs).items():
        for value in [values] if isinstance(values, (int, float)) else values:
            made.add(step, task, source, value)
    return made


# The choice for task 0.
TABLE = [
    ("nothing known", {}, {}, None),
    ("rule 1: own list empty, others better", {1: 9, 2: 9}, {}, None),
    ("rule 1: own list empty, a pair tried and good", {1: 9}, {(1, 0): 9}, None),
    ("others unknown", {0: 5}, {}, None),
    ("others worse", {0: 5, 1: 4, 2: 3}, {}, None),
    ("others equal: the inequality is strict", {0: 5, 1: 5, 2: 5}, {}, None),
    ("rule 2: one better and untried", {0: 5, 1: 6, 2: 4}, {}, 1),
    ("rule 2: two better and untried, the better first", {0: 5, 1: 6, 2: 7}, {}, 2),
    ("rule 2: the best is tried and good, another is untried", {0: 5, 1: 6, 2: 7}, {(2, 0): 8}, 1),
    ("rule 2: the best is tried and bad, another is untried", {0: 5, 1: 6, 2: 7}, {(2, 0): 1}, 1),
    ("rule 2 compares means", {0: [0, 10], 1: [4, 8], 2: [20, -20]}, {}, 1),
    ("rule 3: tried and better", {0: 5, 1: 6}, {(1, 0): 5.5}, 1),
    ("rule 3: tried and equal", {0: 5, 1: 6}, {(1, 0): 5}, None),
    ("rule 3: tried and worse", {0: 5, 1: 6}, {(1, 0): 4}, None),
    ("rule 3: two tried, by the pair's mean", {0: 5, 1: 9, 2: 6}, {(1, 0): 6, (2, 0): 8}, 2),
    ("rule 3: one good, one bad", {0: 5, 1: 6, 2: 7}, {(1, 0): 6, (2, 0): 3}, 1),
    ("rule 3: both bad", {0: 5, 1: 6, 2: 7}, {(1, 0): 3, (2, 0): 4}, None),
    ("rule 3: a good pair of a source that is now worse", {0: 5, 1: 2}, {(1, 0): 6}, 1),
    ("rule 3: a good pair of a source with no list left", {0: 5}, {(1, 0): 6}, 1),
    ("rule 3 compares means", {0: [4, 6], 1: 9}, {(1, 0): [10, 1]}, 1),
    ("rule 3 compares means, worse", {0: [4, 6], 1: 9}, {(1, 0): [9, 0]}, None),
    ("pairs of other targets do not count", {0: 5, 1: 6}, {(1, 2): 9, (0, 1): 9, (2, 1): 1}, 1),
    ("negative means: one better and untried", {0: -5, 1: -4, 2: -6}, {}, 1),
    ("negative means: tried and worse", {0: -5, 1: -4, 2: -6}, {(1, 0): -5.5}, None),
    ("zero", {0: 0, 1: 0.1}, {}, 1),
    ("tie of untried sources: the lowest number", {0: 5, 2: 7, 1: 7}, {}, 1),
    ("tie of pairs: the lowest number", {0: 5}, {(2, 0): 7, (1, 0): 7}, 1),
]


@pytest.mark.parametrize(
    ("shared", "pairs", "expected"), [pytest.param(*row, id=name) for name, *row in TABLE]
)
def test_truth_table(shared, pairs, expected):
    assert selection(shared, pairs).choose(0) == expected


@pytest.mark.parametrize(
    ("own", "margin", "too_little", "enough"),
    [(10, 0.5, 15, 15.1), (-10, 0.5, -5, -4.9), (0, 0.5, 0, 0.1), (-10, 0, -10, -9.9)],
)
def test_margin_is_a_fraction_of_the_size_of_the_own_mean(own, margin, too_little, enough):
    for value, untried, tried in ((too_little, None, None), (enough, 1, 1)):
        assert selection({0: own, 1: value}, margin=margin).choose(0) == untried
        assert selection({0: own}, {(1, 0): value}, margin=margin).choose(0) == tried
    # A source that is within the margin is not tried, but a good pair counts all the same.
    made = selection({0: 10, 1: 14, 2: 30}, {(2, 0): 20}, margin=0.5)
    assert made.choose(0) == 2


def test_every_target_is_chosen_for_by_itself():
    made = selection({0: 1, 1: 5, 2: 3})
    assert [made.choose(task) for task in range(3)] == [1, None, 1]
    made.add(0, 0, 1, 4.0)
    made.add(0, 2, 1, 2.0)
    assert [made.choose(task) for task in range(3)] == [
        2,
        None,
        None,
    ]  # 2 is untried on 0


@given(
    st.lists(st.tuples(st.integers(0, 3), st.none() | st.integers(0, 3), st.integers(-2, 2))),
    st.sampled_from([0.0, 0.5]),
)
def test_equals_the_rule_written_out(episodes, margin):
    """Also: a task never gets its own policy by rule 2, and the order of arrival is nothing."""
    made = Selection(4, SelectionConfig(margin=margin))
    again = Selection(4, SelectionConfig(margin=margin))
    for task, source, value in episodes:
        made.add(0, task, source, value)
    for task, source, value in reversed(episodes):
        again.add(0, task, source, value)

    def mean(task, source):
        found = [v for t, s, v in episodes if (t, s) == (task, source)]
        return sum(found) / len(found) if found else None

    for task in range(4):
        own = mean(task, None)
        expected = None
        if own is not None:
            least = own + margin * abs(own)
            home = [(mean(j, None), -j) for j in range(4) if mean(j, None) is not None]
            untried = [(m, j) for m, j in home if m > least and mean(task, -j) is None]
            tried = [(mean(task, j), -j) for j in range(4) if mean(task, j) is not None]
            if untried:
                expected = -max(untried)[1]
            elif tried and max(tried)[0] > least:
                expected = -max(tried)[1]
        assert made.choose(task) == again.choose(task) == expected


def test_returns_count_for_exactly_g_steps():
    made = Selection(2, SelectionConfig(memory=100))
    made.add(1000, 0, None, 1.0)
    made.add(1000, 1, None, 2.0)
    made.forget(1100)
    assert made.choose(0) == 1
    made.forget(1101)
    assert made.choose(0) is None
    assert made.mean(0) is None
    assert made.mean(1) is None


def test_only_old_entries_of_a_list_expire():
    made = Selection(1, SelectionConfig(memory=100))
    made.add(0, 0, None, 10.0)
    made.add(50, 0, None, 20.0)
    made.forget(101)
    assert made.mean(0) == 20.0


def test_the_shared_policy_and_a_failed_source_are_tested_again_after_expiry():
    made = Selection(2, SelectionConfig(memory=100))
    made.add(0, 0, None, 5.0)
    made.add(0, 1, None, 9.0)
    assert made.choose(0) == 1  # untried
    made.add(50, 0, 1, 8.0)
    assert made.choose(0) == 1  # tried and better
    made.forget(120)
    assert made.choose(0) is None  # transfer was used so long that R^(0) is empty: test it again
    made.add(130, 0, None, 6.0)
    assert made.choose(0) == 1  # the pair's 8 still counts
    made.add(130, 1, None, 9.0)
    made.add(140, 0, 1, -30.0)
    assert made.choose(0) is None  # by now it is bad
    made.forget(235)
    made.add(240, 0, None, 6.0)
    made.add(240, 1, None, 9.0)
    assert made.choose(0) is None  # -30 still counts
    made.forget(250)
    assert made.choose(0) == 1  # and now it does not: tried again


def test_state_goes_through_json_and_on():
    made = selection({0: 5, 1: [6, 0.1], 2: 4}, {(1, 0): -3.25, (2, 1): 7}, step=7, memory=10)
    twin = Selection(3, SelectionConfig(memory=10))
    twin.load_state(json.loads(json.dumps(made.state())))
    for now in (0, 17, 18):
        made.forget(now)
        twin.forget(now)
        assert made.state() == twin.state()
        assert [made.choose(i) for i in range(3)] == [twin.choose(i) for i in range(3)]
    assert made.state() == {"entries": []}


def test_what_makes_no_sense_is_refused():
    for wrong in ({"memory": 0}, {"margin": -0.1}, {"margin": float("nan")}):
        with pytest.raises(UsageError, match=next(iter(wrong))):
            SelectionConfig(**wrong)
    with pytest.raises(UsageError, match="at least 1 task"):
        Selection(0, SelectionConfig())
    with pytest.raises(DataError, match="task 3"):
        selection({3: 1.0})
    with pytest.raises(DataError, match="task 2"):
        Selection(2, SelectionConfig()).load_state(selection({0: 1, 2: 1}).state())


def test_alternating_the_shared_policy_drives_after_every_transfer():
    made = selection({0: 5, 1: 9, 2: 1}, alternate=True, tasks=3)
    drove = []
    for step in range(1, 7):
        source = made.choose(0)
        drove.append(source)
        made.add(step, 0, source, 7.0 if source == 1 else 5.0)
    assert drove == [1, None, 1, None, 1, None]
    assert selection({0: 5, 1: 9}, {(1, 0): 7}).choose(0) == 1  # as printed it goes on
    assert selection({0: 5, 1: 9}, {(1, 0): 7}, alternate=True).choose(0) is None
    assert selection({0: 5, 1: 9}, {(1, 2): 7}, alternate=True).choose(0) == 1  # another task


def test_transfers_may_be_remembered_for_longer_than_the_shared_policy():
    made = selection({0: 5, 1: 9}, {(1, 0): 3}, memory=10, transfer_memory=30)
    made.forget(10)
    assert made.choose(0) is None  # tried, and bad
    made.forget(11)
    assert made.mean(0) is None
    assert made.mean(0, 1) == 3
    for step in (20, 30, 31):
        made.add(step, 0, None, 5.0)
        made.add(step, 1, None, 9.0)
        made.forget(step)
        assert made.choose(0) == (None if step <= 30 else 1)  # then it is tried again
