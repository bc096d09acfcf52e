"""Every file that mcat reads, changed at random: refused in one line or read, and nothing else.

Half of the mutants are damage: bytes flipped, cut, moved. The others are made with intent: a value
somewhere in a file's JSON is replaced by one that nobody would write, and the file is sealed again.
"""

from __future__ import annotations

import json
import shutil
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from safetensors.numpy import load as parse_safetensors
from safetensors.numpy import save as dump_safetensors

from mcat.agents.meta import run as entry
from mcat.agents.meta.config import PRESETS
from mcat.agents.policies.context_policy import ContextPolicy
from mcat.agents.policies.policy import load_policy, save_policy
from mcat.config import overlay, read_toml, to_json, to_toml
from mcat.datasets import export_minari, load, write_dataset
from mcat.datasets.collect import CollectConfig, collect
from mcat.envs import Task
from mcat.errors import DataError, McatError
from mcat.reports.runs import read_run
from mcat.safe_io import write_json
from mcat.tensor_files import digest
from mcat.transfer.deploy import open_transfer
from mcat.transfer.logs import load_logs
from mcat.translator import ActionConfig, ContextConfig, Translator, fit_pair
from mcat.translator.state.correspondence import Correspondence
from tests.agents.meta.point_mass import tiny_config, tiny_task_set, trainer
from tests.agents.meta.test_loop import play, small_and_fast  # noqa: F401
from tests.agents.policies.test_context_policy import policy as context_policy
from tests.agents.policies.test_policies import make_agent
from tests.datasets.foreign_files import reseal
from tests.datasets.test_bad_files import mutate
from tests.datasets.test_foreign import make_log, to_csv, to_parquet
from tests.reports.learning.run_folders import write_run
from tests.reports.translation.test_translation_page import pair as made_up_result
from tests.transfer.transfer_logs import own_robot

SECONDS = 60  # more is a hang
TASK = Task("halfcheetah", armature=0.1)
HOSTILE = [  # as JSON
    "null", "true", "0", "-1", "0.5", "1e308", "1e999", "-1e999", "1" + "0" * 400, "1" * 5000,
    '""', '"abc"', '"../../etc"', '"\\u001b]0;owned\\u0007"', '"\\ud800"', '"[/red]"', "[]", "{}",
    "[[[1]]]", '{"a": 1}', "[null]", "[" * 3000 + "]" * 3000, '"' + "x" * 10_000 + '"',
]  # fmt: skip


# ---- changes


def spoil_json(text: str, rng: np.random.Generator) -> str:
    """One value, anywhere in it, replaced, left out, or under another name."""
    content = json.loads(text)
    places = list(_places(content))
    holder, key = places[int(rng.integers(len(places)))]
    kind = rng.integers(6)
    if kind == 0 and isinstance(holder, dict):
        del holder[key]
        return json.dumps(content)
    if kind == 1 and isinstance(holder, dict):
        holder[f"{key}x"] = holder.pop(key)
        return json.dumps(content)
    holder[key] = "@here@"
    return json.dumps(content).replace('"@here@"', HOSTILE[int(rng.integers(len(HOSTILE)))])


def _places(value: Any) -> Any:
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in list(items):
        yield value, key
        if isinstance(inner, dict | list):
            yield from _places(inner)


def spoil_json_file(path: Path, rng: np.random.Generator) -> None:
    path.write_text(spoil_json(path.read_text(), rng))


def spoil_sealed_metadata(path: Path, rng: np.random.Generator) -> None:
    """The metadata of a sealed HDF5 file, and a seal that fits."""
    with h5py.File(path, "r+") as file:
        text = spoil_json(file.attrs["mcat"].decode(), rng).encode()[:60_000]
        del file.attrs["mcat"]
        file.attrs.create("mcat", text, dtype=h5py.string_dtype("utf-8", len(text)))
    reseal(path)


def spoil_signed_header(path: Path, rng: np.random.Generator) -> None:
    """The metadata of a safetensors file, and a checksum that fits."""
    content = path.read_bytes()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    arrays = dict(parse_safetensors(content))
    text = spoil_json(header["__metadata__"]["mcat"], rng)
    notes = {"mcat": text, "sha256": digest(arrays, text)}
    path.write_bytes(dump_safetensors(arrays, notes))


def spoil_bytes(path: Path, rng: np.random.Generator) -> None:
    path.write_bytes(mutate(path.read_bytes(), rng))


# ---- subjects


@dataclass(frozen=True)
class Subject:
    """A kind of file.

    Attributes:
        file: Which file of the folder is changed, a pattern of which the first counts.
        make: Writes the folder.
        read: Reads it as a command would; returns something whose `repr` is its content.
        craft: How to change it with intent; None where there is no other way than bytes.
        sealed: Whether damage must never go unnoticed.
        sample: How many mutants are read every time; few where reading one takes long.
    """

    file: str
    make: Callable[[Path], object]
    read: Callable[[Path], object]
    craft: Callable[[Path, np.random.Generator], None] | None = None
    sealed: bool = False
    sample: int = 20


def arrays_of(store: Any) -> str:
    names = ("observations", "actions", "rewards", "next_observations", "terminals", "timeouts")
    return digest({n: store.column(n) for n in names} | {"ends": store.episode_ends})


def loaded(name: str) -> Callable[[Path], object]:
    return lambda folder: arrays_of(load(folder / name)[0])


def make_sealed(folder: Path) -> None:
    store = own_robot(0, states=17, actions=6, episodes=3)
    bounds = {"action_low": [-1.0] * 6, "action_high": [1.0] * 6}
    more = {"rate_hz": 50.0, "time_findings": [["error", "x"]], "ignored_columns": ["a"]}
    metadata = {"task": TASK.to_dict(), "has_rewards": True, **bounds, **more}
    write_dataset(folder / "a.h5", store, metadata | {"time_findings": [["warning", "x"]]})


def read_sealed(folder: Path) -> object:
    """As `translate` and `export-minari` do."""
    load_logs([str(folder / "a.h5")], history=10)
    store, metadata = load(folder / "a.h5")
    export_minari(store, metadata, "out-v0", root=folder)
    return arrays_of(store)


def make_d4rl(folder: Path) -> None:
    store = own_robot(0, episodes=3)
    with h5py.File(folder / "a.hdf5", "w") as file:
        for name in ("observations", "actions", "rewards", "terminals", "timeouts"):
            file.create_dataset(name, data=store.column(name), compression="gzip", shuffle=True)


def make_npz(folder: Path) -> None:
    store = own_robot(0, episodes=3)
    names = ("observations", "actions", "rewards", "terminals", "timeouts")
    np.savez_compressed(folder / "a.npz", **{name: store.column(name) for name in names})


def make_minari(folder: Path) -> None:
    bounds = {"action_low": [-1.0] * 2, "action_high": [1.0] * 2}
    export_minari(own_robot(0, episodes=2), bounds, "a-v0", root=folder)


def make_translation(folder: Path) -> None:
    logs = [own_robot(seed, states=17, actions=6, episodes=6) for seed in (0, 1)]
    context = ContextConfig(
        encoder_hidden=(8,), forward_hidden=(8,), context_size=3, max_steps=4, evaluate_every=2
    )
    action = ActionConfig(hidden=(8,), embedding=4, steps=2, batch_size=16)
    fit_pair(*logs, context=context, action=action, quiet=True).save(
        folder / "translator.safetensors"
    )
    result = made_up_result()
    machines = tuple(replace(machine, task=TASK.to_dict()) for machine in result.machines)
    write_json(folder / "result.json", replace(result, machines=machines).to_json())


def read_transfer(folder: Path) -> object:
    return open_transfer(folder, "random", Task("halfcheetah", armature=0.5)).name


def acted(folder: Path) -> object:
    policy = ContextPolicy.load(folder / "policy.safetensors")
    return digest({"actions": policy.start_episode()(np.ones((1, 2)))})


def translated(folder: Path) -> object:
    translator = Translator.load(folder / "translator.safetensors")
    return digest({"actions": translator.translate(np.ones((1, 17)), np.full((1, 6), 0.5))})


MAP = {field: [0, 1, [0.5, 0, 0.5]] for field in Correspondence.__dataclass_fields__}


def read_map(folder: Path) -> object:
    found = Correspondence.read(folder / "map.json")
    return digest({name: getattr(found, name) for name in MAP})


def make_run(folder: Path) -> None:
    play(folder / "run", tiny_config(240))


def restored(folder: Path) -> object:
    """What a checkpoint and its rounds bring back; the run itself is not gone on with."""
    work = trainer(folder / "run", tiny_config(360), tiny_task_set())
    work.restore()
    return digest({name: t.detach().numpy() for name, t in work.algorithm.tensors().items()})


def resumed(folder: Path) -> object:
    play(folder / "run", tiny_config(300), resume=True)
    lines = (folder / "run" / "metrics.csv").read_text().splitlines()
    return [line.split(",")[:3] for line in lines]


def plotted(folder: Path) -> object:
    run = read_run(folder / "run")
    return repr((run.record, {name: list(values) for name, values in run.metrics.items()}))


def contexts_plotted(folder: Path) -> object:
    """A plot goes on without contexts and says why."""
    run = read_run(folder / "run")
    if run.contexts is None:
        raise DataError(run.notes[-1])
    return repr(run.contexts)


def asked_to_resume(folder: Path) -> object:
    """Up to where the work begins."""

    class BeginsError(Exception):
        pass

    def begin(config: object, out: Path) -> None:
        raise BeginsError(repr(config))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(entry, "_trainer", begin)
        config = replace(entry.read_config(folder / "run"), steps=10**9)
        with pytest.raises(BeginsError) as begun:
            entry.metatrain(config, folder / "run", resume=True)
    return str(begun.value)


COLLECTION = CollectConfig(task=Task("hopper", horizon=30), steps=240, envs=4)


def make_shards(folder: Path) -> None:
    """A collection that ended in the middle, with a part of it sealed."""
    calls = iter(range(45))

    def fail_at_last(observations: Any) -> Any:
        if next(calls, None) is None:
            raise RuntimeError
        return np.zeros((len(observations), 3))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules[collect.__module__], "SHARD_TRANSITIONS", 100)
        with pytest.raises(RuntimeError):
            collect(COLLECTION, fail_at_last, folder / "a.h5", quiet=True)


def collected(folder: Path) -> object:
    policy = lambda observations: np.zeros((len(observations), 3))  # noqa: E731
    collect(COLLECTION, policy, folder / "a.h5", resume=True, quiet=True)
    return arrays_of(load(folder / "a.h5")[0])


def spoil_by_kind(path: Path, rng: np.random.Generator) -> None:
    (spoil_json_file if path.suffix == ".json" else spoil_sealed_metadata)(path, rng)


def read_toml_file(folder: Path) -> object:
    return overlay(PRESETS["smoke"], read_toml(folder / "a.toml"))


RUN = "run/run.json"
SUBJECTS = {
    "sealed HDF5": Subject("a.h5", make_sealed, read_sealed, spoil_sealed_metadata, sealed=True),
    "D4RL": Subject("a.hdf5", make_d4rl, loaded("a.hdf5"), sample=2),
    "NPZ": Subject("a.npz", make_npz, loaded("a.npz"), sample=2),
    "Parquet": Subject(
        "a.parquet",
        lambda folder: to_parquet(folder / "a.parquet", make_log()),
        loaded("a.parquet"),
        sample=2,
    ),
    "Minari": Subject("a-v0/data/main_data.hdf5", make_minari, loaded("a-v0"), sample=2),
    "Minari's metadata": Subject(
        "a-v0/data/metadata.json", make_minari, loaded("a-v0"), spoil_json_file, sample=2
    ),
    "CSV": Subject("a.csv", lambda folder: to_csv(folder / "a.csv", make_log()), loaded("a.csv")),
    "CSV, compressed": Subject(
        "a.csv.gz", lambda folder: to_csv(folder / "a.csv.gz", make_log()), loaded("a.csv.gz")
    ),
    "policy": Subject(
        "policy.safetensors",
        lambda folder: save_policy(
            folder / "policy.safetensors", make_agent().actor, TASK, {"step": 8}
        ),
        lambda folder: digest({"a": load_policy(folder / "policy.safetensors")(np.ones((1, 17)))}),
        spoil_signed_header,
        sealed=True,
    ),
    "context policy": Subject(
        "policy.safetensors",
        lambda folder: context_policy().save(folder / "policy.safetensors", {"step": 8}),
        acted,
        spoil_signed_header,
        sealed=True,
    ),
    "translator": Subject(
        "translator.safetensors",
        make_translation,
        translated,
        spoil_signed_header,
        sealed=True,
    ),
    "result.json": Subject("result.json", make_translation, read_transfer, spoil_json_file),
    "map.json": Subject(
        "map.json",
        lambda folder: write_json(folder / "map.json", MAP),
        read_map,
        spoil_json_file,
    ),
    "checkpoint": Subject(
        "run/checkpoints/step-0000000240.safetensors",
        make_run,
        restored,
        spoil_signed_header,
        sample=6,
    ),
    "round": Subject(
        "run/replay/round-00002.safetensors", make_run, restored, spoil_signed_header, sample=6
    ),
    "metrics.csv, resumed": Subject("run/metrics.csv", make_run, resumed, sample=6),
    "metrics.csv, plotted": Subject(
        "run/metrics.csv", lambda folder: write_run(folder / "run"), plotted
    ),
    "contexts, plotted": Subject(
        "run/contexts.safetensors",
        lambda folder: write_run(folder / "run"),
        contexts_plotted,
        spoil_signed_header,
    ),
    "run.json, plotted": Subject(
        RUN, lambda folder: write_run(folder / "run"), plotted, spoil_json_file
    ),
    "run.json, resumed": Subject(
        RUN, lambda folder: write_run(folder / "run"), asked_to_resume, spoil_json_file
    ),
    "shards": Subject("a.h5.shards/[ms]*", make_shards, collected, spoil_by_kind, sample=6),
    "TOML": Subject(
        "a.toml",
        lambda folder: (folder / "a.toml").write_text(to_toml(to_json(PRESETS["smoke"]))),
        read_toml_file,
    ),
}


# ---- the run


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    """Each folder is made once."""
    made: dict[Callable[[Path], object], Path] = {}

    def folder_of(subject: Subject) -> Path:
        if subject.make not in made:
            made[subject.make] = tmp_path_factory.mktemp("original")
            subject.make(made[subject.make])
        return made[subject.make]

    return folder_of


@contextmanager
def at_most(seconds: int):
    def ring(number: int, frame: object) -> None:
        raise TimeoutError(f"more than {seconds} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def outcome_of(subject: Subject, folder: Path) -> tuple[str, object]:
    """`read`, `refused`, or what went wrong, and the content."""
    try:
        with at_most(SECONDS):
            return "read", subject.read(folder)
    except McatError as error:
        lines = str(error).splitlines()
        return ("refused" if len(lines) == 1 else f"{len(lines)} lines: {lines}"), None
    except Exception as error:
        where = [f for f in traceback.extract_tb(error.__traceback__) if "/mcat/" in f.filename][-1]
        return f"{type(error).__name__}: {str(error)[:100]} ({where.filename}:{where.lineno})", None


def check_mutants(name: str, original: Path, tmp_path: Path, count: int) -> dict[str, int]:
    """Reads `count` mutants; returns how often what happened."""
    subject = SUBJECTS[name]
    copy = tmp_path / "mutant"
    shutil.copytree(original, copy)
    outcome, right = outcome_of(subject, copy)
    assert outcome == "read", outcome
    outcomes: dict[str, int] = {}
    changed = []
    for number in range(count):
        rng = np.random.default_rng([number, *name.encode()])
        shutil.rmtree(copy)
        shutil.copytree(original, copy)
        crafted = subject.craft is not None and number % 2
        (subject.craft if crafted else spoil_bytes)(min(copy.glob(subject.file)), rng)
        outcome, content = outcome_of(subject, copy)
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
        if subject.sealed and not crafted and outcome == "read" and content != right:
            changed.append(number)
    assert changed == []
    assert set(outcomes) <= {"read", "refused"}, outcomes
    return outcomes


@pytest.mark.parametrize("name", SUBJECTS)
def test_mutants_are_refused_in_one_line_or_read(name, originals, tmp_path):
    check_mutants(name, originals(SUBJECTS[name]), tmp_path, SUBJECTS[name].sample)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", SUBJECTS)
def test_mutants_are_refused_in_one_line_or_read_5000(name, originals, tmp_path):
    outcomes = check_mutants(name, originals(SUBJECTS[name]), tmp_path, 230)
    print(f"{name}: {outcomes}")
    assert outcomes.get("refused", 230) > 23  # none at all where the file is made anew
