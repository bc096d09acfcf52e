"""Help that teaches: options under headings, examples at the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click

Command = Callable[..., Any]
Option = Callable[[Command], Command]


class Explained(click.Command):
    """A command whose `--help` groups its options and ends with examples."""

    def __init__(self, *args: Any, examples: Sequence[str] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        parts = [self.epilog] if self.epilog else []
        if examples:  # \b keeps click from wrapping the lines
            parts.append("\b\nExamples:\n" + "\n".join(f"  {example}" for example in examples))
        self.epilog = "\n\n".join(parts)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, those of `group` under its title."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None and isinstance(param, click.Option):  # the usage has arguments
                groups.setdefault(getattr(param, "help_group", "Options"), []).append(record)
        for title, records in groups.items():
            with formatter.section(title):
                formatter.write_dl(records)


def together(*options: Option) -> Option:
    """Add options that several commands have, in that order."""

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def group(title: str, *options: Option) -> Option:
    """Add options that stand under one heading of the help, in that order."""

    def decorate(command: Command) -> Command:
        before = len(getattr(command, "__click_params__", ()))
        command = together(*options)(command)
        for param in getattr(command, "__click_params__", ())[before:]:  # where click keeps them
            param.help_group = title
        return command

    return decorate


json_option = click.option("--json", "as_json", is_flag=True, help="Print the outcome as JSON.")
