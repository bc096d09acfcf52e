"""A folder that `mcat translate` wrote, put to use: the transferred policy, and what it earns."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from mcat.agents.evaluation import Trial
from mcat.agents.policies.names import (
    find_outside_policy,
    find_policy,
    find_source_policy,
    source_policy_name,
)
from mcat.envs.tasks import Task
from mcat.errors import DataError, MissingInputError, UsageError, unknown
from mcat.progress import Notify, ignore
from mcat.safe_io import read_json
from mcat.transfer.result import RESULT_FILE, TRANSFERRED, UNTRANSLATED, Machine, TransferResult
from mcat.translator import LearnedTranslator, TransferredPolicy, Translator
from mcat.translator.configs import TRANSLATOR_FILE
from mcat.types import PolicyFunction


class Transferred(NamedTuple):
    """A policy of one task that acts on another.

    Attributes:
        name: What was transferred from where, for tables and data sets.
        source: The policy as it is, None if it cannot act on the other task's spaces.
        policy: The policy, translated.
    """

    name: str
    source: PolicyFunction | None
    policy: TransferredPolicy


def open_transfer(
    folder: Path,
    policy: str | None,
    target: Task | None,
    source: str | None = None,
    *,
    notify: Notify = ignore,
) -> Transferred:
    """The policy that a folder's translator makes for `target`.

    Args:
        folder: What `mcat translate` wrote, or the translator in it.
        policy: The source policy, as `find_policy` takes it; None the default one.
        target: Where it shall act; None for a machine that mcat cannot simulate.
        source: Which of several tasks the policy comes from.
        notify: Told if the translator was made for another machine than `target`.

    Raises:
        MissingInputError: if there is no translator in it.
        DataError: if it is damaged.
        UsageError: if translator, policy and task do not fit together.
    """
    folder = folder.parent if folder.is_file() else folder
    result, translator = _read(folder)
    if isinstance(translator, LearnedTranslator) and translator.network.conditioned:
        if target is None:
            raise UsageError(f"{folder} knows several tasks: say by --env which one is meant")
        machine, translator = _between(translator, result.machines, source, target)
    elif source is not None and source != result.machines[0].name:
        raise unknown("source", source, [result.machines[0].name])
    else:
        machine = result.machines[0]
    sizes = translator.observation_size, translator.action_size
    if target is not None:
        _require_fit(folder, translator, result.machines[-1], target)
        if not result.matrix:  # a pair's; one of several tasks knows its targets
            _tell_of_another_machine(result.machines[-1], target, notify)
    if machine.task is None:
        own = translator.source_observation_size, translator.source_action_size
        function = find_outside_policy(policy, *own, machine.name, translator.source_card)
        name = str(policy)
    else:
        task = Task.from_dict(machine.task)
        own = task.spec.observation_size, task.spec.action_size
        name = source_policy_name(policy, task, target)
        function = find_source_policy(name, task, np.random.default_rng(0))
    return Transferred(
        f"{name} of {machine.name}, translated",
        function if own == sizes else None,
        TransferredPolicy(function, translator),
    )


def _require_fit(folder: Path, translator: Translator, learned: Machine, target: Task) -> None:
    sizes = target.spec.observation_size, target.spec.action_size
    if (translator.observation_size, translator.action_size) != sizes:
        raise UsageError(
            f"the translator in {folder} is for {learned.name} and does not fit"
            f" {target.label()}: {translator.observation_size} observations and"
            f" {translator.action_size} actions against {sizes[0]} and {sizes[1]}"
        )


def evaluation_trials(
    task: Task,
    policy: str | None,
    *,
    translator: Path | None = None,
    source: str | None = None,
    seed: int = 0,
    notify: Notify = ignore,
) -> list[Trial]:
    """What `mcat evaluate` runs: a policy as it is, or before and after translation."""
    if translator is not None:
        opened = open_transfer(translator, policy, task, source, notify=notify)
        return trials_on(task, opened)
    if source is not None:
        raise UsageError("--from names a task of a translator: give --translator too")
    name = source_policy_name(policy, task)
    return [Trial(name, find_policy(name, task, np.random.default_rng(seed)), task)]


def trials_on(target: Task, transferred: Transferred) -> list[Trial]:
    """Untranslated, where that is possible, and transferred."""
    trials = [Trial(TRANSFERRED, transferred.policy, target)]
    if transferred.source is not None:
        trials.insert(0, Trial(UNTRANSLATED, transferred.source, target))
    return trials


def _read(folder: Path) -> tuple[TransferResult, Translator]:
    if not (folder / RESULT_FILE).is_file():
        raise MissingInputError(f"{folder} is no folder that mcat translate wrote")
    content = read_json(folder / RESULT_FILE)
    try:
        result = TransferResult.from_json(content)
    except DataError as error:
        raise DataError(f"{folder / RESULT_FILE}: {error}") from error
    if not result.machines:
        raise DataError(f"{folder / RESULT_FILE}: names no machine")
    return result, Translator.load(folder / TRANSLATOR_FILE)


def _between(
    translator: LearnedTranslator, machines: tuple[Machine, ...], source: str | None, target: Task
) -> tuple[Machine, LearnedTranslator]:
    """The translator of several tasks, for two of them."""
    names = [machine.name for machine in machines]
    if source is None:
        raise UsageError(
            f"this translator knows several tasks: name the source by --from {names[0]}"
        )
    if source not in names:
        raise unknown("source", source, names)
    tasks = [None if m.task is None else _body(Task.from_dict(m.task)) for m in machines]
    if _body(target) not in tasks:
        raise UsageError(
            f"this translator does not know {target.label()}: it knows {', '.join(names)}"
        )
    number = names.index(source)
    return machines[number], translator.between(number, tasks.index(_body(target)))


def _tell_of_another_machine(learned: Machine, target: Task, notify: Notify) -> None:
    if learned.task is None or _body(Task.from_dict(learned.task)) != _body(target):
        notify(
            f"note: this translator was learned from logs of {learned.name}; nothing is known of"
            f" what it does on {target.label()}"
        )


def _body(task: Task) -> Task:
    """The machine alone: how rewards are paid and when time is up do not matter to a translator."""
    return task.stock() if task.own else task.replace(delay=1, horizon=1)
