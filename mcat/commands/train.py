"""`mcat train` and `mcat policies`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from mcat.commands.options import given_parameters, task_from, task_options
from mcat.commands.tables import print_table
from mcat.config import to_json, typed
from mcat.errors import UsageError, unknown
from mcat.reports.tables import markdown_table

if TYPE_CHECKING:
    from mcat.agents.single.config import TrainConfig

GOES_WITH_RESUME = ("resume", "steps", "snapshots", "quiet", "as_json")


@click.command()
@task_options(required=False)
@click.option("--out", type=click.Path(path_type=Path), metavar="FOLDER",
              help="Where to write (default: runs/<task>-seed<seed>).")  # fmt: skip
@click.option("--steps", default=300_000, show_default=True, type=click.IntRange(1),
              help="Environment steps in all; one update follows each.")  # fmt: skip
@click.option("--snapshots", default="", metavar="STEP,STEP",
              help="Steps at which the policy is saved; the last step always is.")  # fmt: skip
@click.option("--preset", default="fast", show_default=True, metavar="fast|paper",
              help="CrossQ with credit and episodes of random length, or TD3 with the paper's "
              "numbers.")  # fmt: skip
@click.option("--episode-lengths", metavar="LOW[,HIGH]|none",
              help="Collect episodes of random length; none means whole ones.")  # fmt: skip
@click.option("--start-steps", type=click.IntRange(0), metavar="N",
              help="Random steps before learning starts (default: 5,000; preset paper "
              "25,000).")  # fmt: skip
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0))
@click.option("--resume", type=click.Path(path_type=Path), metavar="FOLDER",
              help="Go on with that run, exact to the bit; of its settings only --steps and "
              "--snapshots may change.")  # fmt: skip
@click.option("--quiet", is_flag=True, help="Show no progress.")
@click.option("--json", "as_json", is_flag=True, help="Print the outcome as JSON.")
@click.pass_context
def train(
    context: click.Context,
    /,
    env: str | None,
    out: Path | None,
    steps: int,
    snapshots: str,
    preset: str,
    episode_lengths: str | None,
    start_steps: int | None,
    seed: int,
    resume: Path | None,
    quiet: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Train a policy for one task.

    Delayed rewards (--delay) are put down to the steps that earned them. Ctrl-C or SIGTERM saves
    the run, and --resume FOLDER goes on with it. The folder holds run.json, metrics.csv,
    checkpoints and one policy-STEP.safetensors per snapshot.

    \b
    mcat train --env halfcheetah --armature 0.1 --snapshots 80000,300000
    mcat train --env ant --cripple 3 --delay 500
    mcat train --env hopper --preset paper               # TD3 as in the paper
    mcat train --resume runs/halfcheetah-armature0.1-seed0
    """  # noqa: D301
    if resume is not None:
        config = _go_on(context, resume)
    elif env is None:
        raise UsageError("say what to learn by --env ROBOT, or go on with a run by --resume FOLDER")
    else:
        task = task_from(env, options)
        label = task.label(*given_parameters(options))

        from mcat.agents.single.config import PRESETS, TrainConfig

        if preset not in PRESETS:
            raise unknown("preset", preset, PRESETS)
        changes: dict[str, Any] = dict(PRESETS[preset])
        if start_steps is not None:
            changes["start_steps"] = start_steps
        if episode_lengths is not None:
            changes |= typed(TrainConfig, {"episode_lengths": episode_lengths})
        config = TrainConfig(
            task=task,
            out=out or Path("runs") / f"{label}-seed{seed}",
            steps=steps,
            snapshots=_steps(snapshots),
            seed=seed,
            **changes,
        )

    from mcat.agents.single.run import train as run

    result = run(replace(config, quiet=quiet), lambda text: click.echo(text, err=True))
    if as_json:
        click.echo(json.dumps(to_json(result)))
        return
    click.echo(f"return {result.mean_return:,.1f} after {config.steps:,} steps", err=True)
    for path in result.policies:
        click.echo(path)


def _go_on(context: click.Context, folder: Path) -> TrainConfig:
    """The settings of a run that shall go on, with what the command line changes in them."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    given = [
        option
        for option in context.command.params
        if sources.get(option.name or "") == ParameterSource.COMMANDLINE
    ]
    refused = [option.opts[0] for option in given if option.name not in GOES_WITH_RESUME]
    if refused:
        raise UsageError(
            f"--resume goes on with the settings of that run: leave out {', '.join(refused)} "
            "(what may change: --steps, --snapshots)"
        )

    from mcat.agents.single.run import read_config

    config = read_config(folder)
    values = {"steps": context.params["steps"], "snapshots": _steps(context.params["snapshots"])}
    names = {option.name for option in given}
    return replace(config, **{name: v for name, v in values.items() if name in names})


def _steps(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(step) for step in text.replace("_", "").split(",") if step.strip())
    except ValueError:
        raise UsageError(f"--snapshots takes steps such as 80000,300000, got '{text}'") from None


@click.group()
def policies() -> None:
    """Policies that come with the package."""


@policies.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option(
    "--markdown", "as_markdown", is_flag=True, help="Print the table of docs/policies.md."
)
def list_policies(as_json: bool, as_markdown: bool) -> None:
    """List them: task, level, training steps and mean return over 10 episodes."""
    from mcat.agents.policies.names import packaged_policies
    from mcat.reports.tables import policy_rows

    if as_json:
        found = [
            {**item._asdict(), "task": item.task.to_dict(), "path": str(item.path)}
            for item in packaged_policies()
        ]
        click.echo(json.dumps(found, indent=2))
    elif as_markdown:
        click.echo(markdown_table(policy_rows()))
    else:
        print_table("Packaged policies", policy_rows())
