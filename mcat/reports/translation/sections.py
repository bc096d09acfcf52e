"""What the numbers of a transfer say: for each part of its report a finding and a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import ArrayLike

from mcat.agents.returns import SUCCESS
from mcat.reports.sections import Array, Section, gains, number, rate, share, told_apart
from mcat.reports.translation.verdict import mean_and_error_text, verdict
from mcat.transfer.result import (
    CLONED,
    OFFLINE,
    ON_SOURCE,
    TRANSFERRED,
    UNTRANSLATED,
    ReturnMatrix,
    TransferResult,
)
from mcat.translator.grade import Trust

SPREADS = "spreads of one-step change"
EFFECTS = "1 = effect of the source's actions"
_SHORT = {CLONED: "cloned", OFFLINE: "offline RL"}


def sections(result: TransferResult) -> Iterator[Section]:
    """The parts that this result has something to say about, in the order of the report."""
    if result.returns:
        yield _returns(result)
    if result.matrix and np.isfinite(gains(result.matrix)[0]).any():
        yield _heat_map(result)
    if result.trust is not None:
        yield _mismatch(result)
        yield _dimensions(result)
    if curves(result):
        yield _curves(result)
    if result.fit.forward_error:
        yield _forward_error(result)
    if result.scatter:
        yield _actions(result)
    if result.paths:
        yield _paths(result)
    if result.contexts:
        yield _contexts(result)


def _returns(result: TransferResult) -> Section:
    goals = any(returns.successes is not None for returns in result.returns)
    heading = ("policy", "mean ± standard error", "lowest", "highest", "episodes")
    rows = [(*heading, *["success"] * goals)] + [
        (
            returns.label,
            mean_and_error_text(returns),
            f"{min(returns.values):,.1f}",
            f"{max(returns.values):,.1f}",
            str(len(returns.values)),
            *[rate(returns.success_rate)] * goals,
        )
        for returns in (*result.returns, *result.logged)
    ]
    means = {returns.label: f"{returns.mean:,.0f}" for returns in result.returns}
    pair = " → ".join(means[label] for label in (UNTRANSLATED, TRANSFERRED) if label in means)
    others = [f"{short} {means[label]}" for label, short in _SHORT.items() if label in means]
    return Section(
        name="returns",
        title="What it earns",
        reading="Bars are means with their standard error and every dot is one episode; compare"
        " the bars on the target, and look whether their dots overlap. What the logs gave by"
        " themselves needs no source policy at all." + f" {SUCCESS}" * goals,
        finding=f"{verdict(result).headline}: " + "; ".join([f"{pair} on the target", *others]),
        rows=rows,
    )


def _heat_map(result: TransferResult) -> Section:
    assert result.matrix is not None
    names = result.matrix.names
    percent, clear = gains(result.matrix)
    rows = [("policy of ↓ run on →", *names)] + [
        (name, *(_gain_text(*cell) for cell in zip(*row, strict=True)))
        for name, *row in zip(names, percent, clear, strict=True)
    ]
    rates = _success_rows(result.matrix)
    return Section(
        name="improvement",
        title="Which transfers gain",
        reading="Each cell is the policy of its row run on the machine of its column: how much"
        " translation changes the mean return, in percent of the untranslated return; a * is more"
        " than twice the standard error."
        + f" Success rates are untranslated → transferred. {SUCCESS}"
        * bool(rates),
        finding=verdict(result).headline,
        rows=rows + rates,
    )


def _success_rows(matrix: ReturnMatrix) -> list[tuple[str, ...]]:
    """How often every policy succeeds on every task; none for robots without a goal."""
    before, after = matrix.untranslated_success, matrix.transferred_success
    if before is None or after is None:
        return []
    return [
        (f"{name}: success", *(f"{rate(b)} → {rate(a)}" for b, a in zip(*row, strict=True)))
        for name, *row in zip(matrix.names, before, after, strict=True)
    ]


def _gain_text(gain: float, clear: bool) -> str:
    """One cell of the heat map."""
    return "–" if np.isnan(gain) else f"{gain:+.1f}{'*' if clear else ''}"


def _mismatch(result: TransferResult) -> Section:
    trust = result.trust
    assert trust is not None
    rows = [
        ("what", EFFECTS),
        ("source actions as they are", number(trust.untranslated)),
        ("translated actions", number(trust.translated)),
        ("closer by (95 % interval)", " to ".join(map(number, trust.closer))),
        ("best actions found by search", number(trust.reachable)),
        ("error of the models themselves", number(trust.model_error)),
        ("scatter of held-out steps beside it", number(trust.scatter)),
        ("share of source actions without an equivalent", share(trust.no_equivalent)),
    ]
    return Section(
        name="mismatch",
        title="How far the target ends from where the source would",
        reading="Distance after one step from the same state; the green bar is as near as any"
        " actions come, and differences shorter than the grey bar the models cannot see.",
        finding=_mismatch_finding(trust),
        rows=rows,
    )


def _mismatch_finding(trust: Trust) -> str:
    gap, left = trust.untranslated, trust.translated
    if trust.grade == "unknown":
        return f"The models are off by {number(trust.model_error)}: they cannot tell"
    if trust.grade == "same":
        return f"The machines differ by {number(gap)} at most, with or without translation"
    if abs(gap - left) < 0.01 * gap:
        found = "Translation leaves the mismatch as it is"
    else:
        found = f"Translation {'removes' if left < gap else 'adds'} {share(abs(1 - left / gap))}"
        found += " of the mismatch"
    if trust.reachable >= gap:
        return f"{found}; no better actions were found"
    return f"{found}; the best actions would remove {share(1 - trust.reachable / gap)}"


def state_names(result: TransferResult, size: int) -> list[str]:
    """What the target's log calls the numbers of its state, else their number."""
    names = result.machines[-1].observation_names
    return list(names) if len(names) == size else [f"state {index}" for index in range(size)]


def action_names(result: TransferResult, source: int, target: int) -> tuple[str, str]:
    """What the logs call an action of the source and one of the target, else their numbers."""
    named = [machine.action_names for machine in (result.machines[0], result.machines[-1])]
    first, last = (
        names[number] if number < len(names) else f"action {number}"
        for names, number in zip(named, (source, target), strict=True)
    )
    return first, last


def _dimensions(result: TransferResult) -> Section:
    trust = result.trust
    assert trust is not None
    before = np.array(trust.per_dimension_untranslated)
    after = np.array(trust.per_dimension_translated)
    names = state_names(result, len(before))
    closer, worst = int((after < before).sum()), int(after.argmax())
    rows = [("part of the state", "as they are", "translated")] + [
        (name, number(was), number(now))
        for name, was, now in zip(names, before, after, strict=True)
    ]
    return Section(
        name="dimensions",
        title="Where the mismatch is",
        reading="The same mismatch for every part of the state (squares add up); a tall blue bar is"
        " a motion that the target does not follow, so check whether your task depends on it.",
        finding=f"{closer} of {len(before)} parts of the state come closer;"
        f" {names[worst]} stays farthest off ({number(after[worst])})",
        rows=rows,
    )


def curves(result: TransferResult) -> dict[str, tuple[Array, Array]]:
    """Title → steps and values of what was watched while training, and at least once."""
    return {
        title: (np.array(curve)[:, 0], np.array(curve)[:, 1])
        for title, curve in result.fit.curves.items()
        if curve
    }


def _curves(result: TransferResult) -> Section:
    watched = curves(result)
    rows = [("curve", "first", "lowest", "last", "steps")] + [
        (
            title,
            number(values[0]),
            number(values.min()),
            number(values[-1]),
            f"{steps[-1]:,.0f}",
        )
        for title, (steps, values) in watched.items()
    ]
    rows += [(name, "", "", number(value), "") for name, value in result.fit.numbers.items()]
    # Losses of adversaries need not fall; an error on held-out data has to.
    held_out = [
        f"{title[:1].upper()}{title[1:]}: {number(values[0])} → {number(values[-1])}"
        for title, (_, values) in watched.items()
        if "held-out" in title
    ]
    return Section(
        name="curves",
        title="How training went",
        reading="One panel for each quantity watched; a curve that still falls at its end wants"
        " more steps, one that rises on held-out data wants more data.",
        finding="; ".join(held_out) or "Losses while training",
        rows=rows,
    )


def _forward_error(result: TransferResult) -> Section:
    errors = np.array(result.fit.forward_error)
    names, worst = state_names(result, len(errors)), int(errors.argmax())
    rows = [("part of the state", f"error ({SPREADS})")]
    rows += [(name, number(error)) for name, error in zip(names, errors, strict=True)]
    return Section(
        name="forward-error",
        title="How well the forward model knows the machine",
        reading="Held-out error of the predicted next state; 0 is perfect and 1 is off by as much"
        " as that part usually changes in a step: there the translation is blind.",
        finding=f"Mean error {number(errors.mean())};"
        f" worst is {names[worst]} ({number(errors[worst])})",
        rows=rows,
    )


def partners(source: Array, translated: Array) -> list[int]:
    """For each action of the target the one of the source it is shown against.

    The one of the same number or, between machines of different size, the one it follows most.
    """
    if source.shape[1] == translated.shape[1]:
        return list(range(source.shape[1]))
    return [
        int(np.argmax([abs(correlation(given, made)) for given in source.T]))
        for made in translated.T
    ]


def correlation(a: Array, b: Array) -> float:
    """Pearson's, 0 where one of the two never changes."""
    spread = a.std() * b.std()
    return float(((a - a.mean()) * (b - b.mean())).mean() / spread) if spread > 1e-12 else 0.0


def _actions(result: TransferResult) -> Section:
    source = np.array(result.scatter["source"])
    translated = np.array(result.scatter["translated"])
    shown = partners(source, translated)
    changes = np.abs(translated - source[:, shown]).mean(0)
    most = int(changes.argmax())
    rows = [("target action", "source action", "mean change", "correlation", "at its limit")] + [
        (
            action_names(result, partner, index)[1].removeprefix("action "),
            action_names(result, partner, index)[0].removeprefix("action "),
            number(changes[index]),
            f"{correlation(source[:, partner], translated[:, index]):+.2f}",
            share((np.abs(translated[:, index]) > 0.99).mean()),
        )
        for index, partner in enumerate(shown)
    ]
    return Section(
        name="actions",
        title="What it does to actions",
        reading="Every dot is an action of the source (across) and its translation (up);"
        " dots on the diagonal are left as they were, and a spread around a line is what"
        f" translation makes depend on the state.{_bounds(result)}",
        finding=f"Actions, from -1 to 1, change by {number(changes.mean())} on average;"
        f" target {action_names(result, 0, most)[1]} most ({number(changes[most])})",
        rows=rows,
    )


def _bounds(result: TransferResult) -> str:
    """What -1 and 1 are, where the logs have units of their own."""
    told = [
        f"{machine.name} has {', '.join(machine.action_bounds)}"
        for machine in (result.machines[0], result.machines[-1])
        if machine.action_bounds
    ]
    return f" -1 and 1 are the bounds: {'; '.join(told)}." if told else ""


def _paths(result: TransferResult) -> Section:
    home = result.paths[ON_SOURCE]
    gaps = {label: _gap(paths, home) for label, paths in result.paths.items()}
    rows = [("policy", "episodes", "mean end x, y, z (m)", "from the source's path (m)")] + [
        (
            label,
            str(len(paths)),
            ", ".join(f"{value:.3f}" for value in np.mean([path[-1] for path in paths], axis=0)),
            f"{gaps[label]:.3f}",
        )
        for label, paths in result.paths.items()
    ]
    away = [
        f"{100 * gaps[label]:.1f} cm {how}"
        for label, how in ((UNTRANSLATED, "untranslated"), (TRANSFERRED, "transferred"))
        if label in gaps
    ]
    return Section(
        name="paths",
        title="Where the hand goes",
        reading="Paths of the hand seen from above and from the side; the transferred hand shall"
        " do what the source hand does, from its own start to its own object.",
        finding="The hand strays from the source's path by " + ", ".join(away),
        rows=rows,
    )


def _gap(paths: Sequence[ArrayLike], home: Sequence[ArrayLike]) -> float:
    """Mean distance between two hands at the same step of the same episode."""
    gaps = []
    for path, other in zip(map(np.array, paths), map(np.array, home), strict=False):
        steps = min(len(path), len(other))
        gaps.append(np.linalg.norm(path[:steps] - other[:steps], axis=1).mean())
    return float(np.mean(gaps))


def _contexts(result: TransferResult) -> Section:
    assert result.contexts is not None
    points, tasks = np.array(result.contexts.points), np.array(result.contexts.tasks)
    names = {task: machine.name for task, machine in enumerate(result.machines)}
    finding, rows = told_apart(points, tasks, names)
    return Section(
        name="contexts",
        title="Whether the machines are told apart",
        reading="Every dot is the context of one stretch of ten steps; groups that lie apart are"
        " machines that the translator tells from each other by how they move.",
        finding=finding,
        rows=rows,
    )
