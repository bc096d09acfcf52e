"""`mcat metatrain`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from mcat.commands.help import Explained, group, json_option
from mcat.commands.options import out_option, quiet_option, say
from mcat.commands.settings import (
    HERE,
    SEED,
    THREADS,
    Idle,
    Setting,
    bit_exact,
    changes_on_resume,
    layer_options,
    layers,
    preset_option,
    print_config,
    require_effect,
    require_known_variables,
    require_used,
    resume_option,
    run_name,
)
from mcat.config import flatten, overlay, read_toml, to_json
from mcat.envs.families import FAMILIES
from mcat.errors import UsageError

if TYPE_CHECKING:
    from mcat.agents.meta.loop import MetaTrainResult
    from mcat.agents.meta.run_config import RunConfig

PRESET_NOTES = {
    "fast": "a faster learner, credit for delayed rewards, shorter episodes; the default",
    "cpu": "Algorithm 1 sized for a laptop: one sampled future step per row, early stops",
    "paper": "the printed numbers, 2M steps; weeks on a CPU",
    "released": "as the authors' public code",
    "smoke": "seconds, to try things",
}
METHOD_NOTES = {
    "mcat": "contexts, and translated policies of other tasks (Algorithm 1)",
    "pearl": "a latent task, inferred from trial episodes (Rakelly et al. 2019)",
    "mql": "TD3 with a recurrent context, adapted to each task (Fakoor et al. 2020)",
    "distral": "a policy for each task, distilled into one (Teh et al. 2017)",
    "hipbmdp": "hidden parameters of each task in a table (Zhang et al. 2021)",
    "pcgrad": "gradients of tasks that disagree are projected (Yu et al. 2020)",
}


FAMILY = Setting(
    "--family",
    "family",
    "NAME|FILE|MODULE:FUNCTION",
    "What to learn: one of mcat envs list, or your own in FILE.toml (default: "
    "halfcheetah-armature).",
)
SCHEDULE = (
    Setting("--steps", "steps", "N", "Environment steps of all tasks together."),
    SEED,
    Setting("--evaluate-every", "evaluate_every", "N", "Iterations from evaluation to evaluation."),
    Setting("--episodes", "evaluation_episodes", "N", "Episodes per task of an evaluation."),
    THREADS,
)
# What makes it another experiment, and so belongs into the name of the run.
EXPERIMENTS = (
    Setting("--delay", "delay", "STEPS",
            "Pay rewards every STEPS steps (default: the family's own)."),
    Setting("--no-transfer", "mcat.transfer", None,
            "Never collect with another task's policy.", value=False),
    Setting("--no-sil", "mcat.imitate", None, "No self-imitation.", value=False),
    Setting("--sil-all", "mcat.imitation.positive_only", None,
            "Self-imitation keeps every episode, as Algorithm 1 prints, not only those that paid.",
            value=False),
    Setting("--no-contrastive", "mcat.context.contrastive_weight", None,
            "Learn contexts without L_cont.", value=0.0),
    Setting("--translator", "mcat.translator", "ours|cycle",
            "The translator: ours, or that of Zhang et al. 2020 (appendix D.6)."),
    Setting("--transfer-loss", "mcat.action.loss", "l1|nll",
            "L_trans: distance to F's mean, or likelihood under F."),
    Setting("--target-context", "mcat.target_context", "task_mean|online",
            "What H is told of the target: its feature, or the episode's own context."),
    Setting("--margin", "mcat.selection.margin", "X",
            "How much more a transferred policy must have earned to collect, as a fraction."),
    Setting("--learner", "mcat.learner", "crossq|td3",
            "CrossQ with batch-normalised critics, or TD3 as in the paper."),
    Setting("--credit", "mcat.credit.kind", "none|uniform|ridge|learned|auto",
            "Which steps earned a delayed payment: its last, all alike, or what a linear model "
            "or a network says; auto takes the linear one where it foretells payments."),
    Setting("--episode-lengths", "episode_lengths", "LOW[,HIGH]|none",
            "Collect episodes of random length; none means whole ones."),
    Setting("--novelty", "mcat.novelty", "X",
            "Reward for moving an object to a new place, where the robot moves one; 0 for none."),
    Setting("--no-mirror", "mirror", None,
            "Learn on no mirror images of crippled robots, as fast does.", value=False),
)  # fmt: skip
SIL = Setting(
    "--sil", "mcat.imitate", None, "Self-imitation, where the preset has none.", value=True
)
SETTINGS = (FAMILY, *SCHEDULE, *EXPERIMENTS, SIL)
# Keys that other methods have in their group.
EVERY_METHODS = ("mcat.imitate", "mcat.credit.kind", "mcat.novelty")
# Keys that the name of a run has already, or that change nothing but how far it goes.
IN_NO_NAME = ("family", "seed", "steps", "evaluate_every", "evaluation_episodes", "threads")
# What makes no sense together; the paper's ablations leave out whole parts.
IDLE = (
    Idle("mcat.imitate", False, ("mcat.imitation.",),
         "there is no self-imitation (--set mcat.imitate=true)"),
    Idle("mcat.transfer", False,
         ("mcat.translator", "mcat.action.", "mcat.target_context", "mcat.selection."),
         "without transfer nothing is translated"),
    Idle("mcat.translator", "cycle", ("mcat.action.loss",),
         "the translator of Zhang et al. has no L_trans"),
    Idle("mcat.context.contrastive_weight", 0.0, ("mcat.context.hinge", "mcat.context.margin"),
         "without L_cont there is no hinge"),
)  # fmt: skip


PRESET_HELP = "\b\nPresets:\n" + "\n".join(
    f"  {name:<9} {note}" for name, note in PRESET_NOTES.items()
)
METHOD_HELP = "\b\nMethods:\n" + "\n".join(
    f"  {name:<9} {note}" for name, note in METHOD_NOTES.items()
)
ORDER_HELP = (
    "Where they disagree the later wins: preset, --config, variables such as MCAT_METATRAIN_STEPS, "
    "options."
)


@click.command(
    cls=Explained,
    epilog=f"{PRESET_HELP}\n\n{METHOD_HELP}\n\n{ORDER_HELP}",
    examples=(
        "mcat metatrain                                          # the default family, on a laptop",
        "mcat metatrain --family ant-cripple --no-transfer       # an ablation",
        "mcat metatrain --family ant-cripple --method pearl      # a baseline",
        "mcat metatrain --preset cpu --print-config > my.toml    # then edit it, and:",
        "mcat metatrain --config my.toml --set mcat.td3.discount=0.98",
        "mcat metatrain --resume runs/halfcheetah-armature-fast-seed0",
    ),
)
@group(
    "What to learn",
    FAMILY.option(),
    click.option("--task-set", type=click.IntRange(1, 3), metavar="1|2|3",
                 help="Distance between the training tasks (D.3): 1 narrow, 2 the family, 3 wide; "
                 "for halfcheetah-armature and -mass."),
    click.option("--method", default="mcat", show_default=True, metavar="NAME",
                 help="By which method: mcat, or one that the paper compares with; see below."),
)  # fmt: skip
@group(
    "Settings",
    preset_option("see below", "fast"),
    *layer_options("mcat.exploration=0.2"),
)  # fmt: skip
@group("Schedule", *(setting.option() for setting in SCHEDULE))
@group("Experiments", *(setting.option() for setting in (*EXPERIMENTS, SIL)))
@group(
    "The run",
    out_option("FOLDER", "Where to write (default: runs/<family>-<preset>-seed<seed>; a "
               "method other than mcat comes after the family)."),
    resume_option(bit_exact("--steps"), folder=True),
    quiet_option,
    json_option,
)  # fmt: skip
@click.pass_context
def metatrain(context: click.Context, /, **options: Any) -> None:
    """Learn one policy for a whole family of tasks, and for unseen ones of its kind.

    Runs MCAT: experience of all training tasks trains one policy that senses which machine it
    acts on; where it is better on one task than on another, the better one's actions, translated,
    collect the next episode of the worse. The folder holds run.json, metrics.csv, checkpoints and
    policy.safetensors. Ctrl-C and SIGTERM stop it after the last whole iteration. --method learns
    the same tasks by another method, under the same loop and budget.
    """
    require_known_variables(context)
    resume = options["resume"]
    if resume not in (None, HERE):
        preset, config, out = _of_run(context, resume)
    else:
        preset, config = _resolve(context)
        out = options["out"] or Path("runs") / _run_name(preset, config)
    if options["print_config"]:
        named = {} if config.method == "mcat" else {"method": config.method}
        print_config(preset, {**named, **to_json(config)}, as_json=options["as_json"])
        return

    from mcat.agents.meta.run import metatrain as run

    result = run(
        config,
        out,
        resume=resume is not None,
        quiet=options["quiet"],
        notify=say,
        preset=preset,
    )
    _report(result, options["as_json"])


def _resolve(context: click.Context) -> tuple[str, RunConfig]:
    """A preset's name, and what file, environment and command line made of it."""
    from mcat.agents.meta.methods.registry import find_method

    options = context.params
    method = _method(context)
    found, settings = find_method(method), _settings_of(method)
    _require_own_options(context, method)
    preset, changes = layers(context, settings, found.presets)
    changes.pop("method", None)
    chosen = found.preset(preset, overlay(found.presets[preset], changes).robot)
    config = overlay(chosen, changes)
    if method in ("mcat", "mql"):  # those with a choice of learners
        require_used(getattr(config, method), getattr(chosen, method), f"{method}.")
    usual = flatten(to_json(chosen))
    if method == "mcat":
        require_effect(context, SETTINGS, IDLE, usual, flatten(to_json(config)))
    for item in settings:
        if item.metavar is None and options[item.name] is True and usual[item.key] == item.value:
            click.echo(f"note: preset {preset} is as {item.flag} makes it already", err=True)
    name = _task_set(config.family, options["task_set"])
    return preset, replace(config, family=name)


def _method(context: click.Context) -> str:
    """The method that option or variable name, else the file, else MCAT."""
    options = context.params
    given = context.get_parameter_source("method") != ParameterSource.DEFAULT
    if given or options["config"] is None:
        return str(options["method"])
    return str(read_toml(options["config"]).get("method", options["method"]))


def _settings_of(method: str) -> tuple[Setting, ...]:
    """The options of a method: MCAT's own are no others'."""
    if method == "mcat":
        return SETTINGS
    return tuple(
        replace(item, key=item.key.replace("mcat.", f"{method}.", 1))
        for item in SETTINGS
        if not item.key.startswith("mcat.") or item.key in EVERY_METHODS
    )


def _require_own_options(context: click.Context, method: str) -> None:
    """Refuse options that mean nothing to the method, or contradict each other."""
    own = {item.name for item in _settings_of(method)}
    for item in SETTINGS:
        given = context.get_parameter_source(item.name) != ParameterSource.DEFAULT
        if given and item.name not in own and context.params[item.name] not in (None, False):
            raise UsageError(f"{item.flag} is of MCAT: leave it out with --method {method}")
    if context.params["sil"] and context.params["no_sil"]:
        raise UsageError("--sil and --no-sil contradict each other: leave one out")


def _of_run(context: click.Context, folder: Path) -> tuple[str, RunConfig, Path]:
    """The preset and settings of a run that shall go on, and its folder."""
    from mcat.agents.meta.run_config import RESUME_MAY_CHANGE
    from mcat.agents.runs.record import read_record

    changes = changes_on_resume(context, SETTINGS, RESUME_MAY_CHANGE)
    record = read_record(folder)  # refuses what is not a run before torch is imported
    from mcat.agents.meta.run import read_config

    return record.preset, overlay(read_config(folder), changes), folder


def _task_set(name: str, number: int | None) -> str:
    """The family of Appendix D.3; set 2 is the main one."""
    if number is None:
        return name
    if f"{name}-set1" not in FAMILIES:
        able = [one.removesuffix("-set1") for one in FAMILIES if one.endswith("-set1")]
        raise UsageError(f"--task-set goes with --family {' or '.join(able)}, not {name}")
    return name if number == 2 else f"{name}-set{number}"


def _run_name(preset: str, config: RunConfig) -> str:
    """Family, method, preset, what makes it another experiment than the preset's, and seed."""
    from mcat.agents.meta.methods.registry import find_method

    method = config.method
    usual = find_method(method).preset(preset, config.robot)
    # The switch that a method's presets leave something to do for.
    unsaid = SIL.name if method == "mcat" else "no_sil"
    known = {item.name for item in (*EXPERIMENTS, SIL)} - {unsaid}
    settings = [item for item in _settings_of(method) if item.name in known]
    named = [] if method == "mcat" else [method]
    return run_name([config.tasks.name, *named, preset], settings, usual, config, IN_NO_NAME)


def _report(result: MetaTrainResult, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(to_json(result)))
        return
    unseen = "" if result.test_return is None else f", {result.test_return:,.1f} on unseen ones"
    click.echo(f"return {result.train_return:,.1f} on the training tasks{unseen}", err=True)
    if result.train_success is not None:
        from mcat.reports.sections import share

        unseen = "" if result.test_success is None else f", {share(result.test_success)} on unseen"
        click.echo(f"{share(result.train_success)} of the episodes succeeded{unseen}", err=True)
    click.echo(result.out)
