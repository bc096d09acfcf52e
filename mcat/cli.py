"""The `mcat` command. Nothing heavy is imported before a command needs it."""

from __future__ import annotations

import contextlib
import os
import sys
from difflib import get_close_matches
from importlib import import_module
from typing import Any

import click

from mcat import __version__
from mcat.errors import McatError, printable

# `mcat`, `mcat envs`: the help is the answer. Older versions of click print it by themselves.
NO_COMMAND: Any = getattr(click.exceptions, "NoArgsIsHelpError", ())

# Each is in the module of its name unless another is named below, imported once it is asked for.
COMMANDS = ("adapt", "calibrate", "collect", "dataset", "doctor", "envs", "evaluate", "export",
            "metatrain", "plot", "policies", "render", "reproduce", "sweep", "train",
            "translate")  # fmt: skip
HOMES = {"collect": "data", "render": "envs"}


class CommandGroup(click.Group):
    """All commands by name; to import them all would take longer than a quick one takes."""

    def list_commands(self, context: click.Context | None) -> list[str]:
        """Their names."""
        return sorted({*COMMANDS, *self.commands})

    def get_command(self, context: click.Context | None, name: str) -> click.Command | None:
        """The one of that name, if there is one."""
        if name in COMMANDS and name not in self.commands:
            module = import_module(f"mcat.commands.{HOMES.get(name, name)}")
            self.add_command(getattr(module, name))
        return self.commands.get(name)

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does; of a name that is none, also which may be meant."""
        try:
            return super().resolve_command(context, args)
        except click.UsageError as error:
            meant = get_close_matches(args[0], self.list_commands(context), n=1)
            if not meant:
                raise
            told = f"No such command '{args[0]}': did you mean {meant[0]}?"
            raise click.UsageError(told, context) from error


@click.group(
    cls=CommandGroup,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "auto_envvar_prefix": "MCAT",
        "max_content_width": 100,
    },
    epilog="Start with: mcat envs list",
)
@click.version_option(__version__, prog_name="mcat")
@click.option("--debug", is_flag=True, help="Show the traceback of an error; so does MCAT_DEBUG=1.")
def cli(debug: bool) -> None:
    """Robots whose bodies change: task families, data sets, policies that follow."""


def main(args: list[str] | None = None) -> None:
    """Run the command line; errors a user can mend become one line and an exit code."""
    # Of torch, unless --threads asks for more: a policy's batches are small, and on a busy machine
    # threads that wait for one another take ten times as long as one.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(run(args))


def run(args: list[str] | None = None) -> int:
    """Run one command and return its exit code."""
    try:
        result: Any = cli.main(args, prog_name="mcat", standalone_mode=False)
        if sys.stdout is not None:
            sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except (BrokenPipeError, SystemExit):  # `mcat envs list | head`; click turns one into the other
        _forget_output()
        return 0
    except click.Abort:
        return _end("stopped", 130)
    except click.ClickException as error:
        return _usage(error)
    except Exception as error:
        if _debugging(args):
            raise
        return _explain(error)


def _explain(error: Exception) -> int:
    """Say in one line what went wrong, and return its exit code."""
    if isinstance(error, McatError):
        return _end(f"error: {error}", error.exit_code)
    if isinstance(error, ModuleNotFoundError) and not str(error.name).startswith("mcat"):
        name = str(error.name).partition(".")[0]
        return _end(f"error: this needs {name}, which is not installed: see mcat doctor", 66)
    if isinstance(error, MemoryError) or "can't allocate memory" in str(error):  # torch's words
        return _end("error: out of memory: ask for less at once, or close other programs", 71)
    if isinstance(error, OSError):
        if error.filename is None:  # files are opened with care: standard output, on a full disk
            _forget_output()
        where = error.filename or "standard output"
        return _end(f"error: cannot read or write {where}: {error.strerror or error}", 74)
    return _end(
        f"internal error: {type(error).__name__}: {error}: a mistake in mcat, please report it with"
        " what --debug prints",
        70,
    )


def _usage(error: click.ClickException) -> int:
    """Say in one line what click found wrong with a call, and return the exit code."""
    context = getattr(error, "ctx", None)
    if isinstance(error, NO_COMMAND) and context is not None:
        return _end(context.get_help(), error.exit_code, one_line=False)
    command = context.command_path if context is not None else "mcat"
    return _end(f"error: {error.format_message().rstrip('.')} ({command} --help)", error.exit_code)


def _end(message: str, code: int, *, one_line: bool = True) -> int:
    """Tell the user, if anyone listens."""
    with contextlib.suppress(OSError):
        click.echo(printable(" ".join(message.split()), 2000) if one_line else message, err=True)
    return code


def _debugging(args: list[str] | None) -> bool:
    given = sys.argv[1:] if args is None else args
    variable = os.environ.get("MCAT_DEBUG", "").lower()
    return "--debug" in given or variable in ("1", "true", "t", "yes", "y", "on")  # as click reads


def _forget_output() -> None:
    """Let what could not be written go nowhere, or the interpreter complains at its end."""
    with contextlib.suppress(OSError, AttributeError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
