"""Rules the whole package keeps, checked on its source."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import mcat

PACKAGE = Path(mcat.__file__).parent
SOURCES = sorted(PACKAGE.rglob("*.py"))
# A module imports only from its left; those in the first place serve all.
ORDER = (
    {"errors", "types", "safe_io", "workplaces", "config", "interrupts", "progress"},
    {"envs"},
    {"datasets"},
    {"translator"},
    {"agents"},
    {"reports"},
    {"commands"},
    {"cli", "__main__"},
)
UNSAFE_MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "yaml", "marshal", "shelve", "joblib"}
UNSAFE_CALLS = {"eval", "exec", "compile", "__import__"}


def rank(module: str) -> int:
    """Where a module such as `mcat.envs.tasks` stands; -1 for the package itself."""
    parts = module.split(".")
    if len(parts) == 1:
        return -1
    return next(i for i, names in enumerate(ORDER) if parts[1] in names)


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


def test_the_package_is_found_by_these_tests():
    assert len(SOURCES) > 30


def test_data_sets_need_no_simulator():
    """Someone with logs of a real robot needs neither mujoco nor metaworld."""
    code = (
        "import sys; from mcat.datasets import EpisodeStore, load\n"
        "assert not {'mujoco', 'metaworld', 'torch'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
