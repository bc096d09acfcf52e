"""`mcat plot` and `mcat evaluate RUN`: pictures and returns, or one line that says why not."""

import json
import os
import re
import shlex
import subprocess
import sys
from ctypes.util import find_library
from pathlib import Path

import numpy as np
import pytest

from mcat.agents.evaluation import Evaluator
from mcat.cli import run
from mcat.envs import family
from mcat.paper.meta import LEARNER_NOTE
from mcat.safe_io import read_json, write_json
from tests.reports.learning.run_folders import write_policy, write_run

HORIZON = 20


def mcat(command, capsys):
    code = run(shlex.split(command))
    out, err = capsys.readouterr()
    return code, out, err


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """A folder with runs, good and bad ones; few contexts, as t-SNE is slow."""
    monkeypatch.chdir(tmp_path)
    task_set = write_run(tmp_path / "good", horizon=HORIZON, per_task=1)
    write_policy(tmp_path / "good" / "policy.safetensors", task_set)
    hopper = write_run(tmp_path / "hopper", family="hopper-size", per_task=0)
    write_policy(tmp_path / "misfit.safetensors", hopper)
    for name in ("other-kind", "unknown-family", "other-tasks", "misfit", "damaged", "empty"):
        write_run(tmp_path / name, per_task=0)
    _change("other-kind/run.json", lambda record: record.update(kind="translate"))
    _change("unknown-family/run.json", lambda record: record["config"].update(family="ant-criple"))
    _change("other-tasks/run.json", lambda record: record["arena"]["train"].pop())
    Path("misfit.safetensors").rename("misfit/policy.safetensors")
    Path("damaged/metrics.csv").write_text("step,a\n1\n2,3\n")
    Path("damaged/policy.safetensors").write_text("pickle")
    Path("empty/metrics.csv").write_text("step,iteration\n")
    Path("notes").mkdir()
    write_run(tmp_path / "huge", per_task=0)
    text = Path("huge/run.json").read_text()
    Path("huge/run.json").write_text(re.sub(r'"horizon": \d+', '"horizon": 1e999', text))
    Path("file").write_text("precious")


def _change(path, change):
    record = read_json(path)
    change(record)
    write_json(path, record, overwrite=True)


def test_plot_prints_a_table_and_writes_pictures(capsys):
    code, out, err = mcat("plot good --out pictures", capsys)
    assert (code, err) == (0, "")
    heading, _, row, _, note, *paths = out.splitlines()
    assert heading.startswith("| family | method | seeds | steps | final train | final test |")
    assert row == (
        "| ant-cripple | fast, no mirror | 0 | 800 | 300 | 200 | 300 | 200 | 156 (MCAT, 1M) † |"
    )
    assert note == LEARNER_NOTE
    names = ["learning-curves", "tasks", "drivers-good", "contexts-good"]
    assert paths == [*(f"pictures/{name}.png" for name in names), "pictures/learning.html"]
    assert all(Path(path).stat().st_size > 1000 for path in paths)


def test_plot_takes_runs_that_are_still_running_and_names_twice(capsys):
    content = Path("good/metrics.csv").read_bytes()
    Path("good/metrics.csv").write_bytes(content[:-2])
    code, out, err = mcat("plot good ./good empty hopper --labels ants,hoppers", capsys)
    assert code == 0
    notes = err.splitlines()
    assert notes[:2] == [
        "note: good/metrics.csv: its last line is unfinished and left out",
        "note: empty: nothing is measured yet",
    ]
    assert "hopper/contexts.safetensors: not there (yet)" in notes[2]
    rows = out.splitlines()[2:4]
    assert rows[0].startswith("| ant-cripple | ants | 0 | 720 | 100 | 50 |")
    assert rows[1].startswith("| hopper-size | hoppers | 0 | 50,000 | 300 | 200 |")
    assert "plots/drivers-hopper.png" in out
    assert "tasks.png" not in out  # small multiples are for one method


def test_plot_draws_every_run_only_if_there_are_few_or_if_asked_to(tmp_path, capsys):
    for seed in range(4):
        write_run(tmp_path / f"seed{seed}", seed=seed, horizon=HORIZON, per_task=0, evaluations=())
    folders = " ".join(f"seed{seed}" for seed in range(4))
    code, out, err = mcat(f"plot {folders}", capsys)
    assert code == 0
    assert "note: 4 runs: who drove and contexts are left out, --detail shows them" in err
    assert "drivers" not in out
    code, out, err = mcat(f"plot {folders} --detail", capsys)
    assert out.count("plots/drivers-seed") == 4
    assert "--detail" not in err
    code, out, err = mcat("plot seed0 --no-detail", capsys)
    assert "drivers" not in out + err


def test_a_run_that_learned_from_mirror_images_is_evaluated_on_them_too(tmp_path, capsys):
    changes = {"mirror": None}
    task_set = write_run(tmp_path / "mirrored", horizon=HORIZON, changes=changes)
    write_policy(tmp_path / "mirrored" / "policy.safetensors", task_set)
    code, out, err = mcat("evaluate mirrored --episodes 1 --quiet --json", capsys)
    assert code == 0, err
    found = {item["label"]: item["split"] for item in json.loads(out)}
    assert list(found.values()) == ["train"] * 5 + ["test"]
    assert list(found)[4].startswith("ant-cripple0-viewmirror")


def expected_returns(name, episodes=2, seed=5):
    policy = write_policy(Path("same.safetensors"), _task_set())
    tasks = family("ant-cripple").replace(horizon=HORIZON).split(name)
    return [
        Evaluator(task, episodes, seed).returns(policy.start_episode()).tolist() for task in tasks
    ]


def _task_set():
    from mcat.agents.meta.algorithm import TaskSet

    return TaskSet.of(family("ant-cripple"))


def test_evaluate_runs_the_policy_on_the_tasks_of_a_split(capsys):
    for split in ("train", "test", "all"):
        command = f"evaluate good --split {split} --episodes 2 --seed 5 --json"
        code, out, err = mcat(command, capsys)
        assert code == 0, err
        found = json.loads(out)
        assert [item["values"] for item in found] == expected_returns(split)
        assert {item["split"] for item in found} <= {"train", "test"}
        assert split == "all" or {item["split"] for item in found} == {split}
    assert [item["label"] for item in found] == read_json("good/run.json")["arena"]["train"] + [
        *read_json("good/run.json")["arena"]["test"]
    ]


def test_evaluate_prints_a_table_with_the_mean_over_tasks(capsys):
    code, out, err = mcat("evaluate good --seed 5", capsys)
    assert code == 0, err
    assert "10 episodes each" in out
    assert f"{np.mean(expected_returns('train', episodes=10)):,.1f}" in out.split("all 4 train")[1]
    assert "all 1 test" not in out


def test_the_best_policy_is_another_file(capsys):
    write_policy(Path("good/policy-best.safetensors"), _task_set(), seed=1)
    outcomes = [
        mcat(f"evaluate good --episodes 1 --json {best}", capsys) for best in ("", "--best")
    ]
    assert [code for code, _, _ in outcomes] == [0, 0]
    assert outcomes[0][1] != outcomes[1][1]


@pytest.mark.skipif(
    not find_library("OSMesa") and not os.environ.get("DISPLAY"),
    reason="no OSMesa: apt-get install libosmesa6",
)
def test_a_run_is_filmed():
    code = (  # the GL backend is chosen once per process
        "from pathlib import Path; from mcat.envs import backend; backend.choose()\n"
        "from mcat.agents.trained_run import film_run, open_run\n"
        "film_run(open_run(Path('good')), Path('film.gif'), seed=0, steps=2)\n"
        "film_run(open_run(Path('good'), 'test'), Path('film.mp4'), seed=0, steps=2)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    from PIL import Image

    film = Image.open("film.gif")
    assert film.size == (3 * 240, 2 * 180)  # five tasks in two rows
    assert film.n_frames == 3  # the start and two steps
    assert film.convert("RGB").getpixel((719, 359)) == (255, 255, 255)  # no sixth task
    assert Path("film.mp4").read_bytes()[4:8] == b"ftyp"


BAD_CALLS = [
    ("plot", 2, "Missing argument 'RUN...'"),
    ("plot nowhere", 66, "nowhere is no run of mcat metatrain or mcat train or mcat adapt: it has"
                         " no run.json"),
    ("plot file", 66, "file is no run"),
    ("plot good notes", 66, "notes is no run"),
    ("plot other-kind", 65, "not the record of a run of mcat metatrain"),
    ("plot damaged", 65, "damaged/metrics.csv, line 2: 1 values under 2 headings"),
    ("plot empty", 66, "nothing to plot yet"),
    ("plot good --labels a,b", 2, "--labels gives 2 names to 1 curves: good"),
    ("plot good --out file", 73, "cannot write file"),
    ("evaluate", 2, "say what to run: RUN, the folder of a run, or --env ROBOT"),
    ("evaluate --split test --env ant", 2, "--split, --best and --video need RUN"),
    ("evaluate good --env hopper", 2, "is for other tasks and does not fit hopper"),
    ("evaluate good --env ant --split test", 2, "--split and --video are for the tasks of RUN"),
    ("evaluate good --policy good", 2, "good has its own policy: leave out --policy"),
    ("evaluate good --control-cost 0.1", 2, "leave out --control-cost, or name a robot by --env"),
    ("evaluate huge", 65, "run.json"),
    ("plot huge", 65, "run.json"),
    ("evaluate --env ant --policy nope.safetensors", 66, "nope.safetensors is not there"),
    ("evaluate --env ant --policy notes", 66, "notes is no run"),
    ("evaluate good --split tset", 2, "'tset' is not one of"),
    ("evaluate good --episodes 0", 2, "--episodes"),
    ("evaluate good --best", 66, "good has no policy-best.safetensors yet"),
    ("evaluate good --video a.avi", 2, "a name in .mp4 or .gif"),
    ("evaluate good --video no/such/a.gif", 73, "folder no/such does not exist"),
    ("evaluate nowhere", 66, "nowhere is no run"),
    ("evaluate other-kind", 65, "not the record of a run"),
    ("evaluate unknown-family", 65, "did you mean ant-cripple"),
    ("evaluate other-tasks", 65, "its tasks are not those of ant-cripple"),
    ("evaluate misfit", 65, "not a policy for ant-cripple"),
    ("evaluate damaged", 65, "damaged/policy.safetensors"),
]  # fmt: skip


@pytest.mark.parametrize(("command", "code", "message"), BAD_CALLS, ids=[c[0] for c in BAD_CALLS])
def test_bad_input_is_one_clear_line(command, code, message, capsys):
    before = sorted(os.listdir())
    found, out, err = mcat(command, capsys)
    assert message in err
    assert found == code
    lines = [line for line in err.splitlines() if line.strip() and not line.startswith("note:")]
    assert len(lines) <= 3  # click's own errors add usage and a pointer to --help
    assert "Traceback" not in err
    assert not out or command.endswith("--out file")  # there the table is known already
    assert sorted(os.listdir()) == before


@pytest.mark.parametrize("command", ["plot", "evaluate"])
def test_help_says_how(command, capsys):
    code, out, _ = mcat(f"{command} --help", capsys)
    assert code == 0
    assert f"mcat {command} runs/" in out
