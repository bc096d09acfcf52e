"""`mcat translate`."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from mcat.commands.help import Explained, group, json_option
from mcat.commands.options import (
    map_name,
    only_checked,
    out_option,
    overwrite_option,
    policy_name,
    quiet_option,
    say,
    seed_option,
    threads_option,
    workers_option,
)
from mcat.commands.settings import (
    SEED,
    THREADS,
    Setting,
    layer_options,
    layers,
    preset_option,
    print_config,
    require_known_variables,
    resume_option,
)
from mcat.commands.tables import print_table
from mcat.config import flatten, overlay, require_key
from mcat.interrupts import stopping_at_once

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mcat.agents.returns import Returns
    from mcat.transfer.config import TransferConfig
    from mcat.transfer.result import Cells, ReturnMatrix, TransferResult


HOW = (
    Setting("--method", "method", "ours|cycle", "cycle is the baseline of Zhang et al. 2020.",
            more={"default": "ours", "show_default": True}),
    Setting("--transfer-loss", "transfer_loss", "l1|nll",
            "L_trans: distance to F's mean, or likelihood under F (default: the preset's; nll in "
            "paper, else l1)."),
    Setting("--map", "map", "NAME|FILE",
            "First guess of what matches what, for machines with other states, actions or rewards: "
            "mirror-ant, mirror-x, mirror-x-states, mirror-x-hand-states, two-to-three-legs, "
            "two-to-three-legs-actions or a JSON file.", more={"callback": map_name}),
    Setting("--reward-aware", "reward_aware", None, "Match rewards too (L_trans,r).", value=True),
)  # fmt: skip
WORTH = (
    Setting("--policy", "policy", "NAME|FILE|MODULE:FUNCTION",
            "The policy to transfer (default: good; scripted on Meta-World).",
            more={"callback": policy_name}),
    Setting("--episodes", "episodes", "N", "Episodes to run of each policy; 0 for none.",
            more={"default": 100, "show_default": True, "type": click.IntRange(0)}),
    Setting("--no-alternatives", "alternatives", None,
            "Leave out what the target's logs give without translating: a clone of them and "
            "offline RL on their rewards (a minute or two, and two more policies to run).",
            value=False),
)  # fmt: skip


@click.command(
    cls=Explained,
    examples=(
        "mcat translate --src halfcheetah-armature0.1.h5 --tgt halfcheetah-armature0.5.h5",
        "mcat translate --src a-good.h5 --src a-mediocre.h5 --tgt b.h5 --out a-to-b",
        "mcat translate --task a.h5 --task b.h5 --task c.h5",
    ),
)
@group(
    "Logs",
    click.option("--src", "sources", multiple=True, metavar="FILE",
                 help="Log of the machine that has a good policy; may be repeated."),
    click.option("--tgt", "targets", multiple=True, metavar="FILE",
                 help="Log of the changed machine; may be repeated."),
    click.option("--task", "tasks", multiple=True, metavar="FILE",
                 help="In place of both: logs of several machines; the translator then goes from "
                 "any to any. Logs of one task are one machine."),
)  # fmt: skip
@group(
    "Settings",
    preset_option("cpu (about 5 min on an idle core), quick (2 min), paper (as printed, three "
                  "days), released (as the authors' code, an hour) or smoke (seconds)", "cpu"),
    *(setting.option() for setting in HOW),
    *layer_options("recipe.action.steps=500", "printed"),
    seed_option,
    threads_option,
)  # fmt: skip
@group(
    "What it is worth",
    *(setting.option() for setting in WORTH),
    workers_option,
)
@group(
    "The result",
    out_option("FOLDER", "Where to write (default: <source>-to-<target> here)."),
    resume_option("From the same logs. One that was stopped kept nothing and starts anew."),
    overwrite_option,
    quiet_option,
    json_option,
)  # fmt: skip
@click.pass_context
def translate(context: click.Context, /, **options: Any) -> None:
    """Learn what to do on a changed machine, from logs of both.

    Trains the translator, runs the source policy on the source, the same policy and the
    transferred one on the target, beside what the target's logs give without any translation, and
    writes a folder: translator.safetensors, result.json and report.html, which says what it is
    worth, whether it is the right tool, and how far it can be trusted.
    """
    require_known_variables(context)
    with stopping_at_once(
        "stopped: a translation keeps nothing before its end (an earlier result stays as it was);"
        " the same command starts anew"
    ):
        config = _resolve(context)
        if options["printed"]:
            print_config(config.preset, _settings(config), as_json=options["as_json"])
            return
        if only_checked():
            return
        from mcat.reports.translation.page import PAGE_FILE, write_page
        from mcat.transfer.run import default_folder
        from mcat.transfer.run import translate as run

        result = run(
            config,
            options["out"],
            resume=options["resume"],
            overwrite=options["overwrite"],
            quiet=options["quiet"],
            notify=say,
            workers=options["workers"],
            add_pages=write_page,
        )
    folder = options["out"] or default_folder(result.machines)
    if options["as_json"]:
        click.echo(json.dumps({"folder": str(folder), **_outcome(result)}))
        return
    _print_outcome(result)
    click.echo(f"Report: {folder / PAGE_FILE}", err=True)
    click.echo(folder)


def _resolve(context: click.Context) -> TransferConfig:
    """What file, environment and options make of a preset."""
    from mcat.transfer.config import TransferConfig
    from mcat.translator.recipes import RECIPES

    logs = {name: context.params[name] for name in ("sources", "targets", "tasks")}
    preset, changes = layers(context, (SEED, THREADS, *HOW, *WORTH), RECIPES)
    usual = TransferConfig(preset=preset, **logs)
    for key in changes:
        require_key(key, flatten(_settings(usual)))
    numbers = {key: changes.pop(key) for key in list(changes) if key.startswith("recipe.")}
    recipe = tuple((key.removeprefix("recipe."), value) for key, value in numbers.items())
    return replace(overlay(usual, changes), recipe_changes=recipe)


def _settings(config: TransferConfig) -> dict[str, Any]:
    """What a file may set."""
    values = config.to_json()
    for key in ("preset", "sources", "targets", "tasks"):
        del values[key]
    for key in ("many_context", "many_action"):  # in use already, if there are many
        del values["recipe"][key]
    return values


def _outcome(result: TransferResult) -> dict[str, Any]:
    """What a script wants; the rest is in result.json."""
    from mcat.reports.translation.verdict import verdict

    whole = result.to_json()
    names = ("trust", "skipped", "matrix", "seconds")
    answer = verdict(result)
    return {
        "answer": {"headline": answer.headline, "details": answer.details},
        "returns": [summary(returns) for returns in result.returns],
        "logged": [summary(returns) for returns in result.logged],
        "fit": result.fit.numbers,
        "verdict": None if result.trust is None else result.trust.verdict(),
        **{name: whole[name] for name in names},
    }


def _print_outcome(result: TransferResult) -> None:
    from mcat.reports.translation.verdict import verdict

    if result.returns:
        print_returns(result.returns, err=True)
    for item in result.logged:
        click.echo(f"{item.label}: {item.mean:,.1f} on average", err=True)
    if result.matrix and any(cell is not None for row in result.matrix.transferred for cell in row):
        _print_matrix(result.matrix)
    if result.skipped:
        click.echo(f"note: {result.skipped}", err=True)
    answer = verdict(result)
    click.echo(f"{answer.headline}.\n  {answer.details}", err=True)
    if result.trust is not None:
        click.echo("How far can I trust this transfer?", err=True)
        for sentence in result.trust.sentences():
            click.echo(f"  {sentence}", err=True)


def print_returns(returns: Sequence[Returns], *, err: bool = False) -> None:
    """One line for each, with the number of episodes of the first as the title."""
    from mcat.reports.sections import rate

    goals = any(item.successes is not None for item in returns)
    heading = ("", "mean return", "± standard error", "min", "max")
    rows: list[tuple[str, ...]] = [(*heading, *["success at any step"] * goals)]
    for item in returns:
        numbers = item.mean, _standard_error(item), min(item.values), max(item.values)
        cells = ("–" if number is None else f"{number:,.1f}" for number in numbers)
        rows.append((item.label, *cells, *[rate(item.success_rate)] * goals))
    count = len(returns[0].values)
    print_table(f"{count} episode{'s' * (count > 1)} each", rows, err=err)


def _standard_error(returns: Returns) -> float | None:
    """One episode has none."""
    return returns.standard_error if len(returns.values) > 1 else None


def _print_matrix(matrix: ReturnMatrix) -> None:
    """Mean returns of every source's policy on every target, before and after; then successes."""
    from mcat.reports.sections import share

    returns = matrix.untranslated, matrix.transferred
    how = "untranslated → transferred"
    _print_cells(f"Returns, {how}", matrix.names, *returns, text="{:,.0f}".format)
    before, after = matrix.untranslated_success, matrix.transferred_success
    if before is not None and after is not None:
        _print_cells(f"Success at any step, {how}", matrix.names, before, after, text=share)


def _print_cells(
    title: str, names: Sequence[str], before: Cells, after: Cells, *, text: Callable[[float], str]
) -> None:
    rows = []
    for name, *cells in zip(names, before, after, strict=True):
        pairs = zip(*cells, strict=True)
        shown = ("" if b is None or a is None else f"{text(b)} → {text(a)}" for b, a in pairs)
        rows.append((name, *shown))
    print_table(title, [("from \\ to", *names), *rows], err=True)


def summary(returns: Returns) -> dict[str, Any]:
    """The same for a script; successes only where there are some, as in earlier files."""
    successes = {}
    if returns.successes is not None:
        successes = {"success_rate": returns.success_rate, "successes": list(returns.successes)}
    return {
        "label": returns.label,
        "mean": returns.mean,
        "standard_error": _standard_error(returns),
        "min": min(returns.values),
        "max": max(returns.values),
        "values": list(returns.values),
        **successes,
    }
