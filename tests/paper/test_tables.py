"""The rows of the paper's tables of translators: logs, sizes and what is given by hand."""

from dataclasses import fields

import pytest

from mcat.paper.tables import TABLES
from mcat.transfer.result import ON_SOURCE, UNTRANSLATED
from mcat.translator.state.correspondence import CORRESPONDENCES


@pytest.mark.parametrize("preset", ["cpu", "paper"])
def test_rows_without_a_policy_of_the_target_s_own(preset):
    """The source's policy, failing, and random actions; the source's logs as in the other row."""
    rows = {row.name: row for row in TABLES["table1"].rows}
    assert len(rows) == 8
    for name in ("halfcheetah", "ant", "cylinder-mug", "cylinder-cube"):
        row, tried = rows[name], rows[f"{name}-tried"]
        assert tried.sources(preset) == row.sources(preset)
        assert set(tried.printed) == {ON_SOURCE, UNTRANSLATED}
        assert tried.methods == row.methods == ("ours", "cycle", "cloning", "offline-rl")
        failing, random = tried.targets(preset)
        assert random.policy[0] == "random"
        assert failing.task == random.task == row.targets(preset)[0].task
        assert failing.policy[0] == row.policy[0]  # the source's, whatever the target's own is


@pytest.mark.parametrize("preset", ["cpu", "paper", "released"])
def test_logs_of_one_name_are_one_log(preset):
    """Rows and tables share their logs by name, so no two may differ under one."""
    seen = {}
    for table in TABLES.values():
        for row in table.rows:
            for log in row.sources(preset) + row.targets(preset) + row.tasks(preset):
                assert seen.setdefault(log.name, log) == log
    assert len(seen) > 15


@pytest.mark.parametrize("preset", ["paper", "released"])
def test_the_paper_preset_collects_what_the_paper_did(preset):
    (row,) = (row for row in TABLES["table1"].rows if row.name == "halfcheetah")
    (source,), (target,) = row.sources(preset), row.targets(preset)
    assert source.policy[0] == target.policy[0] == "mediocre"
    assert source.noise == target.noise == (0.0, 0.0)
    assert source.steps == target.steps == 100_000


def test_logs_of_two_presets_that_differ_have_other_names():
    """All presets share a folder of logs, and what is there is not collected again."""
    seen = {}
    for preset in ("cpu", "paper"):
        for table in TABLES.values():
            for row in table.rows:
                for log in row.sources(preset) + row.targets(preset) + row.tasks(preset):
                    assert seen.setdefault(log.name, log) == log


def test_the_extension_follows_the_rule_for_logs():
    """As C.2 collects: 100,000 steps, of mediocre policies or of scripts with noise."""
    rows = {row.name: row for row in TABLES["extension"].rows}
    for preset, steps in (("cpu", 50_000), ("smoke", 50_000), ("paper", 100_000)):
        for row in (rows["reach-goal1-hand"], rows["reach-goal1"], rows["three-legs"]):
            (source,), (target,) = row.sources(preset), row.targets(preset)
            assert (source.steps, target.steps) == (steps, steps)
        assert target.guess == "two-to-three-legs"
        assert source.policy[0] == target.policy[0] == ("mediocre" if steps > 50_000 else "good")
        assert target.noise == ((0.0, 0.0) if steps > 50_000 else (0.0, 0.5))


def test_the_extension_gives_by_hand_what_the_paper_did():
    """States for reach goals and actions for three legs; more only where the name says so."""
    reach = [f"reach-goal{number}" for number in (1, 2, 3)]
    by_hand = {}
    for row in TABLES["extension"].rows:
        guess = CORRESPONDENCES[row.map]
        known = [field.name for field in fields(guess) if getattr(guess, field.name).any()]
        by_hand[row.name] = {name.split("_")[0] for name in known}
        assert len(known) == 2 * len(by_hand[row.name])  # there and back
    assert by_hand == {
        **{name: {"state"} for name in reach},
        **{f"{name}-hand": {"state"} for name in reach},
        "three-legs": {"action"},
        **{f"{name}-both": {"state", "action"} for name in (*reach, "three-legs")},
    }


def test_the_extension_has_states_and_actions_of_the_printed_sizes():
    """And only there, or where sizes are the paper's anyway, its translators stand beside ours."""
    sizes, translators = {}, {"ours", "cycle"}
    for row in TABLES["extension"].rows:
        bodies = [logs("cpu")[0].task.spec for logs in (row.sources, row.targets)]
        sizes[row.name] = [(body.observation_size, body.action_size) for body in bodies]
        if translators & set(row.printed):
            assert row.name == "three-legs" or row.name.endswith("-hand")
    for number in (1, 2, 3):
        assert sizes[f"reach-goal{number}-hand"] == [(3, 3), (3, 3)]
        assert sizes[f"reach-goal{number}"] == [(14, 4), (14, 4)]
    assert sizes["three-legs"] == [(17, 6), (23, 9)]


def test_rows_of_the_hand_differ_in_nothing_else():
    rows = {row.name: row for row in TABLES["extension"].rows}
    for number in (1, 2, 3):
        hand, full = rows[f"reach-goal{number}-hand"], rows[f"reach-goal{number}"]
        assert hand.methods == full.methods
        for logs in ("sources", "targets"):
            (small,), (large,) = (getattr(row, logs)("cpu") for row in (hand, full))
            assert small.task.params == large.task.params
            assert (small.steps, small.noise) == (large.steps, large.noise)


def test_rows_with_both_by_hand_differ_in_nothing_else():
    rows = {row.name: row for row in TABLES["extension"].rows}
    for name, row in rows.items():
        if not name.endswith(("-both", "-hand")):
            both = rows[f"{name}-both"]
            assert row.map.startswith(both.map)
            assert (both.policy, both.methods) == (row.policy, row.methods)
            assert both.printed == {
                name: row.printed[name] for name in row.printed if name not in ("ours", "cycle")
            }
            for preset in ("cpu", "paper"):
                assert both.sources(preset) == row.sources(preset)
                assert both.targets(preset) == row.targets(preset)
