"""From logs to a translator and its worth: what is written is true, complete and usable."""

import json

import numpy as np
import pytest

from mcat.agents.evaluation import Evaluator, Trial, run_episodes
from mcat.agents.policies.names import find_policy, source_policy_name
from mcat.agents.policies.policy import load_policy
from mcat.agents.returns import Returns
from mcat.datasets import read_dataset, write_dataset
from mcat.envs import Task
from mcat.errors import CannotCreateError, DataError, MissingInputError, UsageError
from mcat.safe_io import read_json, write_json
from mcat.tensor_files import digest, load_safetensors
from mcat.transfer import jobs
from mcat.transfer.config import TransferConfig
from mcat.transfer.deploy import open_transfer, trials_on, untranslated
from mcat.transfer.logs import load_logs
from mcat.transfer.result import (
    CLONED,
    LOGGED,
    LOGGED_SOURCE,
    OFFLINE,
    ON_SOURCE,
    POLICY_FILES,
    TRANSFERRED,
    UNTRANSLATED,
    Machine,
    TransferResult,
)
from mcat.transfer.run import default_folder, translate
from mcat.translator import TransferredPolicy, Translator
from tests.transfer.transfer_logs import HORIZON, cheetah, collect_logs, own_robot

EPISODES = 3
LABELS = (ON_SOURCE, UNTRANSLATED, TRANSFERRED, CLONED, OFFLINE)


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    return collect_logs(tmp_path_factory.mktemp("logs"))


def go(logs, out, *, resume=False, overwrite=False, **changes):
    """A translation of those logs."""
    files = {"sources": (str(logs / "cheetah0.1.h5"),), "targets": (str(logs / "cheetah0.5.h5"),)}
    if "tasks" in changes:
        files = {}
    given = {"preset": "smoke", "episodes": EPISODES, **files}
    config = TransferConfig(**given | changes)
    return translate(config, out, resume=resume, overwrite=overwrite, quiet=True)


@pytest.fixture(scope="module")
def pair(logs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("results") / "pair"
    return go(logs, folder), folder


@pytest.fixture(scope="module")
def many(logs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("results") / "many"
    tasks = tuple(str(logs / f"cheetah{a}.h5") for a in (0.1, 0.35, 0.5))
    return go(logs, folder, tasks=tasks), folder


def test_a_pair_s_result_has_everything(pair, logs):
    result, _ = pair
    source, target = result.machines
    assert source.name == f"halfcheetah-armature0.1-horizon{HORIZON}"
    assert target.name == f"halfcheetah-armature0.5-horizon{HORIZON}"
    assert Task.from_dict(target.task) == cheetah(0.5)
    assert source.files == (str(logs / "cheetah0.1.h5"),)
    assert (source.transitions, source.episodes) == (600, 20)
    assert result.policy == "good"
    assert result.skipped is None
    assert tuple(returns.label for returns in result.returns) == LABELS
    assert [returns.label for returns in result.logged] == [LOGGED_SOURCE, LOGGED]
    assert all(len(returns.values) == EPISODES for returns in result.returns)
    assert result.fit.curves
    assert len(result.fit.forward_error) == 17
    assert result.trust.sentences()
    assert set(result.seconds) == {"load", "fit", "trust", "evaluate", "alternatives"}
    assert np.shape(result.scatter["source"]) == np.shape(result.scatter["translated"]) == (500, 6)
    assert result.config["recipe"]["context"]["history"] == 10
    assert result.provenance["versions"]["torch"]
    assert not result.matrix
    assert not result.paths


def test_hashes_tell_contents_apart_not_files(pair, logs, tmp_path):
    store, metadata = read_dataset(logs / "cheetah0.1.h5")
    write_dataset(tmp_path / "copy.h5", store, metadata | {"seed": 99})
    copy = load_logs([str(tmp_path / "copy.h5")], history=10)
    source, target = pair[0].machines
    assert copy.hashes == source.hashes != target.hashes


def test_what_is_written_is_what_was_found(pair):
    result, folder = pair
    made = {"translator.safetensors", "result.json", *POLICY_FILES.values()}
    assert {path.name for path in folder.iterdir()} == made
    assert TransferResult.from_json(read_json(folder / "result.json")) == result


def test_returns_are_those_of_the_policies_named(pair):
    result, folder = pair
    good = find_policy("good", cheetah(0.1), np.random.default_rng(0))
    moved = TransferredPolicy(good, Translator.load(folder / "translator.safetensors"))
    others = [load_policy(folder / file) for file in POLICY_FILES.values()]
    expected = [Evaluator(cheetah(0.1), EPISODES, seed=0).returns(good)] + [
        Evaluator(cheetah(0.5), EPISODES, seed=0).returns(policy)
        for policy in (good, moved, *others)
    ]
    assert np.array_equal([returns.values for returns in result.returns], expected)
    assert len({returns.mean for returns in result.returns}) == 5


def test_equal_seeds_give_equal_results(pair, logs, tmp_path):
    result, folder = pair
    again = go(logs, tmp_path / "again")
    assert again.returns == result.returns
    assert again.trust == result.trust
    (first, header), (second, other) = (
        load_safetensors(f / "translator.safetensors") for f in (folder, tmp_path / "again")
    )
    assert header == other
    assert digest(first) == digest(second)


def test_the_scatter_shows_the_translator_at_work(pair, logs):
    result, folder = pair
    translator = Translator.load(folder / "translator.safetensors")
    store, _ = read_dataset(logs / "cheetah0.1.h5")
    shown = np.array(result.scatter["source"])
    rows = [np.abs(store.actions - action).sum(axis=1).argmin() for action in shown]
    translated = translator.translate(store.observations[rows], store.actions[rows])
    assert np.allclose(translated, result.scatter["translated"], atol=1e-4)


def test_many_tasks_fill_the_rows_that_have_a_policy(many):
    result, _ = many
    names = [f"halfcheetah-armature{a}-horizon{HORIZON}" for a in (0.1, 0.35, 0.5)]
    assert list(result.matrix.names) == names == [machine.name for machine in result.machines]
    for table in ("untranslated", "transferred", "untranslated_error", "transferred_error"):
        first, missing, last = getattr(result.matrix, table)
        assert all(isinstance(value, float) for value in first + last)
        assert missing == (None,) * 3  # no policy comes with the package for this one
    assert "no packaged good policy for halfcheetah-armature0.35" in result.skipped
    assert "with some of the policies" in result.skipped
    assert result.trust is None
    assert not result.returns
    points, tasks = result.contexts.points, result.contexts.tasks
    assert len(points) == len(tasks) <= 600
    assert set(tasks) == {0, 1, 2}


def test_many_tasks_are_opened_by_name(many):
    result, folder = many
    source, other, target = result.matrix.names
    runs = trials_on(cheetah(0.5), open_transfer(folder, "good", cheetah(0.5), source).act)
    returns, _ = run_episodes(runs, episodes=EPISODES, seed=0, quiet=True)
    assert [r.mean for r in returns] == [
        result.matrix.untranslated[0][2],
        result.matrix.transferred[0][2],
    ]
    long = cheetah(0.35).replace(horizon=1000, delay=500)  # the same machine
    assert open_transfer(folder, "good", long, source).name == f"good of {source}, translated"
    with pytest.raises(UsageError, match=f"name the source by --from {source}"):
        open_transfer(folder, "good", cheetah(0.5))
    with pytest.raises(UsageError, match="did you mean"):
        open_transfer(folder, "good", cheetah(0.5), target.replace("0.5", "0.55"))
    with pytest.raises(UsageError, match=r"does not know halfcheetah-armature0\.9"):
        open_transfer(folder, "good", Task("halfcheetah", armature=0.9), other)


def test_a_result_survives_json(many):
    result, folder = many
    assert TransferResult.from_json(json.loads(json.dumps(result.to_json()))) == result
    assert TransferResult.from_json(read_json(folder / "result.json")) == result


def test_the_baseline_is_used_in_the_same_way(logs, tmp_path):
    result = go(logs, tmp_path / "cycle", method="cycle")
    assert result.method == "cycle"
    assert result.trust is None
    assert tuple(returns.label for returns in result.returns) == LABELS
    opened = open_transfer(tmp_path / "cycle", "good", cheetah(0.5))
    returns, _ = run_episodes(
        trials_on(cheetah(0.5), opened.act), episodes=EPISODES, seed=0, quiet=True
    )
    assert returns == result.returns[1:3]


def test_the_baseline_takes_a_map_between_other_spaces(logs, tmp_path):
    write_dataset(tmp_path / "long.h5", own_robot(3, states=4, actions=3), {})
    guess = {
        "state_to_source": [0, 1, 2],
        "state_to_target": [0, 1, 2, 2],
        "action_to_target": [0, 1, 1],
        "action_to_source": [0, 1],
    }
    write_json(tmp_path / "map.json", guess)
    files = {"sources": (str(logs / "own-a.h5"),), "targets": (str(tmp_path / "long.h5"),)}
    given = files | {"map": str(tmp_path / "map.json"), "method": "cycle"}
    result = go(logs, tmp_path / "out", **given)
    assert result.fit.curves
    assert not result.scatter  # two actions against three
    translator = Translator.load(tmp_path / "out" / "translator.safetensors")
    policy = TransferredPolicy(lambda obs: np.tanh(obs[:, :2]), translator)
    assert policy(np.zeros((5, 4), np.float32)).shape == (5, 3)


def test_in_other_spaces_the_source_policy_acts_by_the_map(tmp_path, logs):
    """Three legs: 23 states and 9 actions, which a policy of two legs cannot take as it is."""
    from mcat.datasets.collect import CollectConfig, collect

    three = Task("halfcheetah3leg", horizon=HORIZON)
    collect(CollectConfig(task=three, steps=600), None, tmp_path / "three.h5", quiet=True)
    given = {"targets": (str(tmp_path / "three.h5"),), "map": "two-to-three-legs"}
    result = go(logs, tmp_path / "out", **given)
    assert tuple(returns.label for returns in result.returns) == LABELS
    opened = open_transfer(tmp_path / "out", None, three)
    assert untranslated(opened.act) is None
    returns, _ = run_episodes(trials_on(three, opened.act), episodes=EPISODES, seed=0, quiet=True)
    assert returns == result.returns[2:3]


def test_several_files_of_one_machine_are_one_log(logs, tmp_path):
    store, metadata = read_dataset(logs / "cheetah0.5.h5")
    halves = [store.select(range(0, 8)), store.select(range(8, 20))]
    files = [str(tmp_path / f"half{n}.h5") for n in (0, 1)]
    for file, half in zip(files, halves, strict=True):
        write_dataset(file, half, metadata)
    both = load_logs(files, history=10)
    assert np.array_equal(both.episodes.observations, store.observations)
    assert both.task == cheetah(0.5)
    assert len(both.hashes) == 2


def test_constant_dimensions_are_noted_and_do_not_stop(tmp_path):
    store = own_robot(0)
    columns = {n: np.array(store.column(n)) for n in ("observations", "next_observations")}
    for values in columns.values():
        values[:, 1] = 4
    odd = type(store).from_arrays(**columns, actions=store.actions, episode_ends=store.episode_ends)
    write_dataset(tmp_path / "odd.h5", odd, {})
    (note,) = load_logs([str(tmp_path / "odd.h5")], history=10).notes
    assert "observations: 1 column never changes: 1" in note


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ({"robot": "unicorn"}, "unknown robot 'unicorn'"),
        ({"robot": "ant", "entry_point": "os:system"}, "entry_point"),
        ({"robot": "halfcheetah", "armature": 1e9}, "armature must be from"),
        ({"robot": "hopper"}, "sizes are not those of its task, hopper"),
        ("ant", "a task needs a 'robot'"),
        ([["robot", "ant"]], "a task needs a 'robot'"),
    ],
)
def test_a_file_cannot_name_any_environment_but_ours(tmp_path, task, message):
    write_dataset(tmp_path / "log.h5", own_robot(0), {"task": task})
    with pytest.raises(DataError, match=message) as caught:
        load_logs([str(tmp_path / "log.h5")], history=10)
    assert "log.h5" in str(caught.value)


def test_meta_world_shows_the_hand(tmp_path):
    task = Task("push", horizon=6)
    act = find_policy("scripted", task, np.random.default_rng(0))
    returns, paths = run_episodes([Trial("hand", act, task)], episodes=4, seed=0, quiet=True)
    assert np.shape(paths["hand"]) == (3, 7, 3)
    seen = []
    Evaluator(task, 4, seed=0).returns(act, seen.append)
    assert np.allclose(np.array(seen)[:, :3, :3].swapaxes(0, 1), paths["hand"], atol=1e-4)
    assert len(returns[0].values) == 4


def test_workers_and_watching_change_nothing():
    task = cheetah(0.35)
    act = find_policy("good", cheetah(0.1), np.random.default_rng(0))
    seen = []
    plain = Evaluator(task, 4, seed=5).returns(act)
    watched = Evaluator(task, 4, seed=5, workers=2).returns(act, seen.append)
    assert np.array_equal(plain, watched)
    assert np.shape(seen) == (HORIZON + 1, 4, 17)


@pytest.mark.parametrize(
    ("source", "target", "name"),
    [
        (Task("halfcheetah"), Task("halfcheetah", armature=0.5), "good"),
        (Task("push"), Task("sweep-into", gripper=0.1), "scripted:push"),
        (Task("push"), Task("coffee-push", gripper=0.1), "scripted:sweep-high"),
        (Task("reach"), Task("reach", goal=(0.1, 0.8, 0.2)), "scripted"),
        (Task("soccer"), None, "scripted"),
    ],
)
def test_the_default_policy_is_one_that_can_be_transferred(source, target, name):
    assert source_policy_name(None, source, target) == name
    assert source_policy_name("mine", source, target) == "mine"


def test_a_reaching_script_keeps_its_own_goal_on_another_task():
    goal = (-0.1, 0.8, 0.2)
    own = find_policy("scripted", Task("reach", goal=goal), np.random.default_rng(0))
    observations = np.random.default_rng(0).uniform(0, 1, (5, 14))
    elsewhere = observations.copy()
    elsewhere[:, 11:] = 0.3
    assert np.array_equal(own(observations), own(elsewhere))


def test_statistics_of_returns():
    returns = Returns(label="x", values=(1.0, 2.0, 6.0))
    assert returns.mean == 3
    assert returns.standard_error == pytest.approx(np.sqrt(7 / 3))
    assert Returns(label="x", values=(5.0,)).standard_error == 0


def test_folders_are_named_after_the_machines():
    machines = [
        Machine(name=name, files=(), hashes=(), transitions=0, episodes=0) for name in "abc"
    ]
    assert str(default_folder(machines[:2])) == "a-to-b"
    assert str(default_folder(machines)) == "a-to-2-others"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tasks": ()}, "either as --src and --tgt or"),
        ({"sources": ()}, "both machines"),
        ({"tasks": ("a.h5",)}, "at least two --task"),
        ({"tasks": ("a", "b"), "map": "mirror-x"}, "take a pair"),
        ({"method": "cycle", "reward_aware": True}, "--reward-aware goes with"),
        ({"method": "theirs"}, "unknown method 'theirs'"),
        ({"preset": "papper"}, "did you mean paper"),
        ({"transfer_loss": "l2"}, "unknown transfer loss 'l2'"),
        ({"method": "cycle", "transfer_loss": "nll"}, "--transfer-loss is of H"),
        ({"preset": "released", "map": "mirror-x"}, "published neither"),
        ({"preset": "released", "reward_aware": True}, "published neither"),
        ({"episodes": -1}, "must not be negative"),
    ],
)
def test_configs_that_make_no_sense(logs, changes, message):
    with pytest.raises(UsageError, match=message):
        go(logs, None, **changes)


def test_going_on_finds_a_finished_translation_or_says_what_differs(pair, logs, monkeypatch):
    result, folder = pair
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    monkeypatch.setattr(jobs, "translate_pair", None)  # nothing is trained
    assert go(logs, folder, resume=True) == result
    with pytest.raises(UsageError, match=r"otherwise \(seed: 0 there, 1 here\): pass --overwrite"):
        go(logs, folder, resume=True, seed=1)
    path = folder / "result.json"
    text = path.read_text()
    path.write_text(text.replace(result.machines[1].hashes[0], "0" * 64))
    with pytest.raises(UsageError, match=f"otherwise .{result.machines[1].name}: .*000"):
        go(logs, folder, resume=True)
    path.write_text(text)
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()}.keys() == before.keys()


def test_a_result_that_does_not_know_a_switch_was_made_without_it(pair, logs, monkeypatch):
    result, folder = pair
    monkeypatch.setattr(jobs, "translate_pair", None)  # nothing is trained
    path = folder / "result.json"
    text = path.read_text()
    older = read_json(path)
    for part in (
        older["config"]["recipe"]["context"],
        older["config"]["recipe"]["state"]["context"],
    ):
        del part["hinge"], part["hold_out"]
    del older["config"]["transfer_loss"], older["config"]["alternatives"], older["logged"]
    older["returns"] = older["returns"][:3]
    path.write_text(json.dumps(older))
    try:
        assert go(logs, folder, resume=True).returns == result.returns[:3]
        with pytest.raises(UsageError, match="transfer_loss: None there, nll here"):
            go(logs, folder, resume=True, transfer_loss="nll")
        with pytest.raises(UsageError, match="hinge: squared there, printed here"):
            go(logs, folder, resume=True, preset="paper")
    finally:
        path.write_text(text)


def test_only_an_earlier_result_is_ever_replaced(pair, logs, tmp_path):
    _, folder = pair
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    with pytest.raises(CannotCreateError, match="exists already"):
        go(logs, folder)
    with pytest.raises(UsageError, match="does not fit halfcheetah"):  # after it was opened
        go(logs, folder, overwrite=True, policy="scripted:push")
    assert before == {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert [path.name for path in folder.parent.iterdir()] == ["pair"]

    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "thesis.txt").write_text("precious")
    with pytest.raises(CannotCreateError, match="not the result of a translation"):
        go(logs, tmp_path / "notes", overwrite=True)
    assert (tmp_path / "notes" / "thesis.txt").read_text() == "precious"


def test_what_is_no_result_is_refused(pair, tmp_path):
    with pytest.raises(MissingInputError, match="no folder that mcat translate wrote"):
        open_transfer(tmp_path, "good", cheetah(0.5))
    write_json(tmp_path / "result.json", {"fit": 3})
    with pytest.raises(DataError, match="not the result of a translation"):
        open_transfer(tmp_path, "good", cheetah(0.5))
    _, folder = pair
    with pytest.raises(UsageError, match="does not fit ant: 17 observations and 6 actions"):
        open_transfer(folder, "good", Task("ant"))
    with pytest.raises(UsageError, match="unknown source 'halfcheetah'"):
        open_transfer(folder, "good", cheetah(0.5), "halfcheetah")
