"""A resumed run believes only what is its own, and says what is not."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mcat.agents.meta.algorithm import TaskSet
from mcat.agents.meta.run import metatrain
from mcat.agents.meta.run import read_config as read_meta_config
from mcat.agents.runs.folder import CsvLog, remove_stale_files
from mcat.agents.single.run import read_config, train
from mcat.errors import DataError, MissingInputError
from mcat.tensor_files import load_safetensors, save_safetensors
from tests.agents.meta import test_loop
from tests.agents.meta.point_mass import tiny_config, tiny_task_set
from tests.agents.meta.test_loop import clean, contents, play  # noqa: F401
from tests.agents.single import test_train
from tests.agents.single.test_train import small_and_fast  # noqa: F401


@pytest.fixture(autouse=True, scope="module")
def point_masses():
    """`metatrain` itself, with point masses in place of the family's robots."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TaskSet, "of", staticmethod(lambda family: tiny_task_set()))
        patch.setattr("mcat.agents.meta.mcat.GOOD_ENOUGH", {})
        patch.setattr(test_loop.safe_io, "flush_to_disk", lambda path: None)
        yield


@pytest.fixture(scope="module")
def halves(tmp_path_factory):
    """Half a run of each command, and half of another with the next seed."""
    folder = tmp_path_factory.mktemp("halves")
    for seed in (0, 1):
        metatrain(tiny_config(steps=180, seed=seed), folder / f"meta{seed}", quiet=True)
        test_train.go(folder / f"train{seed}", steps=120, seed=seed, checkpoint_every=60)
    return folder


@pytest.fixture
def run(halves, tmp_path):
    """Copies of them to spoil."""
    shutil.copytree(halves, tmp_path / "runs")
    return tmp_path / "runs"


def go_on(folder: Path) -> list[str]:
    """To the end; returns what was announced, and the code of the package is no matter here."""
    said: list[str] = []
    if folder.name.startswith("meta"):
        longer = replace(read_meta_config(folder), steps=360)
        metatrain(longer, folder, resume=True, quiet=True, notify=said.append)
    else:
        config = test_train.config(checkpoint_every=60)
        train(config, folder, resume=True, quiet=True, notify=said.append)
    return said


def whole(folder: Path) -> dict[str, str]:
    """What a run left, but for what its first half alone leaves."""
    if folder.name.startswith("meta"):
        found = contents(folder)
        return {name: found[name] for name in ("episodes", "policy", "metrics")}
    found = test_train.contents(folder)
    found.pop("policy-120.safetensors", None)
    return found


def files(folder: Path) -> dict[Path, bytes]:
    return {p: p.read_bytes() for p in folder.rglob("*") if p.is_file() and p.name != ".lock"}


def refused(folder: Path, match: str, kind: type[Exception] = DataError) -> None:
    """One line, and nothing is changed."""
    before = files(folder)
    with pytest.raises(kind, match=match) as caught:
        go_on(folder)
    assert len(str(caught.value).splitlines()) == 1
    assert files(folder) == before


@pytest.fixture(scope="module")
def ends(halves, tmp_path_factory):
    """What an unspoiled half of each command goes on to."""
    folder = tmp_path_factory.mktemp("expected")
    found = {}
    for name in ("meta0", "train0"):
        shutil.copytree(halves / name, folder / name)
        assert go_on(folder / name) == []
        found[name] = whole(folder / name)
    return found


@pytest.fixture
def expected(ends):
    return {name: dict(found) for name, found in ends.items()}


# --- tables -----------------------------------------------------------------------------------

DAMAGES = {
    "a blank line": lambda path: path.write_bytes(path.read_bytes() + b"\n"),
    "one row left": lambda path: path.write_bytes(b"".join(path.open("rb").readlines()[:2])),
    "no file": lambda path: path.unlink(),
}


@pytest.mark.parametrize(
    ("name", "damage"), [*(("meta0", damage) for damage in DAMAGES), ("train0", "one row left")]
)
def test_a_damaged_table_comes_back_whole(run, expected, name, damage):
    for path in (run / name).glob("*.csv"):
        DAMAGES[damage](path)
    said = go_on(run / name)
    assert whole(run / name) == expected[name]
    if damage != "a blank line":  # that only follows what was saved
        assert all("is damaged: restored from the checkpoint" in line for line in said)
        assert len(said) == len(list((run / name).glob("*.csv")))


def test_any_damage_of_a_table_is_repaired_and_what_it_held_put_aside(tmp_path):
    table = CsvLog(tmp_path / "metrics.csv", ("step", "value"))
    table.add({"step": 1, "value": 0.5}, {"step": 2, "value": 1.5})
    text, rng = table.text, np.random.default_rng(0)
    for _ in range(200):
        content = bytearray(text.encode())
        for place in rng.integers(len(content), size=rng.integers(1, 4)):
            content[place] = rng.integers(256)
        content = content[: rng.integers(len(content) + 1)]
        table.path.write_bytes(content)
        said: list[str] = []
        again = CsvLog(table.path, table.columns)
        again.restore(text, said.append)
        assert again.text == text
        assert table.path.read_bytes() == text.encode()
        assert bool(said) == (bytes(content) != text.encode())
        if said and content:
            assert (tmp_path / "metrics.csv.damaged").read_bytes() == content


def test_rows_after_the_checkpoint_are_dropped_without_a_word(tmp_path):
    table = CsvLog(tmp_path / "metrics.csv", ("step", "value"))
    table.add({"step": 1, "value": 0.5})
    saved = table.text
    table.add({"step": 2, "value": 1.5})
    said: list[str] = []
    CsvLog(table.path, table.columns).restore(saved, said.append)
    assert said == []
    assert table.path.read_bytes() == saved.encode()


def test_a_table_without_rows_is_not_missed(tmp_path):
    said: list[str] = []
    CsvLog(tmp_path / "metrics.csv", ("step",)).restore("step\r\n", said.append)
    assert said == []
    assert not list(tmp_path.iterdir())


def test_a_table_of_other_columns_is_refused(tmp_path):
    with pytest.raises(DataError, match="columns"):
        CsvLog(tmp_path / "metrics.csv", ("step", "other")).restore("step,value\r\n", print)


# --- run.json ---------------------------------------------------------------------------------

EDITS = [
    ("meta0", "seed", 7, "seed: 0 there, 7 here"),
    ("meta0", "mcat.td3.discount", 0.5, "mcat.td3.discount: 0.9 there, 0.5 here"),
    ("meta0", "evaluation_episodes", 3, "evaluation_episodes: 2 there, 3 here"),
    ("train0", "seed", 7, "seed: 0 there, 7 here"),
    ("train0", "td3.discount", 0.5, "td3.discount: 0.99 there, 0.5 here"),
    ("train0", "task.armature", 0.2, "task.armature: unknown there, 0.2 here"),
]


@pytest.mark.parametrize(
    ("name", "key", "value", "words"), EDITS, ids=[f"{e[0]} {e[1]}" for e in EDITS]
)
def test_a_record_that_was_edited_is_refused_by_the_name_of_the_key(run, name, key, value, words):
    path = run / name / "run.json"
    record = json.loads(path.read_text())
    *groups, last = key.split(".")
    place = record["config"]
    for group in groups:
        place = place[group]
    place[last] = value
    path.write_text(json.dumps(record))
    if name == "train0":
        before = files(run / name)
        with pytest.raises(DataError, match=words):  # as the command goes on, by the record alone
            train(read_config(run / name), run / name, resume=True, quiet=True)
        assert files(run / name) == before
    else:
        refused(run / name, words)


def test_a_record_of_other_tasks_is_refused(run):
    path = run / "meta0/run.json"
    record = json.loads(path.read_text())
    record["arena"]["train"][0] = "another"
    path.write_text(json.dumps(record))
    refused(run / "meta0", "tasks are not those")


# --- checkpoints and replay of another run -----------------------------------------------------


@pytest.mark.parametrize("name", ["meta", "train"])
def test_another_runs_checkpoint_is_passed_over_with_a_line(run, expected, name):
    newest = sorted((run / f"{name}1/checkpoints").iterdir())[-1]
    shutil.copy(newest, run / f"{name}0/checkpoints")
    later = newest.name.replace("0000000", "0000009")  # of a run that had come further
    shutil.copy(newest, run / f"{name}0/checkpoints" / later)
    said = go_on(run / f"{name}0")
    assert len(said) == 2
    assert all("other settings" in line and "seed: 1 there, 0 here" in line for line in said)
    (run / f"{name}0/checkpoints" / later).unlink()
    found, wanted = whole(run / f"{name}0"), expected[f"{name}0"]
    if name == "meta":  # a half evaluates at its end, which the step that is done again does not
        found.pop("metrics"), wanted.pop("metrics")
    assert found == wanted


@pytest.mark.parametrize("name", ["meta", "train"])
def test_checkpoints_that_are_all_another_runs_are_refused(run, name):
    shutil.rmtree(run / f"{name}0/checkpoints")
    shutil.copytree(run / f"{name}1/checkpoints", run / f"{name}0/checkpoints")
    refused(run / f"{name}0", "seed: 1 there, 0 here")


@pytest.mark.parametrize(
    ("name", "file"),
    [("meta", "round-00002.safetensors"), ("train", "segment-00001.safetensors")],
)
def test_another_runs_replay_is_refused_by_name(run, name, file):
    shutil.copy(run / f"{name}1/replay" / file, run / f"{name}0/replay" / file)
    refused(run / f"{name}0", f"{file}: not (the round that this run collected|what this run saw)")


@pytest.mark.parametrize("name", ["meta0", "train0"])
def test_a_run_that_lost_its_checkpoints_does_not_start_again(run, name):
    shutil.rmtree(run / name / "checkpoints")
    refused(run / name, "checkpoints is empty, but the run has come further", MissingInputError)


@pytest.mark.parametrize("name", ["meta0", "train0"])
@pytest.mark.parametrize(
    ("header", "words"),
    [
        ({"format": 1}, "only that one can go on"),
        ({"format": 9, "mcat": "7.0"}, "needs mcat >= 7.0"),
    ],
)
def test_checkpoints_of_other_formats_say_which_mcat_reads_them(run, name, header, words):
    for path in (run / name / "checkpoints").iterdir():
        arrays, old = load_safetensors(path)
        save_safetensors(path, arrays, old | header, overwrite=True)
    refused(run / name, words)


def test_only_our_own_unfinished_files_are_removed(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    mine = [tmp_path / ".mine.part-time", tmp_path / f"notes.part-{'0' * 32}"]
    stale = tmp_path / f"checkpoints/.step-7.safetensors.part-{'0' * 32}"
    for path in (*mine, stale):
        path.write_text("precious")
    (tmp_path / f".tr.part-{'1' * 32}").mkdir()
    remove_stale_files(tmp_path)
    assert not stale.exists()
    assert all(path.exists() for path in mine)
    assert (tmp_path / f".tr.part-{'1' * 32}").is_dir()


@pytest.mark.parametrize("name", ["meta0", "train0"])
def test_a_checkpoint_that_holds_something_else_is_refused_in_a_line(run, name):
    paths = sorted((run / name / "checkpoints").iterdir())
    arrays, header = load_safetensors(paths[-1])
    for key in header.keys() - {"format", "mcat", "kind", "best"}:
        for value in ("x", [{}]):
            if type(value) is type(header[key]):
                continue
            for path in paths:
                save_safetensors(path, arrays, header | {key: value}, overwrite=True)
            with pytest.raises(DataError):
                go_on(run / name)
