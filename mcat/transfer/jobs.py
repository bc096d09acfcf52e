"""What `mcat translate` does with its logs: train, look at the result, run episodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from mcat.agents.evaluation import Paths, Trial, first_start, run_episodes
from mcat.agents.meta.config import GOOD_ENOUGH
from mcat.agents.policies.policy import Policy
from mcat.agents.returns import Returns
from mcat.datasets.cards import Card
from mcat.progress import Stopwatch
from mcat.transfer.alternatives import learn_alternatives, logged_returns
from mcat.transfer.config import TransferConfig, alternative_updates
from mcat.transfer.deploy import trials_on
from mcat.transfer.logs import Logs, describe
from mcat.transfer.looks import Looks
from mcat.transfer.result import GUESSED, ON_SOURCE, Cells, ContextPoints, ReturnMatrix
from mcat.transfer.source_policies import require_use, source_policy, task_policies, told
from mcat.translator import LearnedTranslator, TransferredPolicy, Translator, fit_many, fit_pair
from mcat.translator.configs import ContextConfig
from mcat.translator.cycle.pair import fit_cycle
from mcat.translator.cycle.spaces import fit_cycle_spaces
from mcat.translator.grade import Trust
from mcat.translator.state.correspondence import Correspondence, find_correspondence
from mcat.translator.state.translator import fit_state
from mcat.translator.trust import estimate_trust
from mcat.translator.windows import sample_windows
from mcat.types import NamedPolicy, PolicyFunction

# By robot, the authors' threshold for a pair (squared error of two batches) as mean absolute error.
PAIR_CUTS = {"halfcheetah": 0.056, "ant": 0.25}
SCATTER = 500  # actions shown before and after translation
CONTEXTS = 200  # contexts shown per task


@dataclass(kw_only=True)
class Found:
    """A translator, and the part of a `TransferResult` that is about it."""

    translator: Translator
    # What else the target's logs gave, by label.
    policies: dict[str, Policy] = field(default_factory=dict)
    policy: str
    skipped: str | None
    trust: Trust | None = None
    scatter: dict[str, list[list[float]]] = field(default_factory=dict)
    returns: tuple[Returns, ...] = ()
    logged: tuple[Returns, ...] = ()
    looks: tuple[float, ...] = ()
    paths: Paths = field(default_factory=dict)
    matrix: ReturnMatrix | None = None
    contexts: ContextPoints | None = None


def translate_pair(
    config: TransferConfig, logs: Sequence[Logs], timings: Stopwatch, *, workers: int, quiet: bool
) -> Found:
    """Fit one translator from source to target and find out what it is worth."""
    source, target = logs  # docs/decisions.md#in-every-preset-paper-included
    guess = None
    if config.map is not None:
        guess = find_correspondence(config.map, source.sizes, target.sizes)
    policy = source_policy(config, source, target)
    trusts = guess is None and config.method == "ours"
    require_use(config, [policy], used=policy.act is not None and trusts)
    looks = None
    if config.best_of and policy.act and not policy.skipped and target.task:
        looks = Looks(policy.act, target.task, config, workers)
    with timings.time("fit"):
        translator = _fit_pair(config, source, target, guess, looks, quiet=quiet)
    found = Found(translator=translator, policy=policy.name, skipped=told([policy]))
    if looks is not None:
        found.looks = tuple(looks.means)
        timings.seconds["looks"] = looks.seconds
        timings.seconds["fit"] -= looks.seconds
    if isinstance(translator, LearnedTranslator):
        with timings.time("trust"):
            found.trust = estimate_trust(
                translator,
                source.episodes,
                target.episodes,
                policy.act,
                seed=config.seed,
                quiet=quiet,
            )
    found.scatter = _scatter(translator, source, guess, np.random.default_rng(config.seed))
    found.logged = logged_returns(source, target)
    if policy.act and not policy.skipped and source.task and target.task:
        with timings.time("evaluate"):
            moved = TransferredPolicy(policy.act, translator)
            guessed = None if guess is None else guess.guess(policy.act)
            trials = [Trial(ON_SOURCE, policy.act, source.task)]
            if source.sizes != target.sizes:  # only the first guess lets it act at all
                trials += trials_on(target.task, moved, guessed)
            else:
                trials += [Trial(GUESSED, guessed, target.task)] if guessed else []
                trials += trials_on(target.task, moved)
            found.returns, found.paths = _run(trials, config, workers=workers, quiet=quiet)
        if config.alternatives:
            with timings.time("alternatives"):
                _try_alternatives(found, config, target, workers=workers, quiet=quiet)
    translator.with_cards(*_cards(logs))  # only now: what went before speaks of shares
    return found


def _try_alternatives(
    found: Found, config: TransferConfig, target: Logs, *, workers: int, quiet: bool
) -> None:
    """Add what else the target's logs give, run from the same starts."""
    assert target.task is not None
    found.policies = learn_alternatives(
        target, updates=alternative_updates(config.preset), seed=config.seed, quiet=quiet
    )
    trials = [Trial(label, policy, target.task) for label, policy in found.policies.items()]
    found.returns += _run(trials, config, workers=workers, quiet=quiet)[0]


def _run(
    trials: Sequence[Trial], config: TransferConfig, *, workers: int, quiet: bool
) -> tuple[tuple[Returns, ...], Paths]:
    """As many episodes as were asked for, from the starts of the seed; none without trials."""
    if not trials:
        return (), {}
    start, episodes = first_start(config.seed), config.episodes
    return run_episodes(trials, episodes=episodes, seed=start, workers=workers, quiet=quiet)


def _cards(logs: Sequence[Logs]) -> list[Card]:
    """What the numbers of all machines are, if one of the logs says it."""
    if not any(item.card for item in logs):
        return []
    return [item.card or Card.of_metadata({}, item.sizes) for item in logs]


def _fit_pair(
    config: TransferConfig,
    source: Logs,
    target: Logs,
    guess: Correspondence | None,
    looks: Looks | None,
    *,
    quiet: bool,
) -> Translator:
    recipe, seed, pair = config.recipe, config.seed, (source.episodes, target.episodes)
    if guess is not None and config.method == "cycle":
        return fit_cycle_spaces(*pair, guess, config=recipe.cycle_spaces, seed=seed, quiet=quiet)
    if guess is not None:
        return fit_state(*pair, guess, config=recipe.state, seed=seed, quiet=quiet)
    if config.method == "cycle":
        cycle = replace(recipe.cycle, epochs=config.best_of or recipe.cycle.epochs)
        return fit_cycle(*pair, config=cycle, seed=seed, quiet=quiet, on_epoch=looks)
    return fit_pair(
        *pair,
        context=_with_cut(recipe.context, target, PAIR_CUTS),
        action=recipe.action,
        joint=recipe.joint,
        seed=seed,
        quiet=quiet,
        epochs=config.best_of or 1,
        on_epoch=looks,
    )


def _with_cut(context: ContextConfig, logs: Logs, cuts: dict[str, float]) -> ContextConfig:
    """With the threshold that suits the robot where it shall, 0 for one without."""
    if context.cut_below is not None:
        return context
    return replace(context, cut_below=cuts.get(logs.task.robot, 0.0) if logs.task else 0.0)


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
    config: TransferConfig, logs: Sequence[Logs], timings: Stopwatch, *, workers: int, quiet: bool
) -> Found:
    """Fit one translator between all tasks and find out what it is worth."""
    policies = task_policies(config, logs)
    require_use(config, policies)
    with timings.time("fit"):
        translator = fit_many(
            [item.episodes for item in logs],
            names=[machine.name for machine in describe(logs)],
            context=_with_cut(config.recipe.context, logs[0], GOOD_ENOUGH),
            action=config.recipe.action,
            seed=config.seed,
            quiet=quiet,
        )
    with timings.time("evaluate"):
        trials, cells = _matrix_trials(logs, policies, translator)
        returns, _ = _run(trials, config, workers=workers, quiet=quiet)
    return Found(
        translator=translator.with_cards(*_cards(logs)),
        policy=policies[0].name,
        skipped=told(policies),
        matrix=_matrix([machine.name for machine in describe(logs)], cells, returns),
        contexts=_contexts(translator, logs, np.random.default_rng(config.seed)),
    )


def _matrix_trials(
    logs: Sequence[Logs],
    policies: Sequence[NamedPolicy[PolicyFunction | None]],
    translator: LearnedTranslator,
) -> tuple[list[Trial], list[tuple[int, int]]]:
    """Every task's policy on every task, as it is and translated, and which cells these are."""
    trials, cells = [], []
    for i, policy in enumerate(policies):
        for j, target in enumerate(logs):
            if policy.act and not policy.skipped and target.task:
                moved = TransferredPolicy(policy.act, translator.between(i, j))
                trials += trials_on(target.task, moved)
                cells.append((i, j))
    return trials, cells


def _matrix(
    names: Sequence[str], cells: Sequence[tuple[int, int]], returns: Sequence[Returns]
) -> ReturnMatrix:
    def table(values: Sequence[float | None]) -> Cells:
        found = dict(zip(cells, values, strict=True))
        return tuple(tuple(found.get((i, j)) for j in range(len(names))) for i in range(len(names)))

    before, after = returns[::2], returns[1::2]
    known = any(item.successes is not None for item in returns)
    return ReturnMatrix(
        names=tuple(names),
        untranslated=table([item.mean for item in before]),
        transferred=table([item.mean for item in after]),
        untranslated_error=table([item.standard_error for item in before]),
        transferred_error=table([item.standard_error for item in after]),
        untranslated_success=table([item.success_rate for item in before]) if known else None,
        transferred_success=table([item.success_rate for item in after]) if known else None,
    )


def _contexts(
    translator: LearnedTranslator, logs: Sequence[Logs], rng: np.random.Generator
) -> ContextPoints:
    """Contexts of single histories of each task, not averaged."""
    model, points, tasks = translator.model, [], []
    for number, item in enumerate(logs):
        rows = sample_windows(item.episodes, model.config, rng, CONTEXTS)
        contexts = model.encode(rows.context_past)
        points += _rounded(contexts.numpy())
        tasks += [number] * len(contexts)
    return ContextPoints(points=points, tasks=tasks)


def _rounded(values: NDArray[np.float32]) -> list[list[float]]:
    """Short in JSON, exact enough for a picture."""
    rows: list[list[float]] = values.astype(np.float64).round(5).tolist()
    return rows
