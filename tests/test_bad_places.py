"""Outputs where nothing can be written: found before any work, told in one line."""

from __future__ import annotations

import os
import sys
import tempfile
import time
import traceback
from pathlib import Path

import pytest
import torch

from mcat.cli import run
from mcat.datasets import write_dataset
from mcat.envs import vector
from tests.transfer.transfer_logs import own_robot

NOBODY = 65534
COMMANDS = {
    "collect": "collect --env hopper --policy random --steps 100 --workers 1 --out {}/a.h5",
    "family": "collect --family halfcheetah-pair --policy random --workers 1 --out {}/f",
    "train": "train --env hopper --steps 100 --out {}/run",
    "metatrain": "metatrain --family halfcheetah-armature --preset smoke --out {}/run",
    "translate": "translate --src a.h5 --tgt b.h5 --preset smoke --episodes 0 --out {}/ab",
    "reproduce --work": "reproduce table1 --row halfcheetah --preset smoke --out /tmp --work {}/w",
    "reproduce --out": "reproduce table1 --row halfcheetah --preset smoke --out {}/out",
    "export": "dataset export-minari a.h5 --id mcat/own/a-v0 --root {}/minari",
}


@pytest.fixture
def public():
    """A folder that other users reach, with logs."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        for number, name in enumerate(("a", "b")):
            write_dataset(Path(folder) / f"{name}.h5", own_robot(number), {})
            os.chmod(Path(folder) / f"{name}.h5", 0o644)
        (Path(folder) / "empty").mkdir(mode=0o555)
        yield Path(folder)


def refused(command, folder, *, user=None):
    """Exit code, what was said and seconds, in a fork that must neither learn nor simulate."""
    reader, writer = os.pipe()
    began = time.monotonic()
    child = os.fork()
    if child == 0:
        sys.stdout = sys.stderr = os.fdopen(writer, "w")
        os.chdir(folder)
        code = 99
        try:
            if user is not None:
                os.setgid(user)
                os.setuid(user)
            vector.TaskVectorEnv.step = lambda *args: os._exit(97)
            code = run(command.split())
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader) as file:
        said = file.read()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), said, time.monotonic() - began


def assert_one_line(code, said, seconds):
    assert code == 73, said
    assert [line[:7] for line in said.splitlines() if "ollecting" not in line] == ["error: "], said
    assert seconds < 20  # 2 on an idle core


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to become another user")
@pytest.mark.parametrize("name", COMMANDS)
def test_a_read_only_folder_is_found_before_the_work(public, name):
    command = COMMANDS[name].format(public / "empty")
    if name == "metatrain":
        torch.optim.Adam([torch.zeros(1)])  # imports what another user may not read
    assert_one_line(*refused(command, public, user=NOBODY))
    assert os.listdir(public / "empty") == []


@pytest.mark.parametrize("name", COMMANDS)
def test_a_file_is_no_folder(public, name):
    (public / "file").write_text("precious")
    command = COMMANDS[name].format(public / "file")
    assert_one_line(*refused(command, public))
    assert (public / "file").read_text() == "precious"
    assert sorted(os.listdir(public)) == ["a.h5", "b.h5", "empty", "file"]
