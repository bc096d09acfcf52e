"""`mcat collect` and `mcat dataset`."""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mcat.commands.help import Explained, group
from mcat.commands.options import (
    given_parameters,
    json_option,
    policy_name,
    quiet_option,
    require_actor,
    seed_option,
    task_from,
    task_options,
    translator_options,
    workers_option,
)
from mcat.commands.tables import print_table
from mcat.envs.families import family
from mcat.errors import DataError, McatError, UsageError, counted, printable
from mcat.safe_io import io_errors

if TYPE_CHECKING:
    from mcat.datasets import Episodes
    from mcat.datasets.collect import CollectSummary


@click.command(
    cls=Explained,
    examples=(
        "mcat collect --env ant --cripple 3",
        "mcat collect --env push --policy scripted --noise 1",
        "mcat collect --family ant-cripple --split train --steps 50000 --out data/",
    ),
)
@group(
    "Where to act",
    task_options(required=False),
    click.option("--family", "family_name", metavar="NAME",
                 help="Collect every task of a family."),
    click.option("--split", default="train", show_default=True,
                 type=click.Choice(["train", "test", "all"]),
                 help="Which tasks of the family."),
)  # fmt: skip
@group(
    "Who acts",
    click.option("--policy", callback=policy_name, metavar="NAME|FILE|MODULE:FUNCTION",
                 help="Who acts: mediocre, good, random, scripted, scripted:ROBOT, a policy file "
                 "or a run (default: mediocre; scripted on Meta-World)."),
    translator_options,
    click.option("--noise", default="0", show_default=True, metavar="SIGMA|LOW,HIGH",
                 help="Gaussian noise on the actions; a range is drawn from per episode."),
)  # fmt: skip
@group(
    "How much",
    click.option("--steps", default=100_000, show_default=True, type=click.IntRange(1),
                 help="Transitions; the last episode is kept whole."),
    seed_option,
    click.option("--max-unstable", default=0.01, show_default=True, type=click.FloatRange(0, 1),
                 help="Share of episodes that may diverge."),
    workers_option,
)  # fmt: skip
@group(
    "The result",
    click.option("--out", type=click.Path(path_type=Path), metavar="FILE|FOLDER",
                 help="Where to write (default: <task>.h5 here)."),
    click.option("--resume", is_flag=True,
                 help="Go on with a collection that was stopped, exact to the bit: the one that "
                 "the same command without --resume began; if there is none, start it. Of the "
                 "settings only --steps may change."),
    click.option("--overwrite", is_flag=True,
                 help="Replace a file that exists, once this one is whole."),
    quiet_option,
    json_option,
)  # fmt: skip
def collect(
    env: str | None,
    family_name: str | None,
    split: str,
    policy: str | None,
    translator: Path | None,
    source: str | None,
    noise: str,
    steps: int,
    seed: int,
    out: Path | None,
    resume: bool,
    overwrite: bool,
    max_unstable: float,
    workers: int,
    quiet: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Run a policy on a task and write what happened as a data set (HDF5)."""
    if (env is None) == (family_name is None):
        raise UsageError("say what to collect from: either --env or --family")
    if env is not None:
        task = task_from(env, options)
        jobs = {_file(out, task.label(*given_parameters(options))): task}
    else:
        if any(value is not None for value in options.values()):
            raise UsageError("a family brings its own parameters: give --family or parameters")
        chosen = family(str(family_name))
        folder = out or Path()
        jobs = {folder / f"{t.label(chosen.varies[0])}.h5": t for t in chosen.split(split)}
        with io_errors(folder, "write"):
            folder.mkdir(parents=True, exist_ok=True)

    sigmas = _noise(noise)
    for task in jobs.values():  # a mediocre one may still have to be trained
        require_actor(None if policy == "mediocre" else policy, task, translator, source)

    from mcat.datasets.collect import CollectConfig
    from mcat.datasets.collect import collect as run
    from mcat.transfer.collectors import collector_policy

    summaries = []
    for path, task in jobs.items():
        actor = collector_policy(
            policy,
            task,
            translator=translator,
            source=source,
            notify=lambda text: click.echo(text, err=True),
        )
        config = CollectConfig(
            task=task,
            steps=steps,
            seed=seed,
            noise=sigmas,
            max_unstable=max_unstable,
            policy_name=actor.name,
            policy_sha256=actor.sha256,
        )
        summary = run(
            config,
            actor.act,
            path,
            resume=resume,
            overwrite=overwrite,
            workers=workers,
            quiet=quiet,
        )
        summaries.append(summary)
        if as_json:
            click.echo(json.dumps({**asdict(summary), "path": str(path)}))
        else:
            _print_summary(summary)
    if not as_json:
        click.echo(f"Next: mcat dataset info {shlex.quote(str(summaries[0].path))}", err=True)


def _file(out: Path | None, label: str) -> Path:
    if out is None:
        return Path(f"{label}.h5")
    with io_errors(out, "write"):
        if out.is_dir():
            return out / f"{label}.h5"
    if out.suffix.lower() not in (".h5", ".hdf5"):
        raise UsageError(
            f"--out {out}: collect writes HDF5, name it {out.stem}.h5 or a folder that exists"
        )
    return out


def _noise(text: str) -> tuple[float, float]:
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if len(numbers) not in (1, 2):
        raise UsageError(f"--noise takes one number or LOW,HIGH, got '{text}'")
    return numbers[0], numbers[-1]


def _print_summary(summary: CollectSummary) -> None:
    """The file's name on stdout, for scripts; the rest for people."""
    dropped = f", {summary.unstable_episodes} diverged" if summary.unstable_episodes else ""
    click.echo(
        f"{counted(summary.transitions, 'transition')} in "
        f"{counted(summary.episodes, 'episode')}{dropped}; "
        f"returns {summary.return_min:,.1f} / {summary.return_mean:,.1f} / "
        f"{summary.return_max:,.1f} (min / mean / max); "
        f"{summary.file_bytes / 1e6:.1f} MB in {summary.seconds:.0f} s",
        err=True,
    )
    click.echo(summary.path)


@click.group()
def dataset() -> None:
    """Look at, check and convert data sets.

    FILE may be one of ours, a D4RL file, a Minari id or folder, or a .csv, .csv.gz, .parquet or
    .npz log.
    """


@dataset.command()
@click.argument("source", metavar="FILE")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
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
_TOLD_OTHERWISE = ("has_rewards", "ignored_columns", "time_findings", "config")


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
    outside = ", outside [-1, 1]: scale them to it" if max(-low, high) > 1 + 1e-6 else ""
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
    if facts["rate_hz"]:
        odd = ", with gaps or disorder: see mcat dataset check"
        words["rate"] = f"{facts['rate_hz']:g} Hz{odd if metadata.get('time_findings') else ''}"
    if isinstance(ignored := metadata.get("ignored_columns"), list) and ignored:
        words["not read"] = ", ".join(map(str, ignored))
    return words


@dataset.command()
@click.argument("sources", metavar="FILE...", nargs=-1, required=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, a line per file.")
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


@dataset.command("export-minari")
@click.argument("source", metavar="FILE")
@click.option("--id", "dataset_id", required=True, metavar="NAME-vN",
              help="Minari's name for it, such as mcat/ant/cripple3-v0.")  # fmt: skip
@click.option("--root", type=click.Path(path_type=Path), default=None,
              help="Minari's folder (default: $MINARI_DATASETS_PATH or its own).")  # fmt: skip
@click.option("--overwrite", is_flag=True, help="Replace a data set of that name.")
def export(source: str, dataset_id: str, root: Path | None, overwrite: bool) -> None:
    """Write a data set that Minari loads, environment included."""
    from mcat.datasets import export_minari, load

    store, metadata = load(source)
    click.echo(export_minari(store, metadata, dataset_id, root=root, overwrite=overwrite))
