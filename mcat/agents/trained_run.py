"""A run put to use: its policy on the tasks it was made for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mcat.agents.evaluation import Trial, run_episodes
from mcat.agents.meta.algorithm import TaskSet
from mcat.agents.meta.evaluation import roll_trials, trial_seeds
from mcat.agents.policies.coded_policy import CodedPolicy
from mcat.agents.policies.meta_policy import MetaPolicy
from mcat.agents.policies.policy import Policy, load_policy
from mcat.agents.policies.recurrent_policy import RecurrentPolicy
from mcat.agents.returns import Returns
from mcat.agents.runs.record import RunRecord, policy_file, read_record
from mcat.datasets.views import Episodes
from mcat.envs.families import family, has_mirror_images, with_mirror_images
from mcat.envs.lockstep import lockstep
from mcat.envs.tasks import Task
from mcat.errors import DataError, UsageError
from mcat.types import AnyPolicy, PolicyFunction

if TYPE_CHECKING:
    from mcat.agents.meta.methods.mql import MQL

FILMED_STEPS = 150  # 6 seconds


@dataclass(frozen=True, kw_only=True)
class TrainedRun:
    """The policy of a run, and some of the tasks it was made for."""

    policy: Policy | MetaPolicy
    tasks: dict[str, Task]  # the tasks, by name
    splits: dict[str, str]  # "train" or "test", by the same names
    # The folder of a run of MQL whose last networks are to be adapted to each task.
    adapts: Path | None = None


def open_run(folder: Path, split: str = "all", *, best: bool = False) -> TrainedRun:
    """The policy of a run and its tasks, rebuilt from their declarations.

    Args:
        folder: The folder of the run.
        split: "train", "test" or "all" tasks.
        best: The policy that earned most on train tasks, not the last one.

    Raises:
        MissingInputError: if the folder is none of a run, or there is no policy yet.
        DataError: if a file is damaged or does not fit this version's families.
        UsageError: if the family has no such tasks.
    """
    record = read_record(folder)
    tasks = dict(zip(record.tasks, _tasks(record), strict=True))
    splits = dict.fromkeys(record.train, "train") | dict.fromkeys(record.test, "test")
    if split != "all":
        splits = {name: own for name, own in splits.items() if own == split}
    if not splits:
        raise UsageError(f"{record.family} has no {split} tasks")
    path = policy_file(folder, best=best)
    policy = load_policy(path)
    spec = tasks[record.train[0]].spec
    if (policy.observation_size, policy.action_size) != (spec.observation_size, spec.action_size):
        raise DataError(f"{path}: not a policy for {record.family}")
    return TrainedRun(
        policy=policy,
        tasks={name: tasks[name] for name in splits},
        splits=splits,
        adapts=folder if isinstance(policy, RecurrentPolicy) and not best else None,
    )


def _tasks(record: RunRecord) -> tuple[Task, ...]:
    """The tasks of a run, if they still are what they were."""
    if record.kind != "metatrain":
        if record.config["task"] is None:
            raise UsageError(
                f"mcat cannot simulate the machine of {record.folder}: describe one by --env"
            )
        return (Task.from_dict(record.config["task"]),)
    try:
        found = record.own_family or family(record.family)
        found = found.replace(delay=record.delay, horizon=record.horizon)
    except UsageError as error:
        raise DataError(f"{record.folder}: {error}") from error
    if record.config.get("mirror") is not False and has_mirror_images(found):
        mirrored = with_mirror_images(found)  # unknown to runs of earlier versions
        found = mirrored if len(mirrored.tasks) == len(record.tasks) else found
    if TaskSet.of(found).names != record.tasks:
        raise DataError(f"{record.folder}: its tasks are not those of {record.family} in this mcat")
    return found.tasks


def evaluate_run(
    run: TrainedRun, *, episodes: int, seed: int, workers: int = 1, quiet: bool = False
) -> tuple[Returns, ...]:
    """The returns of deterministic episodes on each task, each begun with an empty memory.

    Args:
        run: What `open_run` gave.
        episodes: Episodes on each task.
        seed: Of the episodes' starts.
        workers: Processes that share the physics; no part of the result.
        quiet: Show no progress.
    """
    acting = on_tasks(run, seed, episodes)
    trials = [Trial(name, acting[name], task) for name, task in run.tasks.items()]
    returns, _ = run_episodes(trials, episodes=episodes, seed=seed, workers=workers, quiet=quiet)
    return returns


def on_tasks(run: TrainedRun, seed: int, rows: int) -> dict[str, AnyPolicy]:
    """Who acts on each task: the same, or one that knows by name or by trials which it is."""
    policy, names = run.policy, tuple(run.tasks)
    acting: Callable[[Sequence[int], Episodes | None], PolicyFunction]
    if isinstance(policy, CodedPolicy):
        coded, count = policy, policy.trials
        acting = lambda tasks, trials: coded.begin(tasks, names, trials)  # noqa: E731
    elif run.adapts is not None:
        algorithm = _ready(run.adapts)
        acting, count = algorithm.acting_policy, algorithm.trials
    else:
        return dict.fromkeys(run.tasks, policy)
    trials = None
    if count:
        env = lockstep(list(run.tasks.values()))
        trials = roll_trials(env, acting, trial_seeds(seed, count))
    return {name: acting([number] * rows, trials) for number, name in enumerate(names)}


def _ready(folder: Path) -> MQL:
    """What was learned in a run of MQL, and what it learned from."""
    from mcat.agents.meta.methods.mql import MQL
    from mcat.agents.meta.run import restored

    algorithm = restored(folder)
    assert isinstance(algorithm, MQL)
    algorithm.get_ready()
    return algorithm


def film_run(run: TrainedRun, path: Path, *, seed: int, steps: int = FILMED_STEPS) -> None:
    """Write the start of an episode on each task, side by side, as .mp4 or .gif.

    Raises:
        MissingInputError: without OpenGL, or for .mp4 without ffmpeg.
    """
    from mcat.envs.render import film_sheet

    acting = on_tasks(run, seed, 1)
    shown = {name: (task, acting[name]) for name, task in run.tasks.items()}
    film_sheet(shown, path, steps=steps, seed=seed)
