"""Plans: what they say, and what is refused before anything starts."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest

from mcat.agents.meta.methods.registry import METHODS
from mcat.commands.planned import Commands
from mcat.errors import McatError, MissingInputError, UsageError
from mcat.sweeps.cost import cost_of
from mcat.sweeps.folder import create_sweep
from mcat.sweeps.plan import plan_of
from mcat.sweeps.plan_files import folder_of, load_plan, packaged_plans
from mcat.sweeps.runs import resolve

PLAN = """
name = "tiny"
[common]
preset = "smoke"
[grid]
family = ["halfcheetah-armature", "hopper-size"]
seed = "0-2"
[[variant]]
name = "MCAT"
[[variant]]
name = "no transfer"
mcat.transfer = false
[resources]
cpus = 2
"""


def planned(text):
    return resolve(plan_of(tomllib.loads(text)), Commands())


def test_a_plan_is_the_product_of_its_axes_and_variants():
    runs = planned(PLAN)
    assert len(runs) == 2 * 3 * 2
    assert {run.config["family"] for run in runs} == {"halfcheetah-armature", "hopper-size"}
    assert [run.config["seed"] for run in runs[:6]] == [0, 0, 1, 1, 2, 2]
    assert [run.variant for run in runs[:2]] == ["MCAT", "no transfer"]
    assert [run.config["mcat"]["transfer"] for run in runs[:2]] == [True, False]
    assert len({run.name for run in runs}) == 12
    assert runs[1].name.startswith("halfcheetah-armature-no-transfer-seed0-")


def test_a_run_starts_goes_on_or_is_found_done_with_one_number_of_cpus():
    run = planned(PLAN)[0]
    line = run.command_line(Path("/sweep"), 2)
    assert line[1:4] == ["-m", "mcat", "metatrain"]
    assert line[-6:] == [
        "--out", f"/sweep/runs/{run.name}", "--quiet", "--threads", "2", "--resume"
    ]  # fmt: skip


@pytest.mark.parametrize(("begun", "threads"), [(None, "2"), (1, "1"), ("many", "2")])
def test_a_run_goes_on_with_the_threads_that_it_was_begun_with(tmp_path, begun, threads):
    run = planned(PLAN)[0]
    if begun is not None:
        (tmp_path / run.out).mkdir(parents=True)
        record = json.dumps({"config": {"threads": begun}})
        (tmp_path / run.out / "run.json").write_text(record)
    line = run.command_line(tmp_path, 2)
    assert line[line.index("--threads") + 1] == threads


def test_names_follow_from_what_is_run_not_from_how_far_or_how_it_is_said():
    more = planned(PLAN.replace('preset = "smoke"', 'preset = "smoke"\nsteps = 99_000'))
    said = planned(PLAN.replace("mcat.transfer = false", "no-transfer = true"))
    assert [run.name for run in more] == [run.name for run in planned(PLAN)]
    assert [run.steps for run in more] == [99_000] * 12
    assert [run.name for run in said] == [run.name for run in planned(PLAN)]
    other = planned(PLAN.replace("mcat.transfer = false", "mcat.td3.discount = 0.9"))
    assert {run.name for run in other} & {run.name for run in planned(PLAN)} == {
        run.name for run in planned(PLAN) if run.variant == "MCAT"
    }


def test_other_axes_than_family_and_seed_are_places_of_their_own():
    runs = planned(PLAN.replace('seed = "0-2"', "seed = [0]\ndelay = [200, 500]"))
    assert {run.where for run in runs} == {"delay 200", "delay 500"}
    assert {run.where for run in planned(PLAN)} == {""}


INPUTS = """
command = "translate"
[common]
src = "@a"
tgt = ["@b"]
preset = "smoke"
[grid]
seed = [0, 1]
[[input]]
name = "a"
command = "collect"
env = "hopper"
steps = 500
[[input]]
name = "b"
command = "collect"
env = "hopper"
size = 0.03
steps = 500
[[input]]
name = "nobody-wants-it"
command = "collect"
env = "ant"
"""


def test_inputs_are_made_once_before_those_that_name_them():
    a, b, *runs = planned(INPUTS)
    assert [(a.command, a.variant), (b.command, b.variant)] == [("collect", ""), ("collect", "")]
    assert a.out.startswith("inputs/a-")
    assert a.out.endswith(".h5")
    assert [run.needs for run in runs] == [(a.name, b.name)] * 2
    line = runs[1].command_line(Path("/sweep"), 1)
    assert line[line.index("--src") + 1] == f"/sweep/{a.out}"
    assert line[line.index("--tgt") + 1] == f"/sweep/{b.out}"
    assert runs[0].steps is None
    other = planned(INPUTS.replace("size = 0.03", "size = 0.04"))[-1]
    assert other.name != runs[-1].name  # what it is made of is another log


BAD = {
    "a typo in a key": ("steps = 3\n[common]\n", r"unknown key of a plan 'steps': "),
    "a typo in a table": (
        "[comon]\n",
        r"unknown key of a plan 'comon': did you mean command or common",
    ),
    "a typo in a setting": ("[common]\nmcat.trasnfer = false\n", r"mcat\.transfer\?"),
    "a typo in an option": ("[common]\nfamly = 'hopper-size'\n", r"famly"),
    "a value of no sense": ("[common]\nfamily = 'horse'\n", r"unknown family 'horse'"),
    "a number that is none": ("[common]\nsteps = 'many'\n", r"steps takes a whole number"),
    "another command": ("command = 'envs'\n", r"a plan runs metatrain, train, .*, not 'envs'"),
    "what is the sweep's own": ("[common]\nthreads = 4\n", r"resources\.cpus sets it"),
    "where to write": ("[common]\nout = 'here'\n", r"out is the sweep's own: leave it out"),
    "an unknown resource": ("[resources]\ncpu = 2\n", r"unknown resource 'cpu': did you mean cpus"),
    "no cores": ("[resources]\ncpus = 0\n", r"cpus must be at least 1"),
    "a size of nothing": ("[resources]\nmemory = 'much'\n", r"memory takes a size such as 3GB"),
    "a name that leaves": ("name = '../up'\n", r"name of the plan is also that of a folder"),
    "an axis of nothing": ("[grid]\nseed = []\n", r"seed has no values"),
    "an axis with a twin": ("[grid]\nseed = [1, 1]\n", r"seed lists a value twice"),
    "a range backwards": ("[grid]\nseed = '4-1'\n", r"no range from a smaller to a larger"),
    "far too many": ("[grid]\nseed = '0-99999'\ndelay = '1-9'\n", r"more than 100,000 runs"),
    "a variant twice": ("[[variant]]\nname='a'\n[[variant]]\nname='a'\n", r"two variants"),
    "a variant without a name": ("[[variant]]\nseed = 1\n", r"a variant needs a name"),
    "two alike": (
        "[[variant]]\nname='a'\n[[variant]]\nname='b'\nmcat.transfer=true\n",
        r"'a' and 'b' make the same run",
    ),
    "an unknown input": ("[common]\nfamily = '@logs'\n", r"unknown input '@logs'"),
    "a circle": (
        "[[input]]\nname='a'\ncommand='collect'\npolicy='@b'\n"
        "[[input]]\nname='b'\ncommand='collect'\npolicy='@a'\n",
        r"wait for one another in a circle: a and b",
    ),
    "two values of an axis that mean one": (
        "[grid]\nmcat.transfer = [true, 'true']\n",
        r"two points of the grid make the same run",
    ),
    "a robot that is none": ("command = 'collect'\n[common]\nenv = 'horse'\n", r"'horse'"),
    "noise of no sense": (
        "command = 'collect'\n[common]\nenv = 'ant'\nnoise = 'much'\n",
        r"--noise takes one number",
    ),
    "nothing to evaluate": ("command = 'evaluate'\n", r"say what to run"),
    "logs of one machine": (
        "command = 'translate'\n[common]\nsrc = '@a'\n"
        "[[input]]\nname = 'a'\ncommand = 'collect'\nenv = 'ant'\n",
        r"give logs of both machines",
    ),
    "what it is about is no text": ("about = 3\n", r"about takes text, not 3"),
    "an input without a command": ("[[input]]\nname = 'a'\n", r"needs a name and a command"),
    "no table": ("grid = 3\n", r"grid is a table of settings, not 3"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_no_plan_can_say_is_told_in_one_line(case):
    text, words = BAD[case]
    with pytest.raises(UsageError, match=words) as found:
        planned(text)
    assert "\n" not in str(found.value)


MISSING = {
    "a run": ("evaluate", "run = 'nowhere'", "nowhere is no run of mcat"),
    "a folder that is no run": ("evaluate", "run = '.'", "is no run of mcat"),
    "a log of the source": ("translate", "src = 'no.h5'\ntgt = '@a'", "no.h5 is not there"),
    "a log to adapt to": ("adapt", "logs = ['@a', 'no.h5']", "no.h5 is not there"),
    "a policy": ("evaluate", "env = 'hopper'\npolicy = 'no.onnx'", "no.onnx is not there"),
}


@pytest.mark.parametrize("case", MISSING)
def test_inputs_that_nobody_makes_are_missed_before_anything_starts(case):
    command, settings, words = MISSING[case]
    text = f"command = '{command}'\n[common]\n{settings}\n"
    text += "[[input]]\nname = 'a'\ncommand = 'collect'\nenv = 'hopper'\n"
    with pytest.raises(MissingInputError, match=words):
        planned(text)


def test_what_an_input_will_be_is_not_asked_for_yet():
    made = "[[input]]\nname = 'a'\ncommand = 'train'\nenv = 'hopper'\n"
    for settings in ("run = '@a'", "run = '@a'\nenv = 'hopper'", "policy = '@a'\nenv = 'hopper'"):
        assert len(planned(f"command = 'evaluate'\n[common]\n{settings}\n{made}")) == 2


def test_an_axis_of_options_is_named_once():
    with pytest.raises(UsageError, match="--grid seed is given twice: name all its values in one"):
        load_plan(grid=["seed=0-1", "seed=3"])


def test_a_sweep_is_found_by_its_name_as_by_its_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "mine.toml"
    path.write_text(PLAN.replace('name = "tiny"', ""))
    plan, text = load_plan(str(path))
    create_sweep(plan, text, resolve(plan, Commands()), tmp_path / "sweeps" / "mine")
    assert load_plan("mine") == load_plan("sweeps/mine") == (plan, text)
    assert (plan.name, folder_of("mine")) == ("mine", Path("sweeps/mine"))
    assert folder_of("nothing") is None
    (tmp_path / "sweeps" / "transfer").mkdir()
    assert load_plan("transfer")[0].name == "transfer"  # the package's, which goes on there


def test_options_describe_a_plan_and_change_one(tmp_path):
    alone, text = load_plan(
        settings=["preset=smoke", "mcat.imitate=false"],
        grid=["family=hopper-size,ant-cripple", "seed=0-1"],
        variants=["MCAT", "no transfer: mcat.transfer=false, mcat.exploration=0.2"],
        changes={"name": "mine", "resources.cpus": 3},
    )
    assert (alone.name, alone.resources.cpus) == ("mine", 3)
    assert alone.grid == {"family": ("hopper-size", "ant-cripple"), "seed": (0, 1)}
    assert dict(alone.variants)["no transfer"] == {
        "mcat.transfer": "false", "mcat.exploration": "0.2"
    }  # fmt: skip
    (tmp_path / "again.toml").write_text(text)
    again, _ = load_plan(str(tmp_path / "again.toml"))
    assert resolve(again, Commands()) == resolve(alone, Commands())

    path = tmp_path / "plan.toml"
    path.write_text(PLAN)
    plan, text = load_plan(str(path))
    assert text == PLAN
    changed, text = load_plan(str(path), grid=["seed=7"], settings=["steps=500"])
    assert changed.grid == {**plan.grid, "seed": ("7",)}
    assert changed.variants == plan.variants
    assert tomllib.loads(text)["common"] == {"preset": "smoke", "steps": "500"}
    assert load_plan(str(tmp_path)) == (plan, PLAN)  # the folder of a sweep has plan.toml


def test_no_plan_of_that_name_and_no_toml(tmp_path):
    with pytest.raises(UsageError, match="did you mean transfer"):
        load_plan("transfr")
    with pytest.raises(MissingInputError, match=r"mine\.toml is not there"):
        load_plan("mine.toml")
    with pytest.raises(MissingInputError, match=r"has no plan\.toml"):
        load_plan(str(tmp_path))
    (tmp_path / "bad.toml").write_text("a = [")
    with pytest.raises(McatError, match="not a TOML file"):
        load_plan(str(tmp_path / "bad.toml"))
    for texts in ({"grid": ["seed"]}, {"settings": ["steps"]}, {"variants": ["a: b"]}):
        with pytest.raises(UsageError, match="takes"):
            load_plan(**texts)


@pytest.mark.parametrize("name", packaged_plans())
def test_packaged_plans_can_be_run_and_docs_say_what_they_cost(name):
    plan, _ = load_plan(name)
    runs = resolve(plan, Commands())
    table = Path(__file__).parents[2].joinpath("docs", "sweep.md").read_text()
    said = re.search(rf"^\| `{name}` \|.*\| (\d+) \| (\d+) \|$", table, re.MULTILINE)
    cost = cost_of(runs, plan.resources.cpus)
    assert said.groups() == (str(len(runs)), f"{cost.core_hours:.0f}")
    assert cost.unknown == 0
    assert plan.name == name
    imitates = name in ("no-sil", "sil-filter")  # which fast does not
    slow = imitates or name.endswith("cpu")
    presets = {"fast", "paper"} if name == "learners" else {"cpu" if slow else "fast"}
    assert {run.config["preset"] for run in runs} == presets
    seeds = {"methods": 2, "methods-cpu": 1}.get(name, 3)
    assert len({run.config["seed"] for run in runs}) >= seeds


def test_the_recorded_sweep_goes_on_with_what_fast_was_when_it_began():
    """Two updates a step, no growing average, Huber's loss, longer targets or mirrored replay."""
    for run in resolve(load_plan("transfer")[0], Commands()):
        own = run.config["mcat"]
        assert (own["updates_per_step"], own["crossq"]["deployed_share"]) == (2, 0)
        assert (own["crossq"]["huber_delta"], own["crossq"]["discount"]) == (None, 0.99)
        assert own["td_steps"] == 1
        assert not run.config["mirror_replay"]


def test_the_plan_of_the_methods_has_all_of_them_under_one_protocol():
    runs = resolve(load_plan("methods")[0], Commands())
    assert {run.config.get("method", "mcat") for run in runs} == set(METHODS)
    assert len(runs) == 6 * 2 * 2
    for run in runs:
        own = run.config[run.config.get("method", "mcat")]
        assert own["credit"]["kind"] == "auto"
        assert (own["learn_while_acting"], own["scale_rewards"]) == (True, True)
        ants = run.config["family"] == "ant-cripple"
        updates = 2 if ants else 3
        assert (own["start_steps"], own["updates_per_step"]) == (10_000, updates)
        assert not own["imitate"]
        learner = own["crossq" if "crossq" in own else "sac"]
        assert learner["deployed_share"] == 0.15
        # PEARL's rewards are five times as large
        bound = None if ants else 10 * learner.get("reward_scale", 1)
        assert learner["huber_delta"] == bound
        assert run.config["episode_lengths"] == [100, 500]


def test_what_nobody_measured_is_counted_not_left_out_silently():
    runs = planned(PLAN.replace('preset = "smoke"', 'preset = "paper"\nsteps = 1000'))
    assert cost_of(runs, 2) == (0, 12)
    smoke = planned(PLAN.replace('preset = "smoke"', 'preset = "smoke"\nsteps = 9_000'))
    assert cost_of([*runs, *smoke], 2) == (pytest.approx(12 * 9000 * 0.0004 * 2 / 3600), 12)


def test_the_recorded_sweep_is_that_of_its_plan():
    """So `mcat sweep plan results/sweeps/transfer` finds its runs, and they are not made again."""
    recorded = load_plan(str(Path(__file__).parents[2] / "results" / "sweeps" / "transfer"))[0]
    ours, theirs = (
        {run.name: run.config for run in resolve(plan, Commands())}
        for plan in (load_plan("transfer")[0], recorded)
    )
    assert ours == theirs
