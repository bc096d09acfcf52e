"""Progress: however narrow the terminal, how much is done and how long it takes stay readable."""

import io
import re

import pytest

from mcat import progress
from mcat.progress import Progress

LABEL = "meta-training halfcheetah-armature"


class Terminal(io.StringIO):
    def isatty(self):
        return True


def last_frame(width, monkeypatch):
    """What a terminal of that width shows in the end."""
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    with Progress(LABEL, 200_000, "steps") as bar:
        bar._started -= 1000.0
        bar.advance(104_703, note="iteration 2: collect 0/1")
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.getvalue())
    return [line for line in re.split(r"[\r\n]", plain) if line.strip()][-1].rstrip()


@pytest.mark.parametrize("width", [50, 60, 70, 80, 100, 120, 160, 200])
def test_count_and_time_left_are_whole_at_any_width(width, monkeypatch):
    line = last_frame(width, monkeypatch)
    assert "104,703/200,000" in line
    assert "15:10 left" in line
    assert len(line) <= width


def test_the_label_shortens_first_and_then_the_note(monkeypatch):
    wide, eighty, narrow = (last_frame(width, monkeypatch) for width in (200, 80, 60))
    assert LABEL in wide
    assert "━" in wide
    assert LABEL not in eighty
    assert "iteration 2: collect 0/1" in eighty
    assert "steps/s" in eighty
    assert "iteration 2: collect 0/1" not in narrow
    assert "meta-train" in narrow


def test_a_log_gets_a_plain_line(monkeypatch, capsys):
    monkeypatch.setattr(progress, "PLAIN_INTERVAL", 0.0)
    with Progress("collecting", 10) as bar:
        bar.advance(4, note="return 3")
    first, last = capsys.readouterr().err.splitlines()
    assert re.match(r"collecting: 4/10 steps \(.*/s, .* left\) · return 3", first)
    assert last.startswith("collecting: 4/10")
