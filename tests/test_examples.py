"""The examples run, and what they print in the end is what they are there to show."""

import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import click
import pytest

from mcat.cli import cli
from mcat.errors import MissingInputError

ROOT = Path(__file__).parents[1]


def printed(name, folder, *arguments):
    """What an example says, run as a reader would."""
    call = [sys.executable, "-W", "error::DeprecationWarning:__main__"]
    env = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    path = ROOT / "examples" / name
    done = subprocess.run(
        [*call, str(path), *arguments], cwd=folder, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert not list(folder.iterdir()), "it leaves files behind"
    return done.stdout


def test_the_commands_of_the_demo_are_understood(tmp_path, monkeypatch):
    """`make demo` runs them; here only whether each option and value is one."""
    monkeypatch.chdir(tmp_path)
    found = []

    def understand(words):
        found.append(words[0])
        command = cli
        while isinstance(command, click.Group):
            command = command.get_command(None, words.pop(0))
        for _ in range(5):  # inputs that it misses are made
            try:
                command.make_context(command.name, list(words))
                return 0
            except MissingInputError as error:
                Path(str(error).partition(" is not there")[0]).touch()
        return 66

    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    demo = import_module("demo")
    monkeypatch.setattr(demo, "run", understand)
    demo.main()
    assert {"collect", "translate", "adapt", "metatrain", "sweep"} <= set(found)
    assert found.count("sweep") == 2


def test_own_robot(tmp_path):
    text = printed("own_robot.py", tmp_path)
    at_home, as_it_is, translated = map(float, re.findall(r": ([\d.]+) from the middle", text))
    assert at_home < 0.2
    assert as_it_is > 2
    assert translated < 0.3
    assert len(re.findall(r"\d+ of 100 steps late", text)) == 3  # how many is the machine's affair


def test_robot_arm(tmp_path):
    pytest.importorskip("onnxruntime")
    text = printed("robot_arm.py", tmp_path)
    assert text.count("resampled from about 50 Hz, unevenly (nine of ten steps take 14 to 26") == 2
    at_home, as_it_is, translated = map(float, re.findall(r": ([\d.]+) rad off", text))
    assert at_home < 0.15
    assert as_it_is > 0.4
    assert translated < 0.15
    assert re.search(r"controller on B: .*stopped: dq1 in rad/s from .* is -", text)


def test_outside_policy(tmp_path):
    text = printed("outside_policy.py", tmp_path)
    at_home, as_it_is, translated = map(int, re.findall(r"return (-\d+)", text))
    assert as_it_is < -1000
    assert translated > at_home - 100
    assert "From the logs alone: Limited trust" in text  # the new motor is weaker


def test_own_family(tmp_path):
    text = printed("own_family.py", tmp_path, "--quiet")
    machines = re.findall(r"^halfcheetah-armature([\d.]+)-horizon200: ", text, flags=re.MULTILINE)
    assert machines == ["0.15", "0.25", "0.35", "0.45"]
    assert "the policy on halfcheetah-armature1.2" in text


@pytest.mark.slow
def test_any_robot(tmp_path):
    """From its check to one policy for several: walkers fall, and every command takes that."""
    text = printed("any_robot.py", tmp_path)
    assert text.count("random episodes end by themselves") == 4  # of each walker
    assert "FAIL" not in text
    assert "stock/policy-1200.safetensors" in text
    assert len(re.findall(r"^logs/walker2d-mass[\d.]+-healthy_reward0\.5-delay10\.h5$", text,
                          flags=re.MULTILINE)) == 4  # fmt: skip
    transitions, episodes = re.search(r": ([\d,]+) transitions in (\d+) episodes", text).groups()
    assert int(transitions.replace(",", "")) >= 1500
    assert int(episodes) > 15  # 100 steps each, if none had fallen
    assert re.search(r"^heavier$", text, flags=re.MULTILINE)
    assert re.search(r"^walkers/policy\.safetensors +-?[\d.]+", text, flags=re.MULTILINE)


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda p: p.name)
def test_every_example_is_listed_and_short(path):
    assert f"({path.name})" in (ROOT / "examples" / "README.md").read_text()
    assert len(path.read_text().splitlines()) < 70
