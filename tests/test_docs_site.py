"""`make docs` builds a site of every page, without a warning."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PUBLIC = ("envs", "datasets", "translator", "agents", "robot", "transfer", "paper")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    pytest.importorskip("sphinx", reason="the extra docs is not installed")
    out = tmp_path_factory.mktemp("site")
    (command,) = re.findall(r"-m sphinx (.+) docs/_build$", makefile(), flags=re.MULTILINE)
    assert "-W" in command.split()
    call = [sys.executable, "-m", "sphinx", *command.split(), str(out)]
    env = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(call, cwd=ROOT, env=env, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    return out


def makefile():
    return (ROOT / "Makefile").read_text()


def test_the_site_has_every_page(site):
    sources = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("results/**/*.md")]
    assert len(sources) > 25
    for source in sources:
        assert (site / source.relative_to(ROOT)).with_suffix(".html").is_file(), source
    assert "docs/index.html" in (site / "index.html").read_text()


def test_links_to_source_files_lead_to_their_pages(site):
    page = (site / "docs" / "symbols.html").read_text()
    links = re.findall(r'href="(\.\./mcat/[^"]+)"', page)
    assert len(links) > 20
    for link in links:
        assert (site / "docs" / link).is_file(), link
    assert 'href="own_robot.py.html"' in (site / "examples" / "README.html").read_text()


@pytest.mark.parametrize("package", PUBLIC)
def test_the_reference_has_every_public_name(site, package):
    from importlib import import_module

    page = (site / "docs" / "api" / f"{package}.html").read_text()
    found = {name.rpartition(".")[2] for name in re.findall(r'id="(mcat\.[\w.]+)"', page)}
    assert not set(import_module(f"mcat.{package}").__all__) - found


def test_the_reference_shows_fields_and_commands(site):
    assert "contrastive_weight" in (site / "docs" / "api" / "translator.html").read_text()
    commands = (site / "docs" / "commands.html").read_text()
    assert "--no-mirror" in commands
    assert "export-minari" in commands


def test_links_to_lines_find_the_line(site):
    page = (site / "docs" / "api" / "envs.html").read_text()
    links = re.findall(r'href="\.\./\.\./(mcat/[^"#]+)#(line-\d+)"', page)
    assert len(links) > 20
    for name, line in links:
        assert f'"{line}"' in (site / name).read_text()
