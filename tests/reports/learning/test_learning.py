"""What `mcat plot` reads, joins, says and draws."""

import sys
from html.parser import HTMLParser

import numpy as np
import pytest

from mcat.agents.runs.record import RunRecord, read_record
from mcat.errors import DataError, MissingInputError, UsageError
from mcat.reports import figures
from mcat.reports.figures import project
from mcat.reports.groups import Group, group_runs, in_order, short_names
from mcat.reports.learning import figures as learning_figures
from mcat.reports.learning import page as learning
from mcat.reports.learning.sections import (
    contexts_section,
    curves_section,
    drivers_section,
    summary_rows,
    tasks_section,
)
from mcat.reports.printed import paper_cell
from mcat.reports.runs import LearningRun, read_run
from mcat.safe_io import read_json, write_json
from tests.reports.learning.run_folders import write_run


def made_up(metrics, seed=0, **record):
    facts = {"kind": "metatrain", "family": "ant-cripple", "preset": "fast", "config": {},
             "train": ("a", "b"), "test": ("c",), "horizon": 1000, "delay": 500}  # fmt: skip
    facts |= record
    return LearningRun(
        record=RunRecord(folder=f"run{seed}", seed=seed, **facts),
        metrics={name: np.array(values, dtype=float) for name, values in metrics.items()},
    )


def test_a_run_is_read(tmp_path):
    task_set = write_run(tmp_path / "run", seed=4, transfers=[(3, 2, 0)])
    run = read_run(tmp_path / "run")
    assert (run.record.family, run.record.preset, run.record.seed) == ("ant-cripple", "fast", 4)
    assert run.record.tasks == task_set.names
    assert run.steps == 40_000
    steps, values = run.curve("eval/train")
    assert (steps.tolist(), values.tolist()) == ([20_000, 40_000], [100, 300])  # nan left out
    assert run.curve("eval/unknown")[0].size == 0
    assert len(run.episodes) == 40
    assert [e for e in run.episodes if e.driver == task_set.train[0]] == [
        (12_000, task_set.train[2], task_set.train[0])
    ]
    assert run.contexts.points.shape == (15, 8)
    assert run.contexts.tasks[-1] == task_set.test[0]
    assert run.notes == ()


def test_a_run_that_is_still_writing_is_read_up_to_there(tmp_path):
    write_run(tmp_path / "run")
    for name in ("metrics.csv", "episodes.csv"):
        path = tmp_path / "run" / name
        path.write_bytes(path.read_bytes()[:-4])  # 3 digits short: 300.0 would become 30
    run = read_run(tmp_path / "run")
    assert run.steps == 36_000
    assert run.curve("eval/train")[1].tolist() == [100]
    assert len(run.episodes) == 39
    assert ["last line is unfinished" in note for note in run.notes] == [True, True]


def test_what_is_missing_is_noted(tmp_path):
    write_run(tmp_path / "run", evaluations=(), per_task=0)
    (tmp_path / "run" / "episodes.csv").write_text("step,iteration\n4000,1\n")
    run = read_run(tmp_path / "run")
    assert run.episodes == ()
    assert run.contexts is None
    told = " ".join(run.notes)
    for part in ("no column task, driver", "contexts are not shown", "not evaluated yet"):
        assert part in told
    (tmp_path / "run" / "metrics.csv").unlink()
    run = read_run(tmp_path / "run")
    assert run.steps == 0
    assert run.notes == (f"{tmp_path / 'run'}: nothing is measured yet",)
    with pytest.raises(MissingInputError, match="nothing to plot yet"):
        group_runs([run])


@pytest.mark.parametrize("content", [b"not safetensors", None])
def test_damaged_contexts_are_noted_and_the_rest_is_read(tmp_path, content):
    write_run(tmp_path / "run")
    path = tmp_path / "run" / "contexts.safetensors"
    path.write_bytes(content or path.read_bytes()[:-40])
    run = read_run(tmp_path / "run")
    assert run.contexts is None
    assert len(run.notes) == 1
    assert run.steps


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("step,a\n1,2\n3\n4,5\n", "line 3: 1 values under 2 headings"),
        ("step,a\n1,2\n3,x\n", "line 3: 'x' in a is no number"),
        ("iteration,a\n1,2\n", "no column 'step'"),
        ("step,a\nnan,2\n", "a step is no number"),
        ("step,\x00\xff\n", "line|damaged|number"),
    ],
)
def test_a_damaged_table_is_named_with_its_line(tmp_path, text, message):
    write_run(tmp_path / "run")
    (tmp_path / "run" / "metrics.csv").write_text(text + "1\n" if "\x00" in text else text)
    with pytest.raises(DataError, match=message):
        read_run(tmp_path / "run")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "translate"}, "not the record of a run"),
        ({"kind": "train"}, "lacks 'task'"),
        ({"arena": {}}, "lacks 'train'"),
        ({"arena": []}, "not as mcat metatrain writes it"),
        ({"preset": 3}, "3 is no name"),
        ({"config": []}, "not the record of a run"),
        ({"format": 2, "mcat": "3.0"}, "needs mcat >= 3.0"),
        ({"format": "x"}, "does not read"),
    ],
)
def test_a_damaged_record_is_refused(tmp_path, change, message):
    write_run(tmp_path / "run")
    path = tmp_path / "run" / "run.json"
    write_json(path, read_json(path) | change, overwrite=True)
    with pytest.raises(DataError, match=message):
        read_record(tmp_path / "run")


def test_runs_that_differ_in_seed_and_length_are_one_group(tmp_path):
    write_run(tmp_path / "a", seed=0)
    write_run(tmp_path / "b", seed=1, changes={"steps": 9000, "threads": 2})
    write_run(tmp_path / "c", seed=2, changes={"mcat.exploration": 0.2})
    groups = group_runs([read_run(tmp_path / name) for name in "abc"])
    assert [[run.record.seed for run in group.runs] for group in groups] == [[0, 1], [2]]


def test_labels_say_what_was_changed(tmp_path):
    changes = {
        "plain": ("cpu", {}),
        "alone": ("cpu", {"mcat.transfer": False}),
        "bare": ("paper", {"mcat.imitate": False, "mcat.context.contrastive_weight": 0.0}),
        "dense": ("fast", {"delay": 1}),
        "credit": ("cpu", {"mcat.credit.kind": "uniform"}),
    }
    for name, (preset, changed) in changes.items():
        write_run(tmp_path / name, preset=preset, changes=changed, per_task=0)
    groups = group_runs([read_run(tmp_path / name) for name in changes])
    assert [group.label for group in groups] == [
        "cpu",
        "cpu, no transfer",
        "paper, no contrastive loss, no SIL",
        "fast, delay 1, no mirror",
        "cpu, credit uniform",
    ]


def test_mirrored_replay_is_told_only_where_something_is_mirrored(tmp_path):
    for name, family in (("ant", "ant-cripple"), ("cheetah", "halfcheetah-armature")):
        for replay in (False, True):
            changes = {"mirror": None, "mirror_replay": replay}
            write_run(tmp_path / f"{name}-{replay}", family=family, changes=changes, per_task=0)
    groups = group_runs([read_run(path) for path in sorted(tmp_path.iterdir())])
    assert [(group.record.family, group.label, len(group.runs)) for group in groups] == [
        ("ant-cripple", "fast, no mirrored replay", 1),
        ("ant-cripple", "fast", 1),
        ("halfcheetah-armature", "fast", 2),
    ]


def test_runs_of_before_there_was_a_setting_had_its_default(tmp_path):
    """Preset fast has another, so their label names it; a run of today that sets it is alike."""
    cheetahs = "halfcheetah-armature"
    write_run(tmp_path / "today", preset="fast", family=cheetahs)
    write_run(tmp_path / "before", preset="fast", family=cheetahs, seed=1)
    changes = {"mcat.crossq.huber_delta": None}
    write_run(tmp_path / "set", preset="fast", family=cheetahs, changes=changes)
    path = tmp_path / "before" / "run.json"
    record = read_json(path)
    del record["config"]["mcat"]["crossq"]["huber_delta"]
    write_json(path, record, overwrite=True)
    groups = group_runs([read_run(tmp_path / name) for name in ("today", "before", "set")])
    assert [group.label for group in groups] == ["fast", "fast, no Huber loss"]
    assert [len(group.runs) for group in groups] == [1, 2]


def test_equal_labels_get_the_names_of_their_folders():
    runs = [
        made_up({"step": [1]}, seed, preset="mine", config={"x": seed}, family=family)
        for seed, family in enumerate(["ant-cripple", "ant-cripple", "hopper-size"])
    ]
    for run, name in zip(runs, "abc", strict=True):
        object.__setattr__(run.record, "folder", learning.Path(name))
    assert [group.label for group in group_runs(runs)] == ["mine (a)", "mine (b)", "mine"]


def test_labels_of_the_user_are_counted(tmp_path):
    write_run(tmp_path / "a", per_task=0)
    write_run(tmp_path / "b", per_task=0, preset="cpu")
    runs = [read_run(tmp_path / name) for name in "ab"]
    assert [group.label for group in group_runs(runs, ["x", "y"])] == ["x", "y"]
    with pytest.raises(UsageError, match="gives 1 names to 2 curves: a; b"):
        group_runs(runs, ["x"])


def test_the_mean_over_runs_ends_where_the_shortest_does():
    nan = float("nan")
    one = made_up({"step": [10, 20, 30, 40], "eval/train": [nan, 0, 10, 20]})
    two = made_up({"step": [10, 20, 30, 40], "eval/train": [5, 2, nan, nan]}, seed=1)
    three = made_up({"step": [15, 35], "eval/train": [1, 21]}, seed=2)
    none = made_up({"step": [10], "eval/train": [nan]}, seed=3)
    curve = Group(label="", runs=(one, three, none)).curve("eval/train")
    assert curve.steps.tolist() == [20, 30, 35]
    assert curve.mean.tolist() == [3, 13, 18]  # of (0, 6), (10, 16), (15, 21)
    assert curve.error == pytest.approx([3, 3, 3])
    alone = Group(label="", runs=(one, two)).curve("eval/train")
    assert (alone.steps.tolist(), alone.mean.tolist()) == ([20], [1])
    assert Group(label="", runs=(one, two)).curve("eval/none") is None


def test_the_table_takes_the_best_by_training_tasks():
    runs = [
        made_up({"step": [1000, 2000], "eval/train": [9, 5], "eval/test": [3, 8]}),
        made_up({"step": [1000, 3000], "eval/train": [1, 7], "eval/test": [0, 4]}, seed=1),
    ]
    _, row = summary_rows([Group(label="fast", runs=tuple(runs))])
    assert row == ("ant-cripple", "fast", "0, 1", "2,000–3,000", "6 ± 1", "6 ± 2", "8 ± 1",
                   "4 ± 0", "156 (MCAT, 1M) †")  # fmt: skip


def test_the_papers_number_is_for_its_own_delay():
    run = made_up({"step": [1]})
    assert paper_cell(Group(label="", runs=(run,))) == "156 (MCAT, 1M) †"
    assert paper_cell(Group(label="", runs=(made_up({}, delay=1),))) == "–"
    assert paper_cell(Group(label="", runs=(made_up({}, family="ant-heatmap"),))) == "–"


def test_names_lose_what_all_share_and_sort_by_number():
    names = [f"cheetah-armature{a}-delay500" for a in (0.2, 0.05, 10)]
    assert list(short_names(names).values()) == ["armature0.2", "armature0.05", "armature10"]
    assert in_order(short_names(names).values()) == ["armature0.05", "armature0.2", "armature10"]
    assert short_names(["push", "coffee-push"]) == {"push": "push", "coffee-push": "coffee-push"}
    assert short_names(["a-b"]) == {"a-b": "a-b"}
    assert in_order(["soccer", "drawer"]) == ["soccer", "drawer"]
    assert in_order(["cripple0", "cripplenone"]) == ["cripplenone", "cripple0"]


def test_sections_count_transfers_and_contexts(tmp_path):
    write_run(tmp_path / "run", transfers=[(3, 2, 0), (4, 2, 0), (4, 1, 3)])
    run = read_run(tmp_path / "run")
    section = drivers_section(run, "drivers")
    assert section.finding == (
        "3 of 40 episodes (8 %) were driven by a transferred policy, most often"
        " cripplenone → cripple1 (2)"
    )
    assert section.rows[0][1:] == (
        "random",
        "shared",
        "cripplenone",
        *(f"cripple{i}" for i in "012"),
    )
    assert section.rows[3] == ("cripple1", "1", "7", "2", "0", "0", "0")
    section = contexts_section(run, run.contexts, "contexts")
    assert section.finding.startswith("100 % of the contexts")
    assert [row[0] for row in section.rows[1:]] == ["cripplenone", *(f"cripple{i}" for i in "0123")]
    group = Group(label="fast", runs=(run,))
    assert tasks_section(group).finding == "From 204 on cripple3 to 303 on cripple2"
    assert curves_section([group]).finding == "Return on test tasks: fast 200"


@pytest.fixture
def drawn(monkeypatch):
    """Drawing functions return the figure instead of its PNG."""
    for module in (figures, learning_figures):
        monkeypatch.setattr(module, "png", lambda figure: figure)
    return learning_figures


def test_curves_show_means_bands_and_the_papers_line(tmp_path, drawn):
    write_run(tmp_path / "a", seed=0, per_task=0)
    later = [(5, 200, 150), (10, 500, 300)]
    write_run(tmp_path / "b", seed=1, per_task=0, evaluations=later)
    write_run(tmp_path / "c", preset="cpu", per_task=0, evaluations=())
    groups = group_runs([read_run(tmp_path / name) for name in "abc"])
    train, test = figures.draw_curves(groups, "title").axes
    means = [line.get_ydata().tolist() for line in train.get_lines() if line.get_linewidth() > 1]
    assert means == [[150, 400]]
    (band,) = train.collections
    (path,) = band.get_paths()
    assert (path.vertices[:, 1].min(), path.vertices[:, 1].max()) == (100, 500)
    assert [text.get_text() for text in test.texts] == ["paper, MCAT at 1M: 156"]
    assert [text.get_text() for text in train.texts] == ["paper, MCAT at 2M: 110"]
    assert (train.get_title("left"), test.get_title("left")) == (
        "ant-cripple: train tasks",
        "ant-cripple: test tasks",
    )


def test_every_task_has_a_panel_and_test_tasks_another_colour(tmp_path, drawn):
    write_run(tmp_path / "a", per_task=0)
    panels = drawn.draw_tasks(*group_runs([read_run(tmp_path / "a")]), "title").axes
    assert [axes.get_title("left").split()[0] for axes in panels] == [
        "cripplenone", "cripple0", "cripple1", "cripple2", "cripple3"
    ]  # fmt: skip
    colours = [axes.get_lines()[0].get_color() for axes in panels]
    assert len(set(colours[:4])) == 1
    assert colours[4] != colours[0]


def test_strips_show_who_drove_when(tmp_path, drawn):
    task_set = write_run(tmp_path / "a", per_task=0, transfers=[(3, 2, 0)])
    run = read_run(tmp_path / "a")
    lost = [e for e in run.episodes if (e.step, e.task) != (40_000, task_set.train[0])]
    object.__setattr__(run, "episodes", tuple(lost))  # its physics diverged
    strip, table = drawn.draw_drivers(run, "title").axes
    shown = strip.collections[0].get_array()
    assert shown.shape == (4, 10)
    assert shown[2].tolist() == [0, 1, 2, 1, 1, 1, 1, 1, 1, 1]  # random, shared, first task
    assert shown.mask[0].tolist() == [False] * 9 + [True]
    assert [text.get_text() for text in table.texts] == [
        "1",
        "8",
        "1",
        "9",
        "1",
        "8",
        "1",
        "1",
        "9",
    ]


def test_contexts_of_test_tasks_are_hollow(tmp_path, drawn):
    write_run(tmp_path / "a")
    run = read_run(tmp_path / "a")
    (axes,) = drawn.draw_contexts(run, run.contexts, "title").axes
    names = [dots.get_label() for dots in axes.collections]
    assert names == ["cripplenone", "cripple0", "cripple1", "cripple2", "cripple3 (test)"]
    assert [len(dots.get_facecolors()) for dots in axes.collections] == [1, 1, 1, 1, 0]
    edges = {tuple(dots.get_edgecolors()[0]) for dots in axes.collections}
    assert len(edges) == 5


@pytest.mark.parametrize("points", [np.zeros((20, 4)), np.arange(15.0)[:, None]])
def test_contexts_that_say_little_are_drawn_nevertheless(points):
    places, _ = project(points, seed=0)
    assert places.shape == (len(points), 2)
    assert np.isfinite(places).all()


def test_the_page_holds_every_picture_and_no_foreign_markup(tmp_path):
    write_run(tmp_path / "<b>$x", transfers=[(3, 2, 0)])
    path = tmp_path / "<b>$x" / "run.json"
    text = path.read_text().replace("ant-cripplenone", "<script>$a_$")
    path.write_text(text)
    paths = list(learning.write_learning(group_runs([read_run(path.parent)]), tmp_path / "out"))
    names = ["learning-curves", "tasks", "drivers-<b>$x", "contexts-<b>$x"]
    assert [p.name for p in paths] == [*(f"{name}.png" for name in names), "learning.html"]
    for picture in paths[:-1]:
        assert picture.read_bytes().startswith(b"\x89PNG")
    seen = []
    parser = HTMLParser()
    parser.handle_starttag = lambda tag, attributes: seen.append(tag)
    parser.feed(paths[-1].read_text())
    assert seen.count("img") == 4
    assert not {"script", "b"} & set(seen)


def test_runs_of_one_name_do_not_overwrite_each_other(tmp_path):
    for place in "ab":
        write_run(tmp_path / place / "run", preset="cpu" if place == "a" else "fast", per_task=0)
    groups = group_runs([read_run(tmp_path / place / "run") for place in "ab"])
    paths = list(learning.write_learning(groups, tmp_path / "out"))
    assert {p.stem for p in paths} >= {"drivers-run", "drivers-run-2"}


@pytest.mark.parametrize(
    ("runs", "detail", "shown", "note"),
    [
        (3, None, True, ""),
        (4, None, False, "4 runs: who drove and contexts are left out, --detail shows them"),
        (4, True, True, ""),
        (1, False, False, "who drove and contexts are left out"),
    ],
)
def test_single_runs_are_shown_if_there_are_few_or_if_asked_for(
    tmp_path, runs, detail, shown, note
):
    for seed in range(runs):
        write_run(tmp_path / f"run{seed}", seed=seed, per_task=0, horizon=10, evaluations=())
    groups = group_runs([read_run(tmp_path / f"run{seed}") for seed in range(runs)])
    assert learning.without_detail(groups, detail) == note
    *pictures, page = learning.write_learning(groups, tmp_path / "out", detail=detail)
    assert [p.stem for p in pictures] == [f"drivers-run{n}" for n in range(runs) if shown]
    assert ("left out" in page.read_text()) is not shown


def test_without_matplotlib_it_says_what_to_install(tmp_path, monkeypatch):
    write_run(tmp_path / "run")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingInputError, match=r"pip install 'mcat-rl\[plot\]'"):
        list(learning.write_learning(group_runs([read_run(tmp_path / "run")]), tmp_path / "out"))
