"""How a plan's settings become command lines, and what the commands make of these."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from mcat.commands import adapt, data, evaluate, metatrain, train, translate
from mcat.commands.options import ONLY_CHECK
from mcat.config import defaults_of
from mcat.errors import MissingInputError, UsageError, unknown
from mcat.sweeps.runs import NOT_YET_MADE

_COMMANDS: Mapping[str, click.Command] = {
    "metatrain": metatrain.metatrain,
    "train": train.train,
    "adapt": adapt.adapt,
    "translate": translate.translate,
    "collect": data.collect,
    "evaluate": evaluate.evaluate,
}
# What the sweep itself gives to every run, or what would make no sense there.
_OURS = ("out", "resume", "overwrite", "quiet", "json", "print-config", "threads", "workers", "set",
         "video")  # fmt: skip
_LOGS = ("logs", "sources", "targets", "tasks")  # parameters that name logs
# Options that change nothing of what a run makes.
_NO_CONFIG = ("out", "resume", "overwrite", "quiet", "as_json", "threads", "workers")


class Commands:
    """The commands of mcat, as `mcat.sweeps.runs.Interpreter` asks for them."""

    def arguments(self, command: str, settings: Mapping[str, Any]) -> list[str]:
        """Settings as the command line has them: an option of that name, or else `--set`.

        Raises:
            UsageError: for a setting that a plan cannot make, or that the command does not know.
        """
        if command not in _COMMANDS:
            raise unknown("command of a plan", command, _COMMANDS)
        options = {
            name.removeprefix("--"): option
            for option in _COMMANDS[command].params
            if isinstance(option, click.Option)
            for name in option.opts
        }
        found: list[str] = []
        for key, value in settings.items():
            name = key.replace("_", "-")
            if name in _OURS:
                hint = (
                    "resources.cpus sets it" if name in ("threads", "workers") else "leave it out"
                )
                raise UsageError(f"{key} is the sweep's own: {hint}")
            if name in options:
                found += _option(options[name], f"--{name}", value)
            elif key == "run":  # the argument of mcat evaluate
                found.append(_text(value))
            elif "set" in options:
                found += ["--set", f"{key}={_text(value)}"]
            else:
                raise unknown(f"option of mcat {command}", key, set(options) - set(_OURS))
        return found

    def config(self, command: str, arguments: Sequence[str]) -> dict[str, Any]:
        """What the command would do, as JSON, found out by the command itself.

        Raises:
            UsageError: if it would refuse.
        """
        entry = _COMMANDS[command]
        prints = any(option.name == "print_config" for option in entry.params)
        line = [*arguments, *(("--print-config", "--json") if prints else ())]
        said = io.StringIO()
        try:
            prefix = f"MCAT_{command.upper()}"
            with (
                entry.make_context(command, line, auto_envvar_prefix=prefix) as context,
                contextlib.redirect_stdout(said),
                contextlib.redirect_stderr(io.StringIO()),
            ):
                params = dict(context.params)
                context.meta[ONLY_CHECK] = True
                entry.invoke(context)
                _require_logs(params)
        except click.ClickException as error:
            raise UsageError(error.format_message().rstrip(".")) from None
        except MissingInputError as error:
            if NOT_YET_MADE not in str(error):
                raise
        if prints:
            config: dict[str, Any] = json.loads(said.getvalue())
            return config
        return {
            name: _plain(value)
            for name, value in params.items()
            if name not in _NO_CONFIG and value not in (None, False, ())
        }

    def defaults(self, command: str, config: Mapping[str, Any]) -> dict[str, Any]:
        """What settings of `config` are if nobody says otherwise, under dotted keys."""
        if command == "metatrain":
            from mcat.agents.meta.methods.registry import find_method

            return defaults_of(find_method(str(config.get("method", "mcat"))).config)
        if command == "train":
            from mcat.agents.single.config import TrainConfig

            return defaults_of(TrainConfig)
        if command == "adapt":
            from mcat.agents.adaptation.config import AdaptConfig

            return defaults_of(AdaptConfig)
        options = _COMMANDS[command].params
        return {str(option.name): _plain(option.default) for option in options}


def _option(option: click.Option, flag: str, value: Any) -> list[str]:
    """One option with its value or values."""
    if option.is_flag:
        if not isinstance(value, bool):
            raise UsageError(f"{flag} takes true or false, not {value!r}")
        off = option.secondary_opts[:1]
        return [flag] if value else list(off)
    if option.multiple and isinstance(value, list | tuple):
        return [part for item in value for part in (flag, _text(item))]
    return [flag, _text(value)]


def _text(value: Any) -> str:
    """A value as an option takes it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ",".join(map(_text, value))
    return "none" if value is None else str(value)


def _require_logs(params: Mapping[str, Any]) -> None:
    """Refuse logs that are neither there nor ids of Minari, which end in a version's number."""
    for name in itertools.chain.from_iterable(params.get(key, ()) for key in _LOGS):
        if not Path(name).exists() and not re.search(r"-v\d+$", name):
            raise MissingInputError(f"{name} is not there: name a file, a Minari folder or id")


def _plain(value: Any) -> Any:
    """A value as JSON."""
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if isinstance(value, bool | int | float | str) else str(value)
