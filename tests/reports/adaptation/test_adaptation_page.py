"""The page of an adaptation: what it says of hand-made curves, and that it needs no other file."""

from __future__ import annotations

import json
import re
import sys

import numpy as np
import pytest

from mcat.agents.adaptation.config import AdaptConfig
from mcat.agents.adaptation.trainer import COLUMNS
from mcat.config import to_json
from mcat.envs.tasks import Task
from mcat.errors import DataError
from mcat.reports.adaptation.curves import read_curves
from mcat.reports.adaptation.page import finding, write_page
from mcat.transfer.baselines import LABELS, baselines

TASK = Task("halfcheetah", armature=0.5)


def run_folder(folder, points, *, column="eval/return", **changes):
    """A run with those returns after so many steps; a spread of 30 over 10 episodes."""
    folder.mkdir(parents=True)
    config = to_json(AdaptConfig(task=TASK, steps=max(points)) if not changes else
                     AdaptConfig(steps=max(points), **changes))  # fmt: skip
    record = {"format": 1, "kind": "adapt", "config": config, "command": "mcat adapt <b>"}
    (folder / "run.json").write_text(json.dumps(record))
    known = {column: None, "eval/return_std": 30.0} if column == "eval/return" else {column: None}
    lines = [",".join(COLUMNS)]
    for step, value in points.items():
        cells = {"step": step} | {name: value if v is None else v for name, v in known.items()}
        lines.append(",".join(str(cells.get(name, "nan")) for name in COLUMNS))
    (folder / "metrics.csv").write_text("\n".join(lines) + "\n")
    return folder


def test_curves_are_the_runs_own_the_baselines_and_the_policies(tmp_path):
    run = run_folder(tmp_path / "run", {0: 10.0, 500: 40.0, 1000: 90.0})
    run_folder(run / "baselines" / "scratch", {0: -5.0, 1000: 20.0})
    run_folder(run / "baselines" / "cloning", {0: 50.0})
    (run / "baselines" / "policies.json").write_text('{"translated": [60.0, 80.0]}')
    own, scratch, cloning, translated = read_curves(run)
    assert (own.label, own.steps.tolist(), own.returns.tolist()) == (
        "adapted", [0, 500, 1000], [10, 40, 90]
    )  # fmt: skip
    assert np.allclose(own.errors, 10)  # 30 / sqrt(10 - 1)
    assert (scratch.label, scratch.flat, scratch.last) == ("from scratch", False, 20)
    assert (cloning.label, cloning.flat) == ("cloning of the logs", True)
    assert (translated.last, translated.errors.tolist()) == (70, [10])
    assert finding([own, scratch, cloning, translated]) == (
        "After 1,000 real steps the adapted policy earns 90,"
        " more than any baseline (translated: 70)"
    )
    assert finding([scratch, own]).endswith("earns 20, not more than a baseline (adapted: 90)")
    assert finding([cloning]) == "Without a real step the adapted policy earns 50"


def test_a_live_machine_shows_what_its_own_episodes_earned(tmp_path):
    run = run_folder(
        tmp_path / "run", {0: np.nan, 100: 7.0}, column="charts/episodic_return", live="Arm-v0"
    )
    (curve,) = read_curves(run)
    assert (curve.steps.tolist(), curve.returns.tolist()) == ([100], [7])
    assert "After 100 real steps the adapted policy earns 7" in write_page(run).read_text()


def test_nothing_measured_is_said_and_not_drawn(tmp_path):
    page = write_page(run_folder(tmp_path / "run", {0: np.nan}, column="losses/actor", seed=1))
    text = page.read_text()
    assert "what the policy earns was not measured" in text
    assert "a machine without simulator" in text
    assert not (tmp_path / "run" / "adaptation.png").exists()


def test_the_page_needs_no_other_file_and_strangers_words_are_no_markup(tmp_path):
    run = run_folder(tmp_path / "run", {0: 10.0, 1000: 90.0})
    (run / "baselines").mkdir()
    (run / "baselines" / "policies.json").write_text('{"<script>": [1.0]}')
    text = write_page(run).read_text()
    assert not re.findall(r'(?:src|href)="(?!data:)', text)
    assert "<script>" not in text
    assert "mcat adapt &lt;b&gt;" in text
    assert (run / "adaptation.png").read_bytes().startswith(b"\x89PNG")


def test_a_picture_of_logs_alone_has_bars(tmp_path):
    run = run_folder(tmp_path / "run", {0: 10.0})
    run_folder(run / "baselines" / "cloning", {0: 50.0})
    assert (
        "Without a real step the adapted policy earns 10, not more" in write_page(run).read_text()
    )
    assert (run / "adaptation.png").read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib_there_are_numbers(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    run = run_folder(tmp_path / "run", {0: 10.0, 1000: 90.0})
    text = write_page(run).read_text()
    assert "Pictures need matplotlib" in text
    assert "1,000" in text
    assert "<img" not in text


@pytest.mark.parametrize("content", ["[]", '{"a": "b"}', '{"a": [[1], [1, 2]]}'])
def test_a_damaged_list_of_policies_is_told_of(tmp_path, content):
    run = run_folder(tmp_path / "run", {0: 10.0})
    (run / "baselines").mkdir()
    (run / "baselines" / "policies.json").write_text(content)
    with pytest.raises(DataError, match=r"policies\.json"):
        read_curves(run)


def test_baselines_differ_from_the_run_in_what_they_say(tmp_path):
    def act(obs):
        return obs[:, :6]

    config = AdaptConfig(task=TASK, steps=10_000, seed=4)
    found = {name: (settings, policy) for name, settings, policy in baselines(config, act)}
    assert found.keys() == LABELS.keys()
    usual = to_json(config)
    differing = {
        name: {key for key, value in to_json(settings).items() if value != usual[key]}
        for name, (settings, _) in found.items()
    }
    looks = {"evaluation_episodes"}  # the same number, said in so many words
    assert differing == {
        "scratch": looks | {"offline_updates", "log_share", "random_steps"},
        "fine-tuned": looks | {"anchor", "learner", "log_share"},
        "logs": looks | {"anchor"},
        "cloning": looks | {"anchor", "learner", "steps"},
    }
    assert found["fine-tuned"][1] is act
    assert [found[name][1] for name in ("scratch", "logs", "cloning")] == [None] * 3
    assert found["scratch"][0].random_steps == 1000
    without = AdaptConfig(task=TASK, evaluation_episodes=5)
    assert [item.name for item in baselines(without, act)] == ["logs", "cloning"]
