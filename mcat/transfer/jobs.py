"""What `mcat translate` does with its logs: train, look at the result, run episodes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mcat.agents.evaluation import Paths, Returns, Run, run_episodes
from mcat.agents.policies.names import find_source_policy, source_policy_name
from mcat.errors import UsageError
from mcat.progress import Stopwatch
from mcat.transfer.config import TransferConfig
from mcat.transfer.deploy import Transferred, runs_on
from mcat.transfer.logs import Logs, describe
from mcat.transfer.result import ON_SOURCE
from mcat.translator import LearnedTranslator, TransferredPolicy, Translator, fit_many, fit_pair
from mcat.translator.cycle.pair import fit_cycle
from mcat.translator.cycle.spaces import fit_cycle_spaces
from mcat.translator.state.correspondence import Correspondence, find_correspondence
from mcat.translator.state.translator import fit_state
from mcat.translator.trust import estimate_trust
from mcat.translator.windows import sample_windows
from mcat.types import PolicyFunction

SCATTER = 500  # actions shown before and after translation
CONTEXTS = 200  # contexts shown per task


class SourcePolicy(NamedTuple):
    """A task's policy, None if there is none, and why it is not run, if so."""

    name: str
    function: PolicyFunction | None
    skipped: str | None


def translate_pair(
    config: TransferConfig, logs: Sequence[Logs], timings: Stopwatch
) -> tuple[Translator, dict[str, Any]]:
    """One translator from source to target, and the part of the result that is about it."""
    source, target = logs
    guess = None
    if config.map is not None:
        guess = find_correspondence(config.map, source.sizes, target.sizes)
    policy = _source_policy(config, source, target)
    trusts = guess is None and config.method == "ours"
    _require_use(config, [policy], used=policy.function is not None and trusts)
    with timings.time("fit"):
        translator = _fit_pair(config, source, target, guess)
    found: dict[str, Any] = {"policy": policy.name, "skipped": _told([policy])}
    if isinstance(translator, LearnedTranslator):
        with timings.time("trust"):
            found["trust"] = estimate_trust(
                translator,
                source.episodes,
                target.episodes,
                policy.function,
                seed=config.seed,
                quiet=config.quiet,
            )
    found["scatter"] = _scatter(translator, source, guess, np.random.default_rng(config.seed))
    if policy.function and not policy.skipped and source.task and target.task:
        with timings.time("evaluate"):
            plain = _untranslated(policy.function, guess, source, target)
            transferred = Transferred(
                policy.name, plain, TransferredPolicy(policy.function, translator)
            )
            runs = [Run(ON_SOURCE, source.task, policy.function)]
            found["returns"], found["paths"] = _run(
                config, runs + runs_on(target.task, transferred)
            )
    return translator, found


def _fit_pair(
    config: TransferConfig, source: Logs, target: Logs, guess: Correspondence | None
) -> Translator:
    recipe, pair = config.recipe, (source.episodes, target.episodes)
    seed, quiet = config.seed, config.quiet
    if guess is not None and config.method == "cycle":
        return fit_cycle_spaces(*pair, guess, config=recipe.cycle_spaces, seed=seed, quiet=quiet)
    if guess is not None:
        return fit_state(*pair, guess, config=recipe.state, seed=seed, quiet=quiet)
    if config.method == "cycle":
        return fit_cycle(*pair, config=recipe.cycle, seed=seed, quiet=quiet)
    return fit_pair(
        *pair,
        context=recipe.context,
        action=recipe.action,
        joint=recipe.joint,
        seed=seed,
        quiet=quiet,
    )


def _source_policy(
    config: TransferConfig, source: Logs, target: Logs | None = None
) -> SourcePolicy:
    """The policy to transfer, found before training; without `target` to whatever target.

    Raises:
        UsageError: if one was named that does not exist or fit.
    """
    own_robots = [logs.files[0] for logs in (source, target) if logs and logs.task is None]
    name, function, skipped = config.policy or "none", None, None
    if source.task is not None:
        name = source_policy_name(config.policy, source.task, target.task if target else None)
        try:
            function = find_source_policy(name, source.task, np.random.default_rng(config.seed))
        except UsageError as error:
            if config.policy is not None:
                raise
            skipped = str(error)
    if own_robots:
        skipped = (
            f"mcat cannot simulate the machine of {own_robots[0]}; run a"
            " TransferredPolicy on the machine itself"
        )
    if config.episodes == 0:
        skipped = "--episodes 0"
    return SourcePolicy(name, function, skipped)


def _require_use(
    config: TransferConfig, policies: Sequence[SourcePolicy], *, used: bool = False
) -> None:
    """Refuse a policy that would neither be run nor, otherwise, `used`."""
    reasons = [policy.skipped for policy in policies]
    if config.policy is not None and all(reasons) and not used:
        raise UsageError(f"leave out --policy, which would not be used: {reasons[0]}")


def _told(policies: Sequence[SourcePolicy]) -> str | None:
    """Why episodes were not run, in one line."""
    reasons = list(dict.fromkeys(policy.skipped for policy in policies if policy.skipped))
    if not reasons:
        return None
    whose = "" if all(policy.skipped for policy in policies) else " with some of the policies"
    return f"no episodes were run{whose}: {'; '.join(reasons)}"


def _untranslated(
    policy: PolicyFunction, guess: Correspondence | None, source: Logs, target: Logs
) -> PolicyFunction:
    """The source policy on the target; in other spaces it needs the first guess to act at all."""
    return policy if guess is None or source.sizes == target.sizes else guess.guess(policy)


def _scatter(
    translator: Translator, source: Logs, guess: Correspondence | None, rng: np.random.Generator
) -> dict[str, list[list[float]]]:
    """Some actions of the source before and after; nothing if they cannot be set side by side."""
    if translator.action_size != source.episodes.action_size:
        return {}
    rows = source.episodes.sample_transitions(rng, min(SCATTER, len(source.episodes)))
    states = rows.observations if guess is None else rows.observations @ guess.state_to_target.T
    translated = translator.translate(states, rows.actions)
    return {"source": _rounded(rows.actions), "translated": _rounded(translated)}


def translate_many(
    config: TransferConfig, logs: Sequence[Logs], timings: Stopwatch
) -> tuple[Translator, dict[str, Any]]:
    """One translator between all tasks, and the part of the result that is about it."""
    policies = _task_policies(config, logs)
    _require_use(config, policies)
    with timings.time("fit"):
        translator = fit_many(
            [item.episodes for item in logs],
            names=[machine.name for machine in describe(logs)],
            context=config.recipe.context,
            action=config.recipe.action,
            seed=config.seed,
            quiet=config.quiet,
        )
    found: dict[str, Any] = {
        "policy": policies[0].name,
        "skipped": _told(policies),
        "contexts": _contexts(translator, logs, np.random.default_rng(config.seed)),
    }
    with timings.time("evaluate"):
        found["matrix"] = _matrix(config, logs, policies, translator)
    return translator, found


def _task_policies(config: TransferConfig, logs: Sequence[Logs]) -> list[SourcePolicy]:
    """Each task's own policy, where there is one.

    Raises:
        UsageError: if one was named that no task has.
    """
    if config.policy is not None and Path(config.policy).is_file():
        raise UsageError("several tasks need a policy each: name good, mediocre or scripted")
    policies, missing = [], []
    for item in logs:
        try:
            policies.append(_source_policy(config, item))
        except UsageError as error:
            missing.append(error)
            policies.append(SourcePolicy(str(config.policy), None, str(error)))
    if len(missing) == len(logs):
        raise missing[0]
    return policies


def _matrix(
    config: TransferConfig,
    logs: Sequence[Logs],
    policies: Sequence[SourcePolicy],
    translator: LearnedTranslator,
) -> dict[str, Any]:
    """Mean returns of every task's policy on every task, as it is and translated."""
    cells, runs = [], []
    for i, policy in enumerate(policies):
        for j, target in enumerate(logs):
            if policy.function and not policy.skipped and target.task:
                moved = TransferredPolicy(policy.function, translator.between(i, j))
                runs += runs_on(target.task, Transferred(policy.name, policy.function, moved))
                cells.append((i, j))
    returns = _run(config, runs)[0] if runs else ()
    matrix: dict[str, Any] = {"names": [machine.name for machine in describe(logs)]}
    for kind, found in (("untranslated", returns[::2]), ("transferred", returns[1::2])):
        matrix[kind], matrix[f"{kind}_error"] = _table(len(logs)), _table(len(logs))
        for (i, j), cell in zip(cells, found, strict=True):
            matrix[kind][i][j] = cell.mean
            matrix[f"{kind}_error"][i][j] = cell.standard_error
    return matrix


def _table(size: int) -> list[list[float | None]]:
    return [[None] * size for _ in range(size)]


def _contexts(
    translator: LearnedTranslator, logs: Sequence[Logs], rng: np.random.Generator
) -> dict[str, Any]:
    """Contexts of single histories of each task, not averaged."""
    model, points, tasks = translator.model, [], []
    for number, item in enumerate(logs):
        rows = sample_windows(item.episodes, model.config, rng, CONTEXTS)
        contexts = model.encode(rows.context_past)
        points += _rounded(contexts.numpy())
        tasks += [number] * len(contexts)
    return {"points": points, "tasks": tasks}


def _run(config: TransferConfig, runs: Sequence[Run]) -> tuple[tuple[Returns, ...], Paths]:
    return run_episodes(
        runs,
        episodes=config.episodes,
        seed=config.seed,
        workers=config.threads,
        quiet=config.quiet,
    )


def _rounded(values: NDArray[np.float32]) -> list[list[float]]:
    """Short in JSON, exact enough for a picture."""
    rows: list[list[float]] = values.astype(np.float64).round(5).tolist()
    return rows
