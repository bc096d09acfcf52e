"""From logs and a policy to an adaptation in a folder, and back into a stopped one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcat.agents.adaptation.config import AdaptConfig
from mcat.agents.runs.claim import claimed_run, has_run
from mcat.agents.runs.record import POLICY_FILE, RECORD_FILE
from mcat.config import require_same
from mcat.datasets.cards import Card
from mcat.datasets.views import Episodes
from mcat.envs.tasks import Task
from mcat.interrupts import Interrupts, stopping_at_once
from mcat.progress import Notify, ignore
from mcat.safe_io import read_json
from mcat.types import PolicyFunction

if TYPE_CHECKING:
    import gymnasium as gym

    from mcat.agents.adaptation.machine import Live
    from mcat.agents.adaptation.trainer import AdaptResult


def adapt(
    config: AdaptConfig,
    out: Path,
    logs: Episodes,
    policy: PolicyFunction | None = None,
    *,
    log_task: Task | None = None,
    card: Card | None = None,
    live: gym.Env[Any, Any] | None = None,
    made_of: Mapping[str, str] | None = None,
    resume: bool = False,
    quiet: bool = False,
    notify: Notify = ignore,
    finish: Callable[[AdaptResult], object] = lambda result: None,
) -> AdaptResult:
    """Learn a policy for a changed machine, from its logs and from a few real steps.

    Args:
        config: The settings of the run.
        out: Its folder.
        logs: Of the changed machine, with rewards; actions in [-1, 1] (see `Card.scale`).
        policy: A policy that acts on it, also in [-1, 1], such as a translated one (see
            `Card.in_unit`); None if there is none.
        log_task: What made the logs, if it is known: it says how late rewards were paid.
        card: What the machine's numbers are: the policy that comes out acts in these units, and a
            live machine must have these bounds. A policy for a task acts in [-1, 1] all the same.
        live: The machine, in place of the one that `config.live` names.
        made_of: Hashes of logs and policy, by which a run is known again.
        resume: Go on with the run that is there, exact to the bit; start if there is none. One
            that is finished says what it earned.
        quiet: Show no progress.
        notify: Told what is odd about the logs, or on going on.
        finish: Called with what came out, before the run counts as finished.

    Raises:
        CannotCreateError: if there is something at `out`.
        DivergedError: if a loss is not finite; the last good checkpoint is kept.
        RetryError: if the live machine failed; what it did so far is kept.
        StoppedError: if a signal came and everything is saved.
        UnstableError: if episode after episode ends by a fault.
        UsageError: if the run that is there has other settings, logs or policies, or the machine is
            not that of the logs.
    """
    has_run(out, resume=resume)  # refuses before the seconds that torch takes
    import torch

    from mcat.agents.adaptation.known import known_of
    from mcat.agents.adaptation.rewards import AdaptRewards
    from mcat.agents.adaptation.trainer import Adapter, AdaptResult

    saved = f"stopped, all saved in {out}: the same command with --resume goes on"
    with Interrupts() as stop:
        torch.set_num_threads(config.threads)
        machine = _live(config, logs, live, card)
        try:
            log_delay = config.log_delay or (log_task.delay if log_task else 1)
            horizon = log_task.horizon if log_task else None
            credits = config.credit == "ridge"
            rewards = AdaptRewards(logs, log_delay, config.machine_delay, horizon, credits=credits)
            if rewards.lacks_payments:
                notify("note: too few payments yet to tell which steps earned them")
            known = known_of(logs, rewards.of_logs(), policy)
            adapter = Adapter(config, known, rewards, out, machine, card)
            with claimed_run(
                out, "adapt", config, resume=resume, notify=notify, made_of=dict(made_of or {})
            ) as claim:
                if claim.going_on:
                    old = read_json(out / RECORD_FILE).get("made_of", {})
                    require_same(str(out), old, made_of or {})
                if claim.finished is not None:
                    earned = {key: claim.finished[key] for key in ("step", "mean_return")}
                    return AdaptResult(out=out, policy=out / POLICY_FILE, **earned)
                if claim.going_on:
                    adapter.restore(notify)
                claim.write_record()
                result = adapter.run(stop, quiet=quiet)
                if stop.requested:
                    raise stop.error(saved)
                with stopping_at_once(saved):
                    finish(result)
                claim.write_result(
                    [result.policy], step=result.step, seconds=adapter.seconds,
                    mean_return=result.mean_return,
                )  # fmt: skip
        finally:
            if machine is not None:
                machine.close()
    return result


def _live(
    config: AdaptConfig, logs: Episodes, env: gym.Env[Any, Any] | None, card: Card | None
) -> Live | None:
    """The live machine, opened before anything is learned: it may be of another kind."""
    if not config.steps or (config.live is None and env is None):
        return None
    from mcat.agents.adaptation.machine import Live, open_live, require_bounds

    sizes = logs.observation_size, logs.action_size
    if env is not None:
        found = Live(env, config.live or "the live machine", sizes)
    else:
        assert config.live is not None
        found = open_live(config.live, config.live_args, sizes)
    if card is not None:
        require_bounds(found.name, found.env.action_space, card)
    return found
