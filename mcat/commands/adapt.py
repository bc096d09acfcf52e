"""`mcat adapt`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from mcat.commands.help import Explained, group
from mcat.commands.options import (
    json_option,
    policy_name,
    quiet_option,
    task_from,
    task_options,
    task_parameters,
    translator_options,
)
from mcat.commands.settings import (
    HERE,
    Setting,
    layer_options,
    layers,
    print_config,
    require_known_variables,
    resume_option,
)
from mcat.config import overlay, to_json

SETTINGS = (
    Setting("--steps", "steps", "N", "Real steps on the machine; 0 learns from logs alone."),
    Setting("--seed", "seed", "N", "Every random draw follows from it (default: 0)."),
    Setting("--offline-updates", "offline_updates", "N",
            "Updates on the logs before the first real step (default: 10,000)."),
    Setting("--evaluate-every", "evaluate_every", "N",
            "Real steps from evaluation to evaluation (default: 5,000)."),
    Setting("--episodes", "evaluation_episodes", "N",
            "Episodes of an evaluation; 0 for none (default: 10)."),
    Setting("--threads", "threads", "N",
            "Threads of torch (default: 1); they touch the last bits."),
)  # fmt: skip


@click.command(
    cls=Explained,
    examples=(
        "mcat adapt --logs b.h5 --translator a-to-b --env halfcheetah --armature 0.5",
        "mcat adapt --logs b.h5 --translator a-to-b --env halfcheetah --armature 0.5 --steps 10000",
        "mcat adapt --logs b.h5 --env ant --cripple 3 --steps 30000      # without a source policy",
    ),
)
@group(
    "What is known",
    click.option("--logs", multiple=True, required=True, metavar="FILE",
                 help="Log of the changed machine, with rewards; may be repeated."),
    click.option("--policy", callback=policy_name, metavar="NAME|FILE|MODULE:FUNCTION",
                 help="The source policy that --translator translates (default: good)."),
    translator_options,
)  # fmt: skip
@group("The machine", task_options(required=True))
@group(
    "Settings",
    click.option("--preset", default="default", hidden=True),
    *layer_options("learner.greed=1.0"),
)
@group("Schedule", *(setting.option() for setting in SETTINGS))
@group(
    "The run",
    click.option("--out", type=click.Path(path_type=Path), metavar="FOLDER",
                 help="Where to write (default: runs/adapt-<task>-seed<seed>)."),
    resume_option("--steps"),
    quiet_option,
    json_option,
)  # fmt: skip
@click.pass_context
def adapt(context: click.Context, /, **options: Any) -> None:
    """Learn a policy for a changed machine, from its logs, a source policy and a few real steps.

    In every logged state the policy is kept near the better of what was done there and what the
    source policy, translated, would do; then it acts, and learns from logs and real steps alike.
    The result, policy.safetensors, acts without the translator.
    """
    require_known_variables(context)
    from mcat.agents.adaptation.config import AdaptConfig

    task = task_from(options["env"], task_parameters(options))
    usual = AdaptConfig(task=task)
    preset, changes = layers(context, SETTINGS, {"default": usual})
    config = overlay(usual, changes)
    if options["print_config"]:
        values = to_json(config)
        if not options["as_json"]:
            del values["task"]
        print_config(preset, values, as_json=options["as_json"])
        return
    resume = options["resume"]
    name = f"adapt-{task.label()}-seed{config.seed}"
    out = resume if resume not in (None, HERE) else options["out"] or Path("runs") / name

    from mcat.agents.adaptation.run import adapt as run
    from mcat.transfer.adaptation import known_inputs

    def notify(text: str) -> None:
        click.echo(text, err=True)

    inputs = known_inputs(
        options["logs"], task, options["policy"], options["translator"], options["source"],
        notify=notify,
    )  # fmt: skip
    result = run(
        config, out, inputs.logs, inputs.policy, made_of=inputs.made_of,
        resume=resume is not None, quiet=options["quiet"], notify=notify,
    )  # fmt: skip
    if options["as_json"]:
        click.echo(json.dumps(to_json(result)))
        return
    if result.mean_return is not None:
        click.echo(f"return {result.mean_return:,.1f} after {config.steps:,} real steps", err=True)
    click.echo(result.policy)
