"""Options that are short for settings of a run, and how preset, file, variables and options add up.

Commands share it, so that `--preset`, `--config`, `--set`, `--print-config` and `--resume` mean the
same in all of them.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import click
from click.core import ParameterSource

from mcat.commands.help import Option
from mcat.config import flatten, read_toml, to_json, to_toml
from mcat.errors import UsageError, unknown

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

HERE = Path()  # --resume without a folder: the one that this command would make
_HARMLESS = ("quiet", "as_json")  # options that change nothing of a run


@dataclass(frozen=True)
class Setting:
    """An option that is short for a key of the configuration."""

    flag: str  # the option
    key: str  # the dotted key that it sets
    metavar: str | None  # what it takes; None for a switch
    help: str  # what it does
    value: Any = None  # what a switch sets the key to
    more: Mapping[str, Any] = field(default_factory=dict)  # what click shall know of the option

    @property
    def name(self) -> str:
        """What click calls it, and the end of the variable that sets it."""
        return self.flag.removeprefix("--").replace("-", "_")

    def option(self) -> Option:
        """The option; what is not given stays as the preset has it."""
        if self.metavar is None:
            return click.option(self.flag, self.name, is_flag=True, help=self.help)
        return click.option(self.flag, self.name, metavar=self.metavar, help=self.help, **self.more)

    def label(self, value: Any) -> str:
        """How a value that is not the preset's shows in the name of the run."""
        if self.metavar is None and value != self.value:
            return f"{self.key.rpartition('.')[2]}-{value}"
        name = self.flag.removeprefix("--")
        return name if self.metavar is None else f"{name}-{value}"


SEED = Setting("--seed", "seed", "N", "Every random draw follows from it (default: 0).")
THREADS = Setting(
    "--threads", "threads", "N", "Threads of torch (default: 1); they touch the last bits."
)


def preset_option(notes: str, default: str | None = None) -> Option:
    """`--preset`, and what there is."""
    told = f"Complete settings under one name: {notes}."
    shown = default is not None
    return click.option("--preset", default=default, show_default=shown, metavar="NAME", help=told)


def layer_options(example: str, print_name: str = "print_config") -> tuple[Option, ...]:
    """`--config`, `--set` and `--print-config`, with `example` for the help.

    `mcat sweep` knows a run by what its command prints, if that has a `print_config`, else by its
    options.
    """
    return (
        click.option("--config", type=click.Path(path_type=Path), metavar="FILE.toml",
                     help="Settings that differ from the usual ones; --print-config shows all."),
        click.option("--set", multiple=True, metavar="KEY=VALUE",
                     help=f"Any setting, such as {example}; may be repeated."),
        click.option("--print-config", print_name, is_flag=True,
                     help="Print the settings as TOML (with --json as JSON) and stop."),
    )  # fmt: skip


def resume_option(kept: str, *, folder: bool = False) -> Option:
    """`--resume`, alone or also with the `folder` of a run; `kept` says what it finds."""
    one = "the one in FOLDER, or " if folder else ""
    told = (
        f"Find it done, or go on where it was stopped: {one}what the same command without --resume"
        f" began; if there is none, start it. {kept}"
    )
    if not folder:
        return click.option("--resume", is_flag=True, help=told)
    return click.option("--resume", is_flag=False, flag_value=HERE, metavar="[FOLDER]",
                        type=click.Path(path_type=Path), help=told)  # fmt: skip


def bit_exact(may_change: str) -> str:
    """What `--resume` says of runs that keep checkpoints."""
    return f"Exact to the bit. Of the settings only {may_change} may change."


class Given(NamedTuple):
    """A setting somebody gave, and the option they gave it with."""

    option: str
    key: str
    value: Any


def require_known_variables(context: click.Context) -> None:
    """Refuse a variable that looks like one of ours but sets nothing."""
    prefix = f"{context.auto_envvar_prefix}_"
    known = [f"{prefix}{(option.name or '').upper()}" for option in context.command.params]
    for name in os.environ:
        if name.startswith(prefix) and name not in known:
            raise unknown("variable", name, known)


def layers(
    context: click.Context, settings: Iterable[Setting], presets: Collection[str]
) -> tuple[str, dict[str, Any]]:
    """A preset's name, and what file, environment and command line change in it, in this order."""
    options = context.params
    changes = {} if options["config"] is None else flatten(read_toml(options["config"]))
    preset = str(changes.pop("preset", options["preset"]))
    if context.get_parameter_source("preset") != ParameterSource.DEFAULT:
        preset = options["preset"]
    if preset not in presets:
        raise unknown("preset", preset, presets)
    settings = tuple(settings)
    for source in (ParameterSource.ENVIRONMENT, ParameterSource.COMMANDLINE):
        changes |= {item.key: item.value for item in given(context, settings, source)}
    return preset, changes


class _Learning(Protocol):
    """Settings that choose one of some learners and have numbers for each."""

    @property
    def learner(self) -> str: ...


def require_used(chosen: _Learning, preset: _Learning, prefix: str = "") -> None:
    """Refuse settings of the learner that is not chosen."""
    for idle in ("crossq", "sac", "td3"):
        if idle == chosen.learner or getattr(chosen, idle, None) == getattr(preset, idle, None):
            continue
        raise UsageError(
            f"settings of {prefix}{idle} change nothing with the learner {chosen.learner}:"
            f" set those of {prefix}{chosen.learner}, or add --learner {idle}"
        )


class Idle(NamedTuple):
    """Settings that change nothing while another one has a certain value."""

    key: str  # that other one
    value: Any  # what it is then
    keys: tuple[str, ...]  # how the dotted names of those begin
    why: str  # what is not there, in words


def require_effect(
    context: click.Context,
    settings: Iterable[Setting],
    rules: Iterable[Idle],
    usual: Mapping[str, Any],
    ours: Mapping[str, Any],
) -> None:
    """Refuse options that change settings which change nothing; a file may be a complete one."""
    settings = tuple(settings)
    sources = (ParameterSource.ENVIRONMENT, ParameterSource.COMMANDLINE)
    asked = [item for source in sources for item in given(context, settings, source)]
    for rule in rules:
        for item in asked if ours[rule.key] == rule.value else ():
            if item.key.startswith(rule.keys) and ours[item.key] != usual.get(item.key):
                raise UsageError(f"{item.option} changes nothing: {rule.why}")


def given(
    context: click.Context, settings: Iterable[Setting], source: ParameterSource
) -> list[Given]:
    """The settings that come from there."""
    found = []
    for item in settings:
        value = context.params[item.name]
        if context.get_parameter_source(item.name) == source and value is not False:
            found.append(Given(item.flag, item.key, value if item.metavar else item.value))
    for pair in _pairs(context, source):
        key, equals, value = pair.partition("=")
        if not equals:
            raise UsageError(f"--set takes KEY=VALUE such as seed=3, not '{pair}'")
        found.append(Given(f"--set {key.strip()}", key.strip(), value.strip()))
    return found


def _pairs(context: click.Context, source: ParameterSource) -> Sequence[str]:
    """What `--set` or its variable gives."""
    if source == ParameterSource.ENVIRONMENT:
        # click hides the variable when the option is there, but it may set other keys.
        option = next(item for item in context.command.params if item.name == "set")
        return option.value_from_envvar(context) or ()
    pairs: Sequence[str] = context.params["set"]
    return pairs if context.get_parameter_source("set") == source else ()


def changes_on_resume(
    context: click.Context,
    settings: Iterable[Setting],
    may_change: Collection[str],
) -> dict[str, Any]:
    """What the command line changes in the settings of the run in `--resume FOLDER`.

    What the environment says of other settings was heard when the run began.

    Raises:
        UsageError: naming the options that may not.
    """
    settings = tuple(settings)
    command_line = given(context, settings, ParameterSource.COMMANDLINE)
    refused = [item.option for item in command_line if item.key not in may_change]
    own = {item.name for item in settings} | {"resume", "set", *_HARMLESS}
    for option in context.command.params:
        name = option.name or ""
        source = context.get_parameter_source(name)
        if name not in own and source == ParameterSource.COMMANDLINE:
            refused.append(option.opts[0])
    if refused:
        able = ", ".join(item.flag for item in settings if item.key in may_change)
        raise UsageError(
            f"--resume goes on with the settings of that run: leave out {', '.join(refused)} "
            f"(what may change: {able})"
        )
    all_given = [*given(context, settings, ParameterSource.ENVIRONMENT), *command_line]
    return {item.key: item.value for item in all_given if item.key in may_change}


def run_name(
    words: Sequence[str],
    settings: Iterable[Setting],
    preset: DataclassInstance,
    config: DataclassInstance,
    ignored: Collection[str],
) -> str:
    """The name of a run's folder: these words, what tells it from that of the preset, its seed.

    What tells it from that is a word for each such option, and a hash if settings without one
    differ too.
    """
    settings = tuple(settings)
    usual, ours = flatten(to_json(preset)), flatten(to_json(config))
    parts = [item.label(ours[item.key]) for item in settings if ours[item.key] != usual[item.key]]
    known = {item.key for item in settings} | set(ignored)
    others = {key: ours[key] for key in ours if key not in known and ours[key] != usual.get(key)}
    if others:
        text = json.dumps(others, sort_keys=True, default=str)
        parts.append(hashlib.sha256(text.encode()).hexdigest()[:8])
    return "-".join([*words, *parts, f"seed{ours['seed']}"])


def print_config(preset: str, values: Mapping[str, Any], *, as_json: bool) -> None:
    """Print settings as `--config` takes them back, or as JSON."""
    whole = {"preset": preset, **values}
    click.echo(json.dumps(whole, indent=2) if as_json else to_toml(whole), nl=as_json)
