"""`mcat envs` and `mcat render`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mcat.commands.help import Explained, group, json_option
from mcat.commands.options import (
    out_option,
    overwrite_option,
    policy_name,
    require_actor,
    require_new_file,
    say,
    seed_option,
    task_from,
    task_options,
    translator_options,
)
from mcat.commands.tables import print_table
from mcat.envs.families import FAMILIES, family, names_family
from mcat.envs.gym_robots import allow_module, inspected, is_gym_id, parts_of
from mcat.envs.robots import ROBOTS, Robot
from mcat.envs.tasks import Family, Task
from mcat.errors import UsageError, unknown
from mcat.reports.tables import family_rows, page, parameter_rows, robot_rows
from mcat.types import AnyPolicy

if TYPE_CHECKING:
    from mcat.envs.promises import Findings


@click.group()
def envs() -> None:
    """Robots, their parameters and the task families."""


@envs.command("list", cls=Explained, examples=("mcat envs list", "mcat envs list --json"))
@json_option
@click.option("--markdown", "as_markdown", is_flag=True, help="Print docs/environments.md.")
def list_envs(as_json: bool, as_markdown: bool) -> None:
    """List every robot and task family."""
    if as_json:
        robots = {robot.name: _robot_dict(robot) for robot in ROBOTS.values()}
        families = {name: item.to_dict() for name, item in FAMILIES.items()}
        click.echo(json.dumps({"robots": robots, "families": families}, indent=2))
        return
    if as_markdown:
        click.echo(page(), nl=False)
        return
    print_table("Robots", robot_rows())
    print_table("Families", [row[:-1] for row in family_rows()])  # with delays: too wide for 80
    click.echo("More: mcat envs show NAME")


@envs.command(
    cls=Explained, examples=("mcat envs show ant-cripple", "mcat envs show Walker2d-v5 --json")
)
@click.argument("name")
@json_option
def show(name: str, as_json: bool) -> None:
    """Show a robot's parameters or a family's tasks.

    NAME is a robot, a gymnasium id such as Walker2d-v5 (with the names of its parts), a family,
    FILE.toml or MODULE:FUNCTION.
    """
    if name.lower() in ROBOTS:
        _show_robot(ROBOTS[name.lower()], as_json)
    elif is_gym_id(name):
        _show_id(name, as_json)
    elif names_family(name):
        _show_family(family(name), as_json)
    else:
        raise unknown("robot or family", name, [*ROBOTS, *FAMILIES])


def _show_family(item: Family, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(item.to_dict(), indent=2))
        return
    click.echo(f"{item.title}{f' ({item.note})' if item.note else ''}")
    rows: list[tuple[str, ...]] = [("split", "task", "gymnasium id", "keyword arguments")]
    rows += [
        (split, task.label(item.varies[0]), env_id, json.dumps(task.kwargs()))
        for split in ("train", "test")
        for task in item.split(split)
        for env_id in (task.spec.env_id if task.own else task.robot,)
    ]
    print_table(item.name, rows)


def _show_id(env_id: str, as_json: bool) -> None:
    allow_module(env_id)
    robot, parts = inspected(env_id, ()), parts_of(env_id)
    if as_json:
        click.echo(json.dumps({**_robot_dict(robot), "parts": parts}, indent=2))
        return
    click.echo(
        f"{env_id}: {robot.observation_size} observations, {robot.action_size} actions in [-1, 1],"
        f" {robot.horizon or 'unlimited'} steps per episode at most"
    )
    if parts:
        print_table(env_id, parameter_rows(robot))
    for kind, names in parts.items():
        click.echo(f"{kind.capitalize()}: {', '.join(names) or 'unnamed'}")


def _show_robot(robot: Robot, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(_robot_dict(robot), indent=2))
        return
    click.echo(
        f"{robot.env_id}: {robot.summary}\n{robot.observation_size} observations, "
        f"{robot.action_size} actions in [-1, 1], {robot.horizon} steps per episode"
    )
    print_table(robot.name, parameter_rows(robot))
    members = [
        item.name for item in FAMILIES.values() if robot.name in {t.robot for t in item.tasks}
    ]
    click.echo(f"Families: {', '.join(members)}")


@envs.command(
    cls=Explained,
    examples=("mcat envs check Walker2d-v5", "mcat envs check my-family.toml --seed 1"),
)
@click.argument("names", nargs=-1)
@group("One task", task_options)
@group("The check", seed_option)
def check(names: tuple[str, ...], seed: int, env: str | None, **options: Any) -> int:
    """Check robots, gymnasium ids, or families: do they keep the promises that training needs?

    NAMES are robots, ids such as Walker2d-v5, families, FILE.toml or MODULE:FUNCTION; without any
    every robot is checked. Of robots and ids: API, seeding, spaces, specs, vectorisation, and when
    episodes end; of families every task, and whether what varies changes anything. --env and its
    parameters describe one task, as in other commands.
    """
    from mcat.envs.check import check_env_id
    from mcat.envs.promises import check_family, check_task

    if env is None and any(value is not None for value in options.values()):
        raise UsageError("these parameters describe a machine: name a robot by --env")
    failures = 0
    if env is not None:
        task = task_from(env, options)
        failures += _tell({task.label(): check_task(task, seed=seed)})
    for name in names or (() if env else tuple(ROBOTS)):
        robot = ROBOTS.get(name.lower())
        if robot is not None or is_gym_id(name):
            env_id = name if robot is None else robot.env_id
            found = {env_id: check_env_id(env_id, seed=seed)}
        elif names_family(name):
            found = check_family(family(name), seed=seed)
        else:
            raise unknown("robot or family", name, [*ROBOTS, *FAMILIES])
        failures += _tell(found)
    return 1 if failures else 0


def _tell(found: Mapping[str, Findings]) -> bool:
    """Print what was found; says whether there are problems."""
    for title, item in found.items():
        click.echo(f"{'FAIL' if item.problems else 'ok  '} {title}")
        for line in (*item.problems, *(f"note: {note}" for note in item.notes)):
            click.echo(f"     {line}")
    return any(item.problems for item in found.values())


@click.command(
    cls=Explained,
    examples=(
        "mcat render --env ant --cripple 3 --out ant.png",
        "mcat render --env push --policy scripted --steps 120 --out push.gif",
        "mcat render --family halfcheetah-armature --out family.png",
    ),
)
@group(
    "What to picture",
    task_options,
    click.option("--family", "family_name", metavar="NAME|FILE|MODULE:FUNCTION",
                 help="Picture every task of a family side by side."),
    click.option("--gallery", is_flag=True, help="Picture every robot side by side."),
)  # fmt: skip
@group(
    "Who acts",
    click.option("--policy", default="none", show_default=True, callback=policy_name,
                 metavar="NAME|FILE|MODULE:FUNCTION",
                 help="none, random, scripted, good, mediocre, a policy file or a run."),
    translator_options,
    click.option("--steps", type=click.IntRange(0, 100_000), metavar="N",
                 help="Steps to film (default: 100), or to take before the picture (0)."),
    seed_option,
)  # fmt: skip
@group(
    "The result",
    out_option("FILE", "A picture, .png, or a film, .gif or .mp4.", required=True),
    click.option("--width", default=480, show_default=True, type=click.IntRange(16, 3840),
                 help="In pixels."),
    click.option("--height", default=480, show_default=True, type=click.IntRange(16, 2160),
                 help="In pixels."),
    overwrite_option,
)  # fmt: skip
def render(
    env: str | None,
    family_name: str | None,
    gallery: bool,
    out: Path,
    steps: int | None,
    policy: str,
    translator: Path | None,
    source: str | None,
    seed: int,
    width: int,
    height: int,
    overwrite: bool,
    **options: Any,
) -> None:
    """Picture a task (.png), or film a short episode (.gif, .mp4)."""
    if sum((env is not None, family_name is not None, gallery)) != 1:
        raise UsageError("say what to picture: one of --env, --family and --gallery")
    chosen = task_from(env, options) if env else None
    tasks = family(family_name).tasks if family_name else gallery_tasks()
    if out.suffix not in (".png", ".gif", ".mp4") or (out.suffix != ".png" and not chosen):
        kinds = ".png, .gif or .mp4" if chosen else ".png"
        raise UsageError(f"cannot write '{out.name}': give --out a name in {kinds}")
    if chosen is not None:
        require_actor(None if policy == "none" else policy, chosen, translator, source)
    require_new_file(out, overwrite=overwrite)

    from mcat.envs import backend

    backend.choose()
    from mcat.envs import render as pictures

    if chosen is None:
        pictures.sheet(tasks, out, seed=seed, overwrite=overwrite)
    else:
        pictures.render(
            chosen,
            out,
            policy=_policy(policy, chosen, seed, translator, source),
            steps=steps if steps is not None else 0 if out.suffix == ".png" else 100,
            seed=seed,
            width=width,
            height=height,
            overwrite=overwrite,
        )
    click.echo(out)


def gallery_tasks() -> tuple[Task, ...]:
    """Every robot, with a thin hopper and a crippled ant among them; no robot twice."""
    tasks = [Task(name) for name in ROBOTS if name != "reach-hand"]
    tasks.insert(1, Task("hopper", size=0.02))
    tasks.insert(tasks.index(Task("ant")) + 1, Task("ant", cripple=3))
    return tuple(tasks)


def _policy(
    name: str, task: Task, seed: int, translator: Path | None, source: str | None
) -> AnyPolicy | None:
    if name == "none" and translator is None and source is None:
        return None
    from mcat.transfer.deploy import evaluation_trials

    wanted = None if name == "none" else name
    *_, run = evaluation_trials(
        task, wanted, translator=translator, source=source, seed=seed,
        notify=say,
    )  # fmt: skip
    return run.policy


def _robot_dict(robot: Robot) -> dict[str, Any]:
    return {
        "env_id": robot.env_id,
        "summary": robot.summary,
        "horizon": robot.horizon,
        "observation_size": robot.observation_size,
        "action_size": robot.action_size,
        "parameters": {
            p.name: {"default": p.default, "values": p.describe(), "help": p.help}
            for p in robot.parameters
        },
    }
