"""What README and docs say is true: their code runs, their tables are those of the declarations."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from mcat.cli import cli
from mcat.reports.environments import family_rows, markdown, page
from mcat.reports.policies import policy_rows

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def test_readme_python_runs(tmp_path):
    blocks = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    assert len(blocks) == 3
    code = "import warnings; warnings.simplefilter('ignore')\n" + "\n".join(blocks)
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, capture_output=True)


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


def test_readme_commands_exist():
    """Every `mcat …` line names a command and options that there are."""
    lines = re.findall(r"^    mcat (.*?)(?:  +#.*)?$", README, flags=re.MULTILINE)
    assert len(lines) >= 10
    for line in lines:
        words = line.split()
        command = cli
        while words and words[0] in getattr(command, "commands", {}):
            command = command.commands[words.pop(0)]
        assert command is not cli, line
        known = {option for parameter in command.params for option in parameter.opts}
        used = {word for word in words if word.startswith("--")}
        assert used <= known, line


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
