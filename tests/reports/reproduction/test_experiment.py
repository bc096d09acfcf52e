"""Tables of the paper that are made from runs: numbers by hand, pages, calls that are refused."""

import json
from dataclasses import replace

import numpy as np
import pytest

from mcat.agents.meta.config import PRESETS
from mcat.cli import run
from mcat.config import overlay, to_json
from mcat.paper.experiments import EXPERIMENTS
from mcat.reports.reproduction.experiment import lines_of, table_of, write_experiment
from mcat.reports.runs import Contexts
from tests.reports.comparison.made_up import made_up

EFFECT = EXPERIMENTS["transfer-effect"]
TASKS = ("a", "c"), ("b",)


def of_preset(compared, preset="cpu", **changes):
    """The same run, with the settings of a preset."""
    record = compared.run.record
    config = overlay(PRESETS[preset], {"family": record.family, "mirror": False} | changes)
    record = replace(record, preset=preset, config=to_json(config))
    return replace(compared, run=replace(compared.run, record=record))


def pair(preset="cpu", family="ant-cripple", seeds=(0, 1), **more):
    """Without transfer 80 and 90 (train 10), with it 100 and 140 (train 30)."""
    many = len(more.get("tasks", (("a",),))[0])
    found = []
    for variant, first, step, train, changes in (
        ("no transfer", 80, 10, 10, {"mcat.transfer": False}),
        ("MCAT", 100, 40, 30, {}),
    ):
        for seed in seeds:
            earned = {"train": [0, train] * many, "family": family, **more}
            run = made_up(variant, seed, [0, first + step * seed], **earned)
            found.append(of_preset(run, preset, **changes))
    return found


def test_each_variant_stands_beside_the_number_of_its_own_setting():
    rows = table_of(EFFECT, lines_of(EFFECT, pair()))
    assert rows == [
        ("family", "variant", "seeds", "steps", "test return", "train return"),
        ("ant-cripple", "no transfer", "0, 1", "200", "85.0 ± 5.0 [92.4 at 1M]", "10.0 ± 0.0"),
        ("ant-cripple", "MCAT", "0, 1", "200", "120.0 ± 20.0 [155.7 at 1M]",
         "30.0 ± 0.0 [110.4 ± 30.5 at 2M]"),
        ("ant-cripple", "improvement", "", "", "+41.2 % [+68.5 %]", "+200.0 %"),
    ]  # fmt: skip


def test_another_learner_is_marked():
    rows = table_of(EFFECT, lines_of(EFFECT, pair("fast", seeds=(0,))))
    assert rows[1][4] == "80.0 [92.4 at 1M †]"
    assert rows[2][4] == "100.0 [155.7 at 1M †]"


def test_mirror_images_are_told_of_and_have_no_number(tmp_path):
    runs = [of_preset(run, "fast", mirror=None) for run in pair(seeds=(0,))]
    tasks = (*runs[1].run.record.train, "ant-cripple0-viewmirror")
    record = replace(runs[1].run.record, train=tasks)
    runs[1] = replace(runs[1], run=replace(runs[1].run, record=record))
    _, page, *_ = write_experiment("transfer-effect", EFFECT, runs, tmp_path, "mcat")
    assert "ant-cripple: mirror images are trained on too" in page.read_text()
    assert "| MCAT | 0 | 200 | 100.0 |" in page.read_text()


def test_runs_are_looked_at_where_all_have_come():
    slow = of_preset(made_up("MCAT", 5, [50], train=[1], steps=(100,)))
    rows = table_of(EFFECT, lines_of(EFFECT, [*pair(), slow]))
    assert [row[2:4] for row in rows[1:3]] == [("0, 1", "100"), ("0, 1, 5", "100")]


def test_delays_have_lines_of_their_own():
    late = [replace(run, where="delay 200") for run in pair(family="halfcheetah-mass", delay=200)]
    rows = table_of(EXPERIMENTS["delays"], lines_of(EXPERIMENTS["delays"], late))
    assert rows[1][:2] == ("halfcheetah-mass, delay 200", "no transfer")
    assert rows[1][4].endswith("[709.6 at 1M]")
    assert rows[3][4].endswith("[-6.0 %]")


def test_success_rates_are_in_percent():
    objects = made_up("MCAT", 0, [0, 5], train=[0, 9], family="metaworld-objects")
    rates = {"eval/success/train/a": np.array([0, 0.25]), "eval/success/test/b": np.array([0, 0])}
    objects = replace(objects, run=replace(objects.run, metrics=objects.run.metrics | rates))
    experiment = EXPERIMENTS["metaworld"]
    rows = table_of(experiment, lines_of(experiment, [of_preset(objects)]))
    assert rows[1][4:] == (
        "9.0 [204.1 ± 43.1 at 2M]",
        "5.0 [10.2 ± 8.3 at 2M]",
        "25.0 % [53.3 ± 5.4 % at 2M]",
        "0.0 % [16.7 ± 13.6 % at 2M]",
    )


def with_contexts(compared, spread):
    """Of the training tasks a and c, `spread` apart, and of the test task b."""
    points = np.random.default_rng(0).normal(size=(60, 3))
    points += spread * (np.arange(60)[:, None] // 20)
    tasks = ("a",) * 20 + ("c",) * 20 + ("b",) * 20
    return replace(compared, run=replace(compared.run, contexts=Contexts(points, tasks)))


def test_the_page_has_budgets_pictures_and_contexts(tmp_path):
    experiment = EXPERIMENTS["contrastive"]
    runs = [
        with_contexts(run, 50.0 * (run.variant == "MCAT")) for run in pair(seeds=(0,), tasks=TASKS)
    ]
    runs[0] = replace(runs[0], state="running")
    paths = write_experiment("contrastive", experiment, runs, tmp_path, "mcat reproduce x")
    ends = ["contrastive json", "contrastive md", "contrastive png", "contrastive-contexts png"]
    assert [" ".join(path.name.split(".")) for path in paths] == ends
    page = paths[1].read_text()
    assert "`mcat reproduce x`, preset cpu" in page
    assert "Budget: 200 steps; the paper's: not said." in page
    assert "1 of 2 runs are not finished." in page
    assert "MCAT: 100 % of the contexts lie nearest" in page
    assert runs[1].run.trained_contexts().tasks == ("a",) * 20 + ("c",) * 20
    written = json.loads(paths[0].read_text())
    assert written["rows"][1]["earned"]["eval/test"] == {"0": 100.0}
    assert written["rows"][1]["printed"]["eval/test"]["mean"] == 155.7
    write_experiment("contrastive", experiment, runs, tmp_path, "again")  # over the old ones


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["tabel1"], "unknown table 'tabel1'"),
        (["no-sil", "--preset", "fast"], "preset fast has no self-imitation to leave out: take one"
         " of cpu, paper, released, smoke"),
        (["families", "--preset", "big"], "unknown preset 'big'"),
        (["families", "--row", "ant"], "unknown row 'ant'"),
        (["metaworld", "--row", "ant-cripple"], "unknown row 'ant-cripple'"),
        (["delays", "--workers", "2"], "made from runs of mcat metatrain: leave out --workers"),
        (["table1", "--steps", "9"], "table1 is made from translators: leave out --steps"),
        (["delays", "--no-run", "--seeds", "1"], "--no-run takes the runs that are there: leave"
         " out --seeds"),
        (["delays", "--no-run"], "mcat reproduce delays makes them"),
        (["delays", "--seeds", "x"], "--seeds takes numbers"),
    ],
)  # fmt: skip
def test_calls_that_make_no_sense_start_nothing(words, said, tmp_path, capsys):
    places = ["--work", str(tmp_path / "work"), "--out", str(tmp_path / "out")]
    assert run(["reproduce", *words, *places]) in (2, 66)
    error = capsys.readouterr().err
    assert said in error
    assert len(error.strip().splitlines()) == 1
    assert not (tmp_path / "work").exists()


def test_the_table_and_its_files_can_be_had_as_json(tmp_path, capsys, monkeypatch):
    def made(name, **given):
        return write_experiment(name, EXPERIMENTS[name], pair(), given["out"], "mcat"), False

    monkeypatch.setattr("mcat.commands.reproduced.reproduce_runs", made)
    call = ["reproduce", "contrastive", "--no-run", "--out", str(tmp_path)]
    assert run([*call, "--json"]) == 1  # some runs are not finished
    told = json.loads(capsys.readouterr().out)
    assert (told["table"], told["files"][0]) == ("contrastive", str(tmp_path / "contrastive.json"))
    assert run(call) == 1
    assert capsys.readouterr().out.splitlines() == told["files"]


@pytest.mark.slow
def test_a_table_is_made_from_nothing_and_then_from_what_is_there(tmp_path, capsys):
    places = ["--work", str(tmp_path / "work"), "--out", str(tmp_path / "out"), "--quiet"]
    words = ["--preset", "smoke", "--steps", "10000", "--row", "halfcheetah-armature", "--seeds",
             "0", "--jobs", "1"]  # fmt: skip
    assert run(["reproduce", "contrastive", *words, *places]) == 0
    assert "2 runs of 10,000 steps each; the paper does not say" in capsys.readouterr().err
    first = (tmp_path / "out" / "contrastive.json").read_text()
    assert run(["reproduce", "contrastive", "--no-run", *places]) == 0
    again = json.loads((tmp_path / "out" / "contrastive.json").read_text())
    assert again["rows"] == json.loads(first)["rows"]
    assert (tmp_path / "work" / "contrastive" / "plan.toml").is_file()
