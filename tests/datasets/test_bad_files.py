"""Damaged and hostile files: no crash, no hang, no other file read, no code run."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import zlib
from concurrent.futures import ThreadPoolExecutor

import h5py
import numpy as np
import pytest

from mcat.datasets.hdf5 import read_dataset, write_dataset
from mcat.envs.tasks import Task
from mcat.errors import DataError, McatError
from mcat.tensor_files import digest
from tests.datasets.foreign_files import (
    ROWS,
    arrays_of,
    make_store,
    refusal,
    reseal,
    write_foreign,
)

# ---- damage


def mutate(content, rng):
    """One to three random changes: flips, overwrites, moves, cuts, insertions, repetitions."""
    mutant = bytearray(content)
    for _ in range(rng.integers(1, 4)):
        kind, at, length = rng.integers(8), int(rng.integers(len(mutant))), int(rng.integers(1, 64))
        if kind <= 1:
            mutant[at] ^= 1 << int(rng.integers(8))
        elif kind == 2:
            mutant[at : at + length] = rng.bytes(len(mutant[at : at + length]))
        elif kind == 3:
            mutant[at : at + length] = bytes(len(mutant[at : at + length]))
        elif kind == 4:
            mutant[at : at + length] = b"\xff" * len(mutant[at : at + length])
        elif kind == 5:
            del mutant[at : at + length]
        elif kind == 6:
            mutant[at:at] = mutant[at : at + length]
        else:
            other = int(rng.integers(len(mutant)))
            piece = mutant[other : other + length]
            mutant[at : at + len(piece)] = piece
    return bytes(mutant)


def check_sealed_mutants(tmp_path, count):
    path = tmp_path / "a.h5"
    write_dataset(path, make_store(), {"seed": 1})
    good = path.read_bytes()
    rng = np.random.default_rng(7)
    refused = 0
    for number in range(count):
        # Half of the mutants concentrate on the seal and HDF5's own structures.
        head = good[: 512 if number % 4 == 0 else 2500] if number % 2 == 0 else good
        mutant = mutate(head, rng) + good[len(head) :]
        if mutant == good:
            continue
        path.write_bytes(mutant)
        began = time.monotonic()
        refusal(path)
        assert time.monotonic() - began < 5
        refused += 1
    assert refused > 0.95 * count


def test_mutated_sealed_files_are_all_refused(tmp_path):
    check_sealed_mutants(tmp_path, 2_000)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_mutated_sealed_files_are_all_refused_10000(tmp_path):
    check_sealed_mutants(tmp_path, 10_000)


def test_truncated_sealed_files_say_both_sizes(tmp_path):
    path = tmp_path / "a.h5"
    write_dataset(path, make_store(), {"seed": 1})
    good = path.read_bytes()
    sizes = np.unique(np.linspace(0, len(good) - 1, 500).astype(int))
    for size in sizes:
        path.write_bytes(good[:size])
        text = refusal(path)
        assert str(size) in text
        if size > 100:  # the seal is still legible
            assert str(len(good)) in text
    path.write_bytes(good + b"\0")
    refusal(path)


def check_foreign_mutants(tmp_path, count):
    """Files that reach HDF5's parser: ours or an error, and the caller lives."""
    paths = []
    for compression in (None, "gzip"):
        for userblock in (0, 512):
            path = tmp_path / f"{compression}-{userblock}.h5"
            with write_foreign(path, userblock=userblock, skip=["actions"]) as file:
                actions = make_store().actions
                file.create_dataset("actions", data=actions, compression=compression)
            paths.append(path)
    goods = [path.read_bytes() for path in paths]

    def attempt(number):
        rng = np.random.default_rng(number)
        good = goods[number % 4]
        start = 512 * (number % 2)
        head = good[start : start + 1500]  # the structures, not the values
        mutant = mutate(head, rng) + good[start + len(head) :]
        path = tmp_path / f"mutant-{number}.h5"
        path.write_bytes(good[:start] + mutant)
        if start:
            reseal(path)
        began = time.monotonic()
        try:
            read_dataset(path, trust_seal=False)
            outcome = "read"
        except DataError as error:
            outcome = "refused" if len(str(error).splitlines()) == 1 else "badly refused"
        path.unlink()
        return outcome, time.monotonic() - began

    with ThreadPoolExecutor(2) as pool:
        outcomes = list(pool.map(attempt, range(count)))
    assert {outcome for outcome, _ in outcomes} <= {"read", "refused"}
    assert sum(outcome == "refused" for outcome, _ in outcomes) > count / 3
    assert max(seconds for _, seconds in outcomes) < 70


def test_mutated_unsealed_and_resealed_files_leave_the_caller_alive(tmp_path):
    check_foreign_mutants(tmp_path, 24)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_mutated_unsealed_and_resealed_files_leave_the_caller_alive_600(tmp_path):
    check_foreign_mutants(tmp_path, 600)


@pytest.mark.parametrize(
    "content",
    [b"", b"\x89HDF\r\n\x1a\n", b"hello", b"\0" * 5000, b"PK\x03\x04" + bytes(600)],
    ids=["empty", "signature", "text", "zeros", "zip"],
)
def test_files_that_are_no_hdf5_at_all(tmp_path, content):
    path = tmp_path / "a.h5"
    path.write_bytes(content)
    refusal(path)


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("import os; os.kill(os.getpid(), 11)", "exit code -11"),
        ("import time; time.sleep(60)", "took more than"),
        ("while True: pass", "exit code -9"),
        ("x = bytearray(4 * 2**30)", "exit code 1"),
        ("print('nonsense')", "not a readable"),
        ("pass", "not a readable"),
    ],
    ids=["crash", "hang", "loop", "memory", "nonsense", "silence"],
)
def test_the_caller_survives_whatever_the_child_does(tmp_path, monkeypatch, program, message):
    from mcat.datasets import child as limited

    limits = (
        "import resource, sys\n"
        "resource.setrlimit(resource.RLIMIT_CPU, (int(sys.argv[2]), int(sys.argv[2])))\n"
        "resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[3]), int(sys.argv[3])))\n"
    )
    child = tmp_path / "child.py"
    child.write_text(limits + program)
    monkeypatch.setattr(limited, "PROGRAM", (sys.executable, str(child)))
    monkeypatch.setattr(limited, "SECONDS", 1)
    monkeypatch.setattr(limited, "PATIENCE", 2 if "sleep" in program else 60)
    write_foreign(tmp_path / "a.h5").close()
    assert message in refusal(tmp_path / "a.h5")


# ---- sizes


def declare_terabytes(file):
    file.create_dataset("rewards", (2**40,), "f8")


def declare_terabytes_in_chunks(file):
    file.create_dataset("rewards", (2**40,), "f8", chunks=(1000,))[0] = 1


def declare_one_huge_chunk(file):
    file.create_dataset("rewards", (1,), "f8", maxshape=(None,), chunks=(2**28,))


def declare_many_dimensions(file):
    file.create_dataset("rewards", (1,) * 30, "f8")[()] = 0


def expand_a_thousandfold(file):
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_chunk((2**20,))
    plist.set_deflate(9)
    space = h5py.h5s.create_simple((2**26,))
    dataset = h5py.h5d.create(file.id, b"rewards", h5py.h5t.NATIVE_DOUBLE, space, plist)
    zeros = zlib.compress(bytes(2**23), 9)
    for i in range(64):
        dataset.write_direct_chunk((i * 2**20,), zeros)


def inflate_one_chunk(file, filters=1):
    """3 MB that inflate to 3 GB, in a chunk that claims to hold 96 bytes."""
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_chunk((ROWS,))
    for _ in range(filters):
        plist.set_deflate(9)
    space = h5py.h5s.create_simple((ROWS,))
    dataset = h5py.h5d.create(file.id, b"rewards", h5py.h5t.IEEE_F32LE, space, plist)
    deflate = zlib.compressobj(9)
    piece = deflate.compress(bytes(2**24)) + deflate.flush(zlib.Z_FULL_FLUSH)
    content = piece[:2] + 192 * piece[2:]  # pieces that end so can be repeated
    for _ in range(filters - 1):
        content = zlib.compress(content, 9)
    dataset.write_direct_chunk((0,), content)


def inflate_one_chunk_twice(file):
    inflate_one_chunk(file, filters=2)


def make_groups(file):
    for i in range(20_000):
        h5py.h5g.create(file.id, f"g{i}".encode())


BOMBS = [
    declare_terabytes, declare_terabytes_in_chunks, declare_one_huge_chunk,
    declare_many_dimensions, expand_a_thousandfold, make_groups,
    inflate_one_chunk, inflate_one_chunk_twice,
]  # fmt: skip


def test_size_bombs_are_refused_quickly_with_little_memory(tmp_path):
    for bomb in BOMBS:
        for userblock in (0, 512):
            path = tmp_path / f"{bomb.__name__}-{userblock}.h5"
            with write_foreign(path, userblock=userblock, skip=["rewards"]) as file:
                bomb(file)
            if userblock:
                reseal(path)
    # A process of its own, so that its peak memory is that of these reads.
    program = """
import json, resource, sys, time
from mcat.datasets.hdf5 import read_dataset
from mcat.errors import DataError
seconds = {}
for path in sys.argv[1:]:
    began = time.process_time() + sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])
    try:
        read_dataset(path)
    except DataError as error:
        used = time.process_time() + sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])
        seconds[path] = used - began
status = open("/proc/self/status").read()  # rusage would count the parent before exec
own = int(status.split("VmHWM:")[1].split()[0])
children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
print(json.dumps([seconds, [own, children]]))
"""
    paths = sorted(str(path) for path in tmp_path.glob("*.h5"))
    assert len(paths) == 2 * len(BOMBS)
    command = [sys.executable, "-c", program, *paths]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    seconds, peaks = json.loads(output)
    assert sorted(seconds) == paths
    assert max(seconds.values()) < 1
    assert max(peaks) < 200 * 1024


# ---- metadata is data


def hostile_tasks(mark):
    mkdir = {"id": "X-v0", "entry_point": "os:mkdir", "kwargs": {"path": mark}}
    calls = [
        "os:mkdir", "os:system", "subprocess:Popen", "builtins:exec", "builtins:eval",
        "canary:Env-v0", "canary", "canary:make", "../canary", "mcat/../canary", "canary.Env",
    ]  # fmt: skip
    for call in calls:
        yield {"robot": call}
        yield {"robot": "ant", "entry_point": call}
    yield mkdir
    yield {"robot": mkdir}
    yield {"robot": ["os:mkdir", mark]}
    yield {"robot": "ant", "cripple": mkdir}
    yield {"robot": "ant", "additional_wrappers": [{"entry_point": "canary:W", "kwargs": {}}]}
    yield {"robot": "ant", "cripple": "__import__('canary')"}
    yield {"robot": "!!python/object/apply:os.mkdir", "horizon": mark}
    yield {"robot": "ant", "__class__": "canary"}
    yield {"robot": "ant", "self": 1}
    yield {"robot": None}
    yield {"robot": "ant", "horizon": 10**30}
    yield {}


def test_what_a_file_says_about_its_environment_runs_nothing(tmp_path, monkeypatch):
    mark = tmp_path / "mark"
    (tmp_path / "canary.py").write_text(f"import os; os.mkdir({str(mark)!r})")
    monkeypatch.syspath_prepend(tmp_path)
    path = tmp_path / "a.h5"
    store = make_store()
    tasks = list(hostile_tasks(str(mark)))
    assert len(tasks) >= 20
    for task in tasks:
        for metadata in ({"task": task}, {"task": None, "env_spec": json.dumps(task)}):
            write_dataset(path, store, metadata, overwrite=True)
            episodes, found = read_dataset(path)
            assert found["task"] == metadata["task"]
            assert digest(arrays_of(episodes)) == digest(arrays_of(store))
        with pytest.raises(McatError):
            Task.from_dict(task)
    assert "canary" not in sys.modules
    assert not mark.exists()
