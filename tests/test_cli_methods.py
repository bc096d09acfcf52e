"""`mcat metatrain --method`: what each method takes, and what is refused in one line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from mcat.agents.meta.methods.registry import METHODS
from mcat.agents.runs.record import read_record
from mcat.cli import run
from mcat.commands.metatrain import METHOD_NOTES, _run_name
from mcat.config import flatten, overlay, to_json
from tests.agents.meta.methods.made import NAMES

EACH = pytest.mark.parametrize("method", NAMES)


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def mcat(options, capsys):
    code = run(f"metatrain {options}".split())
    out, err = capsys.readouterr()
    return code, out, err


def resolved(options, capsys):
    code, out, err = mcat(f"--print-config --json {options}", capsys)
    assert code == 0, err
    return flatten(json.loads(out))


def test_the_help_lists_the_methods(capsys):
    _, out, _ = mcat("--help", capsys)
    assert list(METHODS) == list(METHOD_NOTES)
    for name in METHODS:
        assert f"    {name} " in out


@EACH
def test_every_method_has_presets_that_differ_in_its_own_numbers_only(method, capsys):
    presets = METHODS[method].presets
    assert set(presets) == {"fast", "cpu", "paper", "smoke"}
    for name, config in presets.items():
        found = resolved(f"--method {method} --preset {name}", capsys)
        assert found == {"method": method, "preset": name, **flatten(to_json(config))}
        groups = {key.partition(".")[0] for key in found if "." in key}
        assert groups == {method}
        mcat_preset = to_json(METHODS["mcat"].presets[name])
        del mcat_preset["mcat"]
        assert mcat_preset == {key: found[key] for key in mcat_preset}  # one budget, one protocol


@EACH
def test_the_switches_of_every_method(method, capsys):
    usual = resolved(f"--method {method} --preset cpu", capsys)
    for options, key, value in (
        ("--sil", f"{method}.imitate", True),
        ("--credit learned", f"{method}.credit.kind", "learned"),
        ("--novelty 0.5", f"{method}.novelty", 0.5),
        ("--delay 100", "delay", 100),
        ("--task-set 3", "family", "halfcheetah-armature-set3"),
        ("--episode-lengths 100,300 --credit auto", "episode_lengths", [100, 300]),
        (f"--set {method}.batch_size=64", f"{method}.batch_size", 64),
    ):
        found = resolved(f"--method {method} --preset cpu {options}", capsys)
        assert found[key] == value != usual[key]


@EACH
def test_settings_printed_and_read_again_are_the_same(method, capsys):
    wanted = resolved(f"--method {method} --sil --seed 3", capsys)
    _, out, _ = mcat(f"--method {method} --sil --seed 3 --print-config", capsys)
    Path("own.toml").write_text(out)
    assert resolved("--config own.toml", capsys) == wanted


def test_runs_are_named_after_their_method():
    for method in NAMES:
        presets = METHODS[method].presets
        assert _run_name("fast", presets["fast"]) == f"halfcheetah-armature-{method}-fast-seed0"
        sil = overlay(presets["cpu"], {f"{method}.imitate": True})
        assert _run_name("cpu", sil) == f"halfcheetah-armature-{method}-cpu-sil-seed0"


BAD = [
    ("--method perl", "unknown method 'perl': did you mean pearl"),
    ("--method unicorn", "unknown method 'unicorn': choose from"),
    ("--method cycle", "cycle is a translator of MCAT: --translator cycle"),
    ("--method pearl --no-transfer", "--no-transfer is of MCAT: leave it out with --method pearl"),
    ("--method mql --no-contrastive", "--no-contrastive is of MCAT: leave it out"),
    ("--method distral --translator cycle", "--translator is of MCAT: leave it out"),
    ("--method hipbmdp --margin 0.5", "--margin is of MCAT"),
    ("--method pcgrad --learner td3", "--learner is of MCAT"),
    ("--method pcgrad --transfer-loss l1", "--transfer-loss is of MCAT"),
    ("--method pcgrad --target-context online", "--target-context is of MCAT"),
    ("--method pearl --set mcat.transfer=false", "unknown key 'mcat.transfer'"),
    ("--method pearl --preset released", "unknown preset 'released'"),
    ("--method pearl --sil --no-sil", "--sil and --no-sil contradict each other"),
    ("--method pearl --set pearl.latent=0", "latent must be positive, not 0"),
    ("--method pearl --set pearl.kl=-1", "kl must not be negative"),
    ("--method distral --set distral.alpha=2", "alpha must be in [0, 1], not 2.0"),
    ("--method distral --set distral.sac.temperature_rate=1", "temperature is 1/beta"),
    ("--method hipbmdp --set hipbmdp.model_hidden=0", "model_hidden must be positive"),
    ("--method mql --set mql.adapt.old_batches=0", "old_batches must be positive"),
    ("--method mql --set mql.td3.discount=0.9", "settings of mql.td3 change nothing with the"),
    ("--method pcgrad --set pcgrad.batch_size=0", "batch_size must be at least 1"),
    ("--config other.toml", "unknown method 'magic'"),
]


@pytest.mark.parametrize(("options", "message"), BAD, ids=[options for options, _ in BAD])
def test_bad_input_is_one_clear_line(options, message, capsys):
    Path("other.toml").write_text("method = 'magic'")
    code, out, err = mcat(options, capsys)
    assert (code, out) == (2, "")
    assert message in err
    assert len([line for line in err.splitlines() if line.strip()]) <= 3  # click adds usage


SMALL = "--preset smoke --family halfcheetah-pair --steps 2000 --quiet"


def test_a_run_on_robots_goes_on_by_its_own_method_only(capsys):
    method = "hipbmdp"
    few = f"--method {method} {SMALL} --set {method}.start_steps=1000 --out run"
    code, _, err = mcat(few, capsys)
    assert code == 0, err
    assert read_record(Path("run")).method == method
    assert json.loads(Path("run/run.json").read_text())["method"] == method

    before = {path: path.read_bytes() for path in Path("run").rglob("*") if path.is_file()}
    for other in ("pcgrad", "mcat"):
        code, _, err = mcat(f"--method {other} {SMALL} --out run --resume", capsys)
        assert code == 2
        assert f"run is a run by the method {method}, not {other}" in err
    code, _, err = mcat("--resume run --method pcgrad", capsys)
    assert (code, "leave out --method" in err) == (2, True)
    after = {path: path.read_bytes() for path in Path("run").rglob("*") if path.is_file()}
    assert after == before

    code, _, err = mcat("--resume run --steps 3000 --quiet", capsys)
    assert code == 0, err
    assert run(["evaluate", "run", "--episodes", "1", "--quiet", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [item["split"] for item in found] == ["train", "test"]


def test_a_record_of_a_method_that_is_not_known_is_refused(capsys):
    code, _, err = mcat(f"--method pcgrad {SMALL} --out run", capsys)
    assert code == 0, err
    path = Path("run/run.json")
    record = json.loads(path.read_text())
    path.write_text(json.dumps(record | {"method": "magic"}))
    code, _, err = mcat("--resume run", capsys)
    assert (code, "run.json: unknown method 'magic'" in err) == (65, True)


def test_settings_of_methods_need_no_torch():
    code = (
        "import sys; import mcat.agents.meta.methods.registry\n"
        "assert not {'torch', 'mujoco'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("method", ["pearl", "mql"])
def test_a_run_is_evaluated_after_trials_and_nothing_in_it_changes(method, capsys):
    few = f"--method {method} {SMALL} --set {method}.start_steps=1000 --out run"
    code, _, err = mcat(few, capsys)
    assert code == 0, err
    before = {path: path.read_bytes() for path in Path("run").rglob("*") if path.is_file()}
    command = ["evaluate", "run", "--episodes", "2", "--quiet", "--json"]
    found = []
    for _ in range(2):
        assert run(command) == 0
        out, err = capsys.readouterr()
        found.append(json.loads(out))
        assert ("adapted to each task from the newest checkpoint" in err) == (method == "mql")
    assert found[0] == found[1]
    assert [len(item["values"]) for item in found[0]] == [2, 2]
    assert run([*command, "--best"]) == 0
    after = {path: path.read_bytes() for path in Path("run").rglob("*") if path.is_file()}
    assert after == before
