"""From logs and a source policy to an adaptation in a folder, and back into a stopped one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch

from mcat.agents.adaptation.config import RESUME_MAY_CHANGE, AdaptConfig
from mcat.agents.adaptation.known import known_of
from mcat.agents.adaptation.trainer import Adapter, AdaptResult
from mcat.agents.runs.claim import claimed_run, has_run
from mcat.agents.runs.record import RECORD_FILE
from mcat.config import require_same, to_json
from mcat.datasets.views import Episodes
from mcat.interrupts import Interrupts
from mcat.progress import Notify, ignore
from mcat.safe_io import read_json
from mcat.types import PolicyFunction


def adapt(
    config: AdaptConfig,
    out: Path,
    logs: Episodes,
    policy: PolicyFunction | None,
    *,
    made_of: Mapping[str, str],
    resume: bool = False,
    quiet: bool = False,
    notify: Notify = ignore,
) -> AdaptResult:
    """Learn a policy for a changed machine, from its logs and from a few real steps.

    Args:
        config: The settings of the run.
        out: Its folder.
        logs: Of the changed machine, with rewards.
        policy: The source policy, translated; None if there is none.
        made_of: Hashes of logs, policy and translator, by which a run is known again.
        resume: Go on with the run that is there, exact to the bit; start if there is none.
        quiet: Show no progress.
        notify: Told what is odd on going on.

    Raises:
        CannotCreateError: if there is something at `out`.
        DivergedError: if a loss is not finite; the last good checkpoint is kept.
        StoppedError: if a signal came and everything is saved.
        UsageError: if the run that is there has other settings, logs or policies.
    """
    has_run(out, resume=resume)
    with Interrupts() as stop:
        torch.set_num_threads(config.threads)
        adapter = Adapter(config, known_of(logs, policy), out)
        with claimed_run(
            out,
            "adapt",
            to_json(config),
            resume=resume,
            may_change=RESUME_MAY_CHANGE,
            notify=notify,
            made_of=dict(made_of),
        ) as claim:
            if claim.going_on:
                old = read_json(out / RECORD_FILE).get("made_of", {})
                require_same(str(out), old, dict(made_of))
                adapter.restore(notify)
            claim.write_record()
            result = adapter.run(stop, quiet=quiet)
            claim.write_result(
                [result.policy] if result.policy.is_file() else [],
                step=adapter.step,
                seconds=adapter.seconds,
                mean_return=result.mean_return,
            )
    return result
