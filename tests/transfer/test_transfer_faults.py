"""Deaths, races and full disks while translating and reproducing."""

from __future__ import annotations

import os
import resource
import shutil
import signal

import pytest

from mcat.datasets import write_dataset
from mcat.errors import CannotCreateError, StorageError
from mcat.paper import run as reproducing
from mcat.paper.config import ReproduceConfig
from mcat.paper.run import reproduce
from mcat.paper.tables import TABLES, PaperTable, TableRow
from mcat.reports.translation.page import write_page
from mcat.safe_io import dump_json, read_json
from mcat.tensor_files import digest, load_safetensors
from mcat.transfer import jobs as transfer_jobs
from mcat.transfer import run as transfer
from mcat.transfer.config import TransferConfig
from mcat.transfer.run import translate
from mcat.workplaces import BusyError, new_folder
from tests.datasets.test_faults import small_disk
from tests.file_faults import Faults, calls_of, deaths, in_child, killing
from tests.paper.test_reproduce import SOURCE, TARGET, random_log
from tests.transfer.transfer_logs import own_robot

TINY = PaperTable(
    title="One cell",
    rows=(TableRow(name="cell", tasks=lambda preset: tuple(map(random_log, (SOURCE, TARGET))),
              methods=("ours",)),),
)  # fmt: skip


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("logs")
    for number, name in enumerate(("a", "b")):
        write_dataset(folder / f"{name}.h5", own_robot(number), {})
    return folder


def go(logs, out, *, overwrite=False, add_pages=lambda result, folder: None, **changes):
    """A translation of those logs."""
    given = {"preset": "smoke", "episodes": 0} | changes
    files = ((str(logs / "a.h5"),), (str(logs / "b.h5"),))
    config = TransferConfig(sources=files[0], targets=files[1], **given)
    return translate(config, out, overwrite=overwrite, quiet=True, add_pages=add_pages)


@pytest.fixture(scope="module")
def trained(logs, tmp_path_factory):
    """What the job of a translation gives, learned once."""
    found = []

    def job(*args, **options):
        found.append(real(*args, **options))
        return found[0]

    with pytest.MonkeyPatch.context() as patch:
        real = transfer_jobs.translate_pair
        patch.setattr(transfer_jobs, "translate_pair", job)
        go(logs, tmp_path_factory.mktemp("trained") / "out")
    return found[0]


@pytest.fixture
def quick(trained, monkeypatch):
    """Translations that need not learn: deaths while learning touch no file."""
    monkeypatch.setattr(transfer_jobs, "translate_pair", lambda *args, **options: trained)
    monkeypatch.setattr(transfer, "provenance", lambda: {"command": "mcat"})


def contents(folder):
    """Every file below, without the times in results."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        found[name] = path.is_file() and path.read_bytes()
        if path.name == "result.json":
            found[name] = read_json(path) | {"seconds": None}
        if path.suffix == ".safetensors":  # whose header has no fixed order
            arrays, metadata = load_safetensors(path)
            found[name] = digest(arrays, dump_json(metadata))
        if path.name == "report.html":
            found[name] = True  # shows the times too
    return found


def check_deaths(folder, work, *, every):
    """Killed at (a sample of) all moments and repeated, the work ends as if never disturbed."""
    calls = calls_of(folder, work)
    expected = contents(folder)
    tried = deaths(calls)[::every]
    for death in tried:
        for path in folder.iterdir():
            shutil.rmtree(path)
        assert in_child(work, Faults(folder, killing(*death))) == -signal.SIGKILL
        again = in_child(work)
        assert again == 0 or (again == 73 and contents(folder) == expected)  # it was there
        assert contents(folder) == expected, death
    return len(tried)


def test_a_translation_killed_anywhere_is_repeated_as_if_never_begun(tmp_path, logs, quick):
    work = lambda: go(logs, tmp_path / "ab")  # noqa: E731
    assert check_deaths(tmp_path, work, every=9) > 3


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_translation_killed_at_every_file_call(tmp_path, logs, quick):
    work = lambda: go(logs, tmp_path / "ab")  # noqa: E731
    print(f"{check_deaths(tmp_path, work, every=1)} deaths")


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_translation_killed_with_all_its_learning_and_pages(tmp_path, logs, monkeypatch):
    monkeypatch.setattr(transfer, "provenance", lambda: {"command": "mcat"})
    work = lambda: go(logs, tmp_path / "ab", add_pages=write_page)  # noqa: E731
    print(f"{check_deaths(tmp_path, work, every=13)} deaths")


@pytest.mark.slow
def test_a_translation_that_replaces_another_leaves_the_old_or_the_new(tmp_path, logs, quick):
    out = tmp_path / "ab"
    for _ in range(2):
        go(logs, out, seed=1, overwrite=True)
    old = contents(out)
    work = lambda: go(logs, out, overwrite=True)  # noqa: E731
    calls = calls_of(tmp_path, work)
    new = contents(out)
    assert old != new
    at, seen = calls.index("_renameat2") + 1, []
    for death in deaths(calls)[2 * at - 1 : 2 * at + 5]:
        go(logs, out, seed=1, overwrite=True)
        assert in_child(work, Faults(tmp_path, killing(*death))) == -signal.SIGKILL
        seen.append(contents(out))
        assert seen[-1] in (old, new)
    assert old in seen
    assert new in seen
    work()
    assert os.listdir(tmp_path) == ["ab"]


def check_reproduction(tmp_path, monkeypatch, *, every):
    monkeypatch.setitem(TABLES, "tiny", TINY)
    monkeypatch.setattr(transfer, "provenance", lambda: {"command": "mcat"})
    given = ReproduceConfig(table="tiny", preset="smoke", seeds=(0,), episodes=1)
    work = lambda: reproduce(given, tmp_path / "work", quiet=True)  # noqa: E731
    return check_deaths(tmp_path, work, every=every)


@pytest.fixture
def quick_cells(trained, monkeypatch):
    monkeypatch.setattr(transfer_jobs, "translate_many", lambda *args, **options: trained)
    monkeypatch.setattr(reproducing, "summarise", lambda config, out: None)


def test_a_reproduction_killed_anywhere_goes_on(tmp_path, monkeypatch, quick_cells):
    assert check_reproduction(tmp_path, monkeypatch, every=50) > 1


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_reproduction_killed_at_every_file_call(tmp_path, monkeypatch, quick_cells):
    print(f"{check_reproduction(tmp_path, monkeypatch, every=1)} deaths")


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_reproduction_killed_with_all_its_learning(tmp_path, monkeypatch):
    print(f"{check_reproduction(tmp_path, monkeypatch, every=25)} deaths")


# ---- before the learning


@pytest.fixture
def never(monkeypatch):
    def job(*args, **options):
        pytest.fail("learned")

    monkeypatch.setattr(transfer_jobs, "translate_pair", job)


def test_a_second_translation_to_one_folder_is_refused_before_it_learns(tmp_path, logs, never):
    with new_folder(tmp_path / "ab"), pytest.raises(BusyError, match="ab is being written"):
        go(logs, tmp_path / "ab")


def test_a_disk_without_space_is_noticed_before_learning(tmp_path, logs, never):
    with small_disk(tmp_path / "disk", "2M"):
        with pytest.raises(StorageError, match="5 MB are needed"):
            go(logs, tmp_path / "disk/ab")
        assert os.listdir(tmp_path / "disk") == []


def test_a_folder_that_holds_more_than_a_result_is_not_replaced(tmp_path, logs, quick, never):
    out = tmp_path / "ab"
    out.mkdir()
    for name in ("result.json", "thesis.txt"):
        (out / name).write_text("precious")
    before = {path.name: path.read_text() for path in out.iterdir()}
    with pytest.raises(CannotCreateError, match=r"holds thesis\.txt"):
        go(logs, out, overwrite=True)
    assert {path.name: path.read_text() for path in out.iterdir()} == before


# ---- full disks at the end


@pytest.mark.parametrize("limit", [10_000, 60_000])
def test_a_result_that_does_not_fit_leaves_nothing(tmp_path, logs, quick, limit):
    def work():
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        go(logs, tmp_path / "ab")

    assert in_child(work) == 74
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("left", [0, 8192, 32_768])
def test_a_disk_that_fills_meanwhile_leaves_nothing(tmp_path, logs, quick, monkeypatch, left):
    disk = tmp_path / "disk"
    job = transfer_jobs.translate_pair

    def filling(*args, **options):
        (disk / "filler").write_bytes(b"\0" * (shutil.disk_usage(disk).free - left))
        return job(*args, **options)

    monkeypatch.setattr(transfer_jobs, "translate_pair", filling)
    with small_disk(disk, "5M"):
        with pytest.raises(StorageError, match="free some space"):
            go(logs, disk / "ab")
        assert os.listdir(disk) == ["filler"]


@pytest.mark.slow
def test_one_of_several_racing_translations_wins(tmp_path, logs, quick):
    for number in range(20):
        out = tmp_path / str(number)
        children = []
        for _ in range(3):
            child = os.fork()
            if child == 0:
                os._exit(in_child(lambda out=out: go(logs, out)))
            children.append(child)
        codes = sorted(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children)
        assert codes == [0, 73, 73]
        assert contents(out).keys() == {"result.json", "translator.safetensors"}
    assert sorted(map(int, os.listdir(tmp_path))) == list(range(20))
