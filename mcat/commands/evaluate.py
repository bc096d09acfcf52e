"""`mcat evaluate`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from mcat.commands.help import Explained, group, json_option
from mcat.commands.options import (
    only_checked,
    out_option,
    overwrite_option,
    policy_name,
    quiet_option,
    require_actor,
    say,
    seed_option,
    task_from,
    task_options,
    translator_options,
    workers_option,
)
from mcat.commands.settings import resume_option
from mcat.commands.translate import print_returns
from mcat.errors import UsageError

if TYPE_CHECKING:
    from mcat.commands.evaluations import Outcome, Output
    from mcat.envs.tasks import Task
    from mcat.robot import Latency
    from mcat.types import AnyPolicy


class _How(NamedTuple):
    """What is the same for the policy of a run and for any."""

    episodes: int
    seed: int
    workers: int
    quiet: bool
    as_json: bool
    output: Output


@click.command(
    cls=Explained,
    examples=(
        "mcat evaluate runs/halfcheetah-armature-fast-seed0 --split test --video cheetahs.mp4",
        "mcat evaluate runs/halfcheetah-armature-fast-seed0 --env halfcheetah --armature 1.2",
        "mcat evaluate --policy good --env halfcheetah --armature 0.1",
        "mcat evaluate --policy good --translator a-to-b --env halfcheetah --armature 0.5",
        "mcat evaluate runs/halfcheetah-armature-fast-seed0 --out fast-seed0.json --resume",
    ),
)
@click.argument("run", required=False, type=click.Path(path_type=Path))
@group(
    "A run's policy",
    click.option("--split", type=click.Choice(["train", "test", "all"]),
                 help="Which tasks of RUN (default: all)."),
    click.option("--best", is_flag=True,
                 help="RUN's policy that was best on its train tasks, not the last one."),
    click.option("--video", type=click.Path(path_type=Path), metavar="FILE",
                 help="Film the start of an episode of each task of RUN: .mp4 or .gif."),
)  # fmt: skip
@group(
    "Any policy",
    click.option("--policy", callback=policy_name, metavar="NAME|FILE|MODULE:FUNCTION",
                 help="Who acts: good, mediocre, random, scripted, scripted:ROBOT, a file or a "
                 "run; the source's with --translator (default: good; scripted on Meta-World)."),
    translator_options,
)  # fmt: skip
@group("The machine", task_options)
@group(
    "Episodes",
    click.option("--episodes", type=click.IntRange(1), metavar="N",
                 help="Of each policy (default: 100), or of each task of RUN (10)."),
    seed_option,
    workers_option,
)  # fmt: skip
@group(
    "The result",
    out_option("FILE.json",
               "Also write it, with what was asked for and by which code it was made."),
    resume_option("Of a policy of the same contents. One that was stopped kept nothing and starts "
                  "anew."),
    overwrite_option,
    quiet_option,
    json_option,
)  # fmt: skip
def evaluate(
    run: Path | None,
    split: str | None,
    best: bool,
    video: Path | None,
    env: str | None,
    policy: str | None,
    translator: Path | None,
    source: str | None,
    episodes: int | None,
    seed: int,
    workers: int,
    out: Path | None,
    resume: bool,
    overwrite: bool,
    quiet: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Run a policy and show its returns: that of RUN, a folder of mcat metatrain or train, or any.

    RUN acts on the tasks it was made for, or on the machine that --env describes. With a
    translator, before and after translation. Unless --quiet, it also says how long an action takes
    on this machine.
    """
    from mcat.commands.evaluations import Output  # here because every command would wait for it

    output = Output(out, resume=resume, overwrite=overwrite)
    given = {"--policy": policy, "--translator": translator, "--from": source}
    refused = [name for name, value in given.items() if value]
    if run is not None and refused:
        raise UsageError(f"{run} has its own policy: leave out {', '.join(refused)}")
    if run is None and (split or best or video):
        raise UsageError("--split, --best and --video need RUN, the folder of a run")
    if env is not None:
        if split or video:
            raise UsageError("--split and --video are for the tasks of RUN: leave out --env")
        if run is not None:
            from mcat.agents.runs.record import policy_file

            policy = str(policy_file(run, best=best))
        how = _How(episodes or 100, seed, workers, quiet, as_json, output)
        _evaluate_policy(task_from(env, options), policy, translator, source, how)
    elif run is None:
        raise UsageError("say what to run: RUN, the folder of a run, or --env ROBOT")
    elif described := [name for name, value in options.items() if value is not None]:
        names = ", ".join(f"--{name}".replace("_", "-") for name in described)
        raise UsageError(f"{run} has its own tasks: leave out {names}, or name a robot by --env")
    else:
        how = _How(episodes or 10, seed, workers, quiet, as_json, output)
        _evaluate_run(run, split or "all", how, best=best, video=video)


def _evaluate_policy(
    task: Task, policy: str | None, translator: Path | None, source: str | None, how: _How
) -> None:
    from mcat.agents.limits import require_room
    from mcat.agents.policies.names import source_policy_name
    from mcat.commands.evaluations import Outcome, policy_request

    require_actor(source_policy_name(policy, task), task, translator, source)
    require_room(task, how.episodes)
    if only_checked():
        return
    asked = partial(
        policy_request, task, policy, translator, source, episodes=how.episodes, seed=how.seed
    )
    outcomes = how.output.find(asked)
    latencies: list[Latency | None] = []
    if outcomes is None:
        from mcat.agents.evaluation import run_episodes
        from mcat.transfer.deploy import evaluation_trials

        trials = evaluation_trials(
            task, policy, translator=translator, source=source, seed=how.seed, notify=say
        )
        how.output.require_unchanged()
        returns, _ = run_episodes(
            trials, episodes=how.episodes, seed=how.seed, workers=how.workers, quiet=how.quiet
        )
        outcomes = [Outcome(item) for item in returns]
        how.output.write(outcomes)
        latencies = [] if how.quiet else [_latency(trial.policy, task) for trial in trials]
    _print(outcomes, as_json=how.as_json, latencies=latencies)


def _evaluate_run(folder: Path, split: str, how: _How, *, best: bool, video: Path | None) -> None:
    from mcat.agents.runs.record import read_record
    from mcat.commands.evaluations import Outcome, run_request

    read_record(folder)  # refuses what is not a run before anything heavy is imported
    if only_checked():
        return
    if video is not None:
        from mcat.envs import backend
        from mcat.safe_io import ensure_writable_output

        if video.suffix not in (".gif", ".mp4"):
            raise UsageError(f"cannot write '{video.name}': give --video a name in .mp4 or .gif")
        ensure_writable_output(video, overwrite=True)
        backend.choose()  # before mujoco is imported

    asked = partial(run_request, folder, split, best=best, episodes=how.episodes, seed=how.seed)
    outcomes = how.output.find(asked)
    latencies: list[Latency | None] = []
    if outcomes is None or video is not None:
        from mcat.agents.limits import require_room
        from mcat.agents.trained_run import evaluate_run, film_run, open_run

        deployed = open_run(folder, split, best=best)
        how.output.require_unchanged()
        if read_record(folder).method == "mql":
            acts = "as meta-trained" if best else "adapted to each task from the newest checkpoint"
            click.echo(f"note: the policy of MQL acts {acts}", err=True)
    if outcomes is None:
        for task in deployed.tasks.values():
            require_room(task, how.episodes)
        returns = evaluate_run(
            deployed, episodes=how.episodes, seed=how.seed, workers=how.workers, quiet=how.quiet
        )
        outcomes = [Outcome(item, deployed.splits[item.label]) for item in returns]
        how.output.write(outcomes)
        one_task = next(iter(deployed.tasks.values()))
        latencies = [] if how.quiet else [_latency(deployed.policy, one_task)]
    _print(outcomes, as_json=how.as_json, latencies=latencies)
    if video is not None:
        film_run(deployed, video, seed=how.seed)
        click.echo(video, err=how.as_json)


def _latency(policy: AnyPolicy, task: Task) -> Latency | None:
    """How long an action takes; None of code that does not take zeros for an observation."""
    from mcat.robot import latency_of

    try:
        return latency_of(policy, task.spec.observation_size)
    except Exception:  # somebody's own code: its returns are known by now, and not to be lost
        return None


def _print(
    outcomes: Sequence[Outcome], *, as_json: bool, latencies: Sequence[Latency | None]
) -> None:
    """Show the outcome; the time that an action took is no part of the file, only said."""
    from mcat.commands.evaluations import means

    if as_json:
        click.echo(json.dumps([item.to_json() for item in outcomes]))
    else:
        print_returns([*(item.returns for item in outcomes), *means(outcomes)])
    labels = [item.returns.label for item in outcomes] if len(latencies) > 1 else ["the policy"]
    for label, latency in zip(labels, latencies, strict=False):
        if latency is not None:
            click.echo(f"{label}: {latency} on this machine, as busy as it is", err=True)
