"""A command that finds another run, data set or translator in its place says what differs."""

from __future__ import annotations

import pytest

from mcat.cli import run

QUIET = ["--quiet", "--horizon", "50"]
LOG = ["collect", "--env", "hopper", "--steps", "100", "--policy", "random", *QUIET]
MADE = {
    "collect": [*LOG, "--out", "made.h5"],
    "train": ["train", "--env", "hopper", "--steps", "60", "--start-steps", "20", "--episodes", "1",
              "--out", "made", *QUIET],
    "translate": ["translate", "--src", "a.h5", "--tgt", "b.h5", "--preset", "smoke", "--episodes",
                  "0", "--out", "made", "--quiet"],
}  # fmt: skip


@pytest.mark.parametrize("command", MADE)
def test_another_config_in_the_place_is_refused_with_the_difference(
    command, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    if command == "translate":
        assert run([*LOG, "--out", "a.h5"]) == 0
        assert run([*LOG, "--size", "0.03", "--out", "b.h5"]) == 0
    for _ in range(2):  # made, then found done
        assert run([*MADE[command], "--resume"]) == 0
    capsys.readouterr()
    assert run([*MADE[command], "--resume", "--seed", "1"]) == 2
    said = capsys.readouterr().err
    assert "seed: 0 there, 1 here" in said
    assert said.count("\n") == 1
