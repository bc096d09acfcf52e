"""Success rates on the command line: `mcat evaluate`, `mcat plot`, `mcat translate`."""

import json
import shlex
from pathlib import Path

import numpy as np
import pytest

from mcat.agents.returns import Returns
from mcat.cli import run
from mcat.commands.evaluations import Outcome, means
from mcat.commands.translate import _print_matrix
from mcat.safe_io import write_json
from mcat.transfer.result import ReturnMatrix
from tests.reports.learning.run_folders import write_csv, write_run

# The fingertips start 2 cm from this goal, and those of the other task half a metre away.
HERE = "--env reach --goal 0,0.58,0.15 --horizon 3"
AWAY = "--env reach --goal 0.3,0.9,0.3 --horizon 3"
EVALUATE = "evaluate --policy random --episodes 2 --quiet"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def mcat(command, capsys):
    code = run(shlex.split(command))
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    return code, out, err


def test_evaluate_says_how_many_episodes_succeed(capsys):
    for place, rate in ((HERE, 1.0), (AWAY, 0.0)):
        code, out, _ = mcat(f"{EVALUATE} {place}", capsys)
        assert code == 0
        assert "success at any step" in out
        assert out.splitlines()[-2].split()[-2:] == [f"{100 * rate:.0f}", "%"]
        (found,) = json.loads(mcat(f"{EVALUATE} {place} --json", capsys)[1])
        assert (found["success_rate"], found["successes"]) == (rate, [bool(rate)] * 2)
    code, out, _ = mcat(f"{EVALUATE} --env hopper --horizon 3", capsys)
    assert "success" not in out
    (found,) = json.loads(mcat(f"{EVALUATE} --env hopper --horizon 3 --json", capsys)[1])
    assert list(found) == ["label", "mean", "standard_error", "min", "max", "values"]


def test_files_of_before_are_found_and_damaged_ones_refused(capsys):
    command = f"{EVALUATE} {HERE} --out e.json"
    assert mcat(command, capsys)[0] == 0
    content = json.loads(Path("e.json").read_text())
    (first,) = content["returns"]
    assert first["successes"] == [True, True]
    code, out, _ = mcat(f"{command} --resume --json", capsys)
    assert (code, json.loads(out)) == (0, [first])

    for damage in ({"successes": [True, False]}, {"success_rate": 0.5}, {"successes": [True]}):
        content["returns"] = [first | damage]
        write_json(Path("e.json"), content, overwrite=True)
        code, _, err = mcat(f"{command} --resume", capsys)
        assert code == 65, damage
        assert len(err.splitlines()) == 1

    old = {name: value for name, value in first.items() if "success" not in name}
    content["returns"] = [old]
    write_json(Path("e.json"), content, overwrite=True)
    code, out, _ = mcat(f"{command} --resume --json", capsys)
    assert (code, json.loads(out)) == (0, [old])


def test_the_mean_over_tasks_joins_their_successes():
    def outcome(split, *successes):
        known = successes or None
        return Outcome(Returns(label="x", values=(0.0, 0.0), successes=known), split)

    train = [outcome("train", True, False), outcome("train", True, True)]
    (found,) = means([*train, outcome("test", False, False)])
    assert (found.label, found.successes) == ("all 2 train tasks", (True, False, True, True))
    (partly,) = means([train[0], outcome("train")])
    assert partly.successes is None


def test_a_matrix_of_meta_world_has_a_second_table(capsys):
    numbers, errors = ((10.0, 20.0), (None, None)), ((1.0, 1.0), (None, None))
    plain = ReturnMatrix(names=("push", "mug"), untranslated=numbers, transferred=numbers,
                         untranslated_error=errors, transferred_error=errors)  # fmt: skip
    _print_matrix(plain)
    assert "uccess" not in capsys.readouterr().err
    before, after = ((1.0, 0.0), (None, None)), ((0.9, 0.25), (None, None))
    known = {"untranslated_success": before, "transferred_success": after}
    _print_matrix(ReturnMatrix(**vars(plain) | known))
    err = capsys.readouterr().err
    assert "Success at any step" in err
    assert "100 % → 90 %" in err
    assert "0 % → 25 %" in err


def test_plot_prints_the_papers_table(capsys):
    task_set = write_run(Path("run"), family="metaworld-objects", horizon=500, per_task=0)
    splits = ("train", *(f"train/{name}" for name in task_set.train), "test", "test/push")
    rates = (0.4, *np.linspace(0, 0.8, 5), 0.1, 0.1)
    heading = ["step", "eval/train", "eval/test", *(f"eval/success/{name}" for name in splits)]
    write_csv(Path("run/metrics.csv"), [heading, [2500, 100.0, 5.0, *rates]])
    code, out, err = mcat("plot run --no-detail", capsys)
    assert code == 0, err
    assert "after any of its steps" in out
    assert "| 100.0 | 5.0 | 40.0 % | 10.0 % |" in out
    assert "| 204.1 ± 43.1 | 10.2 ± 8.3 | 53.3 ± 5.4 % | 16.7 ± 13.6 % |" in out
    assert Path("plots/success.png").is_file()
    (curve,) = json.loads(mcat("plot run --no-detail --json", capsys)[1])["curves"]
    assert (curve["final_train_success"], curve["final_test_success"]) == ([0.4], [0.1])
