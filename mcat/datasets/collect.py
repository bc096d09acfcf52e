"""Policy + task → data set file: whole episodes, rolled out in lockstep, safe at any moment.

Episodes come in rounds of `envs` at a time. A round is a function of the seed and its number
alone, so a collection that was killed and resumed ends with the same bytes as one that was not.
"""

from __future__ import annotations

import math
import time
from contextlib import closing, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from mcat.config import defaults_of, require_same, to_json
from mcat.datasets.episodes import EpisodeStore
from mcat.datasets.hdf5 import read_dataset, write_dataset
from mcat.datasets.rollout import roll_out
from mcat.datasets.shards import Shard, ShardFolder, claim_shards, discard_shards
from mcat.envs.env import simulate
from mcat.envs.lockstep import Lockstep, lockstep, require_rows
from mcat.envs.tasks import Task
from mcat.errors import CannotCreateError, StorageError, UnstableError, UsageError
from mcat.interrupts import Interrupts
from mcat.progress import Progress
from mcat.provenance import installed_versions
from mcat.ranges import require_ranges
from mcat.safe_io import StrPath, ensure_writable_output, io_errors, is_file
from mcat.types import AnyPolicy

SHARD_TRANSITIONS = 10_000  # sealing one takes about 15 ms, collecting one about a second


@dataclass(frozen=True, kw_only=True)
class CollectConfig:
    """What determines the contents of a collected data set, together with the policy.

    Args:
        task: The task to collect from.
        steps: Transitions wanted. Episodes are kept whole: collection stops at the first episode
            boundary at or above this number.
        seed: Equal seeds give equal files.
        noise: σ of the Gaussian noise on the actions, a range from which each episode draws its
            own. The noisy action is clipped to the action space.
        envs: Episodes rolled out together. Part of the result, as policies round differently in
            batches of different sizes.
        max_unstable: Share of episodes that may diverge (and be dropped) before it is an error.
        policy_name: How the file names the policy.
        policy_sha256: Which weights they were, if a file.
    """

    task: Task
    steps: int = 100_000
    seed: int = 0
    noise: tuple[float, float] = (0.0, 0.0)
    envs: int = 20
    max_unstable: float = 0.01
    policy_name: str = "random"
    policy_sha256: str | None = None

    def __post_init__(self) -> None:
        low, high = self.noise
        require_ranges(
            self, at_least_1=["steps", "envs"], not_negative=["seed"], share=["max_unstable"]
        )
        if not (0 <= low <= high and math.isfinite(high)):
            raise UsageError(f"noise must be a range like 0 to 0.3, got {low} to {high}")

    def round_size(self, collected: int) -> int:
        """How many episodes the round has that begins after so many transitions.

        Where episodes end early, nobody knows how many will do.
        """
        if not self.task.own:
            return self.envs
        return min(self.envs, math.ceil((self.steps - collected) / self.task.horizon))

    def has_same(self, shard: Shard) -> bool:
        """Whether this collection has a shard that was perhaps collected for other `steps`.

        It has if all rounds of the shard are full in both. Where episodes diverged, how many of
        them are an error depends on `steps` too.
        """
        other = replace(self, steps=shard.steps)
        sizes = {config.round_size(shard.last_round_at) for config in (self, other)}
        return shard.steps == self.steps or (sizes == {self.envs} and not shard.unstable)


@dataclass(frozen=True, kw_only=True)
class CollectSummary:
    """What a collection came to."""

    path: Path
    transitions: int
    episodes: int
    unstable_episodes: int
    return_min: float
    return_mean: float
    return_max: float
    file_bytes: int
    seconds: float


def collect(
    config: CollectConfig,
    policy: AnyPolicy | None,
    out: StrPath,
    *,
    resume: bool = False,
    overwrite: bool = False,
    workers: int = 1,
    env: Lockstep | None = None,
    quiet: bool = False,
) -> CollectSummary:
    """Rolls `policy` out and writes the data set `out`.

    Args:
        config: What to collect.
        policy: Maps observations `(n, obs)` to actions `(n, act)`, a pure function of them or, if
            it has `start_episode()`, of what it saw since. None draws uniformly from the action
            space.
        out: The file to make.
        resume: Go on with what an earlier, stopped call left; start if there is nothing. `steps`
            may be another number than it was: what is not the same for both is collected again.
        overwrite: Replace `out` and start anew; `out` stays as it is until the new one is whole.
        workers: Processes that share the physics; no part of the result.
        env: Act here, in as many rows as `config.envs`, and not in environments made of the task:
            what `in_lockstep` gives. It is left open.
        quiet: Show no progress.

    Raises:
        CannotCreateError: before the first step, if `out` exists or cannot be written.
        StorageError: if the disk fills; what was sealed stays and can be resumed.
        StoppedError: after a signal, once everything finished is sealed.
        UnstableError: if too many simulations diverge.
        UsageError: if `env` is not what `config` says.
    """
    if env is not None:
        spec = config.task.spec
        sizes = spec.observation_size, spec.action_size
        require_rows(env, config.envs, config.task.horizon, sizes)
    started = time.monotonic()
    path = Path(out)
    if resume and not overwrite and is_file(path):
        return _finished(path, config, started)
    ensure_writable_output(path, overwrite=overwrite)
    versions = installed_versions("numpy", "mujoco", "gymnasium", "h5py")
    settings = to_json(config) | {"versions": versions}
    with Interrupts() as stop, claim_shards(path, settings, config.has_same) as shards:
        # Again, as the winner of a race may have finished between the first look and the lock.
        if resume and not overwrite and is_file(path):
            return _finished(path, config, started)
        shards.begin(resume=resume, overwrite=overwrite)
        needed = _needed_bytes(config, shards.transitions)
        ensure_writable_output(path, overwrite=overwrite, needed_bytes=needed)
        tasks = [config.task] * config.envs
        try:
            with nullcontext(env) if env else closing(lockstep(tasks, workers)) as place:
                _collect_shards(place, config, policy, shards, stop, quiet=quiet)
            episodes = shards.merged()
            write_dataset(path, episodes, _metadata(config, shards, versions), overwrite=overwrite)
        except (StorageError, CannotCreateError) as error:
            raise type(error)(
                f"{error}; {shards.transitions:,} of {config.steps:,} transitions are safe:"
                " run again to go on (mcat collect with --resume)"
            ) from error
        shards.discard()
    return _summary(path, episodes, shards.unstable, started)


def _collect_shards(
    env: Lockstep,
    config: CollectConfig,
    policy: AnyPolicy | None,
    shards: ShardFolder,
    stop: Interrupts,
    *,
    quiet: bool,
) -> None:
    """Collects until the sealed shards hold `config.steps` transitions."""
    title = f"collecting {config.task.label()}"
    with Progress(title, config.steps, done=shards.transitions, quiet=quiet) as progress:
        while shards.transitions < config.steps:
            _collect_shard(env, config, policy, shards, stop, progress)
            if stop.requested and shards.transitions < config.steps:
                raise stop.error(
                    f"stopped after {shards.transitions:,} of {config.steps:,} transitions,"
                    " all saved: run the same command with --resume to go on, and with"
                    f" --steps {shards.transitions} to end there"
                )


def _collect_shard(
    env: Lockstep,
    config: CollectConfig,
    policy: AnyPolicy | None,
    shards: ShardFolder,
    stop: Interrupts,
    progress: Progress,
) -> None:
    """Collects and seals one shard: smaller if that completes the collection or on a signal."""
    task = config.task
    missing = config.steps - shards.transitions
    number, unstable = shards.next_round, 0
    episodes = EpisodeStore(task.spec.observation_size, task.spec.action_size)
    while len(episodes) < min(missing, SHARD_TRANSITIONS):
        before = len(episodes)
        began_at = shards.transitions + before
        wanted = config.round_size(began_at)
        seed = np.random.SeedSequence([config.seed, number])
        for episode in roll_out(env, policy, seed=seed, noise=config.noise, episodes=wanted):
            if episode is None:
                unstable += 1
            elif len(episodes) < missing:
                episodes.append_episode(**episode)
        number += 1
        _require_stable(config, shards, episodes, unstable)
        progress.advance(len(episodes) - before)
        if stop.requested and len(episodes):
            break
    shards.seal(episodes, unstable=unstable, next_round=number, last_round_at=began_at)


def _require_stable(
    config: CollectConfig, shards: ShardFolder, pending: EpisodeStore, unstable: int
) -> None:
    """Stops as soon as the share of diverged episodes cannot fall below the limit any more."""
    diverged = shards.unstable + unstable
    tried = shards.episodes + pending.num_episodes + diverged
    planned = math.ceil(config.steps / config.task.horizon)
    if diverged > config.max_unstable * max(tried, planned):
        raise UnstableError(
            f"{diverged} of {tried} episodes of {config.task.label()} diverged, more than"
            f" {config.max_unstable:.1%}: milder physics or --max-unstable may help"
        )


def _finished(path: Path, config: CollectConfig, started: float) -> CollectSummary:
    """The summary of a collection that was complete before `--resume` was asked for."""
    episodes, metadata = read_dataset(path)
    if not isinstance(metadata.get("config"), dict):
        raise CannotCreateError(f"{path} exists already and is no collection: pass --overwrite")
    other = "use those settings or --overwrite"
    defaults = defaults_of(CollectConfig)
    require_same(str(path), metadata["config"], to_json(config), defaults=defaults, otherwise=other)
    discard_shards(path)  # a process killed at its very end leaves them
    return _summary(path, episodes, metadata.get("unstable_episodes", 0), started)


def _summary(path: Path, episodes: EpisodeStore, unstable: int, started: float) -> CollectSummary:
    returns = episodes.episode_returns()
    with io_errors(path, "read"):
        size = path.stat().st_size
    return CollectSummary(
        path=path,
        transitions=len(episodes),
        episodes=episodes.num_episodes,
        unstable_episodes=unstable,
        return_min=float(returns.min()),
        return_mean=float(returns.mean()),
        return_max=float(returns.max()),
        file_bytes=size,
        seconds=time.monotonic() - started,
    )


def _metadata(
    config: CollectConfig, shards: ShardFolder, versions: dict[str, str]
) -> dict[str, Any]:
    size = config.task.spec.action_size
    return {
        "task": config.task.to_dict(),
        "config": to_json(config),
        "policy": {"name": config.policy_name, "sha256": config.policy_sha256},
        "seed": config.seed,
        "unstable_episodes": shards.unstable,
        "action_low": [-1.0] * size,  # the action space of every task
        "action_high": [1.0] * size,
        **({"rate_hz": simulate(config.task).rate_hz} if config.task.own else {}),
        "versions": versions,
    }


def _needed_bytes(config: CollectConfig, sealed: int) -> int:
    """What the missing shards and the merged file take together."""
    row = 4 * (2 * config.task.spec.observation_size + config.task.spec.action_size + 1) + 2
    return (2 * config.steps - sealed) * row
