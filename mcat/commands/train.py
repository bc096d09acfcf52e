"""`mcat train` and `mcat policies`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from mcat.commands.options import given_parameters, task_from, task_options
from mcat.commands.tables import print_table
from mcat.errors import UsageError
from mcat.reports.environments import markdown


@click.command()
@task_options()
@click.option("--out", type=click.Path(path_type=Path),
              help="Folder of the run (default: runs/<task>-seed<seed>).")  # fmt: skip
@click.option("--steps", default=300_000, show_default=True, type=click.IntRange(1),
              help="Environment steps in all; one update follows each.")  # fmt: skip
@click.option("--snapshots", default="", metavar="STEP,STEP",
              help="Steps at which the policy is saved; the last step always is.")  # fmt: skip
@click.option("--start-steps", default=25_000, show_default=True, type=click.IntRange(0),
              help="Random steps before learning starts.")  # fmt: skip
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0))
@click.option("--resume", is_flag=True, help="Go on with the run in --out, exact to the bit.")
def train(
    env: str,
    out: Path | None,
    steps: int,
    snapshots: str,
    start_steps: int,
    seed: int,
    resume: bool,
    **options: Any,
) -> None:
    """Train a policy for one task with TD3.

    Ctrl-C or SIGTERM saves the run; the same command with --resume goes on. The folder holds
    run.json, metrics.csv, checkpoints and one policy-STEP.safetensors per snapshot.

    \b
    mcat train --env halfcheetah --armature 0.1 --snapshots 80000,300000
    """  # noqa: D301
    task = task_from(env, options)
    label = task.label(*given_parameters(options))

    from mcat.agents.train import TrainConfig
    from mcat.agents.train import train as run

    result = run(
        TrainConfig(
            task=task,
            out=out or Path("runs") / f"{label}-seed{seed}",
            steps=steps,
            snapshots=_steps(snapshots),
            start_steps=start_steps,
            seed=seed,
            resume=resume,
        )
    )
    click.echo(f"return {result.mean_return:,.1f} after {steps:,} steps", err=True)
    for path in result.policies:
        click.echo(path)


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
    from mcat.agents.policy_names import packaged_policies
    from mcat.reports.policies import policy_rows

    if as_json:
        found = [
            {**item._asdict(), "task": item.task.to_dict(), "path": str(item.path)}
            for item in packaged_policies()
        ]
        click.echo(json.dumps(found, indent=2))
    elif as_markdown:
        click.echo(markdown(policy_rows()))
    else:
        print_table("Packaged policies", policy_rows())
