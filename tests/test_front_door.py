"""The front door: quick answers, one line for what is wrong, whatever stream, signal or bug."""

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest

from mcat.cli import cli, run

MCAT = [sys.executable, "-m", "mcat"]


def commands(group=cli, path=()):
    """Every command, as typed."""
    yield " ".join(path)
    for name in group.list_commands(None) if isinstance(group, click.Group) else ():
        yield from commands(group.get_command(None, name), (*path, name))


HELP = [f"{name} --help".strip() for name in commands()]
# What they end with; each is told before torch, metaworld or matplotlib is imported.
QUICK = {
    "nonsense": 2,
    "--version": 0,
    "envs list": 0,
    "envs show unicorn": 2,
    "render --env ant --policy unicorn --out a.png": 2,
    "render --env ant --policy scripted --out a.png": 2,
    "render --env ant --policy nope.safetensors --out a.png": 66,
    "dataset import nope.csv --out a.h5": 66,
    "dataset import nope.csv --out a.csv": 2,
    "dataset repair nope.csv --robot nope.toml --out a.h5": 66,
    "collect": 2,
    "collect --env ant --policy unicorn": 2,
    "collect --env ant --noise loud": 2,
    "collect --env ant --from b": 2,
    "collect --env ant --translator nope": 66,
    "train": 2,
    "train --env aunt": 2,
    "train --env ant --preset nope": 2,
    "train --env ant --steps 10 --snapshots 20": 2,
    "train --resume nope": 66,
    "policies list": 0,
    "policies import nope.zip --out a.safetensors": 66,
    "policies import text.h5 --out a.zip": 2,
    "export onnx nope.safetensors --out a.onnx": 66,
    "export onnx good --out a.onnx": 2,
    "export onnx scripted --out a.onnx": 2,
    "collect --env ant --policy no_module:policy": 2,
    "dataset info nope.h5": 66,
    "dataset check nope.csv": 66,
    "translate": 2,
    "translate --src a.h5": 2,
    "translate --src a.h5 --tgt b.h5 --preset nope": 2,
    "translate --src nope.h5 --tgt nope.h5": 66,
    "translate --src text.h5 --tgt text.h5": 65,
    "translate --src text.h5 --tgt text.h5 --out exists": 73,
    "translate --src a.h5 --tgt b.h5 --map nope.json": 66,
    "translate --src a.h5 --tgt b.h5 --map nope": 2,
    "translate --src a.h5 --tgt b.h5 --policy nope.safetensors": 66,
    "evaluate": 2,
    "evaluate nope": 66,
    "evaluate --env hopper": 2,
    "evaluate --env ant --policy unicorn": 2,
    "evaluate --env ant --policy nope.safetensors": 66,
    "evaluate --env ant --translator nope": 66,
    "adapt": 2,
    "adapt --logs nope.h5": 66,
    "adapt --logs text.h5": 65,
    "adapt --logs text.h5 --steps 5": 2,
    "adapt --logs text.h5 --out exists --set nope=1": 2,
    "adapt --logs a.h5 --translator nope": 66,
    "adapt --logs a.h5 --env ant --print-config": 0,
    "metatrain --preset nope": 2,
    "metatrain --family nope": 2,
    "metatrain --set nope=1": 2,
    "metatrain --set mcat.td3.discount=7": 2,
    "metatrain --config nope.toml": 66,
    "metatrain --resume nope": 66,
    "metatrain --print-config": 0,
    "plot": 2,
    "plot nope": 66,
    "plot exists": 66,
    "reproduce nope": 2,
    "reproduce table1 --row nope": 2,
    "reproduce table1 --preset nope": 2,
    "reproduce table1 --seeds x": 2,
}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.h5").write_text("not a data set")
    (tmp_path / "exists").mkdir()


def test_help_and_mistakes_are_answered_before_anything_heavy_is_imported():
    code = """
import json, shlex, sys
from mcat.cli import run
answers = []
for call in json.loads(sys.argv[1]):
    code = run(shlex.split(call))
    answers.append((call, code, sorted(set(json.loads(sys.argv[2])) & set(sys.modules))))
sys.stdout.flush()
print("\\n" + json.dumps(answers))
"""
    slow = ["torch", "metaworld", "matplotlib", "sklearn", "pyarrow", "tensorboard"]
    simulators = ["mujoco", "h5py"]
    for calls, unwanted in (HELP, [*slow, *simulators]), (list(QUICK), slow):
        arguments = [json.dumps(calls), json.dumps(unwanted)]
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True
        )
        answers = json.loads(done.stdout.splitlines()[-1])
        assert len(answers) == len(calls) >= 19
        for call, found, heavy in answers:
            assert (found, heavy) == (QUICK.get(call, 0), []), call
        assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_help_and_mistakes_take_half_a_second(capsys):
    """Of processor time, printed for the record; ten times that is a failure."""
    seconds = {}
    for call in [*HELP, *QUICK]:
        before = os.times()
        subprocess.run([*MCAT, *shlex.split(call)], capture_output=True, check=False)
        after = os.times()
        seconds[call] = after.children_user + after.children_system
        seconds[call] -= before.children_user + before.children_system
    with capsys.disabled():
        print()
        for call, taken in sorted(seconds.items(), key=lambda item: -item[1]):
            print(f"{taken:6.2f} s  mcat {call}")
    assert max(seconds.values()) < 5


@pytest.mark.parametrize("call", ["envs list", "envs list --json", "--help", "policies list"])
def test_output_on_a_full_disk_is_one_line_and_74(call):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*MCAT, *call.split()], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.stderr.splitlines() == [
        "error: cannot read or write standard output: No space left on device"
    ]
    assert done.returncode == 74


def test_nobody_reads_on_or_listens_at_all():
    for command, code in (
        ("envs list | head -1; exit ${PIPESTATUS[0]}", 0),
        ("envs list --json | head -1; exit ${PIPESTATUS[0]}", 0),
        ("envs list >&-", 0),
        ("envs show unicorn 2>/dev/full", 2),
        ("envs show unicorn 2>&-", 2),
    ):
        line = f"{shlex.join(MCAT)} {command}"
        done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (code, ""), command


@pytest.fixture
def broken(monkeypatch):
    """`mcat broken` fails in the way that is put into the list."""
    errors = []

    @click.command()
    def broken():
        raise errors[0]

    monkeypatch.setitem(cli.commands, "broken", broken)
    return errors


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (KeyError("x"), 70, "internal error: KeyError: 'x': a mistake in mcat, please report it"),
        (RuntimeError("two\nlines"), 70, "internal error: RuntimeError: two lines: a mistake"),
        (MemoryError(), 71, "error: out of memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: 9 bytes"), 71, "out of memory"),
        (OSError(5, "Input/output error", "a.h5"), 74, "error: cannot read or write a.h5: Input"),
    ],
)
def test_what_nobody_expected_is_one_line_too(error, code, line, broken, capsys, monkeypatch):
    broken.append(error)
    assert run(["broken"]) == code
    (told,) = capsys.readouterr().err.splitlines()
    assert line in told
    for variable, args in (("0", ["--debug", "broken"]), ("1", ["broken"])):
        monkeypatch.setenv("MCAT_DEBUG", variable)
        with pytest.raises(type(error)):
            run(args)


def test_a_real_lack_of_memory_is_one_line():
    code = (
        "import resource; from mcat.cli import cli, main; import click, numpy as np\n"
        "resource.setrlimit(resource.RLIMIT_AS, (2**31, 2**31))\n"
        "cli.add_command(click.Command('greedy', callback=lambda: np.ones(2**40)))\n"
        "main(['greedy'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 71
    assert done.stderr.startswith("error: out of memory")


def test_the_traceback_is_shown_when_it_is_asked_for():
    for args, env in ((["--debug"], {}), ([], {"MCAT_DEBUG": "1"})):
        done = subprocess.run(
            [*MCAT, *args, "envs", "show", "unicorn"],
            env=os.environ | env, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert "Traceback" in done.stderr
        assert "unknown robot or family" in done.stderr


def test_ctrl_c_is_quiet_from_the_first_import_on():
    """A module that takes its time to import stands for a slow disk."""
    Path("click.py").write_text("import sys, time; print('here', flush=True); time.sleep(60)")
    path = os.pathsep.join([str(Path.cwd()), *filter(None, [os.environ.get("PYTHONPATH")])])
    child = subprocess.Popen(
        MCAT, env=os.environ | {"PYTHONPATH": path},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        # What a shell starts in the background ignores Ctrl-C, and so do its children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    assert child.stdout.readline() == "here\n"
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=60)
    assert (child.returncode, err) == (130, "")


def test_ctrl_c_in_a_command_is_one_word(broken, capsys):
    broken.append(KeyboardInterrupt())
    assert run(["broken"]) == 130
    assert capsys.readouterr().err.split() == ["stopped"]


def test_a_terminal_that_knows_ascii_only_is_no_reason_to_stop():
    done = subprocess.run(
        [*MCAT, "envs", "show", "halfcheetah"],
        env=os.environ | {"PYTHONIOENCODING": "ascii"}, capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert b"armature" in done.stdout
