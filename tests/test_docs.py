"""What README and docs say is true: their code runs, their tables are those of the declarations."""

import ast
import builtins
import itertools
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from mcat.cli import cli
from mcat.commands.options import task_from
from mcat.envs import FAMILIES, ROBOTS
from mcat.errors import MissingInputError
from mcat.reports.environments import family_rows, markdown, page
from mcat.reports.policies import policy_rows

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def test_every_block_of_python_in_the_readme_runs_by_itself(tmp_path):
    blocks = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    assert len(blocks) == 3
    quiet = "import warnings; warnings.simplefilter('ignore')\n"
    code = "".join(f"exec({quiet + block!r}, {{}})\n" for block in blocks)
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, capture_output=True)


def blocks_of(page):
    return re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL)


@pytest.mark.parametrize("name", ["datasets", "policies", "wrappers", "metaworld"])
def test_the_python_of_a_page_runs_from_top_to_bottom(name, tmp_path):
    code = "import warnings; warnings.simplefilter('ignore')\n"
    code += "\n".join(blocks_of(ROOT / "docs" / f"{name}.md"))
    assert len(code) > 200
    env = os.environ | {"MINARI_DATASETS_PATH": str(tmp_path / "minari")}
    call = [sys.executable, "-c", code]
    subprocess.run(call, cwd=tmp_path, env=env, check=True, capture_output=True)


def test_what_goes_on_from_above_says_so():
    """A block of Python can be pasted as it is, or begins by saying that it cannot."""
    for path in PAGES:
        for block in blocks_of(path):
            goes_on = bool(missing_names(block) - {"observation", "observations"})  # the reader's
            assert block.startswith("# continues from above\n") == goes_on, (path.name, block)


def missing_names(code):
    """Names that are used, but neither imported nor given a value."""
    known, used = set(dir(builtins)), set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Name):
            (used if isinstance(node.ctx, ast.Load) else known).add(node.id)
        elif isinstance(node, ast.alias):
            known.add((node.asname or node.name).partition(".")[0])
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            known.add(node.name)
        elif isinstance(node, ast.arg):
            known.add(node.arg)
        elif isinstance(node, ast.ExceptHandler) and node.name:
            known.add(node.name)
    return used - known


def test_the_translator_guide_runs_and_says_what_it_prints(tmp_path):
    text = (ROOT / "docs" / "translator.md").read_text()
    (block,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    assert "near [-0.5, 0.5]" in block
    check = """
found = translator.translate(observations=[[0.1, 0.2]], actions=[[0.5, -0.5]])
assert np.abs(found - [[-0.5, 0.5]]).max() < 0.15, found
assert policy_b(np.zeros((3, 2))).shape == (3, 2)
"""
    subprocess.run(
        [sys.executable, "-c", block + check], cwd=tmp_path, check=True, capture_output=True
    )


PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("results/**/*.md")])
PHYSICS = {parameter.name for robot in ROBOTS.values() for parameter in robot.parameters}


def commands_of(page):
    """The lines of a page that are commands of ours, without what the shell makes of them."""
    for line in re.findall(r"^(?: {4})?mcat (.+)$", page.read_text(), flags=re.MULTILINE):
        words = shlex.split(line, comments=True)
        if words and words[0] in cli.commands:
            yield list(itertools.takewhile(lambda word: word not in (">", "|", "&"), words))


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_command_in_the_docs_is_understood(page, tmp_path, monkeypatch):
    """Up to running it: its options, their values, the task and the settings they describe."""
    monkeypatch.chdir(tmp_path)
    for words in commands_of(page):
        command = cli
        while words and words[0] in getattr(command, "commands", {}):
            command = command.commands[words.pop(0)]
        context = understood(command, words)
        if context.params.get("env") is not None:
            chosen = PHYSICS | {"delay", "horizon"}
            options = {name: value for name, value in context.params.items() if name in chosen}
            task_from(context.params["env"], options)
        if name := context.params.get("family_name") or context.params.get("family"):
            assert name in FAMILIES


def understood(command, words):
    """What click makes of it; inputs that it misses are made."""
    for _ in range(5):
        try:
            return command.make_context(command.name, list(words))
        except MissingInputError as error:
            missing = Path(str(error).partition(" is not there")[0])
            missing.parent.mkdir(parents=True, exist_ok=True)
            missing.touch()
    raise AssertionError(words)


def test_there_are_commands_in_the_docs():
    assert sum(len(list(commands_of(page))) for page in PAGES) >= 45


def test_every_promise_names_tests_that_there_are():
    text = (ROOT / "docs" / "reliability.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("| ") and "`tests/" in line]
    assert len(rows) >= 40
    for name in re.findall(r"`(tests/[^`]+)`", text):
        assert (ROOT / name).is_file(), name


def test_tables_follow_the_declarations():
    assert markdown(family_rows()) in README
    assert (ROOT / "docs" / "environments.md").read_text().endswith(page())
    assert markdown(policy_rows()) in (ROOT / "docs" / "policies.md").read_text()


@pytest.mark.parametrize(
    "path", sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]), ids=lambda p: p.name
)
def test_links_lead_somewhere(path):
    for target in re.findall(r"\]\(([^)#:]+)\)", path.read_text()):
        assert (path.parent / target).exists(), target
