"""`mcat collect` and `mcat dataset`."""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mcat.commands.options import (
    given_parameters,
    task_from,
    task_options,
    translator_options,
    workers_option,
)
from mcat.commands.tables import print_table
from mcat.envs.families import family
from mcat.errors import DataError, UsageError
from mcat.safe_io import io_errors

if TYPE_CHECKING:
    from mcat.datasets.collect import CollectSummary


@click.command()
@task_options(required=False)
@click.option("--family", "family_name", metavar="NAME", help="Collect every task of a family.")
@click.option("--split", default="train", show_default=True,
              type=click.Choice(["train", "test", "all"]),
              help="Which tasks of the family.")  # fmt: skip
@click.option("--policy", default=None, metavar="NAME|FILE",
              help="Who acts: mediocre, good, random, scripted, scripted:ROBOT or a policy file "
              "(default: mediocre; scripted on Meta-World).")  # fmt: skip
@translator_options
@click.option("--noise", default="0", show_default=True, metavar="SIGMA|LOW,HIGH",
              help="Gaussian noise on the actions; a range is drawn from per episode.")  # fmt: skip
@click.option("--steps", default=100_000, show_default=True, type=click.IntRange(1),
              help="Transitions; the last episode is kept whole.")  # fmt: skip
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0))
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE|FOLDER",
              help="Where to write (default: <task>.h5 here).")  # fmt: skip
@click.option("--resume", is_flag=True,
              help="Go on with a collection that was stopped; --steps may change.")  # fmt: skip
@click.option("--overwrite", is_flag=True, help="Replace a file that exists.")
@click.option("--max-unstable", default=0.01, show_default=True, type=click.FloatRange(0, 1),
              help="Share of episodes that may diverge.")  # fmt: skip
@workers_option
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
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
    as_json: bool,
    **options: Any,
) -> None:
    """Run a policy on a task and write what happened as a data set (HDF5).

    \b
    mcat collect --env ant --cripple 3
    mcat collect --env push --policy scripted --noise 1
    mcat collect --family ant-cripple --split train --steps 50000 --out data/
    """  # noqa: D301
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
        jobs = {folder / f"{t.label(chosen.varies)}.h5": t for t in chosen.split(split)}
        with io_errors(folder, "write"):
            folder.mkdir(parents=True, exist_ok=True)

    from mcat.agents.library import collector_policy
    from mcat.datasets.collect import CollectConfig
    from mcat.datasets.collect import collect as run

    summaries = []
    for path, task in jobs.items():
        actor = collector_policy(
            policy,
            task,
            translator=translator,
            source=source,
            announce=lambda text: click.echo(text, err=True),
        )
        config = CollectConfig(
            task=task,
            steps=steps,
            seed=seed,
            noise=_noise(noise),
            max_unstable=max_unstable,
            policy_name=actor.name,
            policy_sha256=actor.sha256,
        )
        summary = run(
            config, actor.function, path, resume=resume, overwrite=overwrite, workers=workers
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
        return out / f"{label}.h5" if out.is_dir() else out


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
        f"{summary.transitions:,} transitions in {summary.episodes} episodes{dropped}; "
        f"returns {summary.return_min:,.1f} / {summary.return_mean:,.1f} / "
        f"{summary.return_max:,.1f} (min / mean / max); "
        f"{summary.file_bytes / 1e6:.1f} MB in {summary.seconds:.0f} s",
        err=True,
    )
    click.echo(summary.path)


@click.group()
def dataset() -> None:
    """Look at, check and convert data sets.

    FILE may be one of ours, a D4RL file, a Minari id or folder, or a .csv or .parquet log.
    """


@dataset.command()
@click.argument("source", metavar="FILE")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def info(source: str, as_json: bool) -> None:
    """Show what is in a data set and where it comes from."""
    from mcat.datasets import load

    store, metadata = load(source)
    returns = store.episode_returns()
    facts = {
        "transitions": len(store),
        "episodes": store.num_episodes,
        "observation size": store.observation_size,
        "action size": store.action_size,
        "episode length": f"{store.lengths.min()} to {store.lengths.max()}",
        "return": f"{returns.min():,.1f} / {returns.mean():,.1f} / {returns.max():,.1f}"
        " (min / mean / max)",
        "memory": f"{store.nbytes / 1e6:.1f} MB",
    }
    if as_json:
        click.echo(json.dumps({**facts, "metadata": metadata}, indent=2))
        return
    told = {
        key: value if isinstance(value, str | int) else json.dumps(value)
        for key, value in metadata.items()
        if key in ("task", "policy", "seed", "unstable_episodes", "format_version", "versions")
    }
    rows = [(key, str(value)) for key, value in (facts | told).items()]
    print_table(source, [("", ""), *rows])


@dataset.command()
@click.argument("sources", metavar="FILE...", nargs=-1, required=True)
def check(sources: tuple[str, ...]) -> None:
    """Check data sets: damage, NaN, constant columns, short or repeated episodes, bounds.

    Safe for files from strangers: they are parsed in a process of their own, with limits.
    """
    from mcat.datasets import check as find
    from mcat.datasets import load

    errors = 0
    for source in sources:
        store, metadata = load(source, trust_seal=False)
        findings = find(
            store, action_low=metadata.get("action_low"), action_high=metadata.get("action_high")
        )
        errors += sum(finding.severity == "error" for finding in findings)
        click.echo(f"{source}: {len(store):,} transitions, {len(findings)} finding(s)")
        for finding in findings:
            click.echo(f"  {finding}")
    if errors:
        raise DataError(f"{errors} of the findings would spoil training")


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
