"""`mcat reproduce`: its rows, on a table small enough for a test, and its pages."""

import json
import os
import shutil
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mcat.agents.evaluation import Evaluator
from mcat.cli import run
from mcat.datasets.shards import claim_shards
from mcat.envs.families import family
from mcat.envs.tasks import Task
from mcat.errors import McatError, UsageError
from mcat.paper import run as module
from mcat.paper.config import ReproduceConfig
from mcat.paper.run import reproduce
from mcat.paper.summary import Cell, RowSummary, Summary
from mcat.paper.tables import TABLES, Log, PaperTable, PolicyOf, TableRow
from mcat.reports.reproduction.page import _table, write_reproduction
from mcat.safe_io import read_json
from mcat.tensor_files import load_safetensors
from mcat.transfer import alternatives
from mcat.transfer.result import GUESSED, ON_SOURCE, UNTRANSLATED
from mcat.translator.recipes import RECIPES
from mcat.workplaces import new_folder

SOURCE, TARGET = (Task("halfcheetah", armature=a, horizon=40) for a in (0.1, 0.5))


def random_log(task):
    return Log(name=task.label("armature"), task=task, policy=PolicyOf("random", task), steps=400)


SMALL = PaperTable(
    title="A small one",
    rows=(
        TableRow(
            name="pair",
            sources=lambda preset: (random_log(SOURCE),),
            targets=lambda preset: (random_log(TARGET),),
            policy=PolicyOf("good", SOURCE),
            printed={ON_SOURCE: (5121.4, None), "ours": (2937.2, 9.5)},
        ),
        TableRow(
            name="alone",
            sources=lambda preset: (random_log(SOURCE),),
            targets=lambda preset: (random_log(TARGET),),
            policy=PolicyOf("good", SOURCE),
            methods=("cloning", "offline-rl"),
        ),
        TableRow(
            name="many",
            tasks=lambda preset: (random_log(SOURCE), random_log(TARGET)),
            methods=("ours",),
        ),
    ),
)


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    work = tmp_path_factory.mktemp("work")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(TABLES, "small", SMALL)
        config = ReproduceConfig(table="small", preset="smoke", seeds=(0, 1), episodes=2)
        said = [[], []]
        summaries = [reproduce(config, work, quiet=True, notify=calls.append) for calls in said]
    return work, summaries, said


def test_every_method_and_seed_is_in_the_table(done):
    _, (summary, _), _ = done
    pair, alone, many = summary.rows
    assert set(pair.cells) == {ON_SOURCE, UNTRANSLATED, "ours", "cycle"}
    assert set(alone.cells) == {"cloning", "offline-rl"}
    for cell in alone.cells.values():
        assert cell.seeds == (0, 1)
        assert len(set(cell.means)) == 2
    for cell in pair.cells.values():
        assert len(cell.means) == 2
        assert cell.mean == pytest.approx(sum(cell.means) / 2)
    assert pair.cells["ours"].means != pair.cells["cycle"].means
    assert len(many.matrices) == 2
    assert len(many.matrices[0].transferred) == 2


def test_what_is_finished_is_not_done_again(done):
    work, summaries, said = done
    assert sum(line.startswith("collecting") for line in said[0]) == 2  # shared by both rows
    assert sum("seed" in line for line in said[0]) == 10
    assert said[1] == []
    assert summaries[1].rows == summaries[0].rows
    assert (work / "small/smoke/pair-cycle-seed1/result.json").is_file()


def test_a_stopped_run_goes_on_where_it_was(done, tmp_path, monkeypatch):
    monkeypatch.setitem(TABLES, "small", SMALL)
    calls = []

    def stop(config, *rest, **options):
        calls.append(config.seed)
        raise KeyboardInterrupt

    config = ReproduceConfig(table="small", rows=("many",), preset="smoke", seeds=(0,), episodes=1)
    with monkeypatch.context() as patch:
        patch.setattr(module, "translate", stop)
        with pytest.raises(KeyboardInterrupt):
            reproduce(config, tmp_path, quiet=True)
    said = []
    summary = reproduce(config, tmp_path, quiet=True, notify=said.append)
    assert calls == [0]
    assert not any(line.startswith("collecting") for line in said)
    assert [row.name for row in summary.rows] == ["many"]


def test_the_page_shows_ours_beside_the_papers(done, small_table, tmp_path):
    _, (summary, _), _ = done
    paths = write_reproduction(summary, tmp_path)
    assert [path.suffix for path in paths] == [".json", ".md", ".png"]
    written = json.loads(paths[0].read_text())
    assert written["rows"] == json.loads(json.dumps(summary.to_json()["rows"]))
    assert written["rows"][0]["cells"]["ours"]["mean"] == summary.rows[0].cells["ours"].mean
    page = paths[1].read_text()
    ours = summary.rows[0].cells["ours"]
    assert f"{ours.mean:,.1f} ± {ours.error:,.1f} [2,937.2 ± 9.5]" in page
    assert "small.png" in page
    assert "many, seed 1" in page
    assert "many, mean ± standard error over 2 seeds" in page
    assert paths[2].stat().st_size > 10_000
    write_reproduction(summary, tmp_path)  # again, over the old ones
    assert read_json(paths[0])["rows"] == written["rows"]


def test_a_table_can_be_made_in_parts(done, small_table, tmp_path):
    """What only the earlier table has stays; what both have is the later one's."""
    _, (summary, _), _ = done
    pair, alone, many = summary.rows
    other = replace(pair.cells["ours"], means=(7.0,), seeds=(1,))
    later = replace(pair, cells={"ours": other}, commits=("later",))
    write_reproduction(replace(summary, rows=(pair, many)), tmp_path)
    write_reproduction(replace(summary, rows=(alone, later), seeds=(1,)), tmp_path)
    found = Summary.from_json(read_json(tmp_path / "small.json"))
    assert [row.name for row in found.rows] == ["pair", "alone", "many"]
    assert found.seeds == (0, 1)
    merged = found.rows[0]
    assert merged.cells["ours"] == Cell((pair.cells["ours"].means[0], 7.0), (0, 1))
    assert merged.cells["cycle"] == pair.cells["cycle"]
    assert merged.commits == tuple(sorted({*pair.commits, "later"}))
    assert found.rows[1].cells == alone.cells
    assert found.rows[2].matrices == many.matrices


def test_a_table_of_another_kind_is_replaced(done, small_table, tmp_path):
    _, (summary, _), _ = done
    write_reproduction(replace(summary, preset="cpu"), tmp_path)
    write_reproduction(replace(summary, rows=summary.rows[:1]), tmp_path)
    found = Summary.from_json(read_json(tmp_path / "small.json"))
    assert (found.preset, len(found.rows)) == ("smoke", 1)


@pytest.mark.parametrize("table", ["table1", "heatmaps", "rewards", "extension"])
def test_recorded_tables_can_be_read(table):
    """Cells of before they named their seeds have those of the table."""
    recorded = Path(__file__).parents[2] / "results" / f"{table}.json"
    found = Summary.from_json(read_json(recorded))
    assert found.table == table
    for row in found.rows:
        for cell in row.cells.values():
            assert len(cell.seeds) == len(cell.means)
            assert set(cell.seeds) <= set(found.seeds)


def test_fewer_seeds_and_the_best_are_told():
    cells = {
        UNTRANSLATED: Cell((10.0, 12.0), (0, 1)),
        "ours": Cell((20.0, 22.0), (0, 1)),
        "cloning": Cell((30.0,), (0,)),
    }
    row = RowSummary(
        name="x", printed={}, cells=cells, matrices=(), seconds={"ours": 90.0}, commits=()
    )
    *_, line = _table([row]).splitlines()
    assert line == (
        "| x | 11.0 ± 1.0 | 21.0 ± 1.0 | 30.0 (1 seed) | 1.91 | cloning the target's logs | 1.5 |"
    )


def test_one_method_alone_is_made(small_table, tmp_path):
    said = []
    config = cell(rows=("pair", "alone"), methods=("cloning",))
    summary = reproduce(config, tmp_path, quiet=True, notify=said.append)
    assert [(row.name, *row.cells) for row in summary.rows] == [("alone", "cloning")]
    assert sum(line.startswith("collecting") for line in said) == 1  # the target's alone
    with pytest.raises(UsageError, match="unknown method 'clone'"):
        cell(rows=("alone",), methods=("clone",))


def test_another_loss_is_another_translator_of_ours_and_no_other_baseline(small_table, tmp_path):
    config = cell(rows=("pair",), transfer_loss="nll")
    folders = [module._folder(config, tmp_path, SMALL.rows[0], m, 0) for m in ("ours", "cycle")]
    assert [folder.name for folder in folders] == ["pair-ours-nll-seed0", "pair-cycle-seed0"]
    summary = reproduce(config, tmp_path, quiet=True)
    assert summary.preset == "smoke --transfer-loss nll"
    recipes = [read_json(folder / "result.json")["config"]["recipe"] for folder in folders]
    assert [recipe["action"]["loss"] for recipe in recipes] == ["nll", "l1"]
    own = cell(transfer_loss="l1")  # the preset's own changes nothing
    assert own.recipe_name == "smoke"
    assert module._folder(own, tmp_path, SMALL.rows[0], "ours", 0).name == "pair-ours-seed0"


def cut_short(recipe):
    """The same networks and losses with a few small steps."""
    context = {"max_steps": 40, "evaluate_every": 20, "batch_size": 16}
    action = {"steps": 60, "batch_size": 16}
    return replace(
        recipe,
        context=replace(recipe.context, **context),
        action=replace(recipe.action, **action),
        many_context=recipe.many_context and replace(recipe.many_context, **context),
        many_action=replace(recipe.many_action, **action),
        cycle=replace(recipe.cycle, forward_steps=60, steps=60),
    )


@pytest.mark.parametrize("preset", ["paper", "released"])
def test_the_long_recipes_run_cut_short(preset, small_table, tmp_path, monkeypatch):
    monkeypatch.setitem(RECIPES, preset, cut_short(RECIPES[preset]))
    monkeypatch.setattr(alternatives, "alternative_updates", lambda preset: 5)
    summary = reproduce(cell(rows=(), preset=preset), tmp_path, quiet=True)
    pair, alone, many = summary.rows
    assert set(pair.cells) == {ON_SOURCE, UNTRANSLATED, "ours", "cycle"}
    assert set(alone.cells) == {"cloning", "offline-rl"}
    assert len(many.matrices) == 1
    names = ("pair-ours", "many-ours", "pair-cycle")
    ours, heat, cycle = (
        read_json(tmp_path / f"small/{preset}/{name}-seed0/result.json") for name in names
    )
    assert ours["fit"]["numbers"]["forward steps"] == 40
    assert "error of the forward model on what it learned from" in ours["fit"]["curves"]
    layers = [len(result["config"]["recipe"]["action"]["hidden"]) for result in (ours, heat)]
    assert layers == ([3, 2] if preset == "paper" else [1, 2])
    layers = len(cycle["config"]["recipe"]["cycle"]["hidden"])
    assert layers == (2 if preset == "paper" else 1)


def test_bad_calls(capsys, tmp_path):
    with pytest.raises(UsageError, match="unknown table 'tabel1'"):
        ReproduceConfig(table="tabel1")
    with pytest.raises(UsageError, match="unknown row"):
        ReproduceConfig(table="table1", rows=("cheetah",))
    with pytest.raises(UsageError, match="unknown transfer loss 'l2'"):
        ReproduceConfig(table="table1", transfer_loss="l2")
    for table in ("rewards", "extension"):
        with pytest.raises(UsageError, match=f"released has no {table}: the authors did not"):
            ReproduceConfig(table=table, preset="released")
    assert run(["reproduce", "table1", "--seeds", "a"]) == 2
    assert "--seeds takes numbers" in capsys.readouterr().err
    assert run(["reproduce", "table1", "--preset", "big", "--work", str(tmp_path / "w")]) == 2
    assert not (tmp_path / "w").exists()


# ---- several at once

CELL = "small/smoke/many-ours-seed0"


@pytest.fixture
def small_table(monkeypatch):
    monkeypatch.setitem(TABLES, "small", SMALL)


def cell(**changes):
    given = {"preset": "smoke", "rows": ("many",), "seeds": (0,), "episodes": 2} | changes
    return ReproduceConfig(table="small", **given)


def spawn(given, work, said, gate=None):
    """Starts a call in a fork; what it says, and that it trained, goes to the file `said`.

    A fork shares the locks that are held at the time, so it waits at a `gate` for ours.
    """
    child = os.fork()
    if child == 0:
        code, real = 99, module.translate
        try:
            if gate:
                os.read(gate[0], 1)
            with open(said, "a", buffering=1) as file:

                def counted(*args, **options):
                    result = real(*args, **options)
                    file.write("trained\n")
                    return result

                module.translate = counted
                notify = lambda text: file.write(f"{text}\n")  # noqa: E731
                reproduce(given, work, quiet=True, notify=notify)
                code = 0
        except McatError as error:
            code = error.exit_code
        finally:
            os._exit(code)
    return child


def code_of(child):
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def wait_for(text, path):
    end = time.monotonic() + 120
    while not (path.exists() and text in path.read_text()):
        assert time.monotonic() < end
        time.sleep(0.01)


def everything(work):
    return sorted(str(path.relative_to(work)) for path in work.rglob("*"))


def test_what_another_process_makes_is_waited_for_and_used(done, small_table, tmp_path):
    alone, work, said = done[0], tmp_path / "work", tmp_path / "said"
    shutil.copytree(alone / "logs", work / "logs")
    gate = os.pipe()
    child = spawn(cell(), work, said, gate)
    with new_folder(work / CELL) as folder:  # the other process
        os.write(gate[1], b".")
        wait_for("waiting", said)
        shutil.copytree(alone / CELL, folder, dirs_exist_ok=True)
    assert code_of(child) == 0
    told = said.read_text()
    assert f"{work / CELL} is being made by process {os.getpid()} on" in told
    assert ": left to it\n" in told  # first it looks for something else to do
    assert "trained" not in told
    assert everything(work / CELL) == everything(alone / CELL)
    assert os.listdir(work / "small/smoke") == ["many-ours-seed0"]


@pytest.mark.slow
def test_what_another_process_gives_up_is_done_by_the_one_that_waited(done, small_table, tmp_path):
    alone, work, said = done[0], tmp_path / "work", tmp_path / "said"
    (work / "logs").mkdir(parents=True)
    log = work / "logs" / f"{random_log(SOURCE).name}.h5"
    gate = os.pipe()
    child = spawn(cell(), work, said, gate)
    with claim_shards(log, {}, lambda shard: True):
        os.write(gate[1], b".")
        wait_for("waiting", said)
    assert code_of(child) == 0
    assert f"{log} is being made by process {os.getpid()} on" in said.read_text()
    assert said.read_text().count("trained") == 1
    ours, clean = (read_json(folder / CELL / "result.json") for folder in (work, alone))
    assert ours["matrix"] == clean["matrix"]


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("processes", [2, 3])
def test_several_calls_share_the_work_and_end_alike(small_table, tmp_path, processes):
    for number in range(3):
        work = tmp_path / str(number)
        said = [tmp_path / f"{number}-{i}" for i in range(processes)]
        all_cells = cell(rows=(), seeds=(0, 1))
        children = [spawn(all_cells, work, file) for file in said]
        assert [code_of(child) for child in children] == [0] * processes
        told = "".join(file.read_text() for file in said)
        assert told.count("trained") == 6  # every translator once
        assert not list(work.rglob("*.part")) + list(work.rglob("*.shards"))
        assert len(list(work.rglob("result.json"))) == 6


# ---- bad places


@pytest.mark.parametrize("option", ["--work", "--out"])
def test_a_file_is_no_place_to_work(small_table, tmp_path, capsys, option, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("precious")
    call = ["reproduce", "small", "--preset", "smoke", "--seeds", "0", "--row", "many"]
    assert run([*call, option, "file"]) == 73
    err = capsys.readouterr().err
    assert err.splitlines()[-1].startswith("error: cannot ")
    assert sum(line.startswith("error") for line in err.splitlines()) == 1
    assert (tmp_path / "file").read_text() == "precious"
    assert sorted(os.listdir(tmp_path)) in (["file"], ["file", "results"])


# ---- first guesses


def test_in_other_spaces_a_policy_acts_by_the_guess_alone():
    rows = {row.name: row for row in TABLES["extension"].rows}
    assert rows["three-legs"].column(UNTRANSLATED) == GUESSED
    assert rows["reach-goal1"].column(UNTRANSLATED) == UNTRANSLATED
    assert rows["three-legs"].column(ON_SOURCE) == ON_SOURCE


def test_what_the_guess_earns_by_itself_has_a_column(monkeypatch, tmp_path):
    """Mirrored states and no actions stand still: every seed earns what doing nothing earns."""
    goals = family("reach-goals")
    source, target = (task.replace(horizon=60) for task in (goals.train[0], goals.test[0]))
    logs = [Log(name=t.label("goal"), task=t, policy=PolicyOf("random", t), steps=240)
            for t in (source, target)]  # fmt: skip
    row = TableRow(
        name="mirrored",
        sources=lambda preset: logs[:1],
        targets=lambda preset: logs[1:],
        policy=PolicyOf("scripted", source),
        methods=("ours",),
        map="mirror-x-states",
    )
    monkeypatch.setitem(TABLES, "small", PaperTable(title="Guesses", rows=(row,)))
    summary = reproduce(cell(rows=(), seeds=(0, 1)), tmp_path / "work", quiet=True)
    cells = summary.rows[0].cells
    idle = Evaluator(target, 2, 0).returns(lambda seen: np.zeros((len(seen), 4)))
    assert cells[GUESSED].means == pytest.approx([idle.mean()] * 2, rel=1e-6)
    assert cells[UNTRANSLATED].mean != pytest.approx(idle.mean(), rel=1e-3)
    page = write_reproduction(summary, tmp_path / "out")[1].read_text()
    assert "| guess alone |" in page


# ---- the best of a training


@pytest.fixture(scope="module")
def looked(tmp_path_factory, done):
    """The pair again, tried three times while it is trained; logs and cycle of seed 1 are there."""
    work = tmp_path_factory.mktemp("looked")
    shutil.copytree(done[0] / "logs", work / "logs")
    shutil.copytree(done[0] / "small", work / "small")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(TABLES, "small", replace(SMALL, rows=SMALL.rows[:1]))
        summary = reproduce(cell(rows=(), best_of=3), work, quiet=True)
    return work, summary


def test_the_best_of_a_training_stands_beside_the_last(looked, done):
    work, summary = looked
    for method in ("ours", "cycle"):
        result = read_json(work / f"small/smoke/pair-{method}-best3-seed0/result.json")
        before = read_json(done[0] / f"small/smoke/pair-{method}-seed0/result.json")
        assert len(result["looks"]) == 3
        last = next(r for r in result["returns"] if r["label"].startswith("transferred"))
        assert result["looks"][-1] == pytest.approx(np.mean(last["values"]), rel=1e-12)
        assert last == next(r for r in before["returns"] if r["label"] == last["label"])
        cells = summary.rows[0].cells
        assert cells[f"{method}-best"].means == (max(result["looks"]),)
        assert cells[method].mean == result["looks"][-1]


def test_looking_changes_nothing_of_the_translator(looked, done):
    for method in ("ours", "cycle"):
        folders = (
            looked[0] / f"small/smoke/pair-{method}-best3-seed0",
            done[0] / (f"small/smoke/pair-{method}-seed0"),
        )
        one, other = (load_safetensors(folder / "translator.safetensors")[0] for folder in folders)
        assert one.keys() == other.keys()
        assert all(np.array_equal(one[name], other[name]) for name in one)


def test_the_papers_number_stands_by_its_own_rule(looked, done, tmp_path):
    page = write_reproduction(looked[1], tmp_path)[1].read_text()
    cells = looked[1].rows[0].cells
    assert f"{cells['ours'].mean:,.1f} | {cells['ours-best'].mean:,.1f} [2,937.2 ± 9.5]" in page
    assert "an optimistic rule" in page
    before = write_reproduction(done[1][0], tmp_path / "old")[1].read_text()
    assert "optimistic" not in before


def test_translators_of_before_are_shown_without_their_best(done, monkeypatch):
    monkeypatch.setitem(TABLES, "small", replace(SMALL, rows=SMALL.rows[:1]))
    summary = module.summarise(cell(rows=(), seeds=(0, 1), best_of=3), done[0])
    assert summary.rows[0].cells == done[1][0].rows[0].cells


def test_the_rule_of_the_paper_is_table_1s():
    assert ReproduceConfig(table="table1").epochs == 30
    assert ReproduceConfig(table="table1", best_of=0).epochs == 0
    assert ReproduceConfig(table="table1", preset="smoke").epochs == 0
    assert ReproduceConfig(table="rewards").epochs == 0
    assert ReproduceConfig(table="rewards", best_of=30).epochs == 30
    for table in ("heatmaps", "extension"):
        with pytest.raises(UsageError, match=f"translators of a pair: {table} has none"):
            ReproduceConfig(table=table, best_of=30)
    with pytest.raises(UsageError, match="must not be negative"):
        ReproduceConfig(table="table1", best_of=-1)
