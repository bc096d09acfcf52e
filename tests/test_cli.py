"""The command line: help that teaches, one clear line for what is wrong, nothing heavy early."""

import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import h5py
import pytest

from mcat.agents.configs import TD3Config
from mcat.agents.policies.names import packaged_policies
from mcat.cli import cli, run
from mcat.commands.options import idle_cores
from mcat.envs import FAMILIES, ROBOTS, Task
from mcat.errors import DataError
from mcat.tensor_files import load_safetensors


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """Every command runs in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.h5").write_text("not a data set")
    (tmp_path / "text.safetensors").write_text("not a policy")
    (tmp_path / "exists").mkdir()
    (tmp_path / "exists" / "notes.txt").write_text("precious")
    (tmp_path / "taken.h5").write_text("precious")


def mcat(command, capsys):
    code = run(shlex.split(command))
    out, err = capsys.readouterr()
    return code, out, err


def all_commands(group=cli, name=""):
    """Name → command, groups left out, as are those that people do not call."""
    for own in group.list_commands(None):
        command = group.get_command(None, own)
        if hasattr(command, "commands"):
            yield from all_commands(command, f"{name}{own} ")
        elif not command.hidden:
            yield f"{name}{own}", command


COMMANDS = dict(all_commands())


@pytest.mark.parametrize("group", ["", "envs", "policies", "dataset", "export", "sweep"])
def test_every_group_explains_itself(group, capsys):
    code, out, _ = mcat(f"{group} --help", capsys)
    assert code == 0
    assert out.startswith(f"Usage: mcat{' ' if group else ''}{group}")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself_and_ends_with_two_examples(command, capsys):
    code, out, _ = mcat(f"{command} --help", capsys)
    assert code == 0
    assert out.startswith(f"Usage: mcat {command}")
    *_, examples = out.split("Examples:\n")
    lines = examples.strip().splitlines()
    assert len(lines) >= 2
    assert all("mcat " in line for line in lines)
    assert any(line.strip().startswith(f"mcat {command}") for line in lines)
    for option in COMMANDS[command].params:
        assert option.param_type_name == "argument" or option.hidden or option.help, option.name


def test_options_mean_the_same_in_every_command():
    shared = ("--config", "--print-config", "--overwrite", "--seed", "--threads", "--workers",
              "--json", "--quiet", "--from")  # fmt: skip
    told = {name: set() for name in shared}
    for command in COMMANDS.values():
        for option in command.params:
            if option.opts[0] in shared:
                told[option.opts[0]].add(re.sub(r" \(default: \d+\)", "", option.help))
    assert {name: len(texts) for name, texts in told.items()} == dict.fromkeys(shared, 1), told
    # What these take is the command's own, what they do is not.
    begin = {
        "--preset": "Complete settings under one name: ",
        "--set": "Any setting, such as ",
        "--resume": "Find it done, or go on where it was stopped: ",
    }
    for name, command in COMMANDS.items():
        for option in command.params:
            flag = option.opts[0]
            if flag in begin and not option.hidden and not name.startswith("sweep"):
                assert option.help.startswith(begin[flag]), f"{name} {flag}"
            if flag == "--out":
                assert (option.type.name, option.multiple, option.is_flag) == ("path", False, False)


def test_every_declared_parameter_is_an_option(capsys):
    for command in ("render", "collect", "train"):
        _, out, _ = mcat(f"{command} --help", capsys)
        for robot in ROBOTS.values():
            for parameter in robot.parameters:
                assert f"--{parameter.name.replace('_', '-')} " in out


BAD_CALLS = [
    ("nonsense", 2, "No such command 'nonsense'"),
    ("policy import a.zip", 2, "No such command 'policy': did you mean policies?"),
    ("envs show unicorn", 2, "unknown robot or family 'unicorn'"),
    ("envs show ant-criple", 2, "did you mean ant-cripple"),
    ("envs check Unicorn-v0", 2, "unknown environment 'Unicorn-v0'"),
    ("render --out a.png", 2, "one of --env, --family and --gallery"),
    ("render --env ant", 2, "Missing option '--out'"),
    ("render --env ant --gallery --out a.png", 2, "one of --env"),
    ("render --env ant --out a.jpg", 2, ".png, .gif or .mp4"),
    ("render --gallery --out a.gif", 2, "in .png"),
    ("render --env ant --out no/such/folder/a.png", 73, "no/such/folder"),
    ("render --env ant --out exists", 2, ".png, .gif or .mp4"),
    ("render --env ant --width 3 --out a.png", 2, "--width"),
    ("render --env ant --policy unicorn --out a.png", 2, "unicorn"),
    ("render --env ant --policy scripted --out a.png", 2, "scripted"),
    ("render --env push --policy text.safetensors --out a.png", 65, "text.safetensors"),
    ("render --env aunt --out a.png", 2, "unknown robot 'aunt': did you mean ant?"),
    ("render --env ant --armature 0.3 --out a.png", 2, "ant has no parameter 'armature'"),
    ("render --env ant --cripple 4 --out a.png", 2, "unknown cripple '4'"),
    ("render --env ant --cripple left --out a.png", 2, "unknown cripple 'left'"),
    ("render --env halfcheetah --armature heavy --out a.png", 2, "armature must be a number"),
    ("render --env halfcheetah --armature nan --out a.png", 2, "armature must be a number"),
    ("render --env halfcheetah --armature -1 --out a.png", 2, "armature must be from 0.001 to 5"),
    ("render --env halfcheetah --armature 1e9 --out a.png", 2, "armature must be from"),
    ("render --env ant --delay 0 --out a.png", 2, "delay must be a whole number"),
    ("render --env ant --delay -3 --out a.png", 2, "delay must be a whole number"),
    ("render --env ant --delay 1.5 --out a.png", 2, "delay must be a whole number"),
    ("render --env ant --horizon none --out a.png", 2, "horizon must be a whole number"),
    ("render --env reach --goal 0,0.6 --out a.png", 2, "goal takes 3 numbers"),
    ("render --env reach --goal 0,0.65,0.2 --out a.png", 2, "closer than 0.15"),
    ("render --family unicorns --out a.png", 2, "unknown family 'unicorns'"),
    ("collect", 2, "either --env or --family"),
    ("collect --env ant --family ant-cripple", 2, "either --env or --family"),
    ("collect --family ant-cripple --cripple 3", 2, "family brings its own parameters"),
    ("collect --family ant-criple", 2, "did you mean ant-cripple"),
    ("collect --family ant-cripple --split all_of_it", 2, "--split"),
    ("collect --env ant --policy random --steps 0", 2, "--steps"),
    ("collect --env ant --policy random --steps many", 2, "--steps"),
    ("collect --env ant --policy random --noise loud", 2, "--noise takes one number or LOW,HIGH"),
    ("collect --env ant --policy random --noise 3,1", 2, "noise must be a range"),
    ("collect --env ant --policy random --noise -1", 2, "noise must be a range"),
    ("collect --env ant --policy random --seed -1", 2, "--seed"),
    ("collect --env ant --policy random --out taken.h5", 73, "taken.h5"),
    ("collect --env ant --policy random --out no/such/x.h5", 73, "no/such"),
    ("collect --env ant --policy text.safetensors", 65, "text.safetensors"),
    ("collect --env ant --policy missing.safetensors", 66, "missing.safetensors"),
    ("collect --env ant --policy scripted", 2, "unknown scripted policy 'ant'"),
    ("collect --env push --policy scripted:unicorn", 2, "unknown scripted policy 'unicorn'"),
    ("train --env ant --steps 0", 2, "steps must be at least 1, not 0"),
    ("train --env ant --snapshots soon", 2, "each item a whole number, not 'soon'"),
    ("train --env ant --steps 10 --snapshots 20", 2, "snapshot 20 is outside"),
    ("train --env ant --out exists", 73, "exists already"),
    ("train --resume nowhere", 66, "nowhere is no run of mcat train"),
    ("dataset info", 2, "Missing argument 'FILE'"),
    ("dataset info missing.h5", 66, "missing.h5"),
    ("dataset info text.h5", 65, "text.h5"),
    ("dataset info exists", 66, "exists"),
    ("dataset check text.h5", 65, "text.h5"),
    ("dataset check missing.csv", 66, "missing.csv"),
    ("dataset export-minari text.h5 --id mcat/x-v0", 65, "text.h5"),
    ("dataset export-minari text.h5", 2, "Missing option '--id'"),
]  # fmt: skip


@pytest.mark.parametrize(("command", "code", "message"), BAD_CALLS, ids=[c[0] for c in BAD_CALLS])
def test_bad_input_is_one_clear_line_and_the_right_code(command, code, message, capsys):
    before = {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}
    found, out, err = mcat(command, capsys)
    assert message in err
    assert found == code
    assert "Traceback" not in err
    assert len(err.splitlines()) == 1
    assert err.startswith("error: ")
    assert not out
    after = {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}
    assert after == before  # nothing lost, nothing half written


def test_there_are_enough_bad_calls():
    assert len(BAD_CALLS) >= 60


def test_debug_shows_where_an_error_comes_from():
    with pytest.raises(ValueError, match="unknown robot"):
        run(["--debug", "render", "--env", "aunt", "--out", "a.png"])


def test_list_names_everything(capsys):
    code, out, _ = mcat("envs list", capsys)
    assert code == 0
    for name in (*ROBOTS, *FAMILIES):
        assert name in out


def test_list_and_show_as_json(capsys):
    _, out, _ = mcat("envs list --json", capsys)
    listed = json.loads(out)
    assert set(listed["robots"]) == set(ROBOTS)
    assert set(listed["families"]) == set(FAMILIES)
    _, out, _ = mcat("envs show ant-cripple --json", capsys)
    assert [Task.from_dict(t) for t in json.loads(out)["test"]] == list(
        FAMILIES["ant-cripple"].test
    )
    _, out, _ = mcat("envs show ant --json", capsys)
    assert json.loads(out)["env_id"] == "mcat/Ant-v0"


def test_show_explains_a_robot_and_a_family(capsys):
    _, out, _ = mcat("envs show halfcheetah", capsys)
    assert "armature" in out
    assert "0.001 to 5 kg m²" in out
    _, out, _ = mcat("envs show ant-cripple", capsys)
    assert '{"cripple": 3, "delay": 500}' in out


def test_check_passes_on_ours_and_reports_a_broken_one(capsys):
    import gymnasium as gym

    code, out, _ = mcat("envs check hopper Walker2d-v5", capsys)
    assert code == 0
    assert out.count("ok ") == 2

    gym.register("broken/Hopper-v0", entry_point="tests.broken_env:make")
    code, out, _ = mcat("envs check broken/Hopper-v0", capsys)
    assert code == 1
    assert "FAIL broken/Hopper-v0" in out
    assert "seed" in out


def test_collect_info_check_and_export(capsys, monkeypatch, tmp_path):
    collect = "collect --env ant --cripple 3 --policy random --steps 120 --horizon 60 --seed 4"
    code, out, err = mcat(collect, capsys)
    assert code == 0
    path = Path(out.strip())
    assert path.name == "ant-cripple3-horizon60.h5"
    assert "120 transitions in 2 episodes" in err
    assert f"Next: mcat dataset info {path}" in err
    with h5py.File(path) as file:  # any h5py reads it
        assert file["observations"].shape == (120, 27)
        assert file["actions"].shape == (120, 8)

    code, out, _ = mcat(f"dataset info {path}", capsys)
    assert code == 0
    assert '"cripple": 3' in out
    code, out, _ = mcat(f"dataset info {path} --json", capsys)
    assert json.loads(out)["transitions"] == 120
    code, out, _ = mcat(f"dataset check {path}", capsys)
    assert code == 0

    code, _, err = mcat(collect, capsys)
    assert code == 73
    assert "--overwrite" in err
    assert mcat(f"{collect} --overwrite", capsys)[0] == 0
    assert mcat(f"{collect} --resume", capsys)[0] == 0

    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    code, out, _ = mcat(f"dataset export-minari {path} --id mcat/ant/cripple3-v0", capsys)
    assert code == 0
    code, out, _ = mcat("dataset info mcat/ant/cripple3-v0 --json", capsys)
    assert code == 0
    assert json.loads(out)["transitions"] == 120


def test_collect_a_family_into_a_folder(capsys):
    family = "--family halfcheetah-pair --split all"
    code, out, _ = mcat(f"collect {family} --steps 500 --policy random --json --out data", capsys)
    assert code == 0
    rows = [json.loads(line) for line in out.splitlines()]
    assert [Path(row["path"]).name for row in rows] == [
        "halfcheetah-armature0.1.h5",
        "halfcheetah-armature0.5.h5",
    ]
    assert all(row["transitions"] == 1000 for row in rows)  # whole episodes


def test_options_can_come_from_the_environment(capsys, monkeypatch):
    monkeypatch.setenv("MCAT_COLLECT_STEPS", "40")
    code, _, err = mcat("collect --env hopper --policy random --horizon 20 --out x.h5", capsys)
    assert code == 0
    assert "40 transitions in 2 episodes" in err


def test_train_sets_every_number_of_td3(capsys):
    wanted = {
        field.name: [8, 4] if field.name == "hidden" else field.default / 2
        for field in fields(TD3Config)
    } | {"policy_delay": 3}
    texts = (",".join(map(str, v)) if isinstance(v, list) else str(v) for v in wanted.values())
    pairs = (f"--set td3.{name}={text}" for name, text in zip(wanted, texts, strict=True))
    call = f"train --env hopper --preset paper {' '.join(pairs)} --print-config --json"
    code, out, err = mcat(call, capsys)
    assert (code, err) == (0, "")
    assert json.loads(out)["td3"] == wanted


def test_packaged_policies_hold_actors_and_are_listed_by_their_headers(tmp_path, monkeypatch):
    """A file whose weights are damaged is listed all the same, and not loaded."""
    policies = packaged_policies()
    assert len(policies) == 18
    for policy in policies:
        arrays, _ = load_safetensors(policy.path)
        assert {name.partition(".")[0] for name in arrays} == {"actor"}
        content = policy.path.read_bytes()
        (tmp_path / "exists" / policy.path.name).write_bytes(content[:-1000] + b"\xff" * 1000)
    monkeypatch.setattr("mcat.agents.policies.names.PACKAGED", tmp_path / "exists")
    found = packaged_policies()
    assert [item[:-1] for item in found] == [item[:-1] for item in policies]
    with pytest.raises(DataError):
        load_safetensors(found[0].path)


def test_train_writes_policies_that_other_commands_take(capsys):
    code, out, err = mcat(
        "train --env hopper --horizon 50 --steps 150 --start-steps 100 --snapshots 120 --out r",
        capsys,
    )
    assert code == 0, err
    assert out.split() == ["r/policy-120.safetensors", "r/policy-150.safetensors"]
    use = "--steps 50 --policy r/policy-150.safetensors"
    code, _, err = mcat(f"collect --env hopper --size 0.03 --horizon 50 {use}", capsys)
    assert code == 0, err
    code, _, err = mcat("collect --env ant --policy r/policy-150.safetensors", capsys)
    assert code == 2
    assert "does not fit ant" in err


def test_closing_the_pipe_early_is_not_an_error():
    command = f"{sys.executable} -m mcat envs list --json | head -c 10"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=True)
    assert not done.stderr


@pytest.mark.parametrize(("given", "expected"), [(None, "1"), ("3", "3")])
def test_the_command_uses_one_thread_unless_told_otherwise(given, expected):
    """Small networks on two threads beside two processes took ten times as long."""
    code = (
        "import atexit, os, mcat.cli\natexit.register(lambda: print(os.environ['OMP_NUM_THREADS']))"
    )
    code += "\nmcat.cli.main(['--version'])"
    env = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    env |= {"OMP_NUM_THREADS": given} if given else {}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == expected


@pytest.mark.parametrize(
    ("load", "cores", "expected"), [(0.1, 2, 2), (0.6, 2, 1), (9.0, 2, 1), (1.2, 16, 4)]
)
def test_workers_are_as_many_as_cores_are_idle(load, cores, expected, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(cores)))
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    assert idle_cores() == expected
