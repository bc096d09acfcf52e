"""`mcat collect`."""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mcat.commands.help import Explained, group, json_option
from mcat.commands.options import (
    given_parameters,
    only_checked,
    out_option,
    overwrite_option,
    policy_name,
    quiet_option,
    require_actor,
    say,
    seed_option,
    task_from,
    task_options,
    translator_options,
    workers_option,
)
from mcat.commands.settings import bit_exact, resume_option
from mcat.envs.families import family
from mcat.errors import UsageError, counted
from mcat.safe_io import io_errors

if TYPE_CHECKING:
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
    task_options,
    click.option("--family", "family_name", metavar="NAME|FILE|MODULE:FUNCTION",
                 help="Collect every task of a family, also one of your own (FILE.toml)."),
    click.option("--split", default="train", show_default=True,
                 type=click.Choice(["train", "test", "all"]),
                 help="Which tasks of the family."),
)  # fmt: skip
@group(
    "Who acts",
    click.option("--policy", callback=policy_name, metavar="NAME|FILE|MODULE:FUNCTION",
                 help="Who acts: mediocre, good, random, scripted, scripted:ROBOT, a policy file "
                 "or a run (default: mediocre; scripted on Meta-World, random on ids)."),
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
    out_option("FILE|FOLDER", "Where to write (default: <task>.h5 here)."),
    resume_option(bit_exact("--steps")),
    overwrite_option,
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

    sigmas = _noise(noise)
    for task in jobs.values():  # a mediocre one may still have to be trained
        require_actor(None if policy == "mediocre" else policy, task, translator, source)
    if only_checked():
        return
    if env is None:
        with io_errors(folder, "write"):
            folder.mkdir(parents=True, exist_ok=True)

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
            notify=say,
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
