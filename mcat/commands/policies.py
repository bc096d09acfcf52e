"""`mcat policies`."""

from __future__ import annotations

import json
from pathlib import Path

import click

from mcat.commands.help import Explained, json_option
from mcat.commands.options import out_option, overwrite_option, require_new_file, there
from mcat.commands.tables import print_table
from mcat.errors import UsageError
from mcat.reports.tables import markdown_table


@click.group()
def policies() -> None:
    """Policies that come with the package, and policies of other programs."""


@policies.command(
    "list", cls=Explained, examples=("mcat policies list", "mcat policies list --json")
)
@json_option
@click.option(
    "--markdown", "as_markdown", is_flag=True, help="Print the table of docs/policies.md."
)
def list_policies(as_json: bool, as_markdown: bool) -> None:
    """List them: task, level, training steps and mean return over 10 episodes."""
    from mcat.agents.policies.names import packaged_policies
    from mcat.reports.tables import policy_rows

    if as_json:
        found = [
            {**item._asdict(), "task": item.task.to_dict(), "path": str(item.path)}
            for item in packaged_policies()
        ]
        click.echo(json.dumps(found, indent=2))
    elif as_markdown:
        click.echo(markdown_table(policy_rows()))
    else:
        print_table("Packaged policies", policy_rows())


@policies.command(
    "import",
    cls=Explained,
    examples=(
        "mcat policies import td3.zip --out hopper.safetensors",
        "mcat policies import ppo.zip --normalize obs.npz --out hopper.safetensors",
        "mcat policies import agent.cleanrl_model --bounds -2,2 --out pendulum.safetensors",
        "mcat policies import sac.zip --logs arm.h5 --out arm.safetensors",
    ),
)
@click.argument("model", type=click.Path(path_type=Path), callback=there)
@out_option("FILE.safetensors", "Where to write.", required=True)
@click.option(
    "--normalize",
    type=click.Path(path_type=Path),
    callback=there,
    metavar="FILE.npz",
    help="Mean and variance of observations, where they were normalised: arrays mean and "
    "var, and clip and epsilon where they are not 10 and 1e-8.",
)
@click.option(
    "--bounds",
    metavar="LOW,HIGH",
    help="The smallest and the largest action (default: what MODEL says, else -1,1).",
)
@click.option(
    "--logs",
    metavar="DATA",
    help="A data set of its machine (mcat dataset import): names, units, bounds and rate go into "
    "the file. A policy with actions in [-1, 1] is stretched to the bounds.",
)
@click.option(
    "--activation",
    metavar="NAME",
    help="Between the layers: relu, tanh, elu, silu or leakyrelu (default: what MODEL "
    "says, else what its authors use).",
)
@overwrite_option
def import_model(
    model: Path,
    out: Path,
    normalize: Path | None,
    bounds: str | None,
    logs: str | None,
    activation: str | None,
    overwrite: bool,
) -> None:
    """Take the actor of stable-baselines3 (TD3, SAC, PPO ...) or CleanRL over as a policy file.

    MODEL is a zip of stable-baselines3, or a state_dict as CleanRL saves it. No pickle in it is
    loaded: only tensors are read. The new file acts as predict(deterministic=True) does.
    """
    limits = None if bounds is None else _pair(bounds)
    if out.suffix != ".safetensors":
        raise UsageError(f"--out {out}: policies are safetensors, name it {out.stem}.safetensors")
    require_new_file(out, overwrite=overwrite)

    from mcat.agents.policies.foreign.others import import_policy

    policy = import_policy(model, normalize=normalize, bounds=limits, activation=activation)
    if logs is not None:
        from mcat.datasets import Card, load

        store, metadata = load(logs)
        sizes = store.observation_size, store.action_size
        policy = policy.on(Card.of_metadata(metadata, sizes))
    policy.save(out, overwrite=overwrite)
    layers = "-".join(map(str, policy.sizes))
    squash = "tanh to" if policy.squashed else "clipped to"
    scaled = "" if policy.scaling is None else "; observations are normalised"
    click.echo(
        f"{policy.metadata['from']}: layers {layers}, {policy.activation} between them, actions"
        f" {squash} {policy.bounds}{scaled}",
        err=True,
    )
    click.echo(out)


def _pair(text: str) -> tuple[float, float]:
    try:
        low, high = (float(word) for word in text.split(","))
    except ValueError:
        raise UsageError(f"--bounds must be two numbers as in -2,2, not '{text}'") from None
    return low, high
