"""`mcat dataset`."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mcat.commands import robot_logs
from mcat.commands.help import Explained, json_option
from mcat.commands.options import out_option, overwrite_option, quiet_option
from mcat.commands.tables import print_table
from mcat.errors import DataError, McatError, UsageError, counted, printable
from mcat.safe_io import exists_already, io_errors

if TYPE_CHECKING:
    from mcat.datasets import Episodes


@click.group()
def dataset() -> None:
    """Look at, check and convert data sets.

    FILE may be one of ours, a D4RL file, a Minari id or folder, a LeRobot folder, or a .csv,
    .csv.gz, .parquet or .npz log.
    """


dataset.add_command(robot_logs.import_log)
dataset.add_command(robot_logs.repair_log)


@dataset.command(
    cls=Explained, examples=("mcat dataset info ant.h5", "mcat dataset info arm.csv --json")
)
@click.argument("source", metavar="FILE")
@json_option
def info(source: str, as_json: bool) -> None:
    """Show what is in a data set and where it comes from."""
    from mcat.datasets import load

    store, metadata = load(source)
    facts = _facts(store, metadata)
    if as_json:
        click.echo(json.dumps({**facts, "metadata": metadata}, indent=2))
        return
    told = {
        key: value if isinstance(value, str) else json.dumps(value)
        for key, value in metadata.items()
        if key not in (*facts, *_TOLD_OTHERWISE)
    }
    print_table(source, [("", ""), *_in_words(facts, metadata).items(), *told.items()])


# Parts of the metadata that `info` words differently, or that say again what others say.
_TOLD_OTHERWISE = ("has_rewards", "ignored_columns", "time_findings", "config", "imported",
                   *(f"{kind}_{what}" for kind in ("observation", "action")
                     for what in ("names", "units", "low", "high")))  # fmt: skip


def _facts(store: Episodes, metadata: dict[str, Any]) -> dict[str, Any]:
    """What the episodes are, in numbers."""
    from mcat.datasets.checks import has_rewards, rate_hz

    returns = store.episode_returns()
    return {
        "transitions": len(store),
        "episodes": store.num_episodes,
        "observation_size": store.observation_size,
        "action_size": store.action_size,
        "episode_length": {"min": int(store.lengths.min()), "max": int(store.lengths.max())},
        "returns": {
            "min": float(returns.min()),
            "mean": float(returns.mean()),
            "max": float(returns.max()),
        }
        if has_rewards(metadata)
        else None,
        "action_range": [float(store.actions.min()), float(store.actions.max())],
        "rate_hz": rate_hz(metadata),
        "memory_bytes": store.nbytes,
    }


def _in_words(facts: dict[str, Any], metadata: dict[str, Any]) -> dict[str, str]:
    """The facts for people."""
    from mcat.datasets.cards import Card

    shortest, longest = facts["episode_length"].values()
    low, high = facts["action_range"]
    returns = facts["returns"]
    if returns is None:
        gained = "no rewards"
    elif not any(returns.values()):
        gained = "0 in every episode"
    else:
        numbers = " / ".join(f"{value:,.1f}" for value in returns.values())
        gained = f"{numbers} (min / mean / max)"
    sizes = facts["observation_size"], facts["action_size"]
    card = Card.of_metadata(metadata, sizes)
    outside = ""
    if card.limits is None and max(-low, high) > 1 + 1e-6:
        outside = ", outside [-1, 1]: scale them to it, or give bounds (mcat dataset import)"
    words = {
        "transitions": f"{facts['transitions']:,}",
        "episodes": f"{facts['episodes']:,}",
        "observation size": f"{facts['observation_size']}",
        "action size": f"{facts['action_size']}",
        "episode length": f"{shortest} to {longest}",
        "return": gained,
        "actions": f"{low:.4g} to {high:.4g}{outside}",
        "memory": f"{facts['memory_bytes'] / 1e6:.1f} MB",
    }
    for kind, channels in (("observation", card.observations), ("action", card.actions)):
        if f"{kind}_names" in metadata or (kind == "action" and card.scaled):
            words[f"{kind} numbers"] = ", ".join(map(str, channels))
    if facts["rate_hz"]:
        odd = ", with gaps or disorder: see mcat dataset check"
        words["rate"] = f"{facts['rate_hz']:g} Hz{odd if metadata.get('time_findings') else ''}"
    if isinstance(done := metadata.get("imported"), list) and done:
        words["imported"] = "; ".join(map(str, done))
    if isinstance(ignored := metadata.get("ignored_columns"), list) and ignored:
        words["not read"] = ", ".join(map(str, ignored))
    return words


@dataset.command(
    cls=Explained,
    examples=(
        "mcat dataset check ant.h5",
        "mcat dataset check monday.csv tuesday.csv --json   # a line per file",
    ),
)
@click.argument("sources", metavar="FILE...", nargs=-1, required=True)
@json_option
def check(sources: tuple[str, ...], as_json: bool) -> None:
    """Check data sets: damage, NaN, constant columns, short or repeated episodes, bounds, times.

    Every file is looked at, also after one that cannot be read. Safe for files from strangers: they
    are parsed in a process of their own, with limits.
    """
    errors: list[McatError] = []
    for source in sources:
        try:
            _check_one(source, as_json=as_json)
        except McatError as error:
            errors.append(error)
    for other in errors[1:]:
        click.echo(f"error: {printable(other)}", err=True)
    if errors:
        raise errors[0]


def _check_one(source: str, *, as_json: bool) -> None:
    from mcat.datasets import check as find
    from mcat.datasets import load
    from mcat.datasets.checks import has_rewards

    store, metadata = load(source, trust_seal=False)
    findings = find(store, metadata)
    if as_json:
        click.echo(
            json.dumps(
                {
                    "file": source,
                    "transitions": len(store),
                    "episodes": store.num_episodes,
                    "has_rewards": has_rewards(metadata),
                    "findings": [asdict(finding) for finding in findings],
                }
            )
        )
    else:
        odd = sum(finding.severity != "note" for finding in findings)
        click.echo(
            f"{source}: {len(store):,} transitions in {counted(store.num_episodes, 'episode')},"
            f"{'' if has_rewards(metadata) else ' no rewards,'} {counted(odd, 'finding')}"
        )
        for finding in findings:
            click.echo(f"  {finding}")
    if errors := sum(finding.severity == "error" for finding in findings):
        raise DataError(f"{source}: {counted(errors, 'finding')} would spoil training")


@dataset.command(
    cls=Explained,
    examples=(
        "mcat dataset export ant.h5 --out ant.parquet",
        "mcat dataset export ant.h5 --out ant --rate 20  # to LeRobot",
        "mcat dataset export arm/ --out arm.h5           # from LeRobot",
    ),
)
@click.argument("source", metavar="FILE")
@out_option("X.csv|X.parquet|X.h5|FOLDER",
            "What to write; a name without an ending is a LeRobot folder.",
            required=True)  # fmt: skip
@click.option("--rate", type=click.FloatRange(0, 1e6, min_open=True), metavar="HZ",
              help="Steps a second, if FILE does not tell or is wrong: tables then have a time, and"
              " LeRobot needs it.")  # fmt: skip
@overwrite_option
@quiet_option
def export(source: str, out: Path, rate: float | None, overwrite: bool, quiet: bool) -> None:
    """Write a data set in another format, from which its episodes load back unchanged."""
    kind = out.suffix.lower()
    if kind not in ("", ".csv", ".parquet", ".h5", ".hdf5"):
        raise UsageError(
            f"--out {out}: name it {out.stem}.csv, .parquet or .h5, or {out.stem} for a LeRobot"
            " folder"
        )
    with io_errors(out, "write"):
        if os.path.lexists(out) and not overwrite:
            raise exists_already(out)

    from mcat.datasets import export_lerobot, export_table, load, write_dataset

    store, metadata = load(source)
    if rate is not None:
        metadata["rate_hz"] = rate
    if kind in (".h5", ".hdf5"):
        write_dataset(out, store, metadata, overwrite=overwrite)
    else:
        write = export_table if kind else export_lerobot
        write(store, metadata, out, overwrite=overwrite, quiet=quiet)
    if kind == ".csv" and "action_names" in metadata:
        click.echo(
            f"note: a CSV file has no place for names, units and bounds: {out} does without them,"
            " .parquet keeps them",
            err=True,
        )
    click.echo(out)


@dataset.command(
    "export-minari",
    cls=Explained,
    examples=(
        "mcat dataset export-minari ant-cripple3.h5 --id mcat/ant/cripple3-v0",
        "mcat dataset export-minari ant.h5 --id mcat/ant-v0 --root minari --overwrite",
    ),
)
@click.argument("source", metavar="FILE")
@click.option("--id", "dataset_id", required=True, metavar="NAME-vN",
              help="Minari's name for it, such as mcat/ant/cripple3-v0.")  # fmt: skip
@click.option("--root", type=click.Path(path_type=Path), default=None,
              help="Minari's folder (default: $MINARI_DATASETS_PATH or its own).")  # fmt: skip
@overwrite_option
def to_minari(source: str, dataset_id: str, root: Path | None, overwrite: bool) -> None:
    """Write a data set that Minari loads, environment included."""
    from mcat.datasets import export_minari, load

    store, metadata = load(source)
    click.echo(export_minari(store, metadata, dataset_id, root=root, overwrite=overwrite))
