"""`mcat metatrain`: which setting counts, what each switch changes, and one short run."""

import csv
import json
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from mcat.agents.meta.config import PRESETS
from mcat.agents.meta.methods.registry import METHODS, find_method
from mcat.cli import run
from mcat.commands.metatrain import (
    EXPERIMENTS,
    PRESET_NOTES,
    SETTINGS,
    _run_name,
    metatrain,
)
from mcat.commands.train import train
from mcat.config import flatten, overlay, to_json


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """Every command runs in a folder of its own."""
    monkeypatch.chdir(tmp_path)


def mcat(command, capsys):
    code = run(shlex.split(command))
    out, err = capsys.readouterr()
    return code, out, err


def resolved(options, capsys):
    """The settings those options lead to, by dotted key; "preset" is among them."""
    code, out, err = mcat(f"metatrain --print-config --json {options}", capsys)
    assert code == 0, err
    return flatten(json.loads(out))


def changed(options, capsys):
    """What those options change in preset cpu, which has every part of the paper switched on."""
    usual, ours = (resolved(f"--preset cpu {given}", capsys) for given in ("", options))
    assert usual.keys() == ours.keys()
    return {key: value for key, value in ours.items() if value != usual[key]}


def test_help_teaches_presets_options_and_order(capsys):
    code, out, _ = mcat("metatrain --help", capsys)
    assert code == 0
    for name in PRESETS:
        assert f"    {name} " in out
    assert set(PRESET_NOTES) == set(PRESETS)
    for setting in SETTINGS:
        assert f"{setting.flag} " in out
    for example in ("mcat metatrain --family ant-cripple --no-transfer", "--resume runs/"):
        assert example in out
    assert "MCAT_METATRAIN_STEPS" in out


def test_help_imports_nothing_heavy():
    code = (
        "import sys; from mcat.cli import run\n"
        "assert run(['metatrain', '--help']) == 0\n"
        "heavy = {'torch', 'mujoco', 'metaworld', 'h5py'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


def test_without_options_it_is_the_preset_fast(capsys):
    assert resolved("", capsys) == {"preset": "fast", **flatten(to_json(PRESETS["fast"]))}


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_its_settings(name, capsys):
    expected = {"preset": name, **flatten(to_json(PRESETS[name]))}
    assert resolved(f"--preset {name}", capsys) == expected


def test_hoppers_have_numbers_of_their_own_in_fast(capsys):
    own = {"mcat.td_steps": 5, "mcat.crossq.discount": 0.98, "mcat.crossq.huber_delta": 30.0}
    expected = {"preset": "fast", **flatten(to_json(PRESETS["fast"])), "family": "hopper-size"}
    assert resolved("--family hopper-size", capsys) == expected | own
    changed = resolved("--family hopper-size --set mcat.td_steps=1", capsys)
    assert changed == expected | own | {"mcat.td_steps": 1}
    # A run is named after what differs from what its robot has, not from other robots' numbers.
    config = overlay(find_method("mcat").preset("fast", "hopper"), {"family": "hopper-size"})
    assert _run_name("fast", config) == "hopper-size-fast-seed0"
    assert _run_name("fast", overlay(config, {"mcat.td_steps": 1})) != _run_name("fast", config)


@pytest.mark.parametrize("method", METHODS)
def test_ants_have_fewer_updates_and_squared_errors_in_fast_whatever_the_method(method):
    found = METHODS[method]
    config, usual = found.preset("fast", "ant"), found.presets["fast"]
    learner = "crossq" if method in ("mcat", "mql") else "sac"
    assert (config.own.updates_per_step, usual.own.updates_per_step) == (2.0, 3.0)
    assert getattr(config.own, learner).huber_delta is None
    bound = getattr(usual.own, learner).huber_delta
    changes = {"updates_per_step": 3.0, f"{learner}.huber_delta": bound}
    assert overlay(config, {f"{method}.{name}": n for name, n in changes.items()}) == usual
    assert found.preset("fast", "halfcheetah") == usual


@pytest.mark.parametrize("robot", ["hopper", "ant"])
@pytest.mark.parametrize("preset", sorted(set(PRESETS) - {"fast"}))
def test_no_robot_has_numbers_of_its_own_in_another_preset(preset, robot):
    assert find_method("mcat").preset(preset, robot) == PRESETS[preset]


SWITCHES = [
    ("--family ant-cripple", {"family": "ant-cripple"}),
    ("--task-set 1", {"family": "halfcheetah-armature-set1"}),
    ("--task-set 2", {}),
    ("--task-set 3", {"family": "halfcheetah-armature-set3"}),
    ("--family halfcheetah-mass --task-set 3", {"family": "halfcheetah-mass-set3"}),
    ("--steps 1e6", {"steps": 1_000_000}),
    ("--seed 3", {"seed": 3}),
    ("--delay 100", {"delay": 100}),
    ("--no-transfer", {"mcat.transfer": False}),
    ("--no-sil", {"mcat.imitate": False}),
    ("--sil-all", {"mcat.imitation.positive_only": False}),
    ("--no-sil --set mcat.imitate=true", {}),
    ("--set mcat.imitate=false --sil", {"mcat.imitate": False}),  # --set is the last word
    ("--no-contrastive", {"mcat.context.contrastive_weight": 0.0}),
    ("--translator cycle", {"mcat.translator": "cycle"}),
    ("--transfer-loss nll", {"mcat.action.loss": "nll"}),
    ("--target-context online", {"mcat.target_context": "online"}),
    ("--margin 0.5", {"mcat.selection.margin": 0.5}),
    ("--credit learned", {"mcat.credit.kind": "learned"}),
    ("--credit uniform", {"mcat.credit.kind": "uniform"}),
    ("--novelty 0.5", {"mcat.novelty": 0.5}),
    ("--learner crossq", {"mcat.learner": "crossq"}),
    ("--episode-lengths 100,300", {"episode_lengths": [100, 300]}),
    ("--no-mirror --set mirror=none", {"mirror": None}),  # cpu has none anyway
    ("--evaluate-every 7", {"evaluate_every": 7}),
    ("--episodes 11", {"evaluation_episodes": 11}),
    ("--threads 2", {"threads": 2}),
    ("--set mcat.td3.hidden=64,32", {"mcat.td3.hidden": [64, 32]}),
    ("--set seed=4 --set mcat.transfer=false", {"seed": 4, "mcat.transfer": False}),
    ("--no-sil --delay 1", {"mcat.imitate": False, "delay": 1}),
]


@pytest.mark.parametrize(("options", "expected"), SWITCHES, ids=[s[0] for s in SWITCHES])
def test_a_switch_changes_exactly_its_key(options, expected, capsys):
    assert changed(options, capsys) == expected


def test_a_switch_that_changes_nothing_says_so(capsys):
    code, _, err = mcat("metatrain --no-sil --print-config", capsys)
    assert (code, err) == (0, "note: preset fast is as --no-sil makes it already\n")
    for useful in ("--preset cpu --no-sil", "--no-transfer"):
        assert mcat(f"metatrain {useful} --print-config", capsys)[2] == ""


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--sil-all", "--sil-all changes nothing: there is no self-imitation"),
        ("--preset cpu --no-sil --set mcat.imitation.clip=1", "--set mcat.imitation.clip changes"),
        ("--no-transfer --translator cycle", "--translator changes nothing: without transfer"),
        ("--no-transfer --margin 0.5", "--margin changes nothing"),
        ("--translator cycle --transfer-loss nll", "--transfer-loss changes nothing: the"),
        ("--no-contrastive --set mcat.context.hinge=printed", "without L_cont there is no hinge"),
    ],
)
def test_switches_that_make_no_sense_together_are_refused_in_one_line(options, said, capsys):
    code, out, err = mcat(f"metatrain {options} --print-config", capsys)
    assert (code, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1


def test_self_imitation_of_all_shows_in_the_name_of_the_run():
    config = overlay(PRESETS["cpu"], {"mcat.imitation.positive_only": False})
    assert _run_name("cpu", config) == "halfcheetah-armature-cpu-sil-all-seed0"


def test_every_setting_is_tried_above():
    tried = " ".join(options for options, _ in SWITCHES)
    assert not [setting.flag for setting in SETTINGS if setting.flag not in tried]


def test_each_layer_counts_more_than_the_one_before(capsys, monkeypatch):
    Path("my.toml").write_text(
        "steps = 20\nseed = 20\nthreads = 20\nmcat.td3.discount = 0.2\n[mcat.credit]\nsegments = 2"
    )
    usual = flatten(to_json(PRESETS["cpu"]))
    monkeypatch.setenv("MCAT_METATRAIN_PRESET", "cpu")
    monkeypatch.setenv("MCAT_METATRAIN_CONFIG", "my.toml")
    monkeypatch.setenv("MCAT_METATRAIN_SEED", "30")
    monkeypatch.setenv("MCAT_METATRAIN_SET", "evaluate_every=30 threads=30 mcat.td3.discount=0.3")
    monkeypatch.setenv("MCAT_METATRAIN_NO_SIL", "1")
    monkeypatch.setenv("MCAT_METATRAIN_NO_TRANSFER", "0")
    found = resolved("--set mcat.td3.discount=0.4 --threads 40", capsys)
    assert found == {
        "preset": "cpu",
        **usual,
        "steps": 20,  # the file's
        "mcat.credit.segments": 2,
        "seed": 30,  # the environment's
        "evaluate_every": 30,
        "mcat.imitate": False,
        "threads": 40,  # the command line's, whichever option it uses
        "mcat.td3.discount": 0.4,
    }
    assert resolved("--preset paper", capsys)["preset"] == "paper"
    assert resolved("--set seed=41", capsys)["seed"] == 41


def test_a_variable_that_sets_nothing_is_refused(capsys, monkeypatch):
    monkeypatch.setenv("MCAT_METATRAIN_SED", "3")
    code, out, err = mcat("metatrain --print-config", capsys)
    assert (code, out) == (2, "")
    assert "unknown variable 'MCAT_METATRAIN_SED': did you mean MCAT_METATRAIN_SEED" in err
    assert len(err.splitlines()) == 1
    monkeypatch.delenv("MCAT_METATRAIN_SED")
    for option in metatrain.params:
        if option.name in ("seed", "steps", "threads"):
            monkeypatch.setenv(f"MCAT_METATRAIN_{option.name.upper()}", "3")
    found = resolved("", capsys)
    assert (found["seed"], found["steps"], found["threads"]) == (3, 3, 3)


def test_a_printed_config_is_a_config_file_that_stands_for_itself(capsys):
    options = "--preset released --no-transfer --delay 10 --set mcat.td3.hidden=8"
    _, text, _ = mcat(f"metatrain --print-config {options}", capsys)
    assert tomllib.loads(text)["mcat"]["td3"]["hidden"] == [8]
    Path("my.toml").write_text(text)
    assert resolved("--config my.toml", capsys) == resolved(options, capsys)
    assert mcat("metatrain --print-config --config my.toml", capsys)[1] == text
    assert resolved("--config my.toml --preset cpu", capsys)["preset"] == "cpu"


NAMES = [
    ({}, "halfcheetah-armature-cpu-seed0"),
    ({"seed": 3, "steps": 7, "threads": 2}, "halfcheetah-armature-cpu-seed3"),
    ({"family": "ant-cripple", "mcat.transfer": False}, "ant-cripple-cpu-no-transfer-seed0"),
    (
        {"mcat.imitate": False, "mcat.context.contrastive_weight": 0.0},
        "halfcheetah-armature-cpu-no-sil-no-contrastive-seed0",
    ),
    (
        {"mcat.context.contrastive_weight": 0.5},
        "halfcheetah-armature-cpu-contrastive_weight-0.5-seed0",
    ),
    (
        {"delay": 10, "mcat.credit.kind": "uniform"},
        "halfcheetah-armature-cpu-delay-10-credit-uniform-seed0",
    ),
]


@pytest.mark.parametrize(("changes", "name"), NAMES, ids=[n[1] for n in NAMES])
def test_a_run_is_named_after_what_makes_it_another(changes, name):
    assert _run_name("cpu", overlay(PRESETS["cpu"], changes)) == name


def test_settings_without_a_word_of_their_own_are_told_apart_too():
    names = {
        _run_name("fast", overlay(PRESETS["fast"], {key: value}))
        for key, value in [("mcat.crossq.discount", 0.9), ("mcat.crossq.discount", 0.98),
                           ("mcat.exploration", 0.2), ("seed", 0)]
    }  # fmt: skip
    assert len(names) == 4
    assert "halfcheetah-armature-fast-seed0" in names


def test_no_two_experiments_share_a_name():
    values = {"--delay": 10, "--translator": "cycle", "--transfer-loss": "nll", "--margin": 0.5,
              "--target-context": "online", "--credit": "uniform", "--learner": "td3",
              "--episode-lengths": (100, 300), "--novelty": 0.5, "--no-mirror": False}  # fmt: skip
    configs = [
        overlay(PRESETS["fast"], {item.key: values.get(item.flag, item.value)})
        for item in EXPERIMENTS
    ]
    names = {_run_name("fast", config) for config in configs}
    assert len(names) == len(EXPERIMENTS)


BAD_CALLS = [
    ("--family ant-criple", 2, "unknown family 'ant-criple': did you mean ant-cripple"),
    ("--preset papper", 2, "unknown preset 'papper': did you mean paper"),
    ("--preset unicorn", 2, "unknown preset 'unicorn': choose from cpu, fast"),
    ("--set td3.discount=1", 2, "unknown key 'td3.discount': did you mean mcat.td3.discount?"),
    ("--set mcat.tranfer=1", 2, "or mcat.transfer?"),
    ("--set mcat.td3.discount=0.9", 2, "change nothing with the learner crossq: set those of"),
    (
        "--preset cpu --set mcat.crossq.discount=0.9",
        2,
        "settings of mcat.crossq change nothing with the learner td3: set those of mcat.td3,"
        " or add --learner crossq",
    ),
    ("--set mcat=1", 2, "mcat is a group, not '1'"),
    ("--set steps", 2, "--set takes KEY=VALUE"),
    ("--set =3", 2, "unknown key ''"),
    ("--steps many", 2, "steps takes a whole number, not 'many'"),
    ("--steps ''", 2, "steps takes a whole number, not ''"),
    ("--steps 0", 2, "steps must be at least 1"),
    ("--seed -1", 2, "seed must not be negative"),
    ("--delay 0", 2, "delay must be at least 1"),
    ("--threads 0", 2, "threads must be at least 1"),
    ("--novelty -1", 2, "novelty must not be negative"),
    ("--novelty 1", 2, "there is none in halfcheetah-armature0.2: leave it at 0"),
    ("--margin wide", 2, "mcat.selection.margin takes a number, not 'wide'"),
    (
        "--credit some",
        2,
        "ridge or learned or auto, not 'some'",
    ),
    ("--translator mine", 2, "mcat.translator takes ours or cycle, not 'mine'"),
    ("--sil --no-sil", 2, "--sil and --no-sil contradict each other"),
    ("--method cycle", 2, "cycle is a translator of MCAT: --translator cycle"),
    ("--transfer-loss l2", 2, "mcat.action.loss takes l1 or nll, not 'l2'"),
    ("--target-context now", 2, "mcat.target_context takes task_mean or online, not 'now'"),
    ("--task-set 4", 2, "--task-set"),
    ("--family ant-cripple --task-set 1", 2, "halfcheetah-armature or halfcheetah-mass, not ant"),
    ("--family halfcheetah-mass-set3 --task-set 1", 2, "not halfcheetah-mass-set3"),
    ("--config nowhere.toml", 66, "nowhere.toml"),
    ("--config broken.toml", 65, "broken.toml: not a TOML file: Invalid value (at line 2"),
    (
        "--config other.toml",
        2,
        "did you mean mcat.crossq.discount or mcat.td3.discount?",
    ),
    ("--config preset.toml", 2, "unknown preset"),
    ("--resume nowhere", 66, "nowhere is no run of mcat metatrain"),
    ("--resume exists", 66, "exists is no run of mcat metatrain"),
    ("--resume nowhere --steps many", 66, "nowhere"),
    ("--resume exists --seed 3", 2, "leave out --seed (what may change: --steps)"),
    ("--resume exists --set seed=3 --steps 5", 2, "leave out --set seed (what"),
    ("--resume exists --no-sil --out b", 2, "leave out --no-sil, --out (what"),
    ("--resume exists --preset fast --print-config", 2, "leave out --preset, --print-config"),
    ("--resume exists --config other.toml", 2, "leave out --config"),
    ("--resume exists --task-set 2", 2, "leave out --task-set"),
    ("--preset smoke --out exists", 73, "exists already"),
]


@pytest.mark.parametrize(("options", "code", "message"), BAD_CALLS, ids=[b[0] for b in BAD_CALLS])
def test_bad_input_is_one_clear_line_and_the_right_code(options, code, message, capsys):
    Path("exists").mkdir()
    Path("exists/notes.txt").write_text("precious")
    Path("broken.toml").write_text("steps = 3\nseed = = 4")
    Path("other.toml").write_text("[mcat.td3]\ndiscont = 0.9")
    Path("preset.toml").write_text("preset = ['fast']")
    before = {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}
    found, out, err = mcat(f"metatrain {options}", capsys)
    assert message in err
    assert found == code
    assert len([line for line in err.splitlines() if line.strip()]) <= 3  # click adds usage
    assert not out
    assert {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("command", [metatrain, train], ids=["metatrain", "train"])
def test_every_option_either_goes_with_resume_or_is_refused(command, capsys):
    """Of the folder's run nothing may change but what the help says; a typing error neither."""
    may_change = {"metatrain": {"steps"}, "train": {"steps", "snapshots"}}[command.name]
    values = {"--task-set": "1", "--start-steps": "5", "--preset": "cpu", "--env-arg": "x=1"}
    for option in command.params:
        if option.name in may_change | {"resume", "quiet", "as_json", "set"}:
            continue
        value = "" if option.is_flag else values.get(option.opts[0], "3")
        code, _, err = mcat(f"{command.name} --resume nothing {option.opts[0]} {value}", capsys)
        assert code == 2, err
        assert f"leave out {option.opts[0]} " in err
    for name in may_change:
        code, _, err = mcat(f"{command.name} --resume nothing --{name} 3", capsys)
        assert (code, "nothing" in err) == (66, True)


def test_a_run_from_its_start_over_its_end_to_more_of_it(capsys, monkeypatch):
    start = "metatrain --preset smoke --family halfcheetah-pair --steps 2000 --no-sil"
    code, out, err = mcat(f"{start} --set mcat.start_steps=1000", capsys)
    assert code == 0, err
    folder = Path(out.strip())
    assert folder.match("runs/halfcheetah-pair-smoke-no-sil-????????-seed0")  # for start_steps
    assert "on the training tasks" in err
    assert "on unseen ones" in err
    record = json.loads((folder / "run.json").read_text())
    assert record["preset"] == "smoke"
    settings = {"family": "halfcheetah-pair", "steps": 2000, "mcat.imitate": False}
    smoke = overlay(PRESETS["smoke"], {**settings, "mcat.start_steps": 1000})
    assert record["config"] == to_json(smoke)

    code, _, err = mcat(f"{start} --set mcat.start_steps=1000", capsys)
    assert code == 73
    assert "--resume" in err

    monkeypatch.setenv("MCAT_METATRAIN_SEED", "9")  # was for new runs
    code, out, err = mcat(f"metatrain --resume {folder} --steps 3e3 --quiet --json", capsys)
    assert code == 0, err
    told = json.loads(out)
    assert Path(told["out"]) == folder
    assert Path(told["policy"]).is_file()
    assert {"train_return", "test_return"} < told.keys()
    record = json.loads((folder / "run.json").read_text())
    assert record["config"] == to_json(overlay(smoke, {"steps": 3000}))
    with (folder / "metrics.csv").open() as file:
        assert [row["step"] for row in csv.DictReader(file)] == ["1000", "2000", "3000"]

    monkeypatch.delenv("MCAT_METATRAIN_SEED")
    same = f"{start} --set mcat.start_steps=1000 --steps 3000 --resume"
    code, found, err = mcat(f"{same} --quiet --json", capsys)  # the command that made it
    assert (code, found) == (0, out), err
    code, _, err = mcat(f"{same} --margin 0.5 --out {folder}", capsys)
    assert code == 2
    assert "mcat.selection.margin: 0.0 there, 0.5 here" in err

    code, again, err = mcat(f"metatrain --resume {folder} --quiet --json", capsys)
    assert (code, json.loads(again)) == (0, told), err  # a loop that restarts it sees success
