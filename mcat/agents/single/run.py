"""Training a policy for a single task, in a folder of its own, and going on with it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mcat.agents.runs.claim import claimed_run, has_run
from mcat.agents.runs.record import saved_config
from mcat.agents.single.config import TrainConfig
from mcat.interrupts import Interrupts
from mcat.progress import Notify, ignore

if TYPE_CHECKING:
    from mcat.agents.single.trainer import TrainResult
    from mcat.envs.lockstep import Lockstep


def train(
    config: TrainConfig,
    out: Path,
    *,
    resume: bool = False,
    quiet: bool = False,
    notify: Notify = ignore,
    env: Lockstep | None = None,
) -> TrainResult:
    """Train a policy for one task; Ctrl-C and SIGTERM save the run at once and raise.

    Args:
        config: The settings of the run.
        out: Its folder.
        resume: Go on with the run that is there, exact to the bit; start if there is none. One
            that is finished says what it earned. Of the settings only `RESUME_MAY_CHANGE` may
            differ.
        quiet: Show no progress.
        notify: Told what is odd on going on: other code, a damaged checkpoint.
        env: Collect here, in one row, and not in an environment made of the task: what
            `in_lockstep` gives. It is left open.

    Raises:
        CannotCreateError: if there is something at `out`.
        DataError: if the record, the checkpoints and the replay of a run do not belong together.
        DivergedError: if a loss is not finite; the last good checkpoint is kept.
        StoppedError: if a signal came and everything is saved.
        UsageError: if the run that is there has other settings.
    """
    has_run(out, resume=resume)  # refuses before the seconds that torch takes
    import torch

    from mcat.agents.single.trainer import Trainer, TrainResult

    with Interrupts() as stop:
        torch.set_num_threads(config.threads)
        trainer = Trainer(config, out, env)  # refuses what cannot work before anything is made
        with claimed_run(out, "train", config, resume=resume, notify=notify) as claim:
            if claim.finished is not None:
                return TrainResult(
                    out=out,
                    policies=tuple(out / name for name in claim.finished["policies"]),
                    mean_return=claim.finished["mean_return"],
                    success_rate=claim.finished.get("success_rate"),
                )
            if claim.going_on:
                trainer.restore(notify)
            claim.write_record()
            trainer.run(stop, quiet=quiet)
            result = trainer.result()
            rate = result.success_rate
            claim.write_result(
                result.policies,
                step=trainer.step,
                seconds=trainer.seconds,
                mean_return=result.mean_return,
                **({} if rate is None else {"success_rate": rate}),
            )
    return result


def read_config(folder: Path) -> TrainConfig:
    """The settings of a run of `mcat train`, for going on with it.

    Raises:
        MissingInputError: if the folder holds none.
        DataError: if it is another command's or damaged.
    """
    return saved_config(folder, "train", TrainConfig)
