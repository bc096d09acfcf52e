"""The `mcat` command. Nothing heavy is imported before a command needs it."""

from __future__ import annotations

import os
import sys
from typing import Any

import click

from mcat import __version__
from mcat.commands import data, envs, evaluate, metatrain, plot, reproduce, train, translate
from mcat.errors import McatError, printable


@click.group(
    context_settings={
        "help_option_names": ["-h", "--help"],
        "auto_envvar_prefix": "MCAT",
        "max_content_width": 100,
    },
    epilog="Start with: mcat envs list",
)
@click.version_option(__version__, prog_name="mcat")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def cli(debug: bool) -> None:
    """Robots whose bodies change: task families, data sets, policies that follow."""


cli.add_command(envs.envs)
cli.add_command(envs.render)
cli.add_command(data.collect)
cli.add_command(data.dataset)
cli.add_command(train.train)
cli.add_command(train.policies)
cli.add_command(translate.translate)
cli.add_command(evaluate.evaluate)
cli.add_command(metatrain.metatrain)
cli.add_command(plot.plot)
cli.add_command(reproduce.reproduce)


def main(args: list[str] | None = None) -> None:
    """Run the command line; errors a user can mend become one line and an exit code."""
    # Of torch, unless --threads asks for more: a policy's batches are small, and on a busy machine
    # threads that wait for one another take ten times as long as one.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(run(args))


def run(args: list[str] | None = None) -> int:
    """Run one command and return its exit code."""
    debug = "--debug" in (sys.argv[1:] if args is None else args)
    try:
        result: Any = cli.main(args, prog_name="mcat", standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        click.echo("stopped", err=True)
        return 130
    except BrokenPipeError:  # `mcat envs list | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except McatError as error:
        if debug:
            raise
        click.echo(f"error: {printable(error, 2000)}", err=True)
        return error.exit_code


if __name__ == "__main__":
    main()
