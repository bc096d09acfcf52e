"""`mcat evaluate`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mcat.commands.options import task_from, task_options, translator_options, workers_option
from mcat.commands.translate import print_returns, summary
from mcat.errors import UsageError

if TYPE_CHECKING:
    from mcat.envs.tasks import Task


@click.command()
@click.argument("run", required=False, type=click.Path(path_type=Path))
@click.option("--split", type=click.Choice(["train", "test", "all"]),
              help="Which tasks of RUN (default: all).")  # fmt: skip
@click.option("--best", is_flag=True, help="RUN's policy that was best on its train tasks, not "
              "the last one.")  # fmt: skip
@click.option("--video", type=click.Path(path_type=Path), metavar="FILE",
              help="Film the start of an episode of each task of RUN: .mp4 or .gif.")  # fmt: skip
@task_options(required=False)
@click.option("--policy", metavar="NAME|FILE",
              help="Who acts: good, mediocre, random, scripted, scripted:ROBOT or a file; with "
              "--translator the source's (default: good; scripted on Meta-World).")  # fmt: skip
@translator_options
@click.option("--episodes", type=click.IntRange(1), metavar="N",
              help="Of each policy (default: 100), or of each task of RUN (10).")  # fmt: skip
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0))
@workers_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
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
    as_json: bool,
    **options: Any,
) -> None:
    """Run a policy and show its returns: that of RUN, a folder of mcat metatrain, or any other.

    With a translator, before and after translation.

    \b
    mcat evaluate runs/halfcheetah-armature-fast-seed0 --split test --video cheetahs.mp4
    mcat evaluate --policy good --env halfcheetah --armature 0.1
    mcat evaluate --policy good --translator a-to-b --env halfcheetah --armature 0.5
    """  # noqa: D301
    described = {"env": env, "policy": policy, "translator": translator, "from": source} | options
    given = [f"--{name}".replace("_", "-") for name, value in described.items() if value]
    if run is None:
        if split or best or video:
            raise UsageError("--split, --best and --video need RUN, a folder of mcat metatrain")
        if env is None:
            raise UsageError("say what to run: RUN, a folder of mcat metatrain, or --env ROBOT")
        _evaluate_policy(
            task_from(env, options), policy, translator, source,
            episodes=episodes or 100, seed=seed, workers=workers, as_json=as_json,
        )  # fmt: skip
    elif given:
        raise UsageError(f"{run} has its own policy and tasks: leave out {', '.join(given)}")
    else:
        _evaluate_run(
            run, split or "all", best=best, video=video,
            episodes=episodes or 10, seed=seed, workers=workers, as_json=as_json,
        )  # fmt: skip


def _evaluate_policy(
    task: Task,
    policy: str | None,
    translator: Path | None,
    source: str | None,
    *,
    episodes: int,
    seed: int,
    workers: int,
    as_json: bool,
) -> None:
    from mcat.agents.transferred import evaluation_runs, run_episodes

    runs = evaluation_runs(
        task, policy, translator=translator, source=source, seed=seed,
        announce=lambda text: click.echo(text, err=True),
    )  # fmt: skip
    returns, _ = run_episodes(runs, episodes=episodes, seed=seed, workers=workers)
    if as_json:
        click.echo(json.dumps([summary(item) for item in returns]))
    else:
        print_returns(returns)


def _evaluate_run(
    folder: Path,
    split: str,
    *,
    best: bool,
    video: Path | None,
    episodes: int,
    seed: int,
    workers: int,
    as_json: bool,
) -> None:
    if video is not None:
        from mcat.envs import backend
        from mcat.safe_io import ensure_writable_output

        if video.suffix not in (".gif", ".mp4"):
            raise UsageError(f"cannot write '{video.name}': give --video a name in .mp4 or .gif")
        ensure_writable_output(video, overwrite=True)
        backend.choose()  # before mujoco is imported

    from mcat.agents.run_evaluation import evaluate_run, film_run, means, open_run

    deployed = open_run(folder, split, best=best)
    returns = evaluate_run(deployed, episodes=episodes, seed=seed, workers=workers)
    if as_json:
        splits = deployed.splits
        click.echo(json.dumps([{"split": splits[r.label], **summary(r)} for r in returns]))
    else:
        print_returns([*returns, *means(deployed, returns)])
    if video is not None:
        film_run(deployed, video, seed=seed)
        click.echo(video, err=as_json)
