"""Runs a command of mcat on a disk that fails from its n-th call on; tests start it as a process.

    LD_PRELOAD=failing_disk.so python -m tests.failing_disk FOLDER POINTS COMMAND... [-- RESUME...]

Prints a line of JSON per fault: exit codes and what was said. The command must write to FOLDER/N,
where {} stands for its path, and can be repeated once the disk works again.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import sys
from pathlib import Path

import numpy as np

DISK = ctypes.CDLL(None)
NEVER = 0


def command(arguments, folder, at, number):
    """Exit code, what it said, and how many calls it made, in a process of its own."""
    said = folder.parent / "said"
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        from mcat.cli import run

        descriptor = os.open(said, os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        DISK.disk_fail(os.fsencode(folder), at, number)
        code = 1
        try:
            code = run(arguments)
        finally:
            os.write(writer, str(DISK.disk_calls()).encode())
            DISK.disk_fail(b"", NEVER, 0)
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    os.close(writer)
    calls = int(os.read(reader, 20))
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return code, said.read_text(), calls


def main(folder, points, arguments):
    import mcat.agents.meta.run
    import mcat.datasets.collect  # noqa: F401  (before the forks)

    first, _, again = " ".join(arguments).partition(" -- ")

    def filled(text, out):
        return [str(out) if word == "{}" else word for word in text.split()]

    _, _, calls = command(filled(first, folder / "clean.h5"), folder, NEVER, 0)
    for at in np.unique(np.linspace(1, calls, points).astype(int)):
        for number in (errno.EIO, errno.EROFS):
            out = folder / f"{at}-{number}.h5"
            code, said, _ = command(filled(first, out), folder, int(at), number)
            there = out.exists()
            begun = any(out.parent.glob(f"{out.name}*/[!.]*"))
            resume = filled(again if begun or out.is_file() else first, out)
            resumed, error, _ = command(resume, folder, NEVER, 0)
            found = {"at": int(at), "of": calls, "code": code, "said": said, "there": there,
                     "resumed": resumed, "error": error, "out": str(out)}  # fmt: skip
            print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
