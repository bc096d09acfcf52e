"""Options that several commands share; tasks' come from the robots' declarations."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import click

from mcat.commands.help import Option, together
from mcat.envs.gym_robots import PHYSICS, allow_module, is_gym_id
from mcat.envs.robots import ROBOTS
from mcat.envs.tasks import Task
from mcat.errors import MissingInputError, UsageError, no_name_or_file
from mcat.safe_io import ensure_writable_output, exists_already

# Callbacks of options: what is not there is known before anything heavy is imported.


def there(context: click.Context, option: click.Parameter, value: Path | None) -> Path | None:
    """A path that leads to something."""
    if value is not None and not value.exists():
        raise MissingInputError(f"{value} is not there")
    return value


def policy_name(context: click.Context, option: click.Parameter, value: str | None) -> str | None:
    """A policy's name, or a path that leads to something."""
    if value is not None and value != "none":
        from mcat.agents.policies.names import require_policy_name

        require_policy_name(value)
    return value


def map_name(context: click.Context, option: click.Parameter, value: str | None) -> str | None:
    """The name of a correspondence, or a path that leads to something."""
    if value is not None and not Path(value).exists():
        from mcat.translator.state.correspondence import CORRESPONDENCES

        if value not in CORRESPONDENCES:
            raise no_name_or_file("map", value, CORRESPONDENCES)
    return value


ONLY_CHECK = "mcat.only_check"


def only_checked() -> bool:
    """Whether a plan asks only if a command could begin; it has looked at all that is quick."""
    return bool(click.get_current_context().meta.get(ONLY_CHECK))


def _owners() -> dict[str, list[str]]:
    """Which of mcat's robots have which parameter; none those of gymnasium's robots alone."""
    owners: dict[str, list[str]] = {}
    for robot in ROBOTS.values():
        for parameter in robot.parameters:
            owners.setdefault(parameter.name, []).append(robot.name)
    return owners | {name: [] for name in _PHYSICS if name not in owners}


_PHYSICS = {parameter.name: parameter for parameter in PHYSICS}


def _help(name: str, robots: list[str]) -> str:
    """What a parameter does, of which robots."""
    lines = []
    if robots:
        parameter = ROBOTS[robots[0]].parameter(name)
        suites = {ROBOTS[robot].suite for robot in robots}
        where = "Meta-World" if len(robots) > 1 and suites == {"metaworld"} else ", ".join(robots)
        lines.append(f"{where}: {parameter.help} ({parameter.describe()}).")
    if name in _PHYSICS:
        lines.append(f"Ids of MuJoCo: {_PHYSICS[name].help} ({_PHYSICS[name].describe()}).")
    return " ".join(lines)


def _arguments(
    context: click.Context, option: click.Parameter, pairs: tuple[str, ...]
) -> dict[str, Any] | None:
    """`KEY=VALUE` as JSON, or else as text."""
    found = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals:
            raise UsageError(f"--env-arg takes KEY=VALUE such as healthy_reward=0, not '{pair}'")
        try:
            found[key.strip()] = json.loads(value)
        except (ValueError, RecursionError):
            found[key.strip()] = value
    return found or None


# `--env`, `--env-arg`, `--delay`, `--horizon` and one option per declared parameter.
task_options = together(
    click.option("--env", metavar="ROBOT|ID",
                 help=f"One of {', '.join(ROBOTS)}, or any gymnasium id with Box spaces, such as "
                 "Walker2d-v5 or module:My-v0."),
    click.option("--delay", metavar="STEPS", help="Pay rewards every STEPS steps (default: 1)."),
    click.option("--horizon", metavar="STEPS",
                 help="Steps per episode (default: the robot's own)."),
    click.option("--env-arg", multiple=True, callback=_arguments, metavar="KEY=VALUE",
                 help="A keyword argument of gymnasium.make, for an id; may be repeated."),
    *(click.option(f"--{name.replace('_', '-')}", name, metavar="VALUE", help=_help(name, robots))
      for name, robots in _owners().items()),
)  # fmt: skip


def idle_cores() -> int:
    """How many cores are likely to have nothing else to do, 1 to 4."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, min(4, round((allowed or 1) - os.getloadavg()[0])))


workers_option = click.option(
    "--workers",
    default=idle_cores,
    type=click.IntRange(1),
    help="Processes that share the physics; no part of the result (default: one per idle core, at"
    " most 4).",
)


seed_option = click.option(
    "--seed",
    default=0,
    show_default=True,
    type=click.IntRange(0),
    help="Every random draw follows from it.",
)
threads_option = click.option(
    "--threads",
    default=1,
    show_default=True,
    type=click.IntRange(1),
    help="Threads of torch; they touch the last bits.",
)
overwrite_option = click.option(
    "--overwrite", is_flag=True, help="Replace what is there, once this is whole."
)
quiet_option = click.option("--quiet", is_flag=True, help="Show no progress.")


def out_option(metavar: str, help: str, **more: Any) -> Option:
    """`--out`: where the result goes."""
    path = click.Path(path_type=Path)
    return click.option("--out", type=path, metavar=metavar, help=help, **more)


def require_new_file(path: Path, *, overwrite: bool) -> None:
    """Refuse an `--out` that is there already or cannot be made, before any work is done."""
    if path.is_file() and not overwrite:
        raise exists_already(path)
    ensure_writable_output(path, overwrite=overwrite)


def say(text: str) -> None:
    """Tell people something; standard output is for scripts."""
    click.echo(text, err=True)


# With these `--policy` acts on another machine.
translator_options = together(
    click.option("--translator", type=click.Path(path_type=Path), callback=there, metavar="FOLDER",
                 help="What mcat translate wrote: the policy is the source's, its actions are "
                 "translated."),
    click.option("--from", "source", metavar="TASK",
                 help="Which of a translator's several tasks the policy comes from."),
)  # fmt: skip


def require_actor(
    name: str | None, task: Task, translator: Path | None, source: str | None
) -> None:
    """Refuse a `--policy` that cannot act on `task`, before anything heavy is imported.

    With a translator it is the policy of another task, which only the translator knows.
    """
    from mcat.agents.policies.names import require_policy

    if translator is None and source is not None:
        raise UsageError("--from names a task of a translator: give --translator too")
    if translator is None and name is not None:
        require_policy(name, task)


def task_parameters(options: dict[str, Any]) -> dict[str, Any]:
    """Those of a command's options that `task_options` added, `--env` left out."""
    return {name: options[name] for name in ("delay", "horizon", "env_arg", *_owners())}


def task_from(env: str, options: dict[str, Any]) -> Task:
    """The task those options describe."""
    given = {name: value for name, value in options.items() if value is not None}
    arguments = given.pop("env_arg", None)
    if is_gym_id(env):
        allow_module(env)
    return Task(env, arguments=arguments, **given)


def given_parameters(options: dict[str, Any]) -> list[str]:
    """The physical parameters that were named on the command line."""
    return [name for name in _owners() if options.get(name) is not None]
