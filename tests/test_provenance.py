"""Files say by which command they were made."""

from __future__ import annotations

import sys

import pytest

from mcat.provenance import provenance


@pytest.mark.parametrize("program", ["/venv/bin/mcat", "/code/mcat/__main__.py"])
def test_a_command_is_called_mcat_however_it_was_started(monkeypatch, program):
    monkeypatch.setattr(sys, "argv", [program, "train", "--out", "my run"])
    assert provenance()["command"] == "mcat train --out 'my run'"
