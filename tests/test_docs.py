"""What README and docs say is true: their code runs, their tables are those of the declarations."""

import ast
import builtins
import itertools
import json
import os
import re
import shlex
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from mcat.cli import cli
from mcat.commands.options import task_from
from mcat.envs import FAMILIES, ROBOTS
from mcat.errors import MissingInputError
from mcat.paper.experiments import EXPERIMENTS
from mcat.paper.tables import TABLES
from mcat.reports.tables import family_rows, markdown_table, page, policy_rows
from mcat.sweeps.plan_files import packaged_plans

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


@pytest.mark.parametrize(
    "name",
    ["adapt", "datasets", "policies", "robot", "wrappers", "metaworld", "any-robot"],
)
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


def test_docs_and_examples_go_through_the_front_doors():
    """What a package exports is imported from it, not from wherever it lies inside."""
    imports = re.compile(r"^from (mcat\.[\w.]+) import (.+)$", re.MULTILINE)
    found = 0
    for path in (*PAGES, *ROOT.glob("examples/*.py")):
        for module, names in imports.findall(path.read_text()):
            package, home = import_module(".".join(module.split(".")[:2])), import_module(module)
            for name in set(re.findall(r"\w+", names)) & set(getattr(package, "__all__", ())):
                at_the_door = home is package or getattr(package, name) is not getattr(home, name)
                assert at_the_door, (path.name, module, name)
            found += 1
    assert found > 20


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
        if words and words[0] in cli.list_commands(None):
            yield list(itertools.takewhile(lambda word: word not in (">", "|", "&"), words))


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_command_in_the_docs_is_understood(page, tmp_path, monkeypatch):
    """Up to running it: its options, their values, the task and the settings they describe."""
    monkeypatch.chdir(tmp_path)
    for words in commands_of(page):
        command = cli
        while isinstance(command, click.Group) and words and not words[0].startswith("-"):
            command = command.get_command(None, words.pop(0))
        context = understood(command, words)
        if context.params.get("env") is not None:
            chosen = PHYSICS | {"delay", "horizon"}
            options = {name: value for name, value in context.params.items() if name in chosen}
            task_from(context.params["env"], options)
        if name := context.params.get("family_name") or context.params.get("family"):
            assert name in FAMILIES or name.endswith(".toml")  # one of the reader's own


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
    assert markdown_table(family_rows()) in README
    assert (ROOT / "docs" / "environments.md").read_text().endswith(page())
    assert markdown_table(policy_rows()) in (ROOT / "docs" / "policies.md").read_text()


@pytest.mark.parametrize(
    "path", sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]), ids=lambda p: p.name
)
def test_links_lead_somewhere(path):
    for target in re.findall(r"\]\(([^)#:]+)\)", path.read_text()):
        assert (path.parent / target).exists(), target


FOLDERS = (".ci", "mcat", "tests", "docs", "benchmarks", "examples", "results")
TEXTS = sorted(
    path
    for place in (ROOT.glob("*"), *((ROOT / name).rglob("*") for name in FOLDERS))
    for path in place
    if path.suffix in (".py", ".md", ".toml", ".cff", ".txt", ".c", ".json")
    or path.name in ("Makefile", "run")
)
# Codes of documents that only we had. Spelt so that this file holds none of them.
CODES = re.compile(
    r"\b[AB][1-9]\d?\b"  # a reading by its number
    r"|\N{SECTION SIGN}"  # one of their sections
    r"|\b[Pp]romise \d"
    r"|\bshared/(?:spec|review|paper|design)"
)
LINK = re.compile(r"\]\(([^)#:]*)#([\w-]+)\)")
POINTER = re.compile(r"\b(docs/[\w/-]+\.md)#([\w-]+)")


def test_nothing_points_to_what_a_reader_does_not_have():
    """No code of an outside document, and no page that is not in the repository."""
    texts = {path: path.read_text() for path in TEXTS}
    assert len(texts) > 200
    pages = {path.name for path in texts if path.suffix == ".md"}
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path, text in texts.items()
        for number, line in enumerate(text.splitlines(), start=1)
        if CODES.search(line) or set(re.findall(r"\b[\w-]+\.md\b", line)) - pages
    ]
    assert not found, "\n".join(sorted(found))


def anchors_of(path):
    """Of a page's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.+)$", path.read_text(), flags=re.MULTILINE)
    return list(map(anchor_of, titles))


def anchor_of(title):
    return re.sub(r"[^\w -]", "", title).lower().replace(" ", "-")


def pointers():
    """(where, page, anchor) of every link to a heading, and of `docs/` pages named in any text."""
    for path in TEXTS:
        text = path.read_text()
        yield from ((path, ROOT / name, anchor) for name, anchor in POINTER.findall(text))
        if path.suffix == ".md":
            for name, anchor in LINK.findall(text):
                yield path, path.parent / name if name else path, anchor


def test_every_pointer_to_a_heading_finds_it():
    decisions = anchors_of(ROOT / "docs" / "decisions.md")
    assert len(decisions) == len(set(decisions)) > 30
    found = list(pointers())
    assert len(found) > 40
    for path, target, anchor in found:
        assert anchor in anchors_of(target), f"{path.relative_to(ROOT)}: {target.name}#{anchor}"


def test_every_decision_is_linked_from_the_code_that_depends_on_it():
    page = ROOT / "docs" / "decisions.md"
    leaves = re.findall(r"^### (.+)$", page.read_text(), flags=re.MULTILINE)
    sources = "".join(path.read_text() for path in (ROOT / "mcat").rglob("*.py"))
    linked = set(re.findall(r"docs/decisions\.md#([\w-]+)", sources))
    assert not {anchor_of(title) for title in leaves} - linked


@pytest.mark.parametrize("name", ["decisions", "symbols"])
def test_the_code_that_a_page_names_is_where_it_says(name):
    text = (ROOT / "docs" / f"{name}.md").read_text()
    links = re.findall(r"\[`([^`]+)`\]\(([^)#]+\.py)\)", text)
    assert len(links) > 15
    for names, target in links:
        if not names.endswith(".py"):
            code = (ROOT / "docs" / target).read_text()
            for word in re.findall(r"\w+", names):
                assert re.search(rf"\b{word}\b", code), (names, target)


def switches_off(title):
    """The last column of a table of deviations, as words of a command line."""
    text = (ROOT / "docs" / "decisions.md").read_text()
    section = text.partition(f"\n### {title}\n")[2].partition("\n### ")[0]
    cells = [line.split("|")[-2] for line in section.splitlines() if line.startswith("| ")]
    for switch in re.findall(r"`([^`]+)`", " ".join(cells)):
        yield from switch.split() if switch.startswith("--") else ("--set", switch)


def settings(*words):
    result = CliRunner().invoke(cli, ["metatrain", *words, "--print-config", "--json"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    del found["preset"], found["mcat"]["context"]["patience"]  # of stops that there are not
    if found["mcat"]["learner"] == "td3":
        del found["mcat"]["crossq"]  # of a learner that is not in use
    return found


def test_the_deviations_of_the_presets_are_all_there():
    """With every switch that the page names for them, `cpu` and `fast` become `paper`."""
    cpu, fast = (list(switches_off(f"Deviations of preset {name}")) for name in ("cpu", "fast"))
    assert settings("--preset", "cpu", *cpu) == settings("--preset", "paper")
    assert settings("--preset", "fast", *cpu, *fast) == settings("--preset", "paper")
    others = list(switches_off("In every preset, paper included"))
    assert not [word for word in others if re.fullmatch(r"mcat\.[\w.]+=.+", word)]  # paper has it


def test_every_table_of_the_paper_has_a_line_with_its_command():
    text = (ROOT / "docs" / "reproduce.md").read_text()
    rows = dict(re.findall(r"^\| .+? \| `mcat reproduce ([\w-]+)` \|(.+)$", text, re.MULTILINE))
    assert rows.keys() == {*TABLES, *EXPERIMENTS}
    for name, found in EXPERIMENTS.items():
        steps = "not said" if found.steps is None else f"{found.steps // 1_000_000}M steps"
        assert rows[name].startswith(f" runs | {steps}"), name
    plans = (ROOT / "docs" / "sweep.md").read_text()
    for name in packaged_plans():
        assert f"\n| `{name}` |" in plans, name


def test_every_decision_names_its_code_and_tests_that_there_are():
    text = (ROOT / "docs" / "decisions.md").read_text()
    readings, _, deviations = text.partition("\n## Deviations\n")
    sections = re.split(r"\n### ", readings.partition("\n## What cannot be known\n")[0])[1:]
    sections = [part for part in sections if "nothing is decided" not in part]
    rows = [line for line in deviations.splitlines() if line.startswith("| ")]
    rows = [line for line in rows if " | code | " not in line and "not there yet" not in line]
    assert len(sections) > 40
    assert len(rows) > 30
    for part in sections:
        assert re.search(r"\bCode:\s", part), part[:60]
    for part in (*sections, *rows):
        assert re.search(r"\]\(\.\./mcat/[\w/]+\.py\)", part), part[:60]
        tests = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", part)
        assert tests, part[:60]
        for path, name in tests:
            assert f"\ndef {name}(" in (ROOT / path).read_text(), (path, name)


def test_the_way_of_a_transition_passes_functions_that_are_there():
    """Every row of architecture.md names a file and what a transition passes in it."""
    page = (ROOT / "docs/architecture.md").read_text()
    rows = re.findall(r"^\| \[.+?\]\(\.\./(mcat/.+?)\) \| (.+?) \|", page, re.MULTILINE)
    assert len(rows) > 20
    for path, names in rows:
        source = (ROOT / path).read_text()
        for name in re.findall(r"`([\w.]+)`", names):
            owner, _, function = name.rpartition(".")
            assert re.search(rf"(def|class) {function}\b", source), (path, name)
            assert not owner or f"class {owner}" in source, (path, name)
