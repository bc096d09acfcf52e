"""Rules the whole package keeps, checked on its source."""

import ast
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import mcat
from mcat.errors import install

PACKAGE = Path(mcat.__file__).parent
SOURCES = sorted(PACKAGE.rglob("*.py"))
# A module imports only from its left; those in the first place serve all.
ORDER = (
    {"errors", "lazy", "types", "safe_io", "leases", "workplaces", "formats", "config",
     "config_values", "interrupts", "own_code", "progress", "provenance", "ranges",
     "tensor_files"},
    {"envs"},
    {"datasets"},
    {"translator"},
    {"agents"},
    {"robot"},
    {"transfer"},
    {"paper"},
    {"reports"},
    {"sweeps"},
    {"commands"},
    {"cli", "__main__"},
)  # fmt: skip
# The same inside `agents`; what is not named here serves all that is.
AGENTS_ORDER = (
    {"credit", "runs"},
    {"policies"},
    {"single"},
    {"adaptation"},
    {"meta"},
    {"trained_run", "__init__"},
)
UNSAFE_MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "yaml", "marshal", "shelve", "joblib"}
UNSAFE_CALLS = {"eval", "exec", "compile", "__import__"}


# Reports know what lies beside them in mcat/reports, not each other, but for these.
REPORTS = {"reproduction": {"comparison"}}  # its tables of runs are comparisons


def rank(module: str) -> tuple[int, int]:
    """Where a module such as `mcat.envs.tasks` stands, and where in `mcat.agents`."""
    _, *parts = module.split(".")
    if not parts:
        return -1, -1
    place = next(i for i, names in enumerate(ORDER) if parts[0] in names)
    inner = parts[1] if parts[0] == "agents" and len(parts) > 1 else ""
    return place, next((i for i, names in enumerate(AGENTS_ORDER) if inner in names), -1)


def imported(tree: ast.AST) -> list[str]:
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.append(node.module)
    return names


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_no_code_comes_from_data_and_imports_point_left(path):
    tree = ast.parse(path.read_text())
    modules = imported(tree)
    assert not UNSAFE_MODULES & {name.split(".")[0] for name in modules}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Name):
            assert node.func.id not in UNSAFE_CALLS, node.lineno
        elif isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name):
            assert (node.func.value.id, node.func.attr) != ("torch", "load"), node.lineno
        for keyword in node.keywords:
            loose = keyword.arg == "allow_pickle" and getattr(keyword.value, "value", True)
            assert not loose, node.lineno
            assert keyword.arg != "weights_only", node.lineno

    if path.name != "__init__.py" or path.parent != PACKAGE:
        own = ".".join(("mcat", *path.relative_to(PACKAGE).with_suffix("").parts))
        for name in modules:
            if name.split(".")[0] == "mcat":
                assert rank(name) <= rank(own), f"{own} imports {name}"


@pytest.mark.parametrize(
    "path", sorted(PACKAGE.glob("reports/**/*.py")), ids=lambda p: str(p.relative_to(PACKAGE))
)
def test_reports_share_what_lies_beside_them_and_do_not_know_each_other(path):
    rooms = {room.name for room in (PACKAGE / "reports").iterdir() if room.is_dir()}
    modules = [name.split(".") for name in imported(ast.parse(path.read_text()))]
    known = {name[2] for name in modules if name[:2] == ["mcat", "reports"] and len(name) > 2}
    own = path.parent.name
    assert known & rooms <= {own} | REPORTS.get(own, set())


def test_no_two_public_classes_share_a_name():
    names = [
        node.name
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    ]
    assert not {name for name, count in Counter(names).items() if count > 1}


def test_the_package_is_found_by_these_tests():
    assert len(SOURCES) > 30


def test_nothing_advises_to_install_the_program_of_that_name_on_pypi():
    """`mcat` there is a stranger's; every hint names the distribution that pyproject declares."""
    root = PACKAGE.parent
    (name,) = re.findall(r'^name = "(.+?)"', (root / "pyproject.toml").read_text(), re.MULTILINE)
    assert name != "mcat"
    assert f"'{name}[plot]'" in install("plot")
    files = [*SOURCES, *root.glob("*.*"), *root.glob("docs/**/*.md"), *root.glob("examples/*")]
    for path in files:
        if path.suffix in (".py", ".md", ".toml", ".cff"):
            text = path.read_text()
            assert not re.search(r"install ['\"]?mcat\b(?!-rl)|['\"]mcat\[", text), path


def test_data_sets_need_no_simulator():
    """Someone with logs of a real robot needs neither mujoco nor metaworld."""
    code = (
        "import sys; from mcat.datasets import EpisodeStore, load\n"
        "assert not {'mujoco', 'metaworld', 'torch'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


LIGHT = ("agents.adaptation.config", "agents.adaptation.run", "agents.meta.config",
         "agents.meta.algorithm", "agents.runs.record", "transfer.adaptation", "transfer.config",
         "transfer.result", "paper.tables", "reports.adaptation.page", "reports.learning.page",
         "translator", "translator.recipes")  # fmt: skip


def test_configurations_and_records_need_no_torch():
    """A mistake in a setting is told before the seconds that torch and a simulator take."""
    names = ", ".join(f"mcat.{name}" for name in LIGHT)
    code = (
        f"import sys; import {names}\n"
        "heavy = {'torch', 'mujoco', 'metaworld', 'matplotlib'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_translator_is_loaded_whatever_was_imported_before(tmp_path):
    """Every module of a kind of translator is known to `load`, though the package is lazy."""
    code = (
        "from mcat.translator.policy import _KINDS, Translator\n"
        "from mcat.tensor_files import save_safetensors\n"
        "import numpy as np\n"
        "save_safetensors('x.safetensors', {'a': np.zeros(1)}, {'kind': 'translator/unicorn'})\n"
        "try: Translator.load('x.safetensors')\n"
        "except ValueError: pass\n"
        "assert sorted(_KINDS) == ['action', 'cycle', 'cycle-spaces', 'state'], _KINDS"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)
