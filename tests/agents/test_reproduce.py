"""`mcat reproduce`: its rows, on a table small enough for a test, and its pages."""

import json

import pytest

from mcat.agents import reproduce as module
from mcat.agents.paper_tables import TABLES, Log, Row, Table
from mcat.agents.reproduce import ReproduceConfig, reproduce
from mcat.agents.transfer_result import ON_SOURCE, UNTRANSLATED
from mcat.cli import run
from mcat.envs.tasks import Task
from mcat.errors import UsageError
from mcat.reports.reproduction import write_reproduction

SOURCE, TARGET = (Task("halfcheetah", armature=a, horizon=40) for a in (0.1, 0.5))


def random_log(task):
    return Log(name=task.label("armature"), task=task, policy=("random", task), steps=400)


SMALL = Table(
    title="A small one",
    rows=(
        Row(
            name="pair",
            sources=lambda preset: (random_log(SOURCE),),
            targets=lambda preset: (random_log(TARGET),),
            policy=("good", SOURCE),
            printed={ON_SOURCE: (5121.4, None), "ours": (2937.2, 9.5)},
        ),
        Row(
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
        config = ReproduceConfig(
            table="small", preset="smoke", seeds=(0, 1), episodes=2, work=work, quiet=True
        )
        said = [[], []]
        summaries = [reproduce(config, say=calls.append) for calls in said]
    return config, summaries, said


def test_every_method_and_seed_is_in_the_table(done):
    _, (summary, _), _ = done
    pair, many = summary["rows"]
    assert set(pair["cells"]) == {ON_SOURCE, UNTRANSLATED, "ours", "cycle"}
    for cell in pair["cells"].values():
        assert len(cell["means"]) == 2
        assert cell["mean"] == pytest.approx(sum(cell["means"]) / 2)
    assert pair["cells"]["ours"]["means"] != pair["cells"]["cycle"]["means"]
    assert len(many["matrices"]) == 2
    assert len(many["matrices"][0]["transferred"]) == 2


def test_what_is_finished_is_not_done_again(done):
    config, summaries, said = done
    assert sum(line.startswith("collecting") for line in said[0]) == 2  # shared by both rows
    assert sum("seed" in line for line in said[0]) == 6
    assert said[1] == []
    assert summaries[1]["rows"] == summaries[0]["rows"]
    assert (config.work / "small/smoke/pair-cycle-seed1/result.json").is_file()


def test_a_stopped_run_goes_on_where_it_was(done, tmp_path, monkeypatch):
    monkeypatch.setitem(TABLES, "small", SMALL)
    calls = []

    def stop(config, **rest):
        calls.append(config.seed)
        raise KeyboardInterrupt

    config = ReproduceConfig(table="small", rows=("many",), preset="smoke", seeds=(0,), episodes=1,
                             work=tmp_path, quiet=True)  # fmt: skip
    with monkeypatch.context() as patch:
        patch.setattr(module, "translate", stop)
        with pytest.raises(KeyboardInterrupt):
            reproduce(config)
    said = []
    summary = reproduce(config, say=said.append)
    assert calls == [0]
    assert not any(line.startswith("collecting") for line in said)
    assert [row["name"] for row in summary["rows"]] == ["many"]


def test_the_page_shows_ours_beside_the_papers(done, tmp_path):
    _, (summary, _), _ = done
    paths = write_reproduction(summary, tmp_path)
    assert [path.suffix for path in paths] == [".json", ".md", ".png"]
    assert json.loads(paths[0].read_text())["rows"] == json.loads(json.dumps(summary["rows"]))
    page = paths[1].read_text()
    ours = summary["rows"][0]["cells"]["ours"]
    assert f"{ours['mean']:,.1f} ± {ours['error']:,.1f} [2,937.2 ± 9.5]" in page
    assert "small.png" in page
    assert "many, seed 1" in page
    assert paths[2].stat().st_size > 10_000
    write_reproduction(summary, tmp_path)  # again, over the old ones


@pytest.mark.parametrize("preset", ["cpu", "paper"])
def test_logs_of_one_name_are_one_log(preset):
    """Rows and tables share their logs by name, so no two may differ under one."""
    seen = {}
    for table in TABLES.values():
        for row in table.rows:
            for log in row.sources(preset) + row.targets(preset) + row.tasks(preset):
                assert seen.setdefault(log.name, log) == log
    assert len(seen) > 15


def test_the_paper_preset_collects_what_the_paper_did():
    (row,) = (row for row in TABLES["table1"].rows if row.name == "halfcheetah")
    (source,), (target,) = row.sources("paper"), row.targets("paper")
    assert source.policy[0] == target.policy[0] == "mediocre"
    assert source.noise == target.noise == (0.0, 0.0)
    assert source.steps == target.steps == 100_000


def test_bad_calls(capsys, tmp_path):
    with pytest.raises(UsageError, match="unknown table 'tabel1'"):
        ReproduceConfig(table="tabel1")
    with pytest.raises(UsageError, match="unknown row"):
        ReproduceConfig(table="table1", rows=("cheetah",))
    assert run(["reproduce", "table1", "--seeds", "a"]) == 2
    assert "--seeds takes numbers" in capsys.readouterr().err
    assert run(["reproduce", "table1", "--preset", "big", "--work", str(tmp_path / "w")]) == 2
    assert not (tmp_path / "w").exists()
