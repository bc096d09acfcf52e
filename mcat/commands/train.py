"""`mcat train`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mcat.commands.help import Explained, group, json_option
from mcat.commands.options import (
    given_parameters,
    out_option,
    quiet_option,
    say,
    task_from,
    task_options,
    task_parameters,
)
from mcat.commands.settings import (
    HERE,
    SEED,
    THREADS,
    Setting,
    bit_exact,
    changes_on_resume,
    layer_options,
    layers,
    preset_option,
    print_config,
    require_known_variables,
    require_used,
    resume_option,
    run_name,
)
from mcat.config import overlay, to_json
from mcat.errors import UsageError

if TYPE_CHECKING:
    from mcat.agents.single.config import TrainConfig

SETTINGS = (
    Setting("--steps", "steps", "N", "Environment steps in all (default: 300,000)."),
    Setting("--snapshots", "snapshots", "STEP,STEP",
            "Steps at which the policy is saved; the last step always is."),
    SEED,
    Setting("--evaluate-every", "evaluate_every", "N", "Steps from evaluation to evaluation."),
    Setting("--episodes", "evaluation_episodes", "N", "Episodes of an evaluation."),
    THREADS,
)  # fmt: skip
EXPERIMENTS = (
    Setting("--learner", "learner", "crossq|sac|td3",
            "CrossQ with batch-normalised critics, SAC, or TD3 as in the paper."),
    Setting("--credit", "credit", "none|ridge",
            "Which steps earned a delayed payment: its last, or what a linear model says."),
    Setting("--episode-lengths", "episode_lengths", "LOW[,HIGH]|none",
            "Collect episodes of random length; none means whole ones."),
    Setting("--start-steps", "start_steps", "N",
            "Random steps before learning starts (default: 5,000; preset paper 25,000)."),
)  # fmt: skip
# Keys that the name of a run has already, or that change nothing but how far it goes.
IN_NO_NAME = ("seed", "steps", "snapshots", "evaluate_every", "evaluation_episodes",
              "checkpoint_every", "threads")  # fmt: skip


@click.command(
    cls=Explained,
    examples=(
        "mcat train --env halfcheetah --armature 0.1 --snapshots 80000,300000",
        "mcat train --env ant --cripple 3 --delay 500 --set crossq.learning_rate=5e-4",
        "mcat train --env hopper --preset paper               # TD3 as in the paper",
        "mcat train --resume runs/halfcheetah-armature0.1-seed0",
    ),
)
@group("What to learn", task_options)
@group(
    "Settings",
    preset_option("fast (CrossQ with credit and episodes of random length) or paper (TD3 with the "
                  "paper's numbers)", "fast"),
    *layer_options("crossq.discount=0.98"),
)  # fmt: skip
@group("Schedule", *(setting.option() for setting in SETTINGS))
@group("Experiments", *(setting.option() for setting in EXPERIMENTS))
@group(
    "The run",
    out_option("FOLDER", "Where to write (default: runs/<task>-seed<seed>, with what is "
               "not the preset's)."),
    resume_option(bit_exact("--steps and --snapshots"), folder=True),
    quiet_option,
    json_option,
)  # fmt: skip
@click.pass_context
def train(context: click.Context, /, **options: Any) -> None:
    """Train a policy for one task.

    Delayed rewards (--delay) are put down to the steps that earned them. Ctrl-C or SIGTERM saves
    the run, and --resume FOLDER goes on with it. The folder holds run.json, metrics.csv,
    checkpoints and one policy-STEP.safetensors per snapshot.
    """
    require_known_variables(context)
    resume = options["resume"]
    if resume not in (None, HERE):
        preset, config, out = "custom", _of_run(context, resume), resume
    else:
        preset, config, name = _resolve(context)
        out = options["out"] or Path("runs") / name
    if options["print_config"]:
        values = to_json(config)
        if not options["as_json"]:
            del values["task"]  # no file sets it
        print_config(preset, values, as_json=options["as_json"])
        return

    from mcat.agents.single.run import train as run

    result = run(
        config,
        out,
        resume=resume is not None,
        quiet=options["quiet"],
        notify=say,
    )
    if options["as_json"]:
        click.echo(json.dumps(to_json(result)))
        return
    reached = ""
    if result.success_rate is not None:
        from mcat.reports.sections import share

        reached = f", {share(result.success_rate)} of the episodes succeeded"
    click.echo(f"return {result.mean_return:,.1f} after {config.steps:,} steps{reached}", err=True)
    for path in result.policies:
        click.echo(path)


def _resolve(context: click.Context) -> tuple[str, TrainConfig, str]:
    """A preset's name, what file, environment and options made of it, and what to call the run."""
    options = context.params
    if options["env"] is None:
        raise UsageError("say what to learn by --env ROBOT, or go on with a run by --resume FOLDER")
    described = task_parameters(options)
    task = task_from(options["env"], described)
    from mcat.agents.single.config import PRESETS, TrainConfig

    preset, changes = layers(context, (*SETTINGS, *EXPERIMENTS), PRESETS)
    usual = overlay(TrainConfig(task=task), PRESETS[preset])
    config = overlay(usual, changes)
    require_used(config, usual)
    if config.learner == "sac" and config.exploration != usual.exploration:
        raise UsageError(
            "exploration changes nothing with the learner sac, whose policy has a spread of its"
            " own: leave it out"
        )
    words = [task.label(*given_parameters(described)), *([] if preset == "fast" else [preset])]
    return preset, config, run_name(words, EXPERIMENTS, usual, config, IN_NO_NAME)


def _of_run(context: click.Context, folder: Path) -> TrainConfig:
    """The settings of a run that shall go on, with what the command line changes in them."""
    from mcat.agents.single.config import RESUME_MAY_CHANGE

    settings = (*SETTINGS, *EXPERIMENTS)
    changes = changes_on_resume(context, settings, RESUME_MAY_CHANGE)
    from mcat.agents.single.run import read_config

    return overlay(read_config(folder), changes)
