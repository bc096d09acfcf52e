"""A folder that `mcat translate` wrote, put to use: the transferred policy, and what it earns."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from mcat.agents.evaluation import Trial
from mcat.agents.policies.names import (
    find_outside_policy,
    find_policy,
    find_source_policy,
    source_policy_name,
)
from mcat.envs.tasks import Task
from mcat.errors import DataError, UsageError, unknown
from mcat.progress import Notify, ignore
from mcat.transfer.result import (
    RESULT_FILE,
    TRANSFERRED,
    UNTRANSLATED,
    Machine,
    TransferResult,
    read_result,
)
from mcat.translator import LearnedTranslator, TransferredPolicy, Translator
from mcat.translator.configs import TRANSLATOR_FILE
from mcat.types import NamedPolicy, PolicyFunction


def open_transfer(
    folder: Path,
    policy: str | None,
    target: Task | None,
    source: str | None = None,
    *,
    notify: Notify = ignore,
) -> NamedPolicy[TransferredPolicy]:
    """The policy that a folder's translator makes for `target`, named by where it comes from.

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
    result, translator = read_transfer(folder)
    if isinstance(translator, LearnedTranslator) and translator.network.conditioned:
        if target is None:
            raise UsageError(f"{folder} knows several tasks: say by --env which one is meant")
        machine, translator = _between(translator, result.machines, source, target)
    elif source is not None and source != result.machines[0].name:
        raise unknown("source", source, [result.machines[0].name])
    else:
        machine = result.machines[0]
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
        name = source_policy_name(policy, task, target)
        function = find_source_policy(name, task, np.random.default_rng(0))
    return NamedPolicy(
        f"{name} of {machine.name}, translated", TransferredPolicy(function, translator)
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
        return trials_on(task, open_transfer(translator, policy, task, source, notify=notify).act)
    if source is not None:
        raise UsageError("--from names a task of a translator: give --translator too")
    name = source_policy_name(policy, task)
    return [Trial(name, find_policy(name, task, np.random.default_rng(seed)), task)]


def trials_on(
    target: Task, transferred: TransferredPolicy, plain: PolicyFunction | None = None
) -> list[Trial]:
    """As it is (or `plain` in its place), where its spaces fit, and transferred."""
    trials = [Trial(TRANSFERRED, transferred, target)]
    if plain := plain or untranslated(transferred):
        trials.insert(0, Trial(UNTRANSLATED, plain, target))
    return trials


def untranslated(transferred: TransferredPolicy) -> PolicyFunction | None:
    """The source policy as it is, None if it cannot act in the target's spaces."""
    moved = transferred.translator
    own = moved.source_observation_size, moved.source_action_size
    fits = own == (moved.observation_size, moved.action_size)
    return transferred.policy if fits else None


def read_transfer(folder: Path) -> tuple[TransferResult, Translator]:
    """The result and the translator of a folder that `mcat translate` wrote, or of a file in it.

    Raises:
        MissingInputError: if it is none.
        DataError: if one of them is damaged.
    """
    folder = folder.parent if folder.is_file() else folder
    result = read_result(folder)
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
