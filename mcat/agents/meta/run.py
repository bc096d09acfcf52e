"""From a configuration to a meta-training run in a folder, and back into one that was stopped."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mcat.agents.limits import require_bearable, require_room
from mcat.agents.meta.algorithm import Algorithm, TaskSet
from mcat.agents.meta.images import mirror_images
from mcat.agents.meta.loop import MetaTrainer, MetaTrainResult
from mcat.agents.meta.methods.registry import find_method
from mcat.agents.meta.run_config import RunConfig
from mcat.agents.runs.claim import Claim, claimed_run, has_run
from mcat.agents.runs.record import POLICY_FILE, RECORD_FILE, read_record, saved_config
from mcat.config import differences, to_json
from mcat.envs.families import FAMILIES, PACKAGED
from mcat.envs.lockstep import Lockstep
from mcat.errors import DataError, MissingInputError, UsageError
from mcat.interrupts import Interrupts
from mcat.progress import Notify, ignore


def metatrain(
    config: RunConfig,
    out: Path,
    *,
    resume: bool = False,
    quiet: bool = False,
    notify: Notify = ignore,
    preset: str = "custom",
    env: Lockstep | None = None,
) -> MetaTrainResult:
    """Train one policy for all tasks of a family.

    Args:
        config: The settings of the run; their class says by which method.
        out: Its folder.
        resume: Go on with the run that is there, exact to the bit; start if there is none. One
            that is finished says what it earned. Of the settings only `RESUME_MAY_CHANGE` may
            differ.
        quiet: Show no progress.
        notify: Told what is odd on going on: other code, a damaged checkpoint.
        preset: What the record calls the settings.
        env: Collect here, in a row for each training task, and not in environments made of them:
            what `in_lockstep` gives, such as for processes. It is left open.

    Raises:
        CannotCreateError: if there is something at `out`.
        DataError: if the record, the checkpoints and the rounds of a run do not belong together.
        DivergedError: if a loss is not finite; the last good checkpoint is kept.
        StoppedError: if a signal came; the run can be resumed.
        UsageError: if the run that is there is of another method, has other settings, or made
            more steps already.
    """
    if has_run(out, resume=resume):
        _require_method(out, config.method)
    with Interrupts() as stop:
        trainer = _trainer(config, out)  # refuses what cannot work before anything is made
        if env is not None:
            trainer.act_in(env)
        tasks = _described(trainer.task_set)
        if config.family not in PACKAGED:
            tasks["family"] = config.tasks.to_dict()
        with claimed_run(
            out,
            "metatrain",
            config,
            resume=resume,
            notify=notify,
            preset=preset,
            method=config.method,
            arena=tasks,
        ) as claim:
            if claim.finished is not None:
                return _of_finished(out, claim.finished)
            if claim.going_on:
                _restore(trainer, claim, tasks, notify)
            claim.write_record()
            result = trainer.run(stop, quiet=quiet)
            rates = {"train_success": result.train_success, "test_success": result.test_success}
            claim.write_result(
                [result.policy],
                step=trainer.step,
                seconds=trainer.seconds,
                train_return=result.train_return,
                test_return=result.test_return,
                **{name: rate for name, rate in rates.items() if rate is not None},
            )
    return result


def read_config(folder: Path) -> RunConfig:
    """The settings of a run of `mcat metatrain`, for going on with it.

    Raises:
        MissingInputError: if the folder holds none.
        DataError: if it is another command's, of a method that is not known here, or damaged.
    """
    record = read_record(folder, kinds=("metatrain",))
    if record.own_family is not None:  # the run goes on with it, whatever became of its file
        FAMILIES.setdefault(str(record.config["family"]), record.own_family)
    try:
        kind = find_method(record.method).config
    except UsageError as error:
        raise DataError(f"{folder / RECORD_FILE}: {error}") from error
    return saved_config(folder, "metatrain", kind)


def restored(folder: Path) -> Algorithm:
    """The method of a run as its newest checkpoint has it; nothing in the folder is touched.

    Raises:
        MissingInputError: if the folder holds no such run, or no checkpoint yet.
        DataError: if it is damaged.
    """
    trainer = _trainer(read_config(folder), folder)
    trainer.restore(logs=False)
    if not trainer.iteration:
        raise MissingInputError(f"{folder} has no checkpoint yet: let the run go on")
    return trainer.algorithm


def _require_method(out: Path, method: str) -> None:
    there = read_record(out, kinds=("metatrain",)).method
    if there != method:
        raise UsageError(
            f"{out} is a run by the method {there}, not {method}: choose another --out, or go on"
            f" with mcat metatrain --resume {out}"
        )


def _restore(trainer: MetaTrainer, claim: Claim, tasks: dict[str, Any], notify: Notify) -> None:
    there = claim.record["arena"]
    here = {key: tasks[key] for key in tasks if key in there or key != "family"}  # as once written
    if odd := differences(there, here):
        raise DataError(
            f"{claim.out / RECORD_FILE}: its tasks are not those of its family ({'; '.join(odd)})"
        )
    before = read_config(claim.out).steps
    trainer.restore(notify)
    steps = trainer.config.steps
    if trainer.step >= steps and (steps < before or not trainer.earned):
        raise UsageError(
            f"{claim.out} has made {trainer.step:,} steps already: ask for more with --steps"
        )


def _of_finished(out: Path, result: dict[str, Any]) -> MetaTrainResult:
    """What `result.json` says."""
    numbers = ("train_return", "test_return", "train_success", "test_success")
    earned = {name: result[name] for name in numbers if name in result}
    return MetaTrainResult(out=out, policy=out / POLICY_FILE, **earned)


def _described(task_set: TaskSet) -> dict[str, Any]:
    """What `run.json` says of the tasks."""
    return {
        "train": list(task_set.train),
        "test": list(task_set.test),
        "horizon": task_set.horizon,
        "delay": task_set.delay,
    }


def _trainer(config: RunConfig, out: Path) -> MetaTrainer:
    family = config.tasks
    require_bearable(to_json(config))
    require_room(
        family.tasks[0],
        config.evaluation_episodes,
        tasks=len(family.tasks),
        key="evaluation_episodes",
    )
    torch.set_num_threads(config.threads)
    task_set = TaskSet.of(family)
    if config.mirrors_replay:
        task_set = replace(task_set, images=mirror_images(family.train))
    seed = np.random.SeedSequence(config.seed, spawn_key=(0,))
    algorithm = find_method(config.method).make(task_set, config, seed)
    return MetaTrainer(config, task_set, algorithm, out)
