"""Ctrl-C and a scheduler's signals in every long command: the code, one line, what is kept."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from mcat.cli import run
from mcat.datasets import write_dataset
from mcat.tensor_files import load_safetensors
from tests.transfer.transfer_logs import own_robot

CODES = {signal.SIGINT: 130, signal.SIGTERM: 75, signal.SIGUSR1: 75}
COLLECT = "collect --env hopper --horizon 50 --policy random --steps 40000 --workers 1 --out a.h5"
TRANSLATE = "translate --src own-a.h5 --tgt own-b.h5 --quiet --out ab"
REPRODUCE = "reproduce table1 --row halfcheetah --seeds 0 --work work"
TRAIN = "train --env hopper --horizon 50 --steps 600 --start-steps 100 --out run"
ADAPT = ("adapt --logs own-b.h5 --offline-updates 800 --set learner.hidden=8,8 "
         "--set batch_size=8 --quiet --out run")  # fmt: skip
METATRAIN = "metatrain --family halfcheetah-armature --preset smoke"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for number, name in enumerate(("own-a", "own-b")):
        write_dataset(tmp_path / f"{name}.h5", own_robot(number), {})
    return tmp_path


def spawn(command, said="said"):
    """Starts a command in a fork, as `mcat` would."""
    child = os.fork()
    if child == 0:
        sys.stdout = sys.stderr = open(said, "w", buffering=1)  # noqa: SIM115
        code = 99
        try:
            code = run(shlex.split(command))
        finally:
            os._exit(code)
    return child


def signalled(command, number, begun, delay=0.0):
    """Exit code, last line and seconds from the signal to the end, once `begun` is there."""
    child = spawn(command)
    while not list(Path().glob(begun)):
        assert os.waitpid(child, os.WNOHANG) == (0, 0), Path("said").read_text()
        time.sleep(0.005)
    time.sleep(delay)
    os.kill(child, number)
    sent = time.monotonic()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    text = Path("said").read_text()
    assert "Traceback" not in text
    errors = [line for line in text.splitlines() if line.startswith("error: ")]
    assert len(errors) == (code != 0), text
    return code, errors[0] if errors else "", time.monotonic() - sent


def finished(command):
    return os.waitstatus_to_exitcode(os.waitpid(spawn(command, "again"), 0)[1])


@pytest.mark.parametrize("number", CODES)
def test_a_stopped_translation_keeps_nothing_and_says_so(folder, number):
    before = sorted(os.listdir())
    command = f"{TRANSLATE} --preset paper"  # days
    code, line, seconds = signalled(command, number, ".ab.part/new-*", delay=0.3)
    assert code == CODES[number]
    assert "keeps nothing before its end" in line
    assert number.name in line
    assert seconds < 50
    assert sorted(os.listdir()) == sorted([*before, "said"])


def test_a_stopped_reproduction_names_no_option_it_lacks(folder):
    code, line, _ = signalled(REPRODUCE, signal.SIGINT, "work/logs/*.shards/lock")
    assert code == 130
    assert "kept in work; the same command goes on" in line
    assert "--resume" not in line
    assert not list(Path("work").rglob(".*.part*"))


def test_an_earlier_result_survives_a_signal(folder):
    Path("ab").mkdir()
    before = {"result.json": b"precious", "translator.safetensors": b"precious"}
    for name, content in before.items():
        Path("ab", name).write_bytes(content)
    command = f"{TRANSLATE} --preset paper --overwrite"
    assert signalled(command, signal.SIGTERM, ".ab.part/new-*", delay=0.2)[0] == 75
    assert {path.name: path.read_bytes() for path in Path("ab").iterdir()} == before
    assert not list(Path().glob(".*"))


def test_a_stopped_adaptation_goes_on_exactly(folder):
    assert finished(ADAPT) == 0
    expected = policies("run")
    Path("run").rename("clean")
    for number, code in CODES.items():
        found, line, seconds = signalled(ADAPT, number, "run/checkpoints", delay=0.05)
        assert (found, "the same command with --resume goes on" in line) == (code, True)
        assert seconds < 50
        assert not Path("run/result.json").exists()
        assert finished(f"{ADAPT} --resume") == 0
        assert_equal(policies("run"), expected)
        Path("run").rename(f"run-{number}")


# ---- in bulk


def policies(out):
    return {path.name: load_safetensors(path)[0] for path in Path(out).glob("policy*.safetensors")}


def assert_equal(found, expected):
    assert found.keys() == expected.keys()
    for name, arrays in expected.items():
        assert all(np.array_equal(found[name][key], arrays[key]) for key in arrays)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("command", "again", "signals"),
    [
        (TRAIN, "train --resume run", 10),
        (f"{METATRAIN} --out run", "metatrain --resume run", 6),
    ],
    ids=["train", "metatrain"],
)
def test_signals_at_random_times_save_and_resume_exactly(folder, command, again, signals):
    """On an idle core within 5 seconds; ten times that is allowed here."""
    assert finished(command) == 0
    expected = policies("run")
    Path("run").rename("clean")
    began = time.monotonic()
    assert finished(command) == 0
    length = time.monotonic() - began
    Path("run").rename("warm")
    rng, slowest, stopped = np.random.default_rng(0), 0.0, 0
    for number in range(signals):
        kind = list(CODES)[number % len(CODES)]
        delay = rng.uniform(0, 0.8 * length)
        code, line, seconds = signalled(command, kind, "run/checkpoints", delay)
        assert code in (0, CODES[kind])
        slowest = max(slowest, seconds)
        if code:
            stopped += 1
            assert "resum" in line
            for path in Path("run/checkpoints").iterdir():
                load_safetensors(path)  # none is torn
            assert finished(again) == 0
        assert_equal(policies("run"), expected)
        assert not list(Path("run").rglob(".*.part*"))
        Path("run").rename(f"run-{number}")
    print(f"{stopped} of {signals} stopped, the slowest took {slowest:.1f} s")
    assert slowest < 10 * 5
    assert stopped > signals / 3


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_signals_at_random_times_while_translating(folder):
    rng, stopped = np.random.default_rng(0), 0
    command = f"{TRANSLATE} --preset smoke --episodes 0"
    began = time.monotonic()
    assert finished(command) == 0
    length = time.monotonic() - began
    Path("ab").rename("clean")
    for number in range(50):
        kind = list(CODES)[number % len(CODES)]
        code, _, _ = signalled(command, kind, ".ab.part", rng.uniform(0, 0.8 * length))
        assert code in (0, CODES[kind])
        stopped += code != 0
        assert Path("ab").exists() or code  # a signal at the very end may be too late
        if not Path("ab").exists():
            assert not list(Path().glob(".*"))
            assert finished(command) == 0
        assert not list(Path().glob(".*"))
        ours, clean = (
            load_safetensors(Path(name) / "translator.safetensors")[0] for name in ("ab", "clean")
        )
        assert all(np.array_equal(ours[key], clean[key]) for key in clean)
        Path("ab").rename(f"ab-{number}")
    print(f"{stopped} of 50 stopped")
    assert stopped > 20
