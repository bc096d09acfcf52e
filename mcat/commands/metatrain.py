"""`mcat metatrain`."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from click.core import ParameterSource

from mcat.config import flatten, overlay, read_toml, to_json, to_toml
from mcat.envs.families import FAMILIES
from mcat.errors import UsageError, unknown

if TYPE_CHECKING:
    from mcat.agents.meta.config import MCATConfig, MetaTrainConfig
    from mcat.agents.meta.loop import MetaTrainResult

Command = Callable[..., Any]

PRESET_NOTES = {
    "fast": "a faster learner, credit for delayed rewards, shorter episodes; the default",
    "cpu": "Algorithm 1 sized for a laptop: one sampled future step per row, early stops",
    "paper": "the printed numbers, 2M steps; weeks on a CPU",
    "released": "as the authors' public code",
    "smoke": "seconds, to try things",
}


@dataclass(frozen=True)
class Setting:
    """An option that is short for a key of the configuration.

    Attributes:
        metavar: What it takes; None for a switch.
        value: What a switch sets the key to.
    """

    flag: str
    key: str
    metavar: str | None
    help: str
    value: Any = None

    @property
    def name(self) -> str:
        """As click knows it, and at the end of its MCAT_METATRAIN_ variable."""
        return self.flag.removeprefix("--").replace("-", "_")

    def option(self) -> Callable[[Command], Command]:
        """Without a default: what is not given stays as the preset has it."""
        if self.metavar is None:
            return click.option(self.flag, self.name, is_flag=True, help=self.help)
        return click.option(self.flag, self.name, metavar=self.metavar, help=self.help)

    def label(self, value: Any) -> str:
        """How a value that is not the preset's shows in the name of the run."""
        if self.metavar is None and value != self.value:
            return f"{self.key.rpartition('.')[2]}-{value}"
        name = self.flag.removeprefix("--")
        return name if self.metavar is None else f"{name}-{value}"


FAMILY = Setting(
    "--family",
    "family",
    "NAME",
    "What to learn (default: halfcheetah-armature); see mcat envs list.",
)
SCHEDULE = (
    Setting("--steps", "steps", "N", "Environment steps of all tasks together."),
    Setting("--seed", "seed", "N", "Every random draw follows from it (default: 0)."),
    Setting("--evaluate-every", "evaluate_every", "N", "Iterations from evaluation to evaluation."),
    Setting("--episodes", "evaluation_episodes", "N", "Episodes per task of an evaluation."),
    Setting(
        "--threads", "threads", "N", "Threads of torch (default: 1); they touch the last bits."
    ),
)
# What makes it another experiment, and so belongs into the name of the run.
EXPERIMENTS = (
    Setting("--delay", "delay", "STEPS",
            "Pay rewards every STEPS steps (default: the family's own)."),
    Setting("--no-transfer", "mcat.transfer", None,
            "Never collect with another task's policy.", value=False),
    Setting("--no-sil", "mcat.imitate", None, "No self-imitation.", value=False),
    Setting("--no-contrastive", "mcat.context.contrastive_weight", None,
            "Learn contexts without L_cont.", value=0.0),
    Setting("--method", "mcat.translator", "ours|cycle",
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
    Setting("--motor-failures", "motor_failures", "SHARE",
            "Collect this share of the episodes with one motor, drawn at random, that does not "
            "obey (default of fast: 0.5 where legs are crippled, else 0)."),
)  # fmt: skip
SETTINGS = (FAMILY, *SCHEDULE, *EXPERIMENTS)
NOT_ON_RESUME = ("task_set", "preset", "config", "out", "print_config")  # besides settings


def _options(settings: Iterable[Setting]) -> Callable[[Command], Command]:
    def decorate(command: Command) -> Command:
        for setting in reversed(tuple(settings)):
            command = setting.option()(command)
        return command

    return decorate


PRESET_HELP = "\b\nPresets:\n" + "\n".join(
    f"  {name:<9} {note}" for name, note in PRESET_NOTES.items()
)
ORDER_HELP = (
    "Where they disagree the later wins: preset, --config, variables such as MCAT_METATRAIN_STEPS, "
    "options."
)


@click.command(epilog=f"{PRESET_HELP}\n\n{ORDER_HELP}")
@_options([FAMILY])
@click.option("--task-set", type=click.IntRange(1, 3), metavar="1|2|3",
              help="Distance between the training tasks (D.3): 1 narrow, 2 the family, 3 wide; "
              "for halfcheetah-armature and -mass.")  # fmt: skip
@click.option("--preset", default="fast", show_default=True, metavar="NAME",
              help="Complete settings under one name; see below.")  # fmt: skip
@click.option("--config", type=click.Path(path_type=Path), metavar="FILE.toml",
              help="Settings that differ from the preset's; --print-config shows all.")  # fmt: skip
@click.option("--set", multiple=True, metavar="KEY=VALUE",
              help="Any setting, such as mcat.exploration=0.2; may be repeated.")  # fmt: skip
@_options((*SCHEDULE, *EXPERIMENTS))
@click.option("--out", type=click.Path(path_type=Path), metavar="FOLDER",
              help="Where to write (default: runs/<family>-<preset>-seed<seed>).")  # fmt: skip
@click.option("--resume", type=click.Path(path_type=Path), metavar="FOLDER",
              help="Go on with that run, exact to the bit; of its settings only --steps may "
              "change.")  # fmt: skip
@click.option("--print-config", is_flag=True,
              help="Print the settings as TOML (with --json as JSON) and stop.")  # fmt: skip
@click.option("--quiet", is_flag=True, help="Show no progress.")
@click.option("--json", "as_json", is_flag=True, help="Print the outcome as JSON.")
@click.pass_context
def metatrain(context: click.Context, /, **options: Any) -> None:
    """Learn one policy for a whole family of tasks, and for unseen ones of its kind.

    Runs MCAT: experience of all training tasks trains one policy that senses which machine it
    acts on; where it is better on one task than on another, the better one's actions, translated,
    collect the next episode of the worse. The folder holds run.json, metrics.csv, checkpoints and
    policy.safetensors. Ctrl-C and SIGTERM stop it after the last whole iteration.

    \b
    mcat metatrain                                          # the default family, on a laptop
    mcat metatrain --family halfcheetah-armature --preset paper --seed 3
    mcat metatrain --family ant-cripple --no-transfer       # an ablation
    mcat metatrain --preset cpu --print-config > my.toml    # then edit it, and:
    mcat metatrain --config my.toml --set mcat.td3.discount=0.98
    mcat metatrain --resume runs/halfcheetah-armature-fast-seed0
    """  # noqa: D301
    _require_known_variables(context)
    if options["resume"] is not None:
        _report(_go_on(context), options["as_json"])
        return
    preset, config = _resolve(context)
    if options["print_config"]:
        _print_config(preset, config, options["as_json"])
        return

    from mcat.agents.meta.run import metatrain as run

    folder = options["out"] or Path("runs") / _run_name(preset, config)
    result = run(config, folder, preset=preset, quiet=options["quiet"])
    _report(result, options["as_json"])


def _require_known_variables(context: click.Context) -> None:
    """Refuse a variable that looks like one of ours but sets nothing."""
    prefix = f"{context.auto_envvar_prefix}_"
    known = [f"{prefix}{(option.name or '').upper()}" for option in context.command.params]
    for name in os.environ:
        if name.startswith(prefix) and name not in known:
            raise unknown("variable", name, known)


class Given(NamedTuple):
    """A setting somebody gave, and the option they gave it with."""

    option: str
    key: str
    value: Any


def _resolve(context: click.Context) -> tuple[str, MetaTrainConfig]:
    """A preset's name, and what file, environment and command line made of it, in this order."""
    from mcat.agents.meta.config import PRESETS

    options = context.params
    changes = {} if options["config"] is None else flatten(read_toml(options["config"]))
    preset = str(changes.pop("preset", options["preset"]))
    if context.get_parameter_source("preset") != ParameterSource.DEFAULT:
        preset = options["preset"]
    if preset not in PRESETS:
        raise unknown("preset", preset, PRESETS)
    for source in (ParameterSource.ENVIRONMENT, ParameterSource.COMMANDLINE):
        changes |= {given.key: given.value for given in _given(context, source)}
    config = overlay(PRESETS[preset], changes)
    _require_used(config.mcat, PRESETS[preset].mcat)
    usual = flatten(to_json(PRESETS[preset]))
    for item in EXPERIMENTS:
        if options[item.name] is True and usual[item.key] == item.value:
            click.echo(f"note: preset {preset} is as {item.flag} makes it already", err=True)
    name = _task_set(config.family, options["task_set"])
    return preset, replace(config, family=name)


def _require_used(chosen: MCATConfig, preset: MCATConfig) -> None:
    """Refuse settings of the learner that is not chosen."""
    idle = "td3" if chosen.learner == "crossq" else "crossq"
    if getattr(chosen, idle) != getattr(preset, idle):
        raise UsageError(
            f"settings of mcat.{idle} change nothing with the learner {chosen.learner}:"
            f" set those of mcat.{chosen.learner}, or add --learner {idle}"
        )


def _given(context: click.Context, source: ParameterSource) -> list[Given]:
    """The settings that come from there."""
    found = []
    for item in SETTINGS:
        value = context.params[item.name]
        if context.get_parameter_source(item.name) == source and value is not False:
            found.append(Given(item.flag, item.key, value if item.metavar else item.value))
    for pair in _pairs(context, source):
        key, equals, value = pair.partition("=")
        if not equals:
            raise UsageError(f"--set takes KEY=VALUE such as mcat.td3.discount=0.98, not '{pair}'")
        found.append(Given(f"--set {key.strip()}", key.strip(), value.strip()))
    return found


def _pairs(context: click.Context, source: ParameterSource) -> Sequence[str]:
    """What `--set` or its variable gives."""
    if source == ParameterSource.ENVIRONMENT:
        # click hides the variable when the option is there, but it may set other keys.
        option = next(item for item in context.command.params if item.name == "set")
        return option.value_from_envvar(context) or ()
    given: Sequence[str] = context.params["set"]
    return given if context.get_parameter_source("set") == source else ()


def _task_set(name: str, number: int | None) -> str:
    """The family of Appendix D.3; set 2 is the main one."""
    if number is None:
        return name
    if f"{name}-set1" not in FAMILIES:
        able = [one.removesuffix("-set1") for one in FAMILIES if one.endswith("-set1")]
        raise UsageError(f"--task-set goes with --family {' or '.join(able)}, not {name}")
    return name if number == 2 else f"{name}-set{number}"


def _go_on(context: click.Context) -> MetaTrainResult:
    """Resume; what the environment says of other settings was heard when the run began."""
    from mcat.agents.meta.config import RESUME_MAY_CHANGE
    from mcat.agents.runs.record import read_record

    command_line = _given(context, ParameterSource.COMMANDLINE)
    refused = [given.option for given in command_line if given.key not in RESUME_MAY_CHANGE]
    for option in context.command.params:
        name = option.name or ""
        source = context.get_parameter_source(name)
        if name in NOT_ON_RESUME and source == ParameterSource.COMMANDLINE:
            refused.append(option.opts[0])
    if refused:
        able = ", ".join(f"--{key}" for key in sorted(RESUME_MAY_CHANGE))
        raise UsageError(
            f"--resume goes on with the settings of that run: leave out {', '.join(refused)} "
            f"(what may change: {able})"
        )
    read_record(context.params["resume"])  # refuses what is not a run before torch is imported
    from mcat.agents.meta.run import resume_run

    given = [*_given(context, ParameterSource.ENVIRONMENT), *command_line]
    changes = {item.key: item.value for item in given if item.key in RESUME_MAY_CHANGE}
    return resume_run(
        context.params["resume"],
        changes,
        quiet=context.params["quiet"],
        announce=lambda text: click.echo(text, err=True),
    )


def _run_name(preset: str, config: MetaTrainConfig) -> str:
    """Family, preset, what makes it another experiment than the preset's, and seed."""
    from mcat.agents.meta.config import PRESETS

    usual, ours = flatten(to_json(PRESETS[preset])), flatten(to_json(config))
    other = [item for item in EXPERIMENTS if ours[item.key] != usual[item.key]]
    labels = (item.label(ours[item.key]) for item in other)
    return "-".join([config.family, preset, *labels, f"seed{config.seed}"])


def _print_config(preset: str, config: MetaTrainConfig, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"preset": preset, **to_json(config)}, indent=2))
    else:
        click.echo(f'preset = "{preset}"\n{to_toml(config)}', nl=False)


def _report(result: MetaTrainResult, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(to_json(result)))
        return
    unseen = "" if result.test_return is None else f", {result.test_return:,.1f} on unseen ones"
    click.echo(f"return {result.train_return:,.1f} on the training tasks{unseen}", err=True)
    click.echo(result.out)
