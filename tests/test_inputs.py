"""What comes from files: numbers in range, real files only, text for terminals, and no code."""

from __future__ import annotations

import ast
import os
from pathlib import Path

import pytest

import mcat
from mcat.envs import Task
from mcat.errors import DataError, McatError, MissingInputError, UsageError, counted, printable
from mcat.safe_io import open_input, parse_json, read_json, sha256_of
from mcat.tensor_files import load_safetensors

PACKAGE = Path(mcat.__file__).parent


# ---- numbers


@pytest.mark.parametrize(
    "number", ["1e999", "-1e999", "1" + "0" * 400, "-1" + "0" * 309, "1" * 5000]
)
def test_numbers_beyond_floats_are_not_read(number):
    for text in (number, f'{{"a": [1, {number}]}}'):
        with pytest.raises(DataError, match=r"a\.json: damaged") as caught:
            parse_json(text, "a.json")
        assert len(str(caught.value)) < 200


def test_numbers_within_floats_are_exact():
    text = f"[{2**70}, -{10**308}, 1e308, 5e-324, 1e-999, -0.0, 0.1]"
    assert parse_json(text, "a.json") == [2**70, -(10**308), 1e308, 5e-324, 0.0, -0.0, 0.1]


@pytest.mark.parametrize("value", [10**400, -(10**400), 1e308, float("inf"), float("nan")])
def test_a_task_takes_no_number_out_of_range(value):
    for options in ({"armature": value}, {"horizon": value}, {"delay": value}):
        with pytest.raises(UsageError, match="must be"):
            Task("halfcheetah", **options)


# ---- files


@pytest.mark.timeout(20)
@pytest.mark.parametrize("read", [read_json, load_safetensors, sha256_of])
def test_pipes_and_devices_are_not_waited_for(tmp_path, read):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(DataError, match="a pipe or a device"):
            read(path)
    with pytest.raises(MissingInputError, match="directory"):
        read(tmp_path)
    with pytest.raises(MissingInputError, match="No such file"):
        read(tmp_path / "nothing")


def test_a_refused_input_stays_closed(tmp_path):
    before = len(os.listdir("/proc/self/fd"))
    for path in (tmp_path, "/dev/zero"):
        with pytest.raises(McatError), open_input(path):
            pass
    assert len(os.listdir("/proc/self/fd")) == before


# ---- text


def test_text_of_others_is_one_line_that_steers_no_terminal():
    assert printable("a\x1b]0;owned\x07\r\nb\u202e\ud800ü ✓") == "a ]0;owned   b  ü ✓"
    assert printable("x" * 1000, 5) == "xxxxx"
    assert printable(ValueError("why")) == "why"


def test_one_is_not_many():
    assert [counted(n, "row") for n in (0, 1, 2000)] == ["0 rows", "1 row", "2,000 rows"]


# ---- code


def calls_of(tree: ast.AST) -> list[tuple[str, ast.Call]]:
    """The dotted names that are called."""
    return [(ast.unparse(n.func), n) for n in ast.walk(tree) if isinstance(n, ast.Call)]


def runs_what_it_reads(path: Path) -> list[str]:
    """Everything in a module that could run, or unpickle, what a file holds."""
    tree = ast.parse(path.read_text())
    found = []
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        found += [
            name
            for name in names
            if name.split(".")[0] in {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "yaml",
                                      "shelve", "marshal", "code"}
        ]  # fmt: skip
    for name, call in calls_of(tree):
        last = name.rpartition(".")[2]
        keywords = {word.arg: ast.unparse(word.value) for word in call.keywords}
        if (
            name
            in {"eval", "exec", "compile", "__import__", "torch.load", "np.load", "np.fromfile"}
            or (last == "loads" and name not in {"json.loads", "tomllib.loads"})
            or keywords.get("allow_pickle") == "True"
            or keywords.get("weights_only") == "False"
            or keywords.get("shell") == "True"
        ):
            found.append(name)
    return [f"{path.name}: {name}" for name in found]


def test_nothing_in_the_package_runs_what_it_reads(tmp_path):
    modules = sorted(PACKAGE.rglob("*.py"))
    assert len(modules) > 100
    assert [name for path in modules for name in runs_what_it_reads(path)] == []
    bad = tmp_path / "bad.py"  # the scan can find something
    for line in ("import pickle", "from yaml import load", "eval(x)", "torch.load(f)",
                 "load(f, weights_only=False)", "pickle.loads(b)", "run(x, shell=True)",
                 "np.load(f, allow_pickle=True)"):  # fmt: skip
        bad.write_text(line)
        assert runs_what_it_reads(bad), line
