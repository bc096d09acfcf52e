"""`mcat adapt`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mcat.commands.help import Explained, group, json_option
from mcat.commands.options import (
    given_parameters,
    out_option,
    policy_name,
    quiet_option,
    say,
    task_from,
    task_options,
    task_parameters,
    translator_options,
)
from mcat.commands.settings import (
    SEED,
    THREADS,
    Setting,
    bit_exact,
    layer_options,
    layers,
    print_config,
    require_known_variables,
    resume_option,
    run_name,
)
from mcat.config import overlay, to_json
from mcat.errors import UsageError

if TYPE_CHECKING:
    from mcat.agents.adaptation.config import AdaptConfig
    from mcat.agents.adaptation.trainer import AdaptResult

SCHEDULE = (
    Setting("--steps", "steps", "N",
            "Real steps on the machine (default: 0, which touches none)."),
    SEED,
    Setting("--offline-updates", "offline_updates", "N",
            "Updates on the logs before the first real step (default: 10,000)."),
    Setting("--evaluate-every", "evaluate_every", "N",
            "Real steps from row to row of metrics.csv (default: 5,000)."),
    Setting("--episodes", "evaluation_episodes", "N",
            "Episodes in the simulator for each row (default: 10 with --env and --steps)."),
    THREADS,
)  # fmt: skip
EXPERIMENTS = (
    Setting("--anchor", "anchor", "better|logged|policy",
            "Stay near what was done, what the policy would do, or the better of both "
            "(default: better)."),
    Setting("--clone", "learner.greed", None,
            "Only imitate the anchor: needs no rewards.", value=0.0),
    Setting("--log-share", "log_share", "PART",
            "Part of a batch that comes from the logs once there are real steps (default: 0.5)."),
    Setting("--log-delay", "log_delay", "STEPS",
            "Rewards in the logs are paid every STEPS steps (default: as their task says)."),
    Setting("--credit", "credit", "none|ridge",
            "Which steps earned a delayed payment: its last, or what a linear model says."),
)  # fmt: skip
IN_NO_NAME = ("seed", "steps", "evaluate_every", "evaluation_episodes", "checkpoint_every",
              "threads", "live", "live_args", "delay")  # fmt: skip


@click.command(
    cls=Explained,
    examples=(
        "mcat adapt --logs b.h5 --translator a-to-b                  # logs alone, no machine",
        "mcat adapt --logs b.h5 --translator a-to-b --env halfcheetah --armature 0.5 --steps 10000",
        "mcat adapt --logs b.h5 --src a.h5 --policy a.onnx --live my_lab:Arm-v0 --steps 3000",
        "mcat adapt --logs b.h5 --env ant --cripple 3 --steps 30000     # without a source policy",
    ),
)
@group(
    "What is known",
    click.option("--logs", multiple=True, required=True, metavar="FILE",
                 help="Log of the changed machine, with rewards; may be repeated."),
    click.option("--policy", callback=policy_name, metavar="NAME|FILE|MODULE:FUNCTION",
                 help="The source policy (default with a translator: good; scripted on "
                 "Meta-World)."),
    translator_options,
    click.option("--src", "sources", multiple=True, metavar="FILE",
                 help="In place of --translator: log of the source machine, to learn one first; "
                 "may be repeated."),
)  # fmt: skip
@group(
    "The machine",
    click.option("--live", metavar="ID",
                 help="In place of --env, any gymnasium environment, such as the machine itself: "
                 "Id-v0 or module:Id-v0. It makes no step beyond --steps, and none twice."),
    click.option("--live-arg", "live_args", multiple=True, metavar="NAME=VALUE",
                 help="Keyword argument of it; may be repeated."),
    task_options,
)  # fmt: skip
@group(
    "Settings",
    click.option("--preset", default="default", hidden=True),
    *(setting.option() for setting in EXPERIMENTS),
    *layer_options("learner.greed=1.0"),
)
@group("Schedule", *(setting.option() for setting in SCHEDULE))
@group(
    "The run",
    out_option("FOLDER", "Where to write (default: runs/adapt-<machine>-seed<seed>, with what is "
               "not usual)."),
    click.option("--baselines", is_flag=True,
                 help="Also run what else could be done with the same logs and real steps, and "
                 "show it in the report: three times the work."),
    resume_option(bit_exact("--steps")),
    quiet_option,
    json_option,
)  # fmt: skip
@click.pass_context
def adapt(context: click.Context, /, **options: Any) -> None:
    """Learn a policy for a changed machine, from its logs, a source policy and a few real steps.

    In every logged state the policy is kept near the better of what was done there and what the
    source policy, translated, would do; then it acts, and learns from logs and real steps alike.
    The folder holds policy.safetensors, which acts without the translator, metrics.csv,
    report.html and checkpoints.
    """
    require_known_variables(context)
    config, name = _resolve(context)
    if options["print_config"]:
        _print_config(config, options)
        return
    if options["baselines"]:
        from mcat.transfer.baselines import require_comparable

        require_comparable(config)
    result = _run(config, options["out"] or Path("runs") / name, options)
    if options["as_json"]:
        click.echo(json.dumps(to_json(result)))
        return
    earned = "" if result.mean_return is None else f"return {result.mean_return:,.1f} "
    click.echo(f"{earned}after {result.step:,} real steps", err=True)
    click.echo(f"Report: {result.out / 'report.html'}", err=True)
    click.echo(result.policy)


def _resolve(context: click.Context) -> tuple[AdaptConfig, str]:
    """What file, environment and options make of the defaults, and what to call the run."""
    from mcat.agents.adaptation.config import AdaptConfig

    options = context.params
    machine, label = _machine(options)
    usual = AdaptConfig(**machine)
    _, changes = layers(context, (*SCHEDULE, *EXPERIMENTS), ("default",))
    config = overlay(usual, changes)
    return config, run_name(["adapt", label], EXPERIMENTS, usual, config, IN_NO_NAME)


def _machine(options: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """The settings that name the machine, and a word for it."""
    described = task_parameters(options)
    if options["env"] is not None:
        if options["live"] is not None:
            raise UsageError("there is one machine: give --env or --live")
        task = task_from(options["env"], described)
        return {"task": task}, task.label(*given_parameters(described))
    delay = described.pop("delay")
    given = [name for name, value in described.items() if value is not None]
    if given or (delay is not None and options["live"] is None):
        raise UsageError(f"--{(given or ['delay'])[0].replace('_', '-')} is of --env ROBOT")
    live, logs = options["live"], options["logs"]
    word = live.replace("/", "-").replace(":", "-") if live else Path(logs[0]).stem
    paid = {} if delay is None else {"delay": _whole(delay)}
    return {"live": live, "live_args": tuple(options["live_args"]), **paid}, word


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise UsageError(f"--delay takes a whole number of steps, not '{text}'") from None


def _print_config(config: AdaptConfig, options: dict[str, Any]) -> None:
    """As TOML without what no file sets; as JSON with all that tells runs apart."""
    values = to_json(config)
    if options["as_json"]:
        inputs = {key: options[key] for key in ("logs", "sources", "policy", "source")}
        values |= {"inputs": {**inputs, "translator": str(options["translator"])}}
    else:
        for key in ("task", "live", "live_args"):
            del values[key]
    print_config("default", values, as_json=options["as_json"])


def _run(config: AdaptConfig, out: Path, options: dict[str, Any]) -> AdaptResult:
    from mcat.agents.adaptation.run import adapt as run
    from mcat.agents.runs.claim import has_run
    from mcat.reports.adaptation.page import write_page
    from mcat.transfer.adaptation import fitted_translator, known_inputs
    from mcat.transfer.baselines import run_baselines

    has_run(out, resume=options["resume"])  # refuses before anything is loaded or learned
    quiet, translator = options["quiet"], options["translator"]
    if options["sources"]:
        if translator is not None:
            raise UsageError("--src is to learn a translator: leave it out, or --translator")
        translator = fitted_translator(
            options["sources"], options["logs"], out, seed=config.seed, threads=config.threads,
            quiet=quiet, notify=say,
        )  # fmt: skip
    inputs = known_inputs(
        config, options["logs"], options["policy"], translator, options["source"], notify=say
    )
    if config.task is None and config.live is None:
        config = replace(config, task=inputs.log_task)  # so that its policy says what it is for

    def finish(result: AdaptResult) -> None:
        if options["baselines"]:
            run_baselines(config, inputs, out, quiet=quiet, notify=say)
        write_page(result.out)

    return run(
        config, out, inputs.logs, inputs.policy, log_task=inputs.log_task, card=inputs.card,
        made_of=inputs.made_of, resume=options["resume"], quiet=quiet, notify=say, finish=finish,
    )  # fmt: skip
